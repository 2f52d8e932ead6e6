//! `list_peers`: who there is.

use amb_core::AgentName;
use serde::Serialize;

use super::PeerContext;

/// What is said where there is no directory.
pub const NO_DIRECTORY: &str = "this agent has no PeerDirectory configured";

/// The answer of `list_peers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PeerList {
    /// Everybody but the caller, by name.
    pub peers: Vec<PeerSummary>,
    /// Why there is nobody, where that needs saying.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'static str>,
}

/// One peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PeerSummary {
    /// Its name, for `to`.
    pub agent_id: AgentName,
    /// What it is for.
    pub description: String,
    /// Whether the caller may write to it.
    pub reachable: bool,
}

/// Lists the caller's peers.
pub fn list_peers(context: &PeerContext) -> PeerList {
    let Some(directory) = &context.directory else {
        return PeerList { peers: Vec::new(), note: Some(NO_DIRECTORY) };
    };
    let others = directory.peers().into_iter().filter(|peer| peer.agent_id != context.agent_id);
    let peers = others
        .map(|peer| PeerSummary {
            reachable: context.allowed_delegates.allows(peer.agent_id.as_str()),
            agent_id: peer.agent_id,
            description: peer.description,
        })
        .collect();
    PeerList { peers, note: None }
}
