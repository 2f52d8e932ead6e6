//! When to ring: facts in, decision out. No clock, no file, no socket of its own.

use std::collections::BTreeMap;

use amb_core::{AgentName, MessageId, Timestamp};
use jiff::SignedDuration;

use crate::ledger::RingLedger;

/// How often a session is rung at most, and how soon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// A ring waits until no more mail has come for this long,
    pub quiet: SignedDuration,
    /// but no longer than this after the first.
    pub longest: SignedDuration,
    /// Between two rings for new mail.
    pub apart: SignedDuration,
    /// Rings within an hour.
    pub hourly: usize,
    /// After the first ring for a mail it is rung for again after each of these, while it is unread and was not shown.
    pub again: Vec<SignedDuration>,
    /// How long a ring that nothing followed is taken for one that the client will still follow.
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

/// How often a session that another one rings for looks whether that one is still there.
const LOOK_AFTER_HOLDER: SignedDuration = SignedDuration::from_secs(5);
/// How soon a busy client is looked at again before it is reminded.
const BUSY: SignedDuration = SignedDuration::from_secs(30);

/// An unread mail that this client has not been shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Which mail.
    pub id: MessageId,
    /// Who wrote it.
    pub from: AgentName,
    /// Whether the office says that this is the person of the household.
    pub from_person: bool,
    /// Whether it is to overtake other mail.
    pub urgent: bool,
}

/// What the client is doing, where it says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientState {
    /// It has no door by which it tells.
    #[default]
    Unknown,
    /// Between turns.
    Idle,
    /// In a turn.
    Busy,
}

/// What is known at one moment.
#[derive(Debug, Clone)]
pub struct Facts<'f> {
    /// The moment.
    pub now: Timestamp,
    /// Unread mail that may be rung for: worth a ring, and not shown to this client.
    pub waiting: &'f [Waiting],
    /// Whether a call of `mailbox_wait` is under way, which tells of mail by itself.
    pub wait_open: bool,
    /// When the client last called one of our tools.
    pub called_at: Option<Timestamp>,
    /// When the user last began a turn, where that is known.
    pub user_turn_at: Option<Timestamp>,
    /// What the client is doing.
    pub client: ClientState,
    /// Whether this session is the one that is rung for this mailbox.
    pub holds_lease: bool,
}

/// Why nothing is to be done until something changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quiet {
    /// No mail that this client was not shown.
    Nothing,
    /// A `mailbox_wait` under way tells of it.
    WaitIsOpen,
    /// It was rung for as often as it may be.
    GivenUp,
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Nothing.
    Quiet(Quiet),
    /// Nothing before this moment.
    Later(Timestamp),
    /// Ring, after [`Bell::ringing`] was written down.
    Ring,
    /// All rings were in vain: say so, once.
    GiveUp,
}

/// The rules for one client session.
#[derive(Debug)]
pub struct Bell {
    limits: Limits,
    ledger: RingLedger,
    /// When each waiting mail was first seen to wait.
    noticed: BTreeMap<MessageId, Timestamp>,
}

impl Bell {
    /// Goes on where the ledger ends.
    pub fn new(limits: Limits, ledger: RingLedger) -> Self {
        Self { limits, ledger, noticed: BTreeMap::new() }
    }

    /// What was done so far.
    pub fn ledger(&self) -> &RingLedger {
        &self.ledger
    }

    /// What was done so far, to note more in it.
    pub fn ledger_mut(&mut self) -> &mut RingLedger {
        &mut self.ledger
    }

    /// What to do now.
    pub fn decide(&mut self, facts: &Facts<'_>) -> Decision {
        let Facts { now, waiting, .. } = *facts;
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
            return Decision::Quiet(Quiet::Nothing);
        }
        if facts.wait_open {
            return Decision::Quiet(Quiet::WaitIsOpen);
        }
        if !facts.holds_lease {
            return Decision::Later(now + LOOK_AFTER_HOLDER);
        }
        let fresh: Vec<&Waiting> = waiting.iter().filter(|mail| !self.ledger.rung_for.contains(&mail.id)).collect();
        let due = match fresh.is_empty() {
            false => self.due_for_new(facts, &fresh),
            true => match self.due_again(facts) {
                Ok(due) => due,
                Err(decision) => return decision,
            },
        };
        match due.max(self.due_by_the_hour(facts)) {
            due if due <= now => Decision::Ring,
            due => Decision::Later(due),
        }
    }

    /// Mail that was not rung for: after a pause in which more may come, and not too soon after the last ring.
    fn due_for_new(&self, facts: &Facts<'_>, fresh: &[&Waiting]) -> Timestamp {
        let noticed = || fresh.iter().filter_map(|mail| self.noticed.get(&mail.id)).copied();
        let (first, last) = (noticed().min().unwrap_or(facts.now), noticed().max().unwrap_or(facts.now));
        let mut due = (last + self.limits.quiet).min(first + self.limits.longest);
        if let Some(rung) = self.ledger.rung_at {
            if !self.reset_by_user(facts) {
                due = due.max(rung + self.limits.apart);
            }
            // The turn that an earlier ring begins will show this mail too, unless that ring went nowhere.
            let outstanding = !self.is_heard() && self.ledger.failed.is_none() && self.ledger.tries > 0;
            if outstanding && !fresh.iter().any(|mail| mail.urgent) {
                due = due.max(rung + self.limits.outstanding);
            }
        }
        due
    }

    /// Mail that was rung for and still waits.
    fn due_again(&self, facts: &Facts<'_>) -> Result<Timestamp, Decision> {
        let tries = usize::try_from(self.ledger.tries).unwrap_or(usize::MAX).max(1);
        let Some(pause) = self.limits.again.get(tries - 1) else {
            return Err(match self.ledger.given_up_at {
                None => Decision::GiveUp,
                Some(_) => Decision::Quiet(Quiet::GivenUp),
            });
        };
        let since = self.ledger.rung_at.max(facts.called_at).unwrap_or(facts.now);
        let due = since + *pause;
        match facts.client {
            // Its turn may yet come to it; reminders would queue up behind.
            ClientState::Busy if due <= facts.now => Err(Decision::Later(facts.now + BUSY)),
            _ => Ok(due),
        }
    }

    fn due_by_the_hour(&self, facts: &Facts<'_>) -> Timestamp {
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

    fn reset_by_user(&self, facts: &Facts<'_>) -> bool {
        facts.user_turn_at > self.ledger.rung_at
    }

    /// Notes that a ring is about to be made for all that waits. Written to disk before it is made, so that a process that
    /// dies in between leaves a ring that may not have happened, never one that nobody knows of.
    pub fn ringing(&mut self, now: Timestamp, waiting: &[Waiting]) {
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

    /// Notes that the client was told of mail in another way, such as by a hook: it is reminded of it, not rung for anew.
    pub fn told_otherwise<'w>(&mut self, now: Timestamp, told: impl Iterator<Item = &'w Waiting>) {
        for mail in told {
            if self.ledger.rung_for.insert(mail.id.clone()) {
                self.ledger.rung_at = Some(now);
                self.ledger.tries = self.ledger.tries.max(1);
            }
        }
    }

    /// Notes that no more rings are made for what waits now.
    pub fn given_up(&mut self, now: Timestamp) {
        self.ledger.given_up_at = Some(now);
    }
}

#[cfg(test)]
mod tests;
