//! Subscribers: WebSockets and long polls by agent. New log entries are offered to them; what does not fit their queue
//! they read from the log. A push is only a hint, so losing one loses nothing.

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

/// All listeners by agent.
#[derive(Default)]
pub(crate) struct Hub {
    /// Written only when a listener comes or goes.
    subscribers: RwLock<HashMap<AgentKey, Vec<Arc<Subscriber>>>>,
}

/// One listener: a WebSocket or a long poll.
pub(crate) struct Subscriber {
    /// The key that the listener came with, where it listens for long.
    key: Option<KeyHash>,
    /// The last entry that the listener has.
    at: AtomicU64,
    /// Entries in the order in which they were offered, at most [`QUEUE`].
    queue: Mutex<VecDeque<(u64, Utf8Bytes)>>,
    /// Something may be in the log that is not in the queue.
    look: AtomicBool,
    /// The agent was paused when the listener last looked: the log is read, which ends where it was paused, and nothing
    /// offered is sent.
    paused: AtomicBool,
    /// The subscriber must close: its key has ended.
    evicted: AtomicBool,
    /// When the first of what it has not sent yet was offered.
    since: Mutex<Option<Instant>>,
    wake: Notify,
}

/// What a listener does next.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    /// Sends this entry, which is the one after its cursor.
    Send(u64, Utf8Bytes),
    /// Reads the log from its cursor.
    Look,
    /// Waits.
    Wait,
}

impl Subscriber {
    fn new(key: Option<KeyHash>) -> Self {
        Self {
            key,
            at: AtomicU64::new(0),
            queue: Mutex::default(),
            look: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            evicted: AtomicBool::new(false),
            since: Mutex::default(),
            wake: Notify::new(),
        }
    }

    /// The listener has everything up to here.
    pub(crate) fn is_at(&self, cursor: u64) {
        self.at.store(cursor, Ordering::Relaxed);
    }

    /// Records whether the agent is paused.
    pub(crate) fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Ordering::Release);
    }

    fn offer(&self, number: u64, text: &Utf8Bytes) {
        {
            let mut queue = self.queue.lock();
            if queue.len() < QUEUE {
                queue.push_back((number, text.clone()));
            } else {
                self.look.store(true, Ordering::Release);
            }
        }
        self.start_waiting();
        self.wake.notify_one();
    }

    /// Starts the clock of [`Subscriber::waited`], unless it runs.
    fn start_waiting(&self) {
        self.since.lock().get_or_insert_with(Instant::now);
    }

    /// How long the first of what was offered since the last call has waited.
    pub(crate) fn waited(&self) -> Option<Duration> {
        self.since.lock().take().map(|since| since.elapsed())
    }

    /// Makes the listener read its log.
    pub(crate) fn look(&self) {
        self.look.store(true, Ordering::Release);
        self.start_waiting();
        self.wake.notify_one();
    }

    /// The log has entries up to this number.
    pub(crate) fn hint(&self, up_to: u64) {
        if self.at.load(Ordering::Relaxed) < up_to {
            self.look();
        }
    }

    /// Ends the subscription, because its key has ended.
    pub(crate) fn evict(&self) {
        self.evicted.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// What to do at this cursor.
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
                // One is missing: it was offered later than its successor, or not at all. The log has it; that of a paused
                // agent shows it when the agent is resumed.
                queue.clear();
                self.look.store(false, Ordering::Release);
                return Next::Look;
            }
        }
        // An idle subscriber keeps no memory.
        queue.shrink_to_fit();
        match self.look.swap(false, Ordering::AcqRel) {
            true => Next::Look,
            false => Next::Wait,
        }
    }

    /// Waits until there may be something. Never misses what was offered before the call.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Makes the next [`Subscriber::woken`] return at once.
    pub(crate) fn again(&self) {
        self.wake.notify_one();
    }

    /// Whether the listener must go.
    pub(crate) fn is_evicted(&self) -> bool {
        self.evicted.load(Ordering::Acquire)
    }
}

impl Hub {
    /// Subscribes until the guard is dropped. `None` if the agent has `most` subscribers already. A long-lived one
    /// gives its key, and is evicted when that ends.
    ///
    /// Subscribe before reading the head of the log, so that nothing is missed in between.
    pub(crate) fn subscribe(&self, agent: AgentKey, key: Option<KeyHash>, most: usize) -> Option<SubscriberGuard<'_>> {
        let mut subscribers = self.subscribers.write();
        let mine = subscribers.entry(agent).or_insert_with(|| Vec::with_capacity(1));
        if mine.len() >= most {
            return None;
        }
        let subscriber = Arc::new(Subscriber::new(key));
        mine.push(subscriber.clone());
        Some(SubscriberGuard { hub: self, agent, subscriber })
    }

    /// Offers new entries to the subscribers of their agents.
    pub(crate) fn publish(&self, entries: &[LogEntry]) {
        let subscribers = self.subscribers.read();
        for LogEntry { agent, entry } in entries {
            let Some(mine) = subscribers.get(agent) else { continue };
            match (entry.cursor.as_number(), text_of(entry)) {
                (Some(number), Some(text)) => mine.iter().for_each(|subscriber| subscriber.offer(number, &text)),
                _ => mine.iter().for_each(|subscriber| subscriber.look()),
            }
        }
    }

    /// Another process wrote to this agent's log, which has entries up to this number now.
    pub(crate) fn hint(&self, agent: AgentKey, up_to: u64) {
        let subscribers = self.subscribers.read();
        subscribers.get(&agent).into_iter().flatten().for_each(|subscriber| subscriber.hint(up_to));
    }

    /// Evicts all subscribers of an agent, because its key has ended.
    pub(crate) fn evict(&self, agent: AgentKey) {
        let subscribers = self.subscribers.read();
        subscribers.get(&agent).into_iter().flatten().for_each(|subscriber| subscriber.evict());
    }

    /// Adds all agents that have a subscriber.
    pub(crate) fn listening(&self, agents: &mut HashSet<AgentKey>) {
        agents.extend(self.subscribers.read().keys());
    }

    /// How many listeners there are.
    pub(crate) fn count(&self) -> usize {
        self.subscribers.read().values().map(Vec::len).sum()
    }

    /// The listeners of one agent, or of all, and how far each is.
    pub(crate) fn subscribers(&self, agent: Option<AgentKey>) -> Vec<(ListenerState, Arc<Subscriber>)> {
        let subscribers = self.subscribers.read();
        let of = |(agent, subscribers): (&AgentKey, &Vec<Arc<Subscriber>>)| -> Vec<_> {
            let position = |subscriber: &Arc<Subscriber>| {
                let at = subscriber.at.load(Ordering::Relaxed);
                (ListenerState { agent: *agent, at, key: subscriber.key }, Arc::clone(subscriber))
            };
            subscribers.iter().map(position).collect()
        };
        match agent {
            Some(agent) => subscribers.get_key_value(&agent).into_iter().flat_map(of).collect(),
            None => subscribers.iter().flat_map(of).collect(),
        }
    }
}

/// The JSON of an entry as it goes over a socket.
pub(crate) fn text_of(entry: &Entry) -> Option<Utf8Bytes> {
    // Only maps with keys that are not text can fail; ours all are.
    serde_json::to_string(entry).ok().map(Utf8Bytes::from)
}

/// Whether such a text is of a receipt. The type comes first, as an event is written.
pub(crate) fn is_receipt(text: &str) -> bool {
    text.starts_with(r#"{"type":"receipt","#)
}

/// Whether this entry of an agent's log pauses the agent (`true`) or resumes it. Cheap for all others.
pub(crate) fn pauses(text: &str, agent: &AgentName) -> Option<bool> {
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
    agent: AgentKey,
    pub(crate) subscriber: Arc<Subscriber>,
}

impl Drop for SubscriberGuard<'_> {
    fn drop(&mut self) {
        let mut subscribers = self.hub.subscribers.write();
        if let Some(mine) = subscribers.get_mut(&self.agent) {
            mine.retain(|subscriber| !Arc::ptr_eq(subscriber, &self.subscriber));
            if mine.is_empty() {
                subscribers.remove(&self.agent);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(subscriber: &Subscriber, number: u64) {
        subscriber.offer(number, &Utf8Bytes::from(number.to_string()));
    }

    #[test]
    fn an_entry_after_the_cursor_is_sent_and_older_ones_are_dropped() {
        let subscriber = Subscriber::new(None);
        (3..=5).for_each(|number| offer(&subscriber, number));
        assert_eq!(subscriber.next(3), Next::Send(4, "4".into()));
        assert_eq!(subscriber.next(4), Next::Send(5, "5".into()));
        assert_eq!(subscriber.next(5), Next::Wait);
    }

    #[test]
    fn what_waits_is_counted_from_the_first() {
        let subscriber = Subscriber::new(None);
        assert_eq!(subscriber.waited(), None);
        let from = Instant::now();
        (1..=3).for_each(|number| offer(&subscriber, number));
        assert!(subscriber.waited().unwrap() <= from.elapsed());
        assert_eq!(subscriber.waited(), None, "all of it was sent");
    }

    #[test]
    fn a_gap_is_read_from_the_log() {
        let subscriber = Subscriber::new(None);
        offer(&subscriber, 7);
        assert_eq!(subscriber.next(5), Next::Look);
        offer(&subscriber, 6);
        assert_eq!(subscriber.next(7), Next::Wait, "6 came with the log");
    }

    #[test]
    fn what_a_paused_agent_is_offered_is_looked_for_in_its_log() {
        let subscriber = Subscriber::new(None);
        subscriber.set_paused(true);
        offer(&subscriber, 4);
        assert_eq!(subscriber.next(3), Next::Look);
        assert_eq!(subscriber.next(3), Next::Wait, "the log showed nothing");
        subscriber.set_paused(false);
        offer(&subscriber, 4);
        assert_eq!(subscriber.next(3), Next::Send(4, "4".into()));
    }

    #[test]
    fn a_hint_of_what_the_listener_has_is_no_reason_to_look() {
        let hub = Hub::default();
        let agent = "7".parse().unwrap();
        let guard = hub.subscribe(agent, None, 1).unwrap();
        guard.subscriber.is_at(5);
        hub.hint(agent, 5);
        assert_eq!(guard.subscriber.next(5), Next::Wait);
        hub.hint(agent, 6);
        assert_eq!(guard.subscriber.next(5), Next::Look);
    }

    #[test]
    fn what_does_not_fit_is_read_from_the_log() {
        let subscriber = Subscriber::new(None);
        let many = QUEUE as u64 + 5;
        (1..=many).for_each(|number| offer(&subscriber, number));
        let mut cursor = 0;
        while let Next::Send(number, _) = subscriber.next(cursor) {
            cursor = number;
        }
        // The last answer was Look; the flag is down again.
        assert_eq!(cursor, QUEUE as u64);
        assert_eq!(subscriber.next(cursor), Next::Wait);
    }
}
