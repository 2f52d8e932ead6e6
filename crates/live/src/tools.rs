//! The two tools by which a model reaches its peers, and their context.

mod definition;
mod list;
mod send;

use std::sync::Arc;

use amb_core::{AgentName, GoalId, Mailbox};

pub use definition::{ToolDefinition, call, definitions};
pub use list::{MAX_PEERS, MORE_PEERS, NO_DIRECTORY, PeerList, PeerSummary, list_peers};
pub use send::{SendError, SendReport, SendToPeer, SentAsMail, send_to_peer, send_to_peer_by};

use crate::broker::Broker;
use crate::delegates::AllowedDelegates;
use crate::directory::PeerDirectory;

/// Agents that a broadcast reaches at most by default.
pub const DEFAULT_BROADCAST_CAP: usize = 32;

/// On whose behalf a tool runs. Filled by the runtime; nothing of it comes from the model.
#[derive(Clone)]
pub struct PeerContext {
    /// The calling agent.
    pub agent_id: AgentName,
    /// The calling run, if it has one.
    pub goal_id: Option<GoalId>,
    /// Whom it may write to.
    pub allowed_delegates: AllowedDelegates,
    /// Who there is.
    pub directory: Option<Arc<PeerDirectory>>,
    /// How messages travel.
    pub broker: Arc<dyn Broker>,
    /// The caller's own mailbox, for messages that shall wait for agents that do not run now.
    pub mailbox: Option<Arc<dyn Mailbox>>,
    /// Agents that one broadcast may reach.
    pub broadcast_cap: usize,
}

impl PeerContext {
    /// An agent that may write to everybody on a broker.
    pub fn new(agent_id: AgentName, broker: Arc<dyn Broker>) -> Self {
        let directory = Some(Arc::new(PeerDirectory::new(Arc::clone(&broker))));
        Self {
            agent_id,
            goal_id: None,
            allowed_delegates: AllowedDelegates::default(),
            directory,
            broker,
            mailbox: None,
            broadcast_cap: DEFAULT_BROADCAST_CAP,
        }
    }
}
