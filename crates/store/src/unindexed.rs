//! Which logs search has yet to look at.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use crate::types::AgentKey;

/// Most agents remembered; more are "all of them".
const CAPACITY: usize = 50_000;

/// Agents whose logs may hold mail that search does not know yet. After a start that is everybody.
#[derive(Debug, Default)]
pub(crate) struct Unindexed(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    agents: HashSet<AgentKey>,
    /// Whether `agents` is everybody there is to look at.
    complete: bool,
}

impl Unindexed {
    /// This agent's log grew. One too many is looked at in vain.
    pub(crate) fn add(&self, agent: AgentKey) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.agents.len() >= CAPACITY {
            inner.agents.clear();
            inner.complete = false;
        }
        inner.agents.insert(agent);
    }

    /// Takes one agent to look at. `Err` where all logs have to be looked at to know.
    pub(crate) fn take(&self) -> Result<Option<AgentKey>, ()> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match inner.agents.iter().next().copied() {
            Some(agent) => {
                inner.agents.remove(&agent);
                Ok(Some(agent))
            }
            None if inner.complete => Ok(None),
            None => Err(()),
        }
    }

    /// All logs were looked at, and these have something: from now on what is added is all.
    pub(crate) fn complete(&self, agents: impl IntoIterator<Item = AgentKey>) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.complete = true;
        inner.agents.extend(agents);
    }
}
