//! The record of rings in one client session, saved before each ring.

use std::collections::{BTreeSet, VecDeque};

use amb_core::{MessageId, Timestamp, WakeState};
use serde::{Deserialize, Serialize};

use crate::bell::Limits;
use crate::process::Process;

/// The receipt of a ring that the client keeps back until its user decides.
pub(crate) const HELD: &str = "held";

/// The ledger of one client session. `rung` is a state between stored and read: it says that a ring was handed to the
/// client's door, never that anybody saw it.
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
    /// Rings for the messages that wait now.
    pub tries: u32,
    /// Rings of the last hour, oldest first.
    pub rings: VecDeque<Timestamp>,
    /// All rings so far.
    pub total: u64,
    /// The first tool call after the last ring.
    pub heard_at: Option<Timestamp>,
    /// When the bell gave up ringing for the messages that wait.
    pub given_up_at: Option<Timestamp>,
    /// Why the last ring failed.
    pub failed: Option<FailedRing>,
}

impl RingLedger {
    /// The state of wake-ups while the session's process lives.
    pub fn state(&self, now: Timestamp) -> WakeState {
        let unheard_after = Limits::default().turn_expected;
        match self {
            Self { no_door: true, .. } => WakeState::NoDoor,
            Self { given_up_at: Some(_), .. } => WakeState::GivenUp,
            Self { failed: Some(_), .. } => WakeState::Failed,
            Self { receipt: Some(receipt), heard_at, rung_at, .. } if receipt == HELD && heard_at < rung_at => {
                WakeState::Held
            }
            Self { rung_at: None, .. } => WakeState::Ready,
            Self { heard_at, rung_at, .. } if heard_at > rung_at => WakeState::Heard,
            Self { rung_at: Some(at), rung_for, .. }
                if !rung_for.is_empty() && now.duration_since(*at) > unheard_after =>
            {
                WakeState::Unheard
            }
            _ => WakeState::Rung,
        }
    }
}

/// A ring that could not be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedRing {
    /// When.
    pub at: Timestamp,
    /// Why.
    pub detail: String,
}
