//! Signs of life: gathered from calls and sockets, written together once in some seconds, so that their cost does not grow
//! with the number of calls.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use amb_store::AgentKey;

/// Who gave a sign of life since the last writing.
#[derive(Default)]
pub(crate) struct Alive(Mutex<HashSet<AgentKey>>);

impl Alive {
    fn set(&self) -> MutexGuard<'_, HashSet<AgentKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
