//! Which logs search has yet to look at.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::types::AgentKey;

/// Most agents remembered; more are "all of them".
const CAPACITY: usize = 50_000;

/// Agents whose logs may hold mail that search does not know yet, the one that waits longest first. After a start that is
/// everybody.
#[derive(Debug, Default)]
pub(crate) struct Unindexed {
    inner: Mutex<Inner>,
    /// How long what was added here counts as all there is. `None` where nobody else writes.
    believed: Option<Duration>,
}

#[derive(Debug, Default)]
struct Inner {
    queue: VecDeque<AgentKey>,
    queued: HashSet<AgentKey>,
    /// When `queue` was made everybody there is to look at; `None` while it is not.
    complete: Option<Instant>,
}

impl Unindexed {
    /// For logs that other processes write to as well: all logs are looked at again after this long, because a process that
    /// died may have left mail that it did not index.
    pub(crate) fn believed_for(time: Duration) -> Self {
        Self { inner: Mutex::default(), believed: Some(time) }
    }

    /// This agent's log grew, or has more than was looked at. One too many is looked at in vain.
    pub(crate) fn add(&self, agent: AgentKey) {
        self.add_all([agent]);
    }

    /// The same of several.
    pub(crate) fn add_all(&self, agents: impl IntoIterator<Item = AgentKey>) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        for agent in agents {
            if inner.queue.len() >= CAPACITY {
                inner.queue.clear();
                inner.queued.clear();
                inner.complete = None;
            }
            if inner.queued.insert(agent) {
                inner.queue.push_back(agent);
            }
        }
    }

    /// Takes some agents to look at; none where everything is indexed. `Err` where all logs have to be looked at to know.
    /// Whoever takes them gives those back that could not be looked at.
    pub(crate) fn take(&self, most: usize) -> Result<Vec<AgentKey>, ()> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let stale = |since: Instant| self.believed.is_some_and(|believed| since.elapsed() >= believed);
        if inner.queue.is_empty() && inner.complete.is_none_or(stale) {
            return Err(());
        }
        let most = most.min(inner.queue.len());
        let taken: Vec<AgentKey> = inner.queue.drain(..most).collect();
        for agent in &taken {
            inner.queued.remove(agent);
        }
        Ok(taken)
    }

    /// All logs were looked at, and these have something: from now on what is added is all.
    pub(crate) fn complete(&self, agents: impl IntoIterator<Item = AgentKey>) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).complete = Some(Instant::now());
        self.add_all(agents);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_take_turns_and_are_queued_once() {
        let unindexed = Unindexed::default();
        assert_eq!(unindexed.take(2), Err(()), "nothing is known after a start");
        unindexed.complete([1, 2, 3].map(AgentKey));
        unindexed.add(AgentKey(1));
        assert_eq!(unindexed.take(2), Ok(vec![AgentKey(1), AgentKey(2)]));
        unindexed.add(AgentKey(1));
        assert_eq!(unindexed.take(9), Ok(vec![AgentKey(3), AgentKey(1)]));
        assert_eq!(unindexed.take(9), Ok(Vec::new()));
    }

    #[test]
    fn where_others_write_too_all_logs_are_looked_at_again() {
        let unindexed = Unindexed::believed_for(Duration::ZERO);
        unindexed.complete([]);
        assert_eq!(unindexed.take(9), Err(()));
    }
}
