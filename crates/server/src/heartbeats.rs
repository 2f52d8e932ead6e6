//! Heartbeats: collected from requests and sockets, written together every few seconds, so that their cost does not
//! grow with the number of requests.

use std::collections::HashSet;

use amb_store::AgentKey;
use parking_lot::Mutex;

/// Agents with a heartbeat since the last write.
#[derive(Default)]
pub(crate) struct Heartbeats(Mutex<HashSet<AgentKey>>);

impl Heartbeats {
    pub(crate) fn note(&self, agent: AgentKey) {
        self.0.lock().insert(agent);
    }

    /// Drops an agent's heartbeat after it left.
    pub(crate) fn forget(&self, agent: AgentKey) {
        self.0.lock().remove(&agent);
    }

    /// All since the last call.
    pub(crate) fn take(&self) -> HashSet<AgentKey> {
        std::mem::take(&mut *self.0.lock())
    }
}
