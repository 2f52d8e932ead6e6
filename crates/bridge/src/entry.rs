//! What is remembered of one mail under way.

use amb_core::{MessageId, TaskId, TaskState, Timestamp};
use serde::{Deserialize, Serialize};

use crate::runtime::Trouble;

/// What is remembered of a mail under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Page {
    /// Which mail.
    pub(crate) message_id: MessageId,
    /// Until when the claim on it is this bridge's.
    #[serde(default)]
    pub(crate) claimed_until: Option<Timestamp>,
    /// Somebody asked for it to be tried again after it was given up: nobody else has it, and no claim brings it.
    #[serde(default)]
    pub(crate) revived: bool,
    /// A turn was begun of which nobody knows how it ended.
    #[serde(default)]
    pub(crate) begun: bool,
    /// How many turns are known to have failed: the next one is another turn, not a repeat.
    #[serde(default)]
    pub(crate) failed_turns: u32,
    /// How often a turn was tried in vain, for whatever reason.
    #[serde(default)]
    pub(crate) failures: u32,
    /// Not to be tried before.
    #[serde(default)]
    pub(crate) next_try: Option<Timestamp>,
    /// What came of the turn, once it is known.
    #[serde(default)]
    pub(crate) outcome: Option<Answer>,
    /// What went wrong last.
    #[serde(default)]
    pub(crate) last_error: Option<String>,
}

/// What came of a mail, as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// To be sent; where the mail brings a task, it completes the task.
    Reply(String),
    /// To be sent as words alone: the task that the mail brings stays as it is.
    Words(String),
    /// The task is moved, with a note.
    Move { task: TaskId, state: TaskState, note: Option<String> },
    /// The agent says nothing.
    NoReply,
    /// There was nothing to do: the task has ended, or the office does not let the agent take it on.
    NotWanted,
    /// It was tried often enough.
    GivenUp { trouble: Trouble, reason: String },
}

impl Page {
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

    /// The same for every repeat of one turn, another one for a turn after one that is known to have failed: a runtime
    /// that remembers its turns would only answer with the old failure.
    pub(crate) fn turn_key(&self) -> String {
        match self.failed_turns {
            0 => self.message_id.to_string(),
            failed => format!("{}:{}", self.message_id, failed + 1),
        }
    }

    /// Notes a turn that came to nothing.
    pub(crate) fn failed(&mut self, trouble: Trouble, reason: &str) {
        self.failures += 1;
        self.last_error = Some(reason.to_owned());
        if trouble == Trouble::Failed {
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
        let mut page = Page::new(MessageId::parse("m-1").unwrap());
        assert_eq!(page.turn_key(), "m-1");
        page.failed(Trouble::Lost, "the line broke");
        page.failed(Trouble::Timeout, "too slow");
        assert_eq!(page.turn_key(), "m-1", "it may have run, or may still be running");
        page.failed(Trouble::Failed, "no model");
        assert_eq!(page.turn_key(), "m-1:2");
        assert_eq!(page.failures, 3);
    }
}
