//! Records which log entries were delivered: collected here, written by a background job.
//!
//! An entry counts as delivered when a WebSocket has answered the ping that followed it, or a long poll has a
//! successor: a request of the same agent whose `since` is the cursor that the poll's response ended with, so that the
//! client must have read the response. If the successor also says where that response began (`previous`), nothing needs
//! to be remembered here, and it may arrive at another replica. A request with a later cursor has it from elsewhere,
//! such as another process with the same key, and acknowledges nothing. If several responses ended with the same
//! cursor, it is not known which of them was read; then only the entries of the shortest count.

use std::collections::{HashMap, VecDeque};

use amb_store::{Agent, AgentKey};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Agents whose poll responses are remembered. Beyond it all are dropped, and their mail counts as delivered when it is
/// read.
const MAX_AGENTS: usize = 10_000;
/// Poll responses remembered for one agent, the newest.
const MAX_RESPONSES: usize = 64;
/// Ranges that may wait to be written. Beyond it, mail counts as delivered when it is read.
const MAX_PENDING: usize = 100_000;
/// The longest range that a poll may acknowledge by `previous`: far more than a page, in which old entries may be
/// missing, and little enough that a poll cannot make the database scan a whole log.
const MAX_ACKNOWLEDGED: u64 = 10_000;
/// Attempts to write a range that the database rejects.
const MAX_ATTEMPTS: u32 = 5;

/// See the [module](self).
#[derive(Default)]
pub(crate) struct DeliveryRecorder {
    pending: Mutex<PendingRanges>,
    /// Responses to polls, oldest first.
    responses: Mutex<HashMap<AgentKey, VecDeque<LogRange>>>,
    wake: Notify,
}

/// Ranges to be written.
#[derive(Default)]
struct PendingRanges {
    new: HashMap<AgentKey, (Agent, Vec<LogRange>)>,
    failed: Vec<DeliveredRange>,
    /// Number of ranges in `new` and `failed`.
    count: usize,
}

/// A range of a log: from the entry after `after` to `up_to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LogRange {
    after: u64,
    up_to: u64,
}

impl LogRange {
    fn is_empty(self) -> bool {
        self.after >= self.up_to
    }
}

/// Entries delivered to an agent.
#[derive(Debug, Clone)]
pub(crate) struct DeliveredRange {
    pub(crate) agent: Agent,
    pub(crate) after: u64,
    pub(crate) up_to: u64,
    attempts: u32,
}

impl DeliveryRecorder {
    /// Queues a range to be written.
    pub(crate) fn delivered(&self, agent: &Agent, after: u64, up_to: u64) {
        let range = LogRange { after, up_to };
        if range.is_empty() {
            return;
        }
        {
            let mut pending = self.pending.lock();
            let PendingRanges { new, count, .. } = &mut *pending;
            let (_, ranges) = new.entry(agent.key).or_insert_with(|| (agent.clone(), Vec::new()));
            match ranges.last_mut() {
                // The usual case: the next range of the same socket.
                Some(last) if last.up_to == after => last.up_to = up_to,
                _ if *count < MAX_PENDING => {
                    *count += 1;
                    ranges.push(range);
                }
                _ => tracing::warn!(agent = %agent.name, "receipt queue full; some deliveries are not recorded"),
            }
        }
        self.wake.notify_one();
    }

    /// Remembers the response to a long poll.
    pub(crate) fn poll_answered(&self, agent: AgentKey, after: u64, up_to: u64) {
        let mut all = self.responses.lock();
        if all.len() >= MAX_AGENTS && !all.contains_key(&agent) {
            all.clear();
        }
        let responses = all.entry(agent).or_default();
        if responses.len() >= MAX_RESPONSES {
            responses.pop_front();
        }
        responses.push_back(LogRange { after, up_to });
    }

    /// Handles the `since` of a long poll: the response that ended with it was delivered. `previous` is the `since` of
    /// the poll that was answered so, if the client sent it.
    pub(crate) fn poll_continued(&self, agent: &Agent, previous: Option<u64>, since: u64) {
        let Some(after) = previous else {
            if let Some(LogRange { after, up_to }) = self.take_response(agent.key, |all| find_response(all, since)) {
                self.delivered(agent, after, up_to);
            }
            return;
        };
        let acknowledged = LogRange { after, up_to: since };
        self.take_response(agent.key, |all| all.iter().rposition(|response| *response == acknowledged));
        if since.saturating_sub(after) <= MAX_ACKNOWLEDGED {
            self.delivered(agent, after, since);
        }
    }

    fn take_response(
        &self,
        agent: AgentKey,
        find: impl FnOnce(&VecDeque<LogRange>) -> Option<usize>,
    ) -> Option<LogRange> {
        let mut all = self.responses.lock();
        let responses = all.get_mut(&agent)?;
        let found = find(responses).and_then(|index| responses.remove(index));
        if responses.is_empty() {
            all.remove(&agent);
        }
        found
    }

    /// Waits until there are ranges to write.
    pub(crate) async fn notified(&self) {
        self.wake.notified().await;
    }

    /// Takes all ranges to write.
    pub(crate) fn take(&self) -> Vec<DeliveredRange> {
        let PendingRanges { new, failed, .. } = std::mem::take(&mut *self.pending.lock());
        let mut all = failed;
        for (agent, ranges) in new.into_values() {
            let range = |LogRange { after, up_to }| DeliveredRange { agent: agent.clone(), after, up_to, attempts: 0 };
            all.extend(ranges.into_iter().map(range));
        }
        all
    }

    /// Queues a range again whose write failed. A range that the database rejects (`rejected`) is dropped after
    /// [`MAX_ATTEMPTS`]; while the database is unavailable, attempts do not count.
    pub(crate) fn retry(&self, mut range: DeliveredRange, rejected: bool) {
        range.attempts += u32::from(rejected);
        let mut pending = self.pending.lock();
        if range.attempts >= MAX_ATTEMPTS || pending.count >= MAX_PENDING {
            let (after, up_to) = (range.after, range.up_to);
            tracing::error!(agent = %range.agent.name, after, up_to, "writing receipts failed after several retries; given up");
            return;
        }
        pending.count += 1;
        pending.failed.push(range);
        drop(pending);
        self.wake.notify_one();
    }
}

/// Returns the index of the response that a poll with this `since` acknowledges.
fn find_response(responses: &VecDeque<LogRange>, since: u64) -> Option<usize> {
    let ends_here = |(_, response): &(usize, &LogRange)| response.up_to == since;
    let (newest, last) = responses.iter().enumerate().rfind(ends_here)?;
    if last.is_empty() {
        // The poll got an empty response, so its successor has the same cursor.
        return Some(newest);
    }
    let full = responses.iter().enumerate().filter(ends_here).filter(|(_, response)| !response.is_empty());
    full.max_by_key(|(_, response)| response.after).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> AgentKey {
        "7".parse().unwrap()
    }

    fn agent() -> Agent {
        Agent { key: key(), id: Default::default(), name: "ann".parse().unwrap(), person: false, once: None }
    }

    fn range(after: u64, up_to: u64) -> Option<LogRange> {
        Some(LogRange { after, up_to })
    }

    fn take(deliveries: &DeliveryRecorder, since: u64) -> Option<LogRange> {
        deliveries.take_response(key(), |all| find_response(all, since))
    }

    #[test]
    fn a_response_is_acknowledged_once_by_its_own_successor() {
        let deliveries = DeliveryRecorder::default();
        deliveries.poll_answered(key(), 0, 5);
        assert_eq!(take(&deliveries, 9), None, "a later cursor is from elsewhere");
        assert_eq!(take(&deliveries, 3), None);
        assert_eq!(take(&deliveries, 5), range(0, 5));
        assert_eq!(take(&deliveries, 5), None, "once");
    }

    #[test]
    fn of_two_responses_with_one_end_the_shorter_is_acknowledged_first() {
        let deliveries = DeliveryRecorder::default();
        deliveries.poll_answered(key(), 50, 100);
        deliveries.poll_answered(key(), 0, 100);
        assert_eq!(take(&deliveries, 100), range(50, 100), "the entries that both have");
        // A poll that waits at the end is not the successor of the other.
        deliveries.poll_answered(key(), 100, 100);
        assert_eq!(take(&deliveries, 100), range(100, 100));
        assert_eq!(take(&deliveries, 100), range(0, 100));
    }

    #[test]
    fn adjacent_ranges_are_written_as_one_even_with_a_gap_in_the_numbers() {
        let deliveries = DeliveryRecorder::default();
        let agent = agent();
        // As after `amb admin advance-cursors`.
        deliveries.delivered(&agent, 4, 5_000_004);
        deliveries.delivered(&agent, 5_000_004, 5_000_005);
        let taken = deliveries.take();
        assert_eq!(taken.iter().map(|range| (range.after, range.up_to)).collect::<Vec<_>>(), [(4, 5_000_005)]);
    }

    #[test]
    fn a_poll_that_names_the_previous_cursor_acknowledges_just_that_response() {
        let deliveries = DeliveryRecorder::default();
        let agent = agent();
        deliveries.poll_answered(key(), 0, 5);
        deliveries.poll_answered(key(), 3, 5);
        deliveries.poll_continued(&agent, Some(0), 5);
        assert_eq!(take(&deliveries, 5), range(3, 5));
        deliveries.poll_continued(&agent, Some(7), 9);
        assert_eq!(take(&deliveries, 9), None);
        let taken = deliveries.take();
        let taken: Vec<_> = taken.iter().map(|range| (range.after, range.up_to)).collect();
        assert_eq!(taken, [(0, 5), (7, 9)], "also a response of another replica");
    }

    #[test]
    fn the_number_of_remembered_responses_is_bounded() {
        let deliveries = DeliveryRecorder::default();
        for number in 0..=MAX_RESPONSES as u64 {
            deliveries.poll_answered(key(), number, number + 1);
        }
        assert_eq!(take(&deliveries, 1), None, "the oldest is dropped");
        assert_eq!(take(&deliveries, 2), range(1, 2));
    }
}
