//! Heartbeats of agents: collected from requests, written together every few seconds, so that their cost does not grow
//! with the number of requests.

use std::collections::HashSet;

use amb_store::AgentKey;
use parking_lot::Mutex;

/// Agents with a heartbeat since the last write.
#[derive(Default)]
pub(crate) struct Heartbeats(Mutex<HashSet<AgentKey>>);

impl Heartbeats {
    pub(crate) fn record(&self, agent: AgentKey) {
        self.0.lock().insert(agent);
    }

    /// Removes the heartbeat of an agent that goes offline.
    pub(crate) fn remove(&self, agent: AgentKey) {
        self.0.lock().remove(&agent);
    }

    /// Returns all agents with a heartbeat since the last call.
    pub(crate) fn take(&self) -> HashSet<AgentKey> {
        std::mem::take(&mut *self.0.lock())
    }
}
