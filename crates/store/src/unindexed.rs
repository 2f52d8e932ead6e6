//! Making mail findable behind the path of sends: which logs search has yet to look at.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use amb_core::Code;
use async_trait::async_trait;
use parking_lot::Mutex;

use crate::StoreError;
use crate::error::Result;
use crate::types::AgentKey;

/// Most agents in the queue; with more, all logs are looked at.
const CAPACITY: usize = 50_000;
/// The retry delay of a log that cannot be indexed while others can.
const SET_ASIDE: Duration = Duration::from_secs(60);

/// Agents whose logs are looked at in one transaction.
const AGENTS: usize = 1_000;
/// Entries looked at in one transaction, shared among its agents.
const ENTRIES: usize = 2_000;

/// How many entries of each log are looked at in one transaction with so many agents.
pub(crate) fn entries_of_each(agents: usize) -> usize {
    (ENTRIES / agents.max(1)).max(2)
}

/// Writes the index of words.
#[async_trait]
pub(crate) trait Index: Sync {
    /// Makes the next of these agents' logs findable, all of them in one transaction of the index.
    async fn index(&self, agents: &[AgentKey]) -> Result<Indexed>;

    /// Every agent with something that is not indexed.
    async fn behind(&self) -> Result<Vec<AgentKey>>;
}

/// What became of some logs.
#[derive(Debug, Default)]
pub(crate) struct Indexed {
    /// Entries looked at.
    pub(crate) entries: u64,
    /// Agents with more to look at.
    pub(crate) again: Vec<AgentKey>,
}

/// What became of logs that were indexed one by one.
#[derive(Debug, Default)]
struct OneByOne {
    indexed: Indexed,
    /// Whether something was indexed.
    done: bool,
    failed: Vec<(AgentKey, StoreError)>,
}

impl OneByOne {
    fn add(&mut self, agent: AgentKey, outcome: Result<Indexed>) {
        match outcome {
            Ok(indexed) => {
                self.done |= indexed.entries > 0;
                self.indexed.entries += indexed.entries;
                self.indexed.again.extend(indexed.again);
            }
            Err(error) => self.failed.push((agent, error)),
        }
    }
}

/// Agents whose logs may hold mail that search does not know yet, the one that waits longest first. After a start that is
/// everybody.
#[derive(Debug, Default)]
pub(crate) struct Unindexed {
    inner: Mutex<IndexQueue>,
    /// How long the queue counts as complete. `None` where no other process writes.
    believed: Option<Duration>,
}

#[derive(Debug, Default)]
struct IndexQueue {
    queue: VecDeque<AgentKey>,
    queued: HashSet<AgentKey>,
    /// Agents whose logs could not be indexed while others could, and since when.
    aside: VecDeque<(Instant, AgentKey)>,
    /// Since when `queue` has every agent that is behind; `None` while it may not.
    complete: Option<Instant>,
}

impl Unindexed {
    /// For logs that other processes write to as well: all logs are looked at again after this long, because a process that
    /// died may have left mail that it did not index.
    pub(crate) fn believed_for(time: Duration) -> Self {
        Self { inner: Mutex::default(), believed: Some(time) }
    }

    /// Queues an agent whose log grew, or has more than was indexed. One too many costs a query.
    pub(crate) fn add(&self, agent: AgentKey) {
        self.add_all([agent]);
    }

    /// The same for several.
    fn add_all(&self, agents: impl IntoIterator<Item = AgentKey>) {
        let mut inner = self.inner.lock();
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

    /// Takes some agents from the queue; none where everything is indexed. `Err` where all logs have to be looked at to know.
    /// The caller queues those again that could not be indexed.
    fn take(&self, most: usize) -> std::result::Result<Vec<AgentKey>, ()> {
        let mut inner = self.inner.lock();
        while inner.aside.front().is_some_and(|(since, _)| since.elapsed() >= SET_ASIDE) {
            let Some((_, agent)) = inner.aside.pop_front() else { break };
            if inner.queued.insert(agent) {
                inner.queue.push_back(agent);
            }
        }
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

    /// These logs were indexed, or none of them: what could not be looked at is tried again, and so are logs that have more.
    fn settle_all(&self, agents: Vec<AgentKey>, outcome: Result<Indexed>) -> Result<Indexed> {
        self.add_all(outcome.as_ref().map_or(agents, |indexed| indexed.again.clone()));
        outcome
    }

    /// Logs that could not be indexed together were indexed one by one. Where some could, those that could not wait for a
    /// while, so that they do not keep the others from being found.
    fn settle(&self, outcome: OneByOne) -> Result<Indexed> {
        let OneByOne { indexed, done, mut failed } = outcome;
        if !done && let Some((agent, error)) = failed.pop() {
            self.add_all(failed.into_iter().map(|(agent, _)| agent).chain([agent]));
            return Err(error);
        }
        let mut inner = self.inner.lock();
        for (agent, error) in failed {
            tracing::error!(%agent, error = ?error, "a log cannot be indexed for search; retrying in a minute");
            inner.aside.push_back((Instant::now(), agent));
        }
        drop(inner);
        self.add_all(indexed.again.iter().copied());
        Ok(indexed)
    }

    /// Makes the next of the logs that wait findable. Returns how many entries were looked at; 0 when done.
    pub(crate) async fn index_next(&self, index: &impl Index) -> Result<u64> {
        loop {
            let agents = match self.take(AGENTS) {
                Ok(agents) if agents.is_empty() => return Ok(0),
                Ok(agents) => agents,
                Err(()) => {
                    self.complete(index.behind().await?);
                    continue;
                }
            };
            let indexed = match index.index(&agents).await {
                // One of them may be at fault.
                Err(error) if error.code() == Code::Internal && agents.len() > 1 => {
                    let mut each = OneByOne::default();
                    for agent in agents {
                        each.add(agent, index.index(&[agent]).await);
                    }
                    self.settle(each)?
                }
                indexed => self.settle_all(agents, indexed)?,
            };
            if indexed.entries > 0 || !indexed.again.is_empty() {
                return Ok(indexed.entries.max(1));
            }
        }
    }

    /// All logs were looked at, and these are behind: from now on the queue is complete.
    fn complete(&self, agents: impl IntoIterator<Item = AgentKey>) {
        self.inner.lock().complete = Some(Instant::now());
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
    fn a_log_that_cannot_be_indexed_does_not_hold_up_the_others() {
        let unindexed = Unindexed::default();
        unindexed.complete([]);
        let outcome = |failing: &[i64]| {
            let mut all = OneByOne::default();
            for agent in [1, 2].map(AgentKey) {
                let one = Indexed { entries: 3, again: Vec::new() };
                let broken = failing.contains(&agent.0);
                all.add(agent, if broken { Err(StoreError::internal("broken")) } else { Ok(one) });
            }
            all
        };
        assert_eq!(unindexed.settle(outcome(&[2])).unwrap().entries, 3);
        assert_eq!(unindexed.take(9), Ok(Vec::new()), "set aside");
        unindexed.settle(outcome(&[1, 2])).unwrap_err();
        assert_eq!(unindexed.take(9), Ok(vec![AgentKey(1), AgentKey(2)]), "it is not their fault");
    }

    #[test]
    fn where_others_write_too_all_logs_are_looked_at_again() {
        let unindexed = Unindexed::believed_for(Duration::ZERO);
        unindexed.complete([]);
        assert_eq!(unindexed.take(9), Err(()));
    }
}
