//! Live peers: goals that run now, reached in memory or over a broker rather than by durable messages.

use std::sync::Arc;

use amb_core::mailbox::{Outgoing, Result};
use amb_core::{AgentName, MessageId};
use async_trait::async_trait;
use serde::Serialize;
use uuid::Uuid;

use crate::peer_messages::PeerMessages;

/// One peer in the result of `list_peers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PeerListing {
    /// The peer's name.
    pub agent_id: AgentName,
    /// Its own description.
    pub description: String,
    /// Whether the caller may write to it.
    pub reachable: bool,
    /// `live` where a goal of it runs now; else `idle`, `busy` or `offline`, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}

/// The result of `send_to_peer`: where the message arrived, and why it did not elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct PeerDelivery {
    /// Goals whose inbox took the message; without live peers, the id of the durable message.
    pub delivered_to: Vec<String>,
    /// Goals to which the message was published without an acknowledgement.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub published_to: Vec<String>,
    /// Mailboxes that have it, since no goal of their agent is known to run now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mailed_to: Vec<Mailed>,
    /// One sentence for each peer that was not reached.
    pub unreachable_reasons: Vec<String>,
    /// The messages that those left in mailboxes count as passing on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub passes_on: Vec<String>,
}

/// A message that waits in a mailbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mailed {
    /// Whose mailbox.
    pub agent_id: AgentName,
    /// Which message.
    pub message_id: MessageId,
}

/// The live side of `list_peers` and `send_to_peer`, bound to the agent whose mailbox is served: no tool argument names
/// the sender.
#[async_trait]
pub trait PeerNetwork: Send + Sync {
    /// Every agent with a goal that runs now.
    async fn list(&self) -> Result<Vec<PeerListing>>;

    /// Whether the caller may write to an agent, live or durably.
    fn allows(&self, agent: &AgentName) -> bool;

    /// Sends a message to every live goal of `to`, or of everybody with `*`, and leaves it in the mailbox of an agent
    /// that does not run now, by `mail` in the caller's name. A goal that cannot be reached is a reason in the result,
    /// not an error.
    async fn send(
        &self,
        to: &str,
        message: &str,
        correlation_id: Option<Uuid>,
        mail: &dyn Outgoing,
    ) -> Result<PeerDelivery>;

    /// The messages of peers to the caller's own goal.
    fn peer_messages(&self) -> &Arc<PeerMessages>;
}
