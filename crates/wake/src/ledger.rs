//! The record of rings in one client session, saved before each ring.

use std::collections::{BTreeSet, VecDeque};

use amb_core::{MessageId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::process::Process;

/// The ledger of one client session. `rung` is a state between stored and read: a ring was handed to the client, which does not
/// mean that anybody saw it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RingLedger {
    /// The client: `claude`, `codex`, `qwen`; one that cannot be rung, by the name in its MCP handshake.
    pub client: String,
    /// The client's own id of the session; for one that cannot be rung, the pid of the `amb mcp` that serves it.
    pub session: String,
    /// Whether the client cannot be rung. Kept for its hooks and plugins, which ask what it was shown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_door: bool,
    /// The office, for people.
    pub office: String,
    /// The `amb mcp` that serves the session.
    pub process: Option<Process>,
    /// The client itself, or the process by which it started `amb mcp`.
    pub parent: Option<Process>,
    /// Whether a call of `mailbox_wait` is open, which returns new messages by itself.
    pub wait_open: bool,
    /// Unread messages that were rung for.
    pub rung_for: BTreeSet<MessageId>,
    /// Unread messages that the client was shown, so that its hooks need not mention them.
    pub shown: Vec<MessageId>,
    /// The last ring.
    pub rung_at: Option<Timestamp>,
    /// The interface that was used.
    pub door: Option<String>,
    /// The client's acknowledgement, where it sends one: `delivered`, `held`.
    pub receipt: Option<String>,
    /// Rings for what waits now.
    pub tries: u32,
    /// Rings of the last hour, oldest first.
    pub rings: VecDeque<Timestamp>,
    /// All rings so far.
    pub total: u64,
    /// The first tool call after the last ring.
    pub heard_at: Option<Timestamp>,
    /// When it was decided to ring no more for what waits.
    pub given_up_at: Option<Timestamp>,
    /// Why the last ring failed.
    pub failed: Option<FailedRing>,
}

/// A ring that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedRing {
    /// When.
    pub at: Timestamp,
    /// Why.
    pub detail: String,
}
