//! What a bridge says about itself while it runs, for `amb bridge status`.

use amb_core::{AgentName, MessageId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::runtime::Trouble;

/// How the runtime is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Connection {
    /// Nothing was tried yet.
    Unknown,
    /// The last turn went through.
    Up,
    /// All mail waits.
    Down {
        /// What kind of trouble.
        trouble: Trouble,
        /// What went wrong.
        detail: String,
        /// Since when.
        since: Timestamp,
        /// When it is tried next.
        next_try: Timestamp,
    },
}

/// What a bridge is doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// For whom.
    pub agent: AgentName,
    /// The office it takes mail from.
    pub office: String,
    /// The runtime it wakes.
    pub runtime: String,
    /// Its process.
    pub pid: u32,
    /// Since when.
    pub started_at: Timestamp,
    /// When this was written.
    pub updated_at: Timestamp,
    /// How the runtime is.
    pub connection: Connection,
    /// The mail that has its turn now.
    #[serde(default, deserialize_with = "one_or_many")]
    pub under_way: Vec<MessageId>,
    /// Mail that waits for its turn, or for another try.
    pub waiting: usize,
    /// Answers sent since the start.
    pub replied: u64,
    /// Mail that ended without an answer since the start: none was wanted, or the exchange had reached its ttl.
    pub unanswered: u64,
    /// Mail given up since the start.
    pub given_up: u64,
    /// Who asks for a connection and waits for an answer.
    #[serde(default)]
    pub requests: Vec<AgentName>,
    /// What went wrong last.
    pub last_error: Option<String>,
}

/// Bridges that did one mail at a time wrote down one id, or none.
fn one_or_many<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<MessageId>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Many(Vec<MessageId>),
        One(Option<MessageId>),
    }
    Ok(match Form::deserialize(from)? {
        Form::Many(ids) => ids,
        Form::One(id) => id.into_iter().collect(),
    })
}

impl Status {
    /// A bridge that has just begun, in this process.
    pub(crate) fn new(agent: AgentName, office: String, runtime: String) -> Self {
        let now = Timestamp::now();
        Self {
            agent,
            office,
            runtime,
            pid: std::process::id(),
            started_at: now,
            updated_at: now,
            connection: Connection::Unknown,
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
