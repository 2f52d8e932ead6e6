//! How a client is reached. None of the doors is idempotent and only some acknowledge, so none of them carries mail.

pub mod app_server;
mod claude;
mod codex;
mod qwen;

pub use claude::{ClaudeInbox, ClaudeSession, claude_sessions};
pub use codex::CodexQueue;
pub use qwen::QwenInbox;

use crate::bell::ClientState;
use crate::place::SessionKey;

/// A ring that a door took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rung {
    /// By which way: `claude inbox socket`.
    pub door: &'static str,
    /// What the client said about it, where it says anything.
    pub receipt: Option<String>,
}

/// What kind of failure a ring met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingErrorKind {
    /// The client is not there any more.
    Gone,
    /// The client turned the ring away.
    Refused,
    /// Anything else: a command that failed, a socket that does not take anything.
    Failed,
}

/// Why a ring could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct RingError {
    /// What kind.
    pub kind: RingErrorKind,
    /// A sentence that says what to do. It never has a token in it.
    pub detail: String,
}

impl RingError {
    pub(crate) fn new(kind: RingErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }
}

/// A client that can be rung.
#[derive(Debug)]
pub enum Door {
    /// Claude Code's inbox socket.
    Claude(ClaudeInbox),
    /// Codex' queue of a thread.
    Codex(CodexQueue),
    /// Qwen Code's inbox socket.
    Qwen(QwenInbox),
}

impl Door {
    /// The session that is reached by it.
    pub fn key(&self) -> SessionKey {
        let (client, session) = match self {
            Door::Claude(inbox) => ("claude", inbox.session()),
            Door::Codex(queue) => ("codex", queue.thread.clone()),
            Door::Qwen(inbox) => ("qwen", inbox.session()),
        };
        SessionKey { client: client.into(), session }
    }

    /// Rings once. Takes 10 seconds at most.
    pub async fn ring(&self, line: &str, urgent: bool) -> Result<Rung, RingError> {
        match self {
            Door::Claude(inbox) => inbox.ring(line).await,
            Door::Codex(queue) => queue.ring(line, urgent).await,
            Door::Qwen(inbox) => inbox.ring(line).await,
        }
    }

    /// Whether somebody is behind it, without ringing. Takes 10 seconds at most.
    ///
    /// # Errors
    /// Nobody listens, or the command that would ring cannot be run. Of Qwen Code nothing can be said before a ring.
    pub async fn reach(&self) -> Result<(), RingError> {
        match self {
            Door::Claude(inbox) => inbox.connect().await.map(drop),
            Door::Codex(queue) => queue.reach().await,
            Door::Qwen(_) => Ok(()),
        }
    }

    /// What the client is doing, where it can be asked.
    pub async fn state(&self) -> ClientState {
        match self {
            Door::Claude(inbox) => inbox.state(),
            Door::Codex(queue) => queue.state().await,
            Door::Qwen(_) => ClientState::Unknown,
        }
    }

    /// What a person can do where rings go out and nothing follows.
    pub fn advice(&self) -> &'static str {
        match self {
            Door::Claude(_) => {
                "the session may hold messages from other processes: see its screen, or set \"crossSessionInbound\": \
                 \"accept\" in Claude Code's user settings; a prompt that waits for a permission holds them too"
            }
            Door::Codex(_) => {
                "the thread may be busy, waiting for an approval, or run by `codex exec`, which no ring reaches"
            }
            Door::Qwen(_) => {
                "the session may hold messages for review: see /peers, or set agents.crossSessionInbound to \"accept\""
            }
        }
    }
}
