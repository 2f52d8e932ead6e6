//! The interface of a runtime that a bridge wakes.

use std::time::Duration;

use amb_core::Message;
use async_trait::async_trait;

/// An agent runtime that can be given a turn.
#[async_trait]
pub trait Runtime: Send + Sync {
    /// What and where it is, for logs and people.
    fn describe(&self) -> String;

    /// Checks without running a turn whether one could run now. The error says what to change.
    async fn check(&self) -> Result<(), TurnError> {
        Ok(())
    }

    /// Kills processes that a killed bridge has left. Called once, before any turn.
    async fn end_leftovers(&self) -> std::io::Result<()> {
        Ok(())
    }

    /// Runs one turn and returns its result.
    async fn turn(&self, turn: &Turn) -> Result<TurnOutcome, TurnError>;
}

/// One message for one turn.
#[derive(Debug, Clone)]
pub struct Turn {
    /// The message.
    pub mail: Message,
    /// The runtime's conversation in which it is handled.
    pub session_key: String,
    /// The message as a model may see it: fenced, so that no text in it can imitate the frame.
    pub prompt: String,
    /// The idempotency key: the same for every repeat, another one after a turn that is known to have failed.
    pub key: String,
    /// Whether this turn may have run before: the bridge, or its connection to the runtime, died in the middle of it.
    pub repeat: bool,
    /// Whether the message was tried before, with whatever result: a runtime that keeps its conversations may have gone
    /// on by itself and have the answer.
    pub tried: bool,
    /// How long the turn may take.
    pub timeout: Duration,
}

/// The result of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnOutcome {
    /// An answer.
    Reply(String),
    /// The agent has seen the message and says nothing.
    NoReply,
}

/// The kind of a failure, which decides what is done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The runtime cannot be reached. All messages wait.
    Unreachable,
    /// The runtime rejects the bridge's credentials. All messages wait until somebody corrects them.
    Unauthorized,
    /// The runtime does not offer what the bridge needs. All messages wait until somebody changes that.
    NotOffered,
    /// No answer in time. The message is retried.
    Timeout,
    /// The connection broke during the turn: whether it ran is unknown. The message is retried.
    Lost,
    /// The turn ran and failed. The message is retried under another key.
    Failed,
    /// The runtime rejects this message permanently.
    Refused,
}

impl FailureKind {
    /// Whether the failure concerns the runtime and not one message.
    pub fn is_general(self) -> bool {
        matches!(self, FailureKind::Unreachable | FailureKind::Unauthorized | FailureKind::NotOffered)
    }
}

/// A turn that failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{detail}")]
pub struct TurnError {
    /// The kind of failure.
    pub kind: FailureKind,
    /// One sentence that says what happened and what to do.
    pub detail: String,
}

impl TurnError {
    /// FailureKind of a kind, in a sentence.
    pub fn new(kind: FailureKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }
}
