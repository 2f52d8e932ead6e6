//! The inbox of one goal: a bounded queue in memory.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use amb_core::GoalId;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::InboxMessage;

/// Most messages in an inbox; beyond it the oldest is dropped.
pub const INBOX_CAPACITY: usize = 64;

/// Peer messages that wait for a goal's next turn, oldest first, at most [`INBOX_CAPACITY`].
///
/// A turn empties it with [`drain`](Self::drain), as in the original, or better with [`take`](Self::take): what was
/// taken comes back unless the turn confirms that it has used it, so a turn that fails half-way loses nothing.
#[derive(Debug)]
pub struct InboxBuffer {
    goal: GoalId,
    queue: Mutex<VecDeque<Arc<InboxMessage>>>,
    evicted: AtomicU64,
    arrived: Notify,
}

impl InboxBuffer {
    /// An empty inbox for a goal.
    pub fn new(goal: GoalId) -> Self {
        Self { goal, queue: Mutex::default(), evicted: AtomicU64::new(0), arrived: Notify::new() }
    }

    /// Whose inbox it is.
    pub fn goal(&self) -> GoalId {
        self.goal
    }

    /// Adds a message at the end. When the inbox is full the oldest message is dropped, counted and warned about.
    pub fn push(&self, message: impl Into<Arc<InboxMessage>>) {
        let lost = {
            let mut queue = self.queue.lock();
            let lost = if queue.len() >= INBOX_CAPACITY { queue.pop_front() } else { None };
            queue.push_back(message.into());
            lost
        };
        if let Some(lost) = lost {
            self.count_evicted(1, &lost);
        }
        self.arrived.notify_one();
    }

    /// Removes and returns everything, oldest first.
    pub fn drain(&self) -> Vec<InboxMessage> {
        self.queue.lock().drain(..).map(Arc::unwrap_or_clone).collect()
    }

    /// Takes everything, oldest first. A batch that is dropped before it is [confirmed](Batch::confirm), also by a
    /// panic or a cancelled turn, returns to the front of the inbox.
    pub fn take(self: &Arc<Self>) -> Batch {
        let messages = self.queue.lock().drain(..).map(Arc::unwrap_or_clone).collect();
        Batch { messages, home: Some(Arc::clone(self)) }
    }

    /// How many messages wait. Those of an open batch are not among them.
    pub fn len(&self) -> usize {
        self.queue.lock().len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many messages were dropped because the inbox was full.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Waits until something is there. Meant for one waiter; with several, one of them is woken.
    pub async fn arrived(&self) {
        loop {
            if !self.is_empty() {
                return;
            }
            // A push between the check and the wait has left a permit.
            self.arrived.notified().await;
        }
    }

    fn put_back(&self, messages: Vec<InboxMessage>) {
        let mut lost = VecDeque::new();
        {
            let mut queue = self.queue.lock();
            for message in messages.into_iter().rev() {
                queue.push_front(Arc::new(message));
            }
            while queue.len() > INBOX_CAPACITY {
                lost.extend(queue.pop_front());
            }
        }
        if let Some(first) = lost.front() {
            self.count_evicted(lost.len() as u64, first);
        }
        self.arrived.notify_one();
    }

    fn count_evicted(&self, count: u64, oldest: &InboxMessage) {
        let total = self.evicted.fetch_add(count, Ordering::Relaxed) + count;
        tracing::warn!(goal = %self.goal, from = %oldest.from_agent_id, total, "inbox full: the oldest peer message was dropped");
    }
}

/// Messages taken from an inbox and not yet confirmed. Dereferences to a slice; see [`InboxBuffer::take`].
#[derive(Debug)]
#[must_use = "a batch that is dropped without confirm() goes back to the inbox"]
pub struct Batch {
    messages: Vec<InboxMessage>,
    home: Option<Arc<InboxBuffer>>,
}

impl Batch {
    /// Removes the messages for good, after the turn has used them.
    pub fn confirm(mut self) {
        self.home = None;
    }
}

impl Deref for Batch {
    type Target = [InboxMessage];

    fn deref(&self) -> &[InboxMessage] {
        &self.messages
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if let Some(home) = self.home.take()
            && !self.messages.is_empty()
        {
            home.put_back(std::mem::take(&mut self.messages));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::InboxMessage;

    fn message(body: &str) -> InboxMessage {
        InboxMessage {
            from_agent_id: "alice".into(),
            from_goal_id: amb_core::GoalId(uuid::Uuid::from_u128(7)),
            to_agent_id: "bob".into(),
            body: body.into(),
            sent_at: "2026-04-30T14:00:00Z".parse().unwrap(),
            correlation_id: None,
        }
    }

    fn bodies(messages: &[InboxMessage]) -> Vec<&str> {
        messages.iter().map(|message| &*message.body).collect()
    }

    fn inbox(count: usize) -> Arc<InboxBuffer> {
        let inbox = Arc::new(InboxBuffer::new(GoalId(uuid::Uuid::from_u128(1))));
        for number in 0..count {
            inbox.push(message(&number.to_string()));
        }
        inbox
    }

    #[test]
    fn a_full_inbox_drops_the_oldest_and_counts_it() {
        let inbox = inbox(INBOX_CAPACITY + 3);
        assert_eq!((inbox.len(), inbox.evicted()), (INBOX_CAPACITY, 3));
        let drained = inbox.drain();
        assert_eq!(drained[0].body, "3");
        assert_eq!(drained.last().unwrap().body, "66");
        assert!(inbox.is_empty());
    }

    #[test]
    fn a_batch_that_is_not_confirmed_comes_back_in_its_place() {
        let inbox = inbox(2);
        let batch = inbox.take();
        assert_eq!(bodies(&batch), ["0", "1"]);
        assert_eq!(inbox.len(), 0);
        inbox.push(message("2"));
        drop(batch);
        let again = inbox.take();
        assert_eq!(bodies(&again), ["0", "1", "2"]);
        again.confirm();
        assert!(inbox.is_empty());
    }

    #[test]
    fn a_turn_that_panics_gives_its_batch_back() {
        let inbox = inbox(3);
        let turn = Arc::clone(&inbox);
        let outcome = std::thread::spawn(move || {
            let batch = turn.take();
            assert_eq!(batch.len(), 0, "the turn fails here, on purpose");
        });
        assert!(outcome.join().is_err());
        assert_eq!(bodies(&inbox.drain()), ["0", "1", "2"]);
    }

    #[test]
    fn a_returned_batch_makes_room_by_the_same_rule() {
        let inbox = inbox(INBOX_CAPACITY);
        let batch = inbox.take();
        inbox.push(message("new"));
        drop(batch);
        assert_eq!((inbox.len(), inbox.evicted()), (INBOX_CAPACITY, 1));
        assert_eq!(inbox.drain().last().unwrap().body, "new");
    }

    #[tokio::test]
    async fn a_waiter_is_woken_by_a_push() {
        let inbox = inbox(0);
        let waiter = tokio::spawn({
            let inbox = Arc::clone(&inbox);
            async move {
                inbox.arrived().await;
                inbox.drain().len()
            }
        });
        inbox.push(message("hello"));
        assert_eq!(waiter.await.unwrap(), 1);
    }
}
