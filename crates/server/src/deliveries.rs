//! Which entries reached their readers' processes. Gathered here, written behind the path of the push.
//!
//! "Delivered" is claimed only when it is known: a WebSocket has answered the ping that followed the entries, a long poll
//! has come back with the cursor of the page before.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use amb_store::{Agent, AgentKey};
use tokio::sync::Notify;

/// Pages that long polls were answered with and have not come back for. Beyond this many, some are forgotten, and their
/// mail counts as delivered when it is read.
const MAX_OFFERED: usize = 10_000;

/// A stretch of a log: after the first number, up to the second.
type Stretch = (u64, u64);

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Deliveries {
    arrived: Mutex<HashMap<AgentKey, (Agent, Vec<Stretch>)>>,
    offered: Mutex<HashMap<AgentKey, (u64, u64)>>,
    wake: Notify,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Deliveries {
    /// These entries arrived.
    pub(crate) fn arrived(&self, agent: &Agent, after: u64, up_to: u64) {
        if after >= up_to {
            return;
        }
        {
            let mut arrived = locked(&self.arrived);
            let (_, stretches) = arrived.entry(agent.key).or_insert_with(|| (agent.clone(), Vec::new()));
            match stretches.last_mut() {
                // The usual case: the next stretch of the same socket.
                Some((_, end)) if *end == after => *end = up_to,
                _ => stretches.push((after, up_to)),
            }
        }
        self.wake.notify_one();
    }

    /// A long poll is answered with these entries.
    pub(crate) fn offer(&self, agent: AgentKey, after: u64, up_to: u64) {
        let mut offered = locked(&self.offered);
        if offered.len() >= MAX_OFFERED {
            offered.clear();
        }
        offered.insert(agent, (after, up_to));
    }

    /// A long poll comes with this cursor: what it was answered before has arrived.
    pub(crate) fn came_back(&self, agent: &Agent, since: u64) {
        let page = {
            let mut offered = locked(&self.offered);
            match offered.get(&agent.key) {
                Some((_, up_to)) if *up_to <= since => offered.remove(&agent.key),
                _ => None,
            }
        };
        if let Some((after, up_to)) = page {
            self.arrived(agent, after, up_to);
        }
    }

    /// Waits until something arrived.
    pub(crate) async fn waiting(&self) {
        self.wake.notified().await;
    }

    /// All that arrived since the last call.
    pub(crate) fn take(&self) -> Vec<(Agent, u64, u64)> {
        let arrived = std::mem::take(&mut *locked(&self.arrived));
        let stretches = arrived.into_values().flat_map(|(agent, stretches)| {
            stretches.into_iter().map(move |(after, up_to)| (agent.clone(), after, up_to))
        });
        stretches.collect()
    }
}
