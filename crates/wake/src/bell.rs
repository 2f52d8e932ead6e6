//! Decides when to ring a client, from facts that the caller collects: no clock, file or socket of its own.

use std::collections::BTreeMap;

use amb_core::{AgentName, MessageId, Timestamp};
use jiff::SignedDuration;

use crate::ledger::RingLedger;

/// The rate limits of rings for one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// A ring waits until no new message has come for this long,
    pub quiet: SignedDuration,
    /// but no longer than this after the first one.
    pub longest: SignedDuration,
    /// The least time between two rings for new messages.
    pub apart: SignedDuration,
    /// The most rings within an hour.
    pub hourly: usize,
    /// After the first ring for a message, the delays before further rings while it is unread and was not shown.
    pub again: Vec<SignedDuration>,
    /// How long a ring is expected to start a turn; until then no other one is made.
    pub outstanding: SignedDuration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            quiet: SignedDuration::from_millis(300),
            longest: SignedDuration::from_secs(1),
            apart: SignedDuration::from_secs(10),
            hourly: 30,
            again: [60, 300, 1800].map(SignedDuration::from_secs).to_vec(),
            outstanding: SignedDuration::from_secs(60),
        }
    }
}

/// How often a session without the lease checks whether the holder's process still lives.
const LOOK_AFTER_HOLDER: SignedDuration = SignedDuration::from_secs(5);
/// How soon a busy client is checked again before it is reminded.
const BUSY: SignedDuration = SignedDuration::from_secs(30);

/// An unread message that this client has not been shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingMessage {
    /// The message's id.
    pub id: MessageId,
    /// Its sender.
    pub from: AgentName,
    /// Whether the office says that the sender is the person of the household.
    pub from_person: bool,
    /// Whether its priority is urgent.
    pub urgent: bool,
}

/// What the client is doing, where it reports that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientState {
    /// The client does not report it.
    #[default]
    Unknown,
    /// Between turns.
    Idle,
    /// In a turn.
    Busy,
}

/// The facts of one moment.
#[derive(Debug, Clone)]
pub struct RingFacts<'f> {
    /// The moment.
    pub now: Timestamp,
    /// Unread messages that may be rung for: worth a ring, and not shown to this client.
    pub waiting: &'f [WaitingMessage],
    /// Whether a call of `mailbox_wait` is open, which returns new messages by itself.
    pub wait_open: bool,
    /// When the client last called one of our tools.
    pub called_at: Option<Timestamp>,
    /// When the user last began a turn, where that is known.
    pub user_turn_at: Option<Timestamp>,
    /// What the client is doing.
    pub client: ClientState,
    /// Whether this session holds the lease, so that it is the one to be rung.
    pub holds_lease: bool,
}

/// Why nothing is to be done until something changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quiet {
    /// There is no message that this client was not shown.
    Nothing,
    /// An open `mailbox_wait` returns the messages.
    WaitIsOpen,
    /// The limit of rings for these messages is reached.
    GivenUp,
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingDecision {
    /// Nothing.
    Quiet(Quiet),
    /// Nothing before this time.
    Later(Timestamp),
    /// Ring, after [`Bell::ringing`] was saved.
    Ring,
    /// No ring had an effect: report that, once.
    GiveUp,
}

/// The rules for one client session.
#[derive(Debug)]
pub struct Bell {
    limits: Limits,
    ledger: RingLedger,
    /// When each waiting message was first seen.
    noticed: BTreeMap<MessageId, Timestamp>,
}

impl Bell {
    /// Continues from a ledger.
    pub fn new(limits: Limits, ledger: RingLedger) -> Self {
        Self { limits, ledger, noticed: BTreeMap::new() }
    }

    /// The ledger.
    pub fn ledger(&self) -> &RingLedger {
        &self.ledger
    }

    /// The ledger, to add to it.
    pub fn ledger_mut(&mut self) -> &mut RingLedger {
        &mut self.ledger
    }

    /// Returns what to do now.
    pub fn decide(&mut self, facts: &RingFacts<'_>) -> RingDecision {
        let RingFacts { now, waiting, .. } = *facts;
        let waits = |id: &MessageId| waiting.iter().any(|mail| mail.id == *id);
        self.noticed.retain(|id, _| waits(id));
        self.ledger.rung_for.retain(waits);
        for mail in waiting {
            self.noticed.entry(mail.id.clone()).or_insert(now);
        }
        if let (Some(rung), Some(called)) = (self.ledger.rung_at, facts.called_at)
            && called > rung
        {
            self.ledger.heard_at = Some(called);
        }
        if waiting.is_empty() {
            (self.ledger.tries, self.ledger.given_up_at) = (0, None);
            return RingDecision::Quiet(Quiet::Nothing);
        }
        if facts.wait_open {
            return RingDecision::Quiet(Quiet::WaitIsOpen);
        }
        if !facts.holds_lease {
            return RingDecision::Later(now + LOOK_AFTER_HOLDER);
        }
        let fresh: Vec<&WaitingMessage> =
            waiting.iter().filter(|mail| !self.ledger.rung_for.contains(&mail.id)).collect();
        let due = match fresh.is_empty() {
            false => self.due_for_new(facts, &fresh),
            true => match self.due_again(facts) {
                Ok(due) => due,
                Err(decision) => return decision,
            },
        };
        match due.max(self.due_by_the_hour(facts)) {
            due if due <= now => RingDecision::Ring,
            due => RingDecision::Later(due),
        }
    }

    /// When to ring for new messages: after a pause in which more may come, and not too soon after the last ring.
    fn due_for_new(&self, facts: &RingFacts<'_>, fresh: &[&WaitingMessage]) -> Timestamp {
        let noticed = || fresh.iter().filter_map(|mail| self.noticed.get(&mail.id)).copied();
        let (first, last) = (noticed().min().unwrap_or(facts.now), noticed().max().unwrap_or(facts.now));
        let mut due = (last + self.limits.quiet).min(first + self.limits.longest);
        if let Some(rung) = self.ledger.rung_at {
            if !self.reset_by_user(facts) {
                due = due.max(rung + self.limits.apart);
            }
            // The turn that an earlier ring starts will show this message too, unless that ring failed.
            let outstanding = !self.is_heard() && self.ledger.failed.is_none() && self.ledger.tries > 0;
            if outstanding && !fresh.iter().any(|mail| mail.urgent) {
                due = due.max(rung + self.limits.outstanding);
            }
        }
        due
    }

    /// When to ring again for messages that still wait.
    fn due_again(&self, facts: &RingFacts<'_>) -> Result<Timestamp, RingDecision> {
        let tries = usize::try_from(self.ledger.tries).unwrap_or(usize::MAX).max(1);
        let Some(pause) = self.limits.again.get(tries - 1) else {
            return Err(match self.ledger.given_up_at {
                None => RingDecision::GiveUp,
                Some(_) => RingDecision::Quiet(Quiet::GivenUp),
            });
        };
        let since = self.ledger.rung_at.max(facts.called_at).unwrap_or(facts.now);
        let due = since + *pause;
        match facts.client {
            // The running turn may read the messages; reminders would only queue up behind it.
            ClientState::Busy if due <= facts.now => Err(RingDecision::Later(facts.now + BUSY)),
            _ => Ok(due),
        }
    }

    fn due_by_the_hour(&self, facts: &RingFacts<'_>) -> Timestamp {
        let hour = SignedDuration::from_hours(1);
        let since = (facts.now - hour).max(facts.user_turn_at.unwrap_or(Timestamp::MIN));
        let recent: Vec<&Timestamp> = self.ledger.rings.iter().filter(|at| **at > since).collect();
        match recent.len().checked_sub(self.limits.hourly) {
            Some(at) => *recent[at] + hour,
            None => facts.now,
        }
    }

    fn is_heard(&self) -> bool {
        self.ledger.heard_at > self.ledger.rung_at
    }

    fn reset_by_user(&self, facts: &RingFacts<'_>) -> bool {
        facts.user_turn_at > self.ledger.rung_at
    }

    /// Records that a ring is about to be made for all that waits. Saved before the ring, so that a process that dies in between
    /// leaves a record of a ring that may not have happened, never a ring without a record.
    pub fn ringing(&mut self, now: Timestamp, waiting: &[WaitingMessage]) {
        let is_new = waiting.iter().any(|mail| !self.ledger.rung_for.contains(&mail.id));
        self.ledger.rung_for = waiting.iter().map(|mail| mail.id.clone()).collect();
        self.ledger.rung_at = Some(now);
        self.ledger.tries = if is_new { 1 } else { self.ledger.tries.saturating_add(1) };
        self.ledger.total = self.ledger.total.saturating_add(1);
        (self.ledger.given_up_at, self.ledger.failed, self.ledger.receipt) = (None, None, None);
        self.ledger.rings.push_back(now);
        while self.ledger.rings.len() > self.limits.hourly {
            self.ledger.rings.pop_front();
        }
    }

    /// Records that the client was shown messages in another way, such as by a hook: for these it gets reminders, and no wake-up
    /// as for new ones.
    pub fn told_otherwise<'w>(&mut self, now: Timestamp, told: impl Iterator<Item = &'w WaitingMessage>) {
        for mail in told {
            if self.ledger.rung_for.insert(mail.id.clone()) {
                self.ledger.rung_at = Some(now);
                self.ledger.tries = self.ledger.tries.max(1);
            }
        }
    }

    /// Records that no more rings are made for what waits now.
    pub fn given_up(&mut self, now: Timestamp) {
        self.ledger.given_up_at = Some(now);
    }
}

#[cfg(test)]
mod tests;
