//! `list_peers`: who there is.

use amb_core::AgentName;
use serde::Serialize;

use super::PeerContext;

/// The note where there is no directory.
pub const NO_DIRECTORY: &str = "this agent has no PeerDirectory configured";

/// Most peers in one list; those that the caller may write to come before the others when not all fit.
pub const MAX_PEERS: usize = 100;
/// The note where not all fit.
pub const MORE_PEERS: &str = "only 100 peers are listed; there are more, which send_to_peer reaches by name";

/// The answer of `list_peers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PeerList {
    /// Everybody but the caller, by name.
    pub peers: Vec<PeerSummary>,
    /// Why peers are missing from the list.
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
    let mut peers: Vec<PeerSummary> = others
        .map(|peer| PeerSummary {
            reachable: context.allowed_delegates.allows(peer.agent_id.as_str()),
            agent_id: peer.agent_id,
            description: peer.description,
        })
        .collect();
    let note = (peers.len() > MAX_PEERS).then_some(MORE_PEERS);
    if note.is_some() {
        // Stable, so both halves stay in the order of their names.
        peers.sort_by_key(|peer| !peer.reachable);
        peers.truncate(MAX_PEERS);
    }
    PeerList { peers, note }
}
