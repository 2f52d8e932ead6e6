//! What was rung in one client session, written down before it is rung.

use std::collections::{BTreeSet, VecDeque};

use amb_core::{MessageId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::process::Process;

/// The ledger of one client session. `rung` is a state between stored and read: it says that a ring was handed to the
/// client's door, never that anybody saw it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RingLedger {
    /// Which client: `claude`, `codex`, `qwen`; one that cannot be rung by the name under which it presents itself.
    pub client: String,
    /// The client's own name for the session; of one that cannot be rung, the pid of the `amb mcp` that serves it.
    pub session: String,
    /// Whether there is no way to ring it. Kept for its hooks and plugins, which ask what it was shown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_door: bool,
    /// The office, for people.
    pub office: String,
    /// The `amb mcp` that serves the session.
    pub process: Option<Process>,
    /// The client itself, or what it started `amb mcp` with.
    pub parent: Option<Process>,
    /// Whether a call of `mailbox_wait` is under way, which tells of mail by itself.
    pub wait_open: bool,
    /// Unread mail that was rung for.
    pub rung_for: BTreeSet<MessageId>,
    /// Unread mail that the client was shown, so that its hooks need not tell of it.
    pub shown: Vec<MessageId>,
    /// The last ring.
    pub rung_at: Option<Timestamp>,
    /// The door by which it went.
    pub door: Option<String>,
    /// What the client said about it, where clients say anything: `delivered`, `held`.
    pub receipt: Option<String>,
    /// Rings for what waits now.
    pub tries: u32,
    /// Rings of the last hour, oldest first.
    pub rings: VecDeque<Timestamp>,
    /// Rings ever made.
    pub total: u64,
    /// The first call of a tool after the last ring.
    pub heard_at: Option<Timestamp>,
    /// When it was decided to ring no more for what waits.
    pub given_up_at: Option<Timestamp>,
    /// Why the last ring could not be made.
    pub failed: Option<Failed>,
}

/// A ring that could not be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// When.
    pub at: Timestamp,
    /// Why.
    pub detail: String,
}
