//! Live peers: goals that run now, reached in memory or over a broker rather than by durable mail.

use std::sync::Arc;

use amb_core::mailbox::{Outgoing, Result};
use amb_core::{AgentName, MessageId};
use async_trait::async_trait;
use serde::Serialize;
use uuid::Uuid;

use crate::words::Words;

/// One peer in the answer of `list_peers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Peer {
    /// The peer's name.
    pub agent_id: AgentName,
    /// What it says about itself.
    pub description: String,
    /// Whether the caller may write to it.
    pub reachable: bool,
    /// `live` where a goal of it runs now; else `idle`, `busy` or `offline`, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}

/// The answer of `send_to_peer`: where the message arrived, and why it did not elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Delivery {
    /// Goals whose inbox took the message; where no live peers are at hand, the id of the durable mail.
    pub delivered_to: Vec<String>,
    /// Goals that were handed the message and did not say that they have it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub published_to: Vec<String>,
    /// Mailboxes that have it, since no goal of their agent runs now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mailed_to: Vec<Mailed>,
    /// One sentence for each way that was closed.
    pub unreachable_reasons: Vec<String>,
    /// The mails that what was left in mailboxes counts as passing on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub passes_on: Vec<MessageId>,
}

/// A message that waits in a mailbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mailed {
    /// Whose mailbox.
    pub agent_id: AgentName,
    /// Which message.
    pub message_id: MessageId,
}

/// The live side of `list_peers` and `send_to_peer`, bound to the agent whose mailbox the door serves: no argument of a tool
/// says who is speaking.
#[async_trait]
pub trait LivePeers: Send + Sync {
    /// Every agent with a goal that runs now.
    async fn list(&self) -> Result<Vec<Peer>>;

    /// Whether the caller may write to an agent, live or by mail.
    fn allows(&self, agent: &AgentName) -> bool;

    /// Hands a message to every live goal of `to`, or of everybody with `*`, and leaves it in the mailbox of an agent
    /// that does not run now. A goal that cannot be reached is a reason in the answer, not an error.
    /// The mail is handed in by `mail`, in the caller's name.
    async fn send(
        &self,
        to: &str,
        message: &str,
        correlation_id: Option<Uuid>,
        mail: &dyn Outgoing,
    ) -> Result<Delivery>;

    /// What peers have said to the caller's own goal.
    fn words(&self) -> &Arc<Words>;
}
