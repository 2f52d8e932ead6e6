//! Which entries reached their readers' processes. Collected here, written by a background job.
//!
//! "Delivered" is claimed only when it is known: a WebSocket has answered the ping that followed the entries, or a long poll
//! has a successor. The successor of a poll is a request of the same agent whose `since` is the cursor that the poll's
//! answer ended with: a client that names it has read that answer. Where it also says from which cursor that answer began, nothing
//! needs to be remembered here, so it may come to another replica. One that names a later cursor has it from elsewhere, such as
//! another process with the same key, and says nothing about the poll. Where several answers ended with one cursor, it is not
//! known which of them its successor has read; then only what is in the shortest of them counts.

use std::collections::{HashMap, VecDeque};

use amb_store::{Agent, AgentKey};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Agents whose polls' answers are remembered. Beyond this many all are forgotten, and their mail counts as delivered when
/// it is read.
const MAX_AGENTS: usize = 10_000;
/// Answers remembered for one agent, the newest.
const MAX_OFFERED: usize = 64;
/// Most ranges that wait to be written. Beyond it, mail counts as delivered when it is read.
const MAX_WAITING: usize = 100_000;
/// The longest stretch that a poll may say it has read: far more than a page, in which old entries may be missing, and so
/// little that nobody has the database look through a whole log with each poll.
const MAX_NAMED: u64 = 10_000;
/// Attempts to write a range that the database refuses.
const TRIES: u32 = 5;

/// See the [module](self).
#[derive(Default)]
pub(crate) struct DeliveryRecorder {
    arrived: Mutex<Arrived>,
    /// Answers of polls, in the order in which they were given.
    offered: Mutex<HashMap<AgentKey, VecDeque<LogRange>>>,
    wake: Notify,
}

/// What waits to be written.
#[derive(Default)]
struct Arrived {
    fresh: HashMap<AgentKey, (Agent, Vec<LogRange>)>,
    failed: Vec<DeliveredRange>,
    waiting: usize,
}

/// A range of a log: after the first number, up to the second.
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

/// Entries that reached an agent's process.
#[derive(Debug, Clone)]
pub(crate) struct DeliveredRange {
    pub(crate) agent: Agent,
    pub(crate) after: u64,
    pub(crate) up_to: u64,
    tries: u32,
}

impl DeliveryRecorder {
    /// Records that these entries arrived.
    pub(crate) fn arrived(&self, agent: &Agent, after: u64, up_to: u64) {
        let stretch = LogRange { after, up_to };
        if stretch.is_empty() {
            return;
        }
        {
            let mut arrived = self.arrived.lock();
            let Arrived { fresh, waiting, .. } = &mut *arrived;
            let (_, stretches) = fresh.entry(agent.key).or_insert_with(|| (agent.clone(), Vec::new()));
            match stretches.last_mut() {
                // The usual case: the next range of the same socket.
                Some(last) if last.up_to == after => last.up_to = up_to,
                _ if *waiting < MAX_WAITING => {
                    *waiting += 1;
                    stretches.push(stretch);
                }
                _ => tracing::warn!(agent = %agent.name, "receipt queue full; some deliveries are not recorded"),
            }
        }
        self.wake.notify_one();
    }

    /// A long poll is answered with these entries, or with none.
    pub(crate) fn offer(&self, agent: AgentKey, after: u64, up_to: u64) {
        let mut offered = self.offered.lock();
        if offered.len() >= MAX_AGENTS && !offered.contains_key(&agent) {
            offered.clear();
        }
        let answers = offered.entry(agent).or_default();
        if answers.len() >= MAX_OFFERED {
            answers.pop_front();
        }
        answers.push_back(LogRange { after, up_to });
    }

    /// A long poll comes with this cursor: the answer that ended with it has arrived.
    pub(crate) fn came_back(&self, agent: &Agent, since: u64) {
        if let Some(LogRange { after, up_to }) = self.take_answer(agent.key, since) {
            self.arrived(agent, after, up_to);
        }
    }

    /// A long poll comes with this cursor and says that the answer to a poll from `after` has brought it here.
    pub(crate) fn came_back_from(&self, agent: &Agent, after: u64, since: u64) {
        self.forget_answer(agent.key, LogRange { after, up_to: since });
        if since.saturating_sub(after) <= MAX_NAMED {
            self.arrived(agent, after, since);
        }
    }

    /// Forgets a response whose successor came.
    fn forget_answer(&self, agent: AgentKey, answer: LogRange) {
        let mut offered = self.offered.lock();
        let Some(answers) = offered.get_mut(&agent) else { return };
        if let Some(place) = answers.iter().rposition(|offered| *offered == answer) {
            answers.remove(place);
        }
        if answers.is_empty() {
            offered.remove(&agent);
        }
    }

    /// Takes the answer whose successor names this cursor.
    fn take_answer(&self, agent: AgentKey, since: u64) -> Option<LogRange> {
        let mut offered = self.offered.lock();
        let answers = offered.get_mut(&agent)?;
        let ends_here = |(_, answer): &(usize, &LogRange)| answer.up_to == since;
        let (newest, last) = answers.iter().enumerate().rfind(ends_here)?;
        let place = match last.is_empty() {
            // The poll was answered with nothing, so the next one names the same cursor.
            true => newest,
            false => {
                let full = answers.iter().enumerate().filter(ends_here).filter(|(_, answer)| !answer.is_empty());
                full.max_by_key(|(_, answer)| answer.after).map_or(newest, |(place, _)| place)
            }
        };
        let answer = answers.remove(place);
        if answers.is_empty() {
            offered.remove(&agent);
        }
        answer
    }

    /// Waits until something arrived.
    pub(crate) async fn waiting(&self) {
        self.wake.notified().await;
    }

    /// All that arrived since the last call.
    pub(crate) fn take(&self) -> Vec<DeliveredRange> {
        let Arrived { fresh, failed, .. } = std::mem::take(&mut *self.arrived.lock());
        let mut all = failed;
        for (agent, stretches) in fresh.into_values() {
            let delivery = |LogRange { after, up_to }| DeliveredRange { agent: agent.clone(), after, up_to, tries: 0 };
            all.extend(stretches.into_iter().map(delivery));
        }
        all
    }

    /// Writing this failed: it is tried again. Where the database answered and refused it (`refused`), only some times.
    pub(crate) fn again(&self, mut stretch: DeliveredRange, refused: bool) {
        stretch.tries += u32::from(refused);
        let mut arrived = self.arrived.lock();
        if stretch.tries >= TRIES || arrived.waiting >= MAX_WAITING {
            let (after, up_to) = (stretch.after, stretch.up_to);
            tracing::error!(agent = %stretch.agent.name, after, up_to, "writing receipts failed after several retries; given up");
            return;
        }
        arrived.waiting += 1;
        arrived.failed.push(stretch);
        drop(arrived);
        self.wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> AgentKey {
        "7".parse().unwrap()
    }

    fn answer(after: u64, up_to: u64) -> Option<LogRange> {
        Some(LogRange { after, up_to })
    }

    #[test]
    fn an_answer_counts_when_its_own_successor_comes() {
        let deliveries = DeliveryRecorder::default();
        deliveries.offer(key(), 0, 5);
        assert_eq!(deliveries.take_answer(key(), 9), None, "a later cursor is from elsewhere");
        assert_eq!(deliveries.take_answer(key(), 3), None);
        assert_eq!(deliveries.take_answer(key(), 5), answer(0, 5));
        assert_eq!(deliveries.take_answer(key(), 5), None, "once");
    }

    #[test]
    fn of_two_polls_from_different_cursors_each_is_answered_for_by_its_own() {
        let deliveries = DeliveryRecorder::default();
        // One that was never read, and one from elsewhere that ended at the same place.
        deliveries.offer(key(), 50, 100);
        deliveries.offer(key(), 0, 100);
        assert_eq!(deliveries.take_answer(key(), 100), answer(50, 100), "what both hold");
        // A listener that waits at the end is not the successor of the other.
        deliveries.offer(key(), 100, 100);
        assert_eq!(deliveries.take_answer(key(), 100), answer(100, 100));
        assert_eq!(deliveries.take_answer(key(), 100), answer(0, 100));
    }

    #[test]
    fn a_stretch_is_written_as_one_however_far_its_numbers_are_apart() {
        let deliveries = DeliveryRecorder::default();
        let agent =
            Agent { key: key(), id: Default::default(), name: "ann".parse().unwrap(), person: false, once: None };
        // As after the numbers of all logs were put forward.
        deliveries.arrived(&agent, 4, 5_000_004);
        deliveries.arrived(&agent, 5_000_004, 5_000_005);
        let taken = deliveries.take();
        assert_eq!(taken.iter().map(|stretch| (stretch.after, stretch.up_to)).collect::<Vec<_>>(), [(4, 5_000_005)]);
    }

    #[test]
    fn an_answer_that_its_reader_names_whole_is_taken_once_wherever_it_was_given() {
        let deliveries = DeliveryRecorder::default();
        deliveries.offer(key(), 0, 5);
        deliveries.offer(key(), 3, 5);
        deliveries.forget_answer(key(), LogRange { after: 0, up_to: 5 });
        assert_eq!(deliveries.take_answer(key(), 5), answer(3, 5));
        deliveries.forget_answer(key(), LogRange { after: 7, up_to: 9 });
        assert_eq!(deliveries.take_answer(key(), 9), None);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let deliveries = DeliveryRecorder::default();
        for number in 0..=MAX_OFFERED as u64 {
            deliveries.offer(key(), number, number + 1);
        }
        assert_eq!(deliveries.take_answer(key(), 1), None, "the oldest is forgotten");
        assert_eq!(deliveries.take_answer(key(), 2), answer(1, 2));
    }
}
