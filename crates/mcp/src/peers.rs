//! Live peers: goals that run now, reached in memory or over a broker rather than by durable mail.

use amb_core::AgentName;
use amb_core::office::Result;
use async_trait::async_trait;
use serde::Serialize;
use uuid::Uuid;

/// One peer in the answer of `list_peers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Peer {
    /// The peer's name.
    pub agent_id: AgentName,
    /// What it says about itself.
    pub description: String,
    /// Whether the caller may write to it.
    pub reachable: bool,
    /// `idle`, `busy` or `offline`, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}

/// The answer of `send_to_peer`: where the message arrived, and why it did not elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Delivery {
    /// Goals whose inbox took the message; by durable mail, the message's id.
    pub delivered_to: Vec<String>,
    /// One sentence for each way that was closed.
    pub unreachable_reasons: Vec<String>,
}

/// The live side of `list_peers` and `send_to_peer`.
#[async_trait]
pub trait LivePeers: Send + Sync {
    /// Every peer but the caller.
    async fn list(&self) -> Result<Vec<Peer>>;

    /// Hands a message to every live goal of `to`. A goal that cannot be reached is a reason in the answer, not an error.
    async fn send(&self, to: &AgentName, message: &str, correlation_id: Option<Uuid>) -> Result<Delivery>;
}
