//! Decides when to ring a client, from facts that the caller collects: no clock, file or socket of its own.

use std::collections::BTreeMap;

use amb_core::{AgentName, MessageId, Timestamp};
use jiff::SignedDuration;

use crate::ledger::RingLedger;

/// The rate limits of rings for one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// A ring waits until no new message has arrived for this long.
    pub debounce: SignedDuration,
    /// The longest such wait, from the first message.
    pub max_debounce: SignedDuration,
    /// The least time between two rings for new messages.
    pub min_interval: SignedDuration,
    /// The most rings within an hour.
    pub max_per_hour: usize,
    /// The delays before further rings for a message that is still unread and was not shown.
    pub reminders: Vec<SignedDuration>,
    /// How long a ring may take to start a turn; until then there is no ring for other messages.
    pub turn_expected: SignedDuration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            debounce: SignedDuration::from_millis(300),
            max_debounce: SignedDuration::from_secs(1),
            min_interval: SignedDuration::from_secs(10),
            max_per_hour: 30,
            reminders: [60, 300, 1800].map(SignedDuration::from_secs).to_vec(),
            turn_expected: SignedDuration::from_secs(60),
        }
    }
}

/// How often a session without the lease checks whether the holder is alive.
const LEASE_CHECK: SignedDuration = SignedDuration::from_secs(5);
/// How soon a busy client is checked again before it is reminded.
const BUSY_RETRY: SignedDuration = SignedDuration::from_secs(30);

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
    first_seen: BTreeMap<MessageId, Timestamp>,
}

impl Bell {
    /// Continues from a ledger.
    pub fn new(limits: Limits, ledger: RingLedger) -> Self {
        Self { limits, ledger, first_seen: BTreeMap::new() }
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
        self.first_seen.retain(|id, _| waits(id));
        self.ledger.rung_for.retain(waits);
        for mail in waiting {
            self.first_seen.entry(mail.id.clone()).or_insert(now);
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
            return RingDecision::Later(now + LEASE_CHECK);
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

    /// When to ring for new messages: debounced, and not too soon after the last ring.
    fn due_for_new(&self, facts: &RingFacts<'_>, fresh: &[&WaitingMessage]) -> Timestamp {
        let first_seen = || fresh.iter().filter_map(|mail| self.first_seen.get(&mail.id)).copied();
        let (first, last) = (first_seen().min().unwrap_or(facts.now), first_seen().max().unwrap_or(facts.now));
        let mut due = (last + self.limits.debounce).min(first + self.limits.max_debounce);
        if let Some(rung) = self.ledger.rung_at {
            if !self.reset_by_user(facts) {
                due = due.max(rung + self.limits.min_interval);
            }
            // The turn that the last ring starts will show this message too, unless that ring failed.
            let turn_expected = !self.is_answered() && self.ledger.failed.is_none() && self.ledger.tries > 0;
            if turn_expected && !fresh.iter().any(|mail| mail.urgent) {
                due = due.max(rung + self.limits.turn_expected);
            }
        }
        due
    }

    /// When to ring again for messages that still wait.
    fn due_again(&self, facts: &RingFacts<'_>) -> Result<Timestamp, RingDecision> {
        let tries = usize::try_from(self.ledger.tries).unwrap_or(usize::MAX).max(1);
        let Some(pause) = self.limits.reminders.get(tries - 1) else {
            return Err(match self.ledger.given_up_at {
                None => RingDecision::GiveUp,
                Some(_) => RingDecision::Quiet(Quiet::GivenUp),
            });
        };
        let since = self.ledger.rung_at.max(facts.called_at).unwrap_or(facts.now);
        let due = since + *pause;
        match facts.client {
            // The running turn may read the messages; reminders would only queue up behind it.
            ClientState::Busy if due <= facts.now => Err(RingDecision::Later(facts.now + BUSY_RETRY)),
            _ => Ok(due),
        }
    }

    fn due_by_the_hour(&self, facts: &RingFacts<'_>) -> Timestamp {
        let hour = SignedDuration::from_hours(1);
        let since = (facts.now - hour).max(facts.user_turn_at.unwrap_or(Timestamp::MIN));
        let recent: Vec<&Timestamp> = self.ledger.rings.iter().filter(|at| **at > since).collect();
        match recent.len().checked_sub(self.limits.max_per_hour) {
            Some(at) => *recent[at] + hour,
            None => facts.now,
        }
    }

    fn is_answered(&self) -> bool {
        self.ledger.heard_at > self.ledger.rung_at
    }

    fn reset_by_user(&self, facts: &RingFacts<'_>) -> bool {
        facts.user_turn_at > self.ledger.rung_at
    }

    /// Records that a ring for these messages is about to be made. Saved before the ring, so that a process that dies
    /// in between leaves a record of a ring that may not have happened, never a ring without a record.
    pub fn ringing(&mut self, now: Timestamp, waiting: &[WaitingMessage]) {
        let is_new = waiting.iter().any(|mail| !self.ledger.rung_for.contains(&mail.id));
        self.ledger.rung_for = waiting.iter().map(|mail| mail.id.clone()).collect();
        self.ledger.rung_at = Some(now);
        self.ledger.tries = if is_new { 1 } else { self.ledger.tries.saturating_add(1) };
        self.ledger.total = self.ledger.total.saturating_add(1);
        (self.ledger.given_up_at, self.ledger.failed, self.ledger.receipt) = (None, None, None);
        self.ledger.rings.push_back(now);
        while self.ledger.rings.len() > self.limits.max_per_hour {
            self.ledger.rings.pop_front();
        }
    }

    /// Records that a hook has mentioned these messages to the client: they get reminders like messages that were rung
    /// for.
    pub fn mark_shown_elsewhere<'w>(&mut self, now: Timestamp, shown: impl Iterator<Item = &'w WaitingMessage>) {
        for mail in shown {
            if self.ledger.rung_for.insert(mail.id.clone()) {
                self.ledger.rung_at = Some(now);
                self.ledger.tries = self.ledger.tries.max(1);
            }
        }
    }

    /// Records that no more rings are made for the messages that wait now.
    pub fn given_up(&mut self, now: Timestamp) {
        self.ledger.given_up_at = Some(now);
    }
}

#[cfg(test)]
mod tests;
