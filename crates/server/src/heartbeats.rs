//! Signs of life: gathered from calls and sockets, written together once in some seconds, so that their cost does not grow
//! with the number of calls.

use std::collections::HashSet;

use amb_store::AgentKey;
use parking_lot::{Mutex, MutexGuard};

/// Who gave a sign of life since the last writing.
#[derive(Default)]
pub(crate) struct Heartbeats(Mutex<HashSet<AgentKey>>);

impl Heartbeats {
    fn set(&self) -> MutexGuard<'_, HashSet<AgentKey>> {
        self.0.lock()
    }

    pub(crate) fn note(&self, agent: AgentKey) {
        self.set().insert(agent);
    }

    /// The agent said goodbye; what it did before counts no more.
    pub(crate) fn forget(&self, agent: AgentKey) {
        self.set().remove(&agent);
    }

    /// All since the last call.
    pub(crate) fn take(&self) -> HashSet<AgentKey> {
        std::mem::take(&mut *self.set())
    }
}
