//! Heartbeats of agents: collected from requests, written together every few seconds, so that their cost does not grow
//! with the number of requests.

use std::collections::HashSet;

use amb_store::AgentKey;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The agents with a heartbeat since the last write.
#[derive(Default)]
pub(crate) struct Heartbeats {
    agents: Mutex<AgentSets>,
    returned: Notify,
}

#[derive(Default)]
struct AgentSets {
    pending: HashSet<AgentKey>,
    /// Whom the last writes showed as online.
    written: HashSet<AgentKey>,
}

impl Heartbeats {
    pub(crate) fn record(&self, agent: AgentKey) {
        let mut agents = self.agents.lock();
        if agents.pending.insert(agent) && !agents.written.contains(&agent) {
            self.returned.notify_one();
        }
    }

    /// Waits for the heartbeat of an agent that may be shown as offline: one that no recent write had.
    pub(crate) async fn returned(&self) {
        self.returned.notified().await;
    }

    /// Removes the heartbeat of an agent that goes offline.
    pub(crate) fn remove(&self, agent: AgentKey) {
        let mut agents = self.agents.lock();
        agents.pending.remove(&agent);
        agents.written.remove(&agent);
    }

    /// Returns all agents with a heartbeat since the last call, for the regular write.
    pub(crate) fn take(&self) -> HashSet<AgentKey> {
        let mut agents = self.agents.lock();
        let pending = std::mem::take(&mut agents.pending);
        agents.written.clone_from(&pending);
        pending
    }

    /// The same for a write between two regular ones.
    pub(crate) fn take_early(&self) -> HashSet<AgentKey> {
        let mut agents = self.agents.lock();
        let pending = std::mem::take(&mut agents.pending);
        agents.written.extend(&pending);
        pending
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn an_agent_that_was_not_seen_lately_is_written_early_once() {
        let (heartbeats, ann): (_, AgentKey) = (Heartbeats::default(), "1".parse().unwrap());
        let returned = || heartbeats.returned().now_or_never().is_some();
        heartbeats.record(ann);
        assert!(returned());
        assert_eq!(heartbeats.take_early(), HashSet::from([ann]));
        heartbeats.record(ann);
        assert!(!returned(), "it was just written");
        assert_eq!(heartbeats.take(), HashSet::from([ann]));
        heartbeats.record(ann);
        assert!(!returned(), "it was in the last regular write");
        heartbeats.remove(ann);
        heartbeats.record(ann);
        assert!(returned(), "it was offline");
        heartbeats.take();
        heartbeats.take();
        heartbeats.record(ann);
        assert!(returned(), "it was away for a whole interval");
    }
}
