//! What a bridge wakes.

use std::time::Duration;

use amb_core::Message;
use async_trait::async_trait;

/// An agent runtime that can be given a turn.
#[async_trait]
pub trait Runtime: Send + Sync {
    /// What and where it is, for people.
    fn describe(&self) -> String;

    /// Whether giving it the same [`Turn::key`] twice runs the turn once.
    fn is_idempotent(&self) -> bool;

    /// Whether a turn could be taken now, found out without running one: what is wrong, and what to change.
    async fn check(&self) -> Result<(), TurnError> {
        Ok(())
    }

    /// Ends what a bridge that was killed has left running. Called once, before any turn.
    async fn end_leftovers(&self) -> std::io::Result<()> {
        Ok(())
    }

    /// Gives the runtime one turn and waits for what comes of it.
    async fn turn(&self, turn: &Turn) -> Result<Outcome, TurnError>;
}

/// One mail for one turn.
#[derive(Debug, Clone)]
pub struct Turn {
    /// The mail.
    pub mail: Message,
    /// The conversation of the runtime in which it is to be read.
    pub session_key: String,
    /// The mail as a model may see it: fenced, so that no text in it can imitate the frame.
    pub prompt: String,
    /// The same for every repeat of this turn; another after a turn that is known to have failed.
    pub key: String,
    /// Whether this turn may have run before: the bridge, or the line to the runtime, died in the middle of it.
    pub repeat: bool,
    /// Whether the mail was tried before, for whatever came of it: a runtime that keeps its conversations may have gone on
    /// by itself, and have the answer.
    pub tried: bool,
    /// How long the turn may take.
    pub timeout: Duration,
}

/// What came of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// An answer.
    Reply(String),
    /// The agent has seen it and says nothing.
    NoReply,
}

/// What kind of trouble a turn ran into, which decides what is done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// The runtime cannot be reached. All mail waits.
    Unreachable,
    /// The runtime does not let the bridge in. All mail waits until somebody mends it.
    Unauthorized,
    /// The runtime does not offer what the bridge asks it for. All mail waits until somebody mends it.
    NotOffered,
    /// No answer in time. This mail is tried again.
    Timeout,
    /// The line broke in the middle: nobody knows whether the turn ran. This mail is tried again.
    Lost,
    /// The turn ran and failed. This mail is tried again, as another turn.
    Failed,
    /// The runtime will never take this mail.
    Refused,
}

impl Trouble {
    /// Whether it is about the runtime and not about one mail.
    pub fn is_general(self) -> bool {
        matches!(self, Trouble::Unreachable | Trouble::Unauthorized | Trouble::NotOffered)
    }
}

/// A turn that came to nothing.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{detail}")]
pub struct TurnError {
    /// What kind of trouble.
    pub trouble: Trouble,
    /// One sentence that says what happened and what to do.
    pub detail: String,
}

impl TurnError {
    /// Trouble of a kind, in a sentence.
    pub fn new(trouble: Trouble, detail: impl Into<String>) -> Self {
        Self { trouble, detail: detail.into() }
    }
}
