//! The ledger's entry of one message in progress.

use amb_core::{MessageId, TaskId, TaskState, Timestamp};
use serde::{Deserialize, Serialize};

use crate::runtime::FailureKind;

/// What is stored about a message in progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LedgerEntry {
    /// The message's id.
    pub(crate) message_id: MessageId,
    /// Until when this bridge's claim lasts.
    pub(crate) claimed_until: Option<Timestamp>,
    /// It is a dead letter that somebody wants retried: no claim returns it.
    #[serde(default)]
    pub(crate) revived: bool,
    /// A turn was started whose end is unknown.
    #[serde(default)]
    pub(crate) begun: bool,
    /// How many turns are known to have failed: the next one has another key.
    #[serde(default)]
    pub(crate) failed_turns: u32,
    /// How many attempts failed for any reason.
    #[serde(default)]
    pub(crate) failures: u32,
    /// The earliest time of the next attempt.
    pub(crate) next_try: Option<Timestamp>,
    /// The result of the turn, once known.
    pub(crate) outcome: Option<Resolution>,
    /// The last error.
    pub(crate) last_error: Option<String>,
}

/// What is to be done about a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Resolution {
    /// Send this; where the message brings a task, complete the task with it.
    Reply(String),
    /// Send this; the task that the message brings keeps its state.
    #[serde(rename = "words")]
    Message(String),
    /// Move the task, with a note.
    Move { task: TaskId, state: TaskState, note: Option<String> },
    /// Send nothing.
    NoReply,
    /// Nothing: the task has ended, or the office does not let the agent accept it.
    NotWanted,
    /// Give up after too many attempts.
    GivenUp { trouble: FailureKind, reason: String },
}

impl LedgerEntry {
    pub(crate) fn new(message_id: MessageId) -> Self {
        Self {
            message_id,
            claimed_until: None,
            revived: false,
            begun: false,
            failed_turns: 0,
            failures: 0,
            next_try: None,
            outcome: None,
            last_error: None,
        }
    }

    /// The idempotency key of the turn: the same for every repeat, another one after a turn that is known to have
    /// failed, since a runtime that remembers its turns would only return the old failure.
    pub(crate) fn turn_key(&self) -> String {
        match self.failed_turns {
            0 => self.message_id.to_string(),
            failed => format!("{}:{}", self.message_id, failed + 1),
        }
    }

    /// Records a turn that failed.
    pub(crate) fn failed(&mut self, trouble: FailureKind, reason: &str) {
        self.failures += 1;
        self.last_error = Some(reason.to_owned());
        if trouble == FailureKind::Failed {
            self.failed_turns += 1;
            self.begun = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeat_has_the_same_key_and_a_new_turn_another() {
        let mut entry = LedgerEntry::new(MessageId::parse("m-1").unwrap());
        assert_eq!(entry.turn_key(), "m-1");
        entry.failed(FailureKind::Lost, "the line broke");
        entry.failed(FailureKind::Timeout, "too slow");
        assert_eq!(entry.turn_key(), "m-1", "it may have run, or may still be running");
        entry.failed(FailureKind::Failed, "no model");
        assert_eq!(entry.turn_key(), "m-1:2");
        assert_eq!(entry.failures, 3);
    }
}
