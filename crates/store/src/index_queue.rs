//! Indexing mail for search in the background: the queue of logs that have entries to index.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use amb_core::Code;
use async_trait::async_trait;
use parking_lot::Mutex;

use crate::error::Result;
use crate::types::AgentKey;

/// Most agents in the queue; when it is full, all logs are scanned instead.
const CAPACITY: usize = 50_000;
/// The retry delay of a log that cannot be indexed while others can.
const RETRY_DELAY: Duration = Duration::from_secs(60);

/// Agents whose logs are indexed in one transaction.
const AGENTS: usize = 1_000;
/// Entries indexed in one transaction, shared among its agents.
const ENTRIES: usize = 2_000;

/// Returns how many entries of each log are indexed in one transaction with so many agents.
pub(crate) fn entries_of_each(agents: usize) -> usize {
    (ENTRIES / agents.max(1)).max(2)
}

/// Writes the search index.
#[async_trait]
pub(crate) trait Index: Sync {
    /// Indexes the next entries of these agents' logs, all of them in one transaction of the index.
    async fn index(&self, agents: &[AgentKey]) -> Result<Indexed>;

    /// Returns every agent whose log has entries that are not indexed.
    async fn behind(&self) -> Result<Vec<AgentKey>>;
}

/// The result of indexing some logs.
#[derive(Debug, Default)]
pub(crate) struct Indexed {
    /// Entries read.
    pub(crate) entries: u64,
    /// Agents whose logs have more entries to index.
    pub(crate) again: Vec<AgentKey>,
}

/// Agents whose logs may have mail that is not indexed, first in, first out. After a start that is everybody.
#[derive(Debug, Default)]
pub(crate) struct IndexQueue {
    state: Mutex<QueueState>,
    /// How long the queue counts as complete. `None` where no other process writes.
    rescan_after: Option<Duration>,
}

#[derive(Debug, Default)]
struct QueueState {
    queue: VecDeque<AgentKey>,
    queued: HashSet<AgentKey>,
    /// Agents whose logs could not be indexed while others could, and since when.
    retries: VecDeque<(Instant, AgentKey)>,
    /// Since when `queue` has every agent that is behind; `None` while it may not.
    complete: Option<Instant>,
}

impl QueueState {
    fn push(&mut self, agent: AgentKey) {
        if self.queued.insert(agent) {
            self.queue.push_back(agent);
        }
    }
}

impl IndexQueue {
    /// A queue for logs that other processes write to as well: all logs are scanned again after this long, because a
    /// process that died may have left mail that it did not index.
    pub(crate) fn rescanned_every(time: Duration) -> Self {
        Self { state: Mutex::default(), rescan_after: Some(time) }
    }

    /// Queues an agent whose log grew. One that is up to date costs one query.
    pub(crate) fn add(&self, agent: AgentKey) {
        self.add_all([agent]);
    }

    fn add_all(&self, agents: impl IntoIterator<Item = AgentKey>) {
        let mut state = self.state.lock();
        for agent in agents {
            if state.queue.len() >= CAPACITY {
                state.queue.clear();
                state.queued.clear();
                state.complete = None;
            }
            state.push(agent);
        }
    }

    /// Takes some agents from the queue; none where everything is indexed. `Err` where all logs have to be scanned
    /// first. The caller queues those again that could not be indexed.
    fn take(&self, most: usize) -> std::result::Result<Vec<AgentKey>, ()> {
        let mut state = self.state.lock();
        while let Some((_, agent)) = state.retries.pop_front_if(|(since, _)| since.elapsed() >= RETRY_DELAY) {
            state.push(agent);
        }
        let stale = |since: Instant| self.rescan_after.is_some_and(|after| since.elapsed() >= after);
        if state.queue.is_empty() && state.complete.is_none_or(stale) {
            return Err(());
        }
        let most = most.min(state.queue.len());
        let taken: Vec<AgentKey> = state.queue.drain(..most).collect();
        for agent in &taken {
            state.queued.remove(agent);
        }
        Ok(taken)
    }

    /// Requeues the agents after they were indexed in one transaction: all of them where that failed, else those with
    /// more.
    fn requeue(&self, agents: Vec<AgentKey>, outcome: Result<Indexed>) -> Result<Indexed> {
        self.add_all(outcome.as_ref().map_or(agents, |indexed| indexed.again.clone()));
        outcome
    }

    /// Requeues agents after they were indexed one by one. Where some succeeded, those that failed are retried later,
    /// so that they do not block the others; where none did, all are queued again and the last error is returned.
    fn requeue_each(&self, outcomes: Vec<(AgentKey, Result<Indexed>)>) -> Result<Indexed> {
        let (mut all, mut failed) = (Indexed::default(), Vec::new());
        for (agent, outcome) in outcomes {
            match outcome {
                Ok(indexed) => {
                    all.entries += indexed.entries;
                    all.again.extend(indexed.again);
                }
                Err(error) => failed.push((agent, error)),
            }
        }
        if all.entries == 0
            && let Some((agent, error)) = failed.pop()
        {
            self.add_all(failed.into_iter().map(|(agent, _)| agent).chain([agent]));
            return Err(error);
        }
        let mut state = self.state.lock();
        for (agent, error) in failed {
            tracing::error!(%agent, error = ?error, "a log cannot be indexed for search; retrying in a minute");
            state.retries.push_back((Instant::now(), agent));
        }
        drop(state);
        self.add_all(all.again.iter().copied());
        Ok(all)
    }

    /// Indexes the next logs of the queue. Returns how many entries were read; 0 when everything is indexed.
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
                // One log may fail the whole transaction.
                Err(error) if error.code() == Code::Internal && agents.len() > 1 => {
                    let mut outcomes = Vec::with_capacity(agents.len());
                    for agent in agents {
                        outcomes.push((agent, index.index(&[agent]).await));
                    }
                    self.requeue_each(outcomes)?
                }
                indexed => self.requeue(agents, indexed)?,
            };
            if indexed.entries > 0 || !indexed.again.is_empty() {
                return Ok(indexed.entries.max(1));
            }
        }
    }

    /// Queues the agents that a scan of all logs found behind: from now on the queue is complete.
    fn complete(&self, agents: impl IntoIterator<Item = AgentKey>) {
        self.state.lock().complete = Some(Instant::now());
        self.add_all(agents);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreError;

    #[test]
    fn agents_take_turns_and_are_queued_once() {
        let queue = IndexQueue::default();
        assert_eq!(queue.take(2), Err(()), "a new queue has to scan all logs");
        queue.complete([1, 2, 3].map(AgentKey));
        queue.add(AgentKey(1));
        assert_eq!(queue.take(2), Ok(vec![AgentKey(1), AgentKey(2)]));
        queue.add(AgentKey(1));
        assert_eq!(queue.take(9), Ok(vec![AgentKey(3), AgentKey(1)]));
        assert_eq!(queue.take(9), Ok(Vec::new()));
    }

    #[test]
    fn a_log_that_cannot_be_indexed_does_not_hold_up_the_others() {
        let queue = IndexQueue::default();
        queue.complete([]);
        let outcomes = |failing: &[i64]| {
            let outcome = |agent: AgentKey| match failing.contains(&agent.0) {
                true => (agent, Err(StoreError::internal("broken"))),
                false => (agent, Ok(Indexed { entries: 3, again: Vec::new() })),
            };
            Vec::from([1, 2].map(AgentKey).map(outcome))
        };
        assert_eq!(queue.requeue_each(outcomes(&[2])).unwrap().entries, 3);
        assert_eq!(queue.take(9), Ok(Vec::new()), "the failed one waits for its retry");
        queue.requeue_each(outcomes(&[1, 2])).unwrap_err();
        assert_eq!(queue.take(9), Ok(vec![AgentKey(1), AgentKey(2)]), "where all fail, none is held back");
    }

    #[test]
    fn with_other_writers_all_logs_are_scanned_again() {
        let queue = IndexQueue::rescanned_every(Duration::ZERO);
        queue.complete([]);
        assert_eq!(queue.take(9), Err(()));
    }
}
