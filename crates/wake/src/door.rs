//! The interfaces by which clients are rung. None is idempotent and only some acknowledge, so none of them carries
//! messages.

mod app_server;
mod claude;
mod codex;
mod qwen;

pub use claude::{ClaudeInbox, ClaudeSession, claude_sessions};
pub use codex::CodexQueue;
pub use qwen::QwenInbox;

use std::ffi::OsStr;

use crate::bell::ClientState;
use crate::directory::SessionKey;

/// Whether an environment variable holds a secret that a client gives to its child processes. No child process of ours inherits
/// it, and no log shows it.
pub fn is_secret(name: &OsStr) -> bool {
    name.to_str()
        .is_some_and(|name| name.starts_with("CLAUDE_CODE_MESSAGING_") || name.starts_with("QWEN_CODE_MESSAGING_"))
}

/// A ring that a client accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rung {
    /// The interface: `claude inbox socket`.
    pub door: &'static str,
    /// The client's acknowledgement, where it sends one.
    pub receipt: Option<String>,
}

/// The kind of a failed ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingErrorKind {
    /// The client is gone.
    Gone,
    /// The client rejected the ring.
    Refused,
    /// Anything else: a command that failed, a socket that does not accept.
    Failed,
}

/// Why a ring could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct RingError {
    /// What kind.
    pub kind: RingErrorKind,
    /// A sentence that says what to do. Never contains a token.
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
    /// Codex' message queue of a thread.
    Codex(CodexQueue),
    /// Qwen Code's inbox socket.
    Qwen(QwenInbox),
}

impl Door {
    /// The session that it reaches.
    pub fn key(&self) -> SessionKey {
        let (client, session) = match self {
            Door::Claude(inbox) => ("claude", inbox.session()),
            Door::Codex(queue) => ("codex", queue.thread.clone()),
            Door::Qwen(inbox) => ("qwen", inbox.session()),
        };
        SessionKey { client: client.into(), session }
    }

    /// Its name in reports before the first ring; a ring returns the interface that it used ([`Rung::door`]).
    pub fn name(&self) -> &'static str {
        match self {
            Door::Claude(_) => "claude inbox socket",
            Door::Codex(_) => "codex queue",
            Door::Qwen(_) => "qwen inbox socket",
        }
    }

    /// Rings once. Takes 10 seconds at most.
    pub async fn ring(&self, line: &str, urgent: bool) -> Result<Rung, RingError> {
        match self {
            Door::Claude(inbox) => inbox.ring(line).await,
            Door::Codex(queue) => queue.ring(line, urgent).await,
            Door::Qwen(inbox) => inbox.ring(line).await,
        }
    }

    /// Checks without ringing whether the client can be reached, within 10 seconds.
    ///
    /// # Errors
    /// Nobody listens, or the command that would ring cannot be run. For Qwen Code only a ring itself can tell.
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

    /// What a person can check where rings succeed and no turn follows.
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
