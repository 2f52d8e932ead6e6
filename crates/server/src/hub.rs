//! Subscribers: WebSockets and long polls by agent. New log entries are offered to them; what does not fit into their
//! queue they read from the log. A push is only a hint, so losing one loses nothing.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use amb_core::stepping_in::{Act, SteppedIn};
use amb_core::{AgentName, Entry, Event};
use amb_store::{AgentKey, KeyHash, ListenerState, LogEntry};
use axum::extract::ws::Utf8Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

/// Entries queued for one subscriber; beyond it the subscriber reads the log.
const QUEUE: usize = 32;

/// All subscribers by agent.
#[derive(Default)]
pub(crate) struct Hub {
    /// Locked for writing only when a subscriber is added or removed.
    subscribers: RwLock<HashMap<AgentKey, Vec<Arc<Subscriber>>>>,
}

/// A WebSocket, a long poll or a dashboard page.
pub(crate) struct Subscriber {
    agent: AgentKey,
    /// The key that the client authenticated with.
    key: KeyHash,
    /// The number of the last entry that the client got.
    cursor: AtomicU64,
    /// Entries in the order in which they were offered, at most [`QUEUE`].
    queue: Mutex<VecDeque<(u64, Utf8Bytes)>>,
    /// The log may have entries that are not in the queue.
    must_read: AtomicBool,
    /// The agent was paused when the subscriber last read the log. The queue is not sent then: the log is read instead,
    /// which ends where the agent was paused.
    paused: AtomicBool,
    /// The subscriber must close: its key has ended.
    evicted: AtomicBool,
    /// When the first entry that is not yet sent was offered.
    waiting_since: Mutex<Option<Instant>>,
    wake: Notify,
}

/// What a subscriber does next.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    /// Sends this entry, which is the one after its cursor.
    Send(u64, Utf8Bytes),
    /// Reads the log from its cursor.
    ReadLog,
    /// Waits for [`Subscriber::notified`].
    Wait,
}

impl Subscriber {
    fn new(agent: AgentKey, key: KeyHash) -> Self {
        Self {
            agent,
            key,
            cursor: AtomicU64::new(0),
            queue: Mutex::default(),
            must_read: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            evicted: AtomicBool::new(false),
            waiting_since: Mutex::default(),
            wake: Notify::new(),
        }
    }

    /// The state that the store compares with the log and the keys.
    pub(crate) fn state(&self) -> ListenerState {
        ListenerState { agent: self.agent, at: self.cursor.load(Ordering::Relaxed), key: Some(self.key) }
    }

    /// Records that the client has everything up to this entry.
    pub(crate) fn set_cursor(&self, cursor: u64) {
        self.cursor.store(cursor, Ordering::Relaxed);
    }

    pub(crate) fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Ordering::Release);
    }

    fn offer(&self, number: u64, text: &Utf8Bytes) {
        {
            let mut queue = self.queue.lock();
            if queue.len() < QUEUE {
                queue.push_back((number, text.clone()));
            } else {
                self.must_read.store(true, Ordering::Release);
            }
        }
        self.start_waiting();
        self.wake.notify_one();
    }

    /// Starts the clock of [`Subscriber::take_wait`], unless it runs.
    fn start_waiting(&self) {
        self.waiting_since.lock().get_or_insert_with(Instant::now);
    }

    /// Returns how long the first entry offered since the last call has waited.
    pub(crate) fn take_wait(&self) -> Option<Duration> {
        self.waiting_since.lock().take().map(|since| since.elapsed())
    }

    /// Makes the subscriber read its log.
    pub(crate) fn read_log(&self) {
        self.must_read.store(true, Ordering::Release);
        self.start_waiting();
        self.wake.notify_one();
    }

    /// Hints that the log has entries up to this number.
    pub(crate) fn hint(&self, up_to: u64) {
        if self.cursor.load(Ordering::Relaxed) < up_to {
            self.read_log();
        }
    }

    /// Ends the subscription, because its key has ended.
    pub(crate) fn evict(&self) {
        self.evicted.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Returns what to do at this cursor.
    pub(crate) fn next(&self, cursor: u64) -> Next {
        let mut queue = self.queue.lock();
        while let Some((number, _)) = queue.front() {
            if *number <= cursor {
                queue.pop_front();
            } else if *number == cursor + 1
                && !self.paused.load(Ordering::Acquire)
                && let Some((number, text)) = queue.pop_front()
            {
                return Next::Send(number, text);
            } else {
                // An entry is missing: it was offered after its successor, or not at all. Or the agent is paused, and
                // its log shows the entry after it is resumed.
                queue.clear();
                self.must_read.store(false, Ordering::Release);
                return Next::ReadLog;
            }
        }
        // An idle subscriber keeps no memory.
        queue.shrink_to_fit();
        match self.must_read.swap(false, Ordering::AcqRel) {
            true => Next::ReadLog,
            false => Next::Wait,
        }
    }

    /// Waits until there may be something to do. Returns at once if that was so before the call.
    pub(crate) async fn notified(&self) {
        self.wake.notified().await;
    }

    /// Makes the next [`Subscriber::notified`] return at once.
    pub(crate) fn notify(&self) {
        self.wake.notify_one();
    }

    /// Whether the subscriber must close.
    pub(crate) fn is_evicted(&self) -> bool {
        self.evicted.load(Ordering::Acquire)
    }
}

impl Hub {
    /// Subscribes until the guard is dropped. `None` if the agent has `max` subscribers already. The subscriber is
    /// evicted when its key ends.
    ///
    /// Subscribe before reading the end of the log, so that nothing is missed in between.
    pub(crate) fn subscribe(&self, agent: AgentKey, key: KeyHash, max: usize) -> Option<SubscriberGuard<'_>> {
        let mut subscribers = self.subscribers.write();
        let mine = subscribers.entry(agent).or_insert_with(|| Vec::with_capacity(1));
        if mine.len() >= max {
            return None;
        }
        let subscriber = Arc::new(Subscriber::new(agent, key));
        mine.push(subscriber.clone());
        Some(SubscriberGuard { hub: self, subscriber })
    }

    /// Offers new entries to the subscribers of their agents.
    pub(crate) fn publish(&self, entries: &[LogEntry]) {
        let subscribers = self.subscribers.read();
        for LogEntry { agent, entry } in entries {
            let Some(mine) = subscribers.get(agent) else { continue };
            match (entry.cursor.as_number(), entry_text(entry)) {
                (Some(number), Some(text)) => mine.iter().for_each(|subscriber| subscriber.offer(number, &text)),
                _ => mine.iter().for_each(|subscriber| subscriber.read_log()),
            }
        }
    }

    /// Hints that the agent's log has entries up to this number, written by another process.
    pub(crate) fn hint(&self, agent: AgentKey, up_to: u64) {
        self.of(agent).iter().for_each(|subscriber| subscriber.hint(up_to));
    }

    /// Evicts all subscribers of an agent, because its key has ended.
    pub(crate) fn evict(&self, agent: AgentKey) {
        self.of(agent).iter().for_each(|subscriber| subscriber.evict());
    }

    /// Wakes all subscribers of an agent.
    pub(crate) fn wake(&self, agent: AgentKey) {
        self.of(agent).iter().for_each(|subscriber| subscriber.notify());
    }

    /// Adds all agents that have a subscriber.
    pub(crate) fn add_agents(&self, agents: &mut HashSet<AgentKey>) {
        agents.extend(self.subscribers.read().keys());
    }

    pub(crate) fn count(&self) -> usize {
        self.subscribers.read().values().map(Vec::len).sum()
    }

    /// The subscribers of one agent.
    pub(crate) fn of(&self, agent: AgentKey) -> Vec<Arc<Subscriber>> {
        self.subscribers.read().get(&agent).cloned().unwrap_or_default()
    }

    /// All subscribers.
    pub(crate) fn all(&self) -> Vec<Arc<Subscriber>> {
        self.subscribers.read().values().flatten().cloned().collect()
    }
}

/// Serializes an entry as a WebSocket message.
pub(crate) fn entry_text(entry: &Entry) -> Option<Utf8Bytes> {
    // Serialization fails only for maps with keys that are not strings.
    serde_json::to_string(entry).ok().map(Utf8Bytes::from)
}

/// Whether a message of [`entry_text`] is a receipt. An event's type is serialized first.
pub(crate) fn is_receipt(text: &str) -> bool {
    text.starts_with(r#"{"type":"receipt","#)
}

/// Whether a message of [`entry_text`] pauses (`true`) or resumes the agent. Cheap for other entries.
pub(crate) fn paused_by(text: &str, agent: &AgentName) -> Option<bool> {
    if !text.starts_with(r#"{"type":"stepped_in","#) {
        return None;
    }
    match serde_json::from_str::<Entry>(text).ok()?.event {
        Event::SteppedIn(SteppedIn { act: Act::Paused { agent: who }, .. }) if who == *agent => Some(true),
        Event::SteppedIn(SteppedIn { act: Act::Resumed { agent: who }, .. }) if who == *agent => Some(false),
        _ => None,
    }
}

/// A subscription that ends when dropped.
pub(crate) struct SubscriberGuard<'a> {
    hub: &'a Hub,
    pub(crate) subscriber: Arc<Subscriber>,
}

impl Drop for SubscriberGuard<'_> {
    fn drop(&mut self) {
        let mut subscribers = self.hub.subscribers.write();
        if let Some(mine) = subscribers.get_mut(&self.subscriber.agent) {
            mine.retain(|subscriber| !Arc::ptr_eq(subscriber, &self.subscriber));
            if mine.is_empty() {
                subscribers.remove(&self.subscriber.agent);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent() -> AgentKey {
        "7".parse().unwrap()
    }

    fn new_subscriber() -> Subscriber {
        Subscriber::new(agent(), KeyHash::of("key"))
    }

    fn offer(subscriber: &Subscriber, number: u64) {
        subscriber.offer(number, &Utf8Bytes::from(number.to_string()));
    }

    #[test]
    fn an_entry_after_the_cursor_is_sent_and_older_ones_are_dropped() {
        let subscriber = new_subscriber();
        (3..=5).for_each(|number| offer(&subscriber, number));
        assert_eq!(subscriber.next(3), Next::Send(4, "4".into()));
        assert_eq!(subscriber.next(4), Next::Send(5, "5".into()));
        assert_eq!(subscriber.next(5), Next::Wait);
    }

    #[test]
    fn the_wait_is_measured_from_the_first_entry() {
        let subscriber = new_subscriber();
        assert_eq!(subscriber.take_wait(), None);
        let from = Instant::now();
        (1..=3).for_each(|number| offer(&subscriber, number));
        assert!(subscriber.take_wait().unwrap() <= from.elapsed());
        assert_eq!(subscriber.take_wait(), None, "nothing waits any more");
    }

    #[test]
    fn a_gap_is_read_from_the_log() {
        let subscriber = new_subscriber();
        offer(&subscriber, 7);
        assert_eq!(subscriber.next(5), Next::ReadLog);
        offer(&subscriber, 6);
        assert_eq!(subscriber.next(7), Next::Wait, "6 was in the log");
    }

    #[test]
    fn a_paused_subscriber_reads_its_log_instead_of_its_queue() {
        let subscriber = new_subscriber();
        subscriber.set_paused(true);
        offer(&subscriber, 4);
        assert_eq!(subscriber.next(3), Next::ReadLog);
        assert_eq!(subscriber.next(3), Next::Wait, "the log showed nothing");
        subscriber.set_paused(false);
        offer(&subscriber, 4);
        assert_eq!(subscriber.next(3), Next::Send(4, "4".into()));
    }

    #[test]
    fn a_hint_up_to_the_cursor_does_not_read_the_log() {
        let hub = Hub::default();
        let guard = hub.subscribe(agent(), KeyHash::of("key"), 1).unwrap();
        guard.subscriber.set_cursor(5);
        hub.hint(agent(), 5);
        assert_eq!(guard.subscriber.next(5), Next::Wait);
        hub.hint(agent(), 6);
        assert_eq!(guard.subscriber.next(5), Next::ReadLog);
    }

    #[test]
    fn entries_beyond_the_queue_are_read_from_the_log() {
        let subscriber = new_subscriber();
        let many = QUEUE as u64 + 5;
        (1..=many).for_each(|number| offer(&subscriber, number));
        let mut cursor = 0;
        while let Next::Send(number, _) = subscriber.next(cursor) {
            cursor = number;
        }
        // The last result was `ReadLog`, which resets the flag.
        assert_eq!(cursor, QUEUE as u64);
        assert_eq!(subscriber.next(cursor), Next::Wait);
    }
}
