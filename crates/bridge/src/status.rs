//! The bridge's status file, shown by `amb bridge status`.

use amb_core::{AgentName, MessageId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::runtime::{FailureKind, TurnError};

/// Whether the runtime takes turns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuntimeState {
    /// Nothing was tried yet.
    Unknown,
    /// The last turn succeeded.
    Up,
    /// All messages wait.
    Down {
        /// The kind of the failure.
        trouble: FailureKind,
        /// The error.
        detail: String,
        /// Since when.
        since: Timestamp,
        /// The time of the next attempt.
        next_try: Timestamp,
    },
}

/// The status of a bridge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BridgeStatus {
    /// The agent.
    pub agent: AgentName,
    /// The office from which it takes messages.
    pub office: String,
    /// The runtime that it wakes.
    pub runtime: String,
    /// Its process.
    pub pid: u32,
    /// Since when.
    pub started_at: Timestamp,
    /// When this was written.
    pub updated_at: Timestamp,
    /// Whether the runtime takes turns.
    pub connection: RuntimeState,
    /// The messages whose turns are running.
    #[serde(default, deserialize_with = "one_or_many")]
    pub under_way: Vec<MessageId>,
    /// How many messages wait for their turn or for a retry.
    pub waiting: usize,
    /// Answers sent since the start.
    pub replied: u64,
    /// Messages that ended without an answer since the start: none was wanted, or the ttl was used up.
    pub unanswered: u64,
    /// Messages given up since the start.
    pub given_up: u64,
    /// Agents with a pending connection request.
    #[serde(default)]
    pub requests: Vec<AgentName>,
    /// The last error.
    pub last_error: Option<String>,
}

/// Older bridges, which ran one turn at a time, wrote one id or null.
fn one_or_many<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<MessageId>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        Many(Vec<MessageId>),
        One(Option<MessageId>),
    }
    Ok(match OneOrMany::deserialize(from)? {
        OneOrMany::Many(ids) => ids,
        OneOrMany::One(id) => id.into_iter().collect(),
    })
}

impl BridgeStatus {
    /// Records that the runtime is down, since the first of consecutive failures.
    pub(crate) fn set_down(&mut self, error: &TurnError, next_try: Timestamp) {
        let since = match &self.connection {
            RuntimeState::Down { since, .. } => *since,
            _ => Timestamp::now(),
        };
        let (trouble, detail) = (error.kind, error.detail.clone());
        self.connection = RuntimeState::Down { trouble, detail, since, next_try };
    }

    /// The status of a bridge that has just started in this process.
    pub(crate) fn new(agent: AgentName, office: String, runtime: String) -> Self {
        let now = Timestamp::now();
        Self {
            agent,
            office,
            runtime,
            pid: std::process::id(),
            started_at: now,
            updated_at: now,
            connection: RuntimeState::Unknown,
            under_way: Vec::new(),
            waiting: 0,
            replied: 0,
            unanswered: 0,
            given_up: 0,
            requests: Vec::new(),
            last_error: None,
        }
    }
}
