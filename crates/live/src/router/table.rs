//! A router's state: buffers of registered goals, bounded buffers of goals not yet registered, and ended goals.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use amb_core::{GoalId, RecentSet};

use super::RouterOptions;
use crate::broker::Subscription;
use crate::buffer::InboxBuffer;

/// Ended goals remembered, so that late messages are refused at once.
const REMEMBERED_ENDS: usize = 4_096;
/// Remembered ids of publications that may come twice.
const REMEMBERED_IDS: usize = 8_192;

/// The state of a goal's subscription.
#[derive(Debug)]
pub(super) enum SubscriptionState {
    /// To be made.
    Wanted,
    /// Being made.
    Trying,
    /// Active while this is held.
    Up(#[expect(dead_code, reason = "held for its drop, which ends the subscription")] Subscription),
    /// The last try failed; another will follow.
    Failed(String),
}

#[derive(Debug)]
struct GoalSlot {
    buffer: Arc<InboxBuffer>,
    subscription: SubscriptionState,
    /// Set while the goal has not registered.
    waiting: Option<WaitingMail>,
}

#[derive(Debug)]
struct WaitingMail {
    since: Instant,
    bytes: usize,
}

#[derive(Debug, Default)]
pub(super) struct RoutingTable {
    slots: HashMap<GoalId, GoalSlot>,
    /// Goals in `slots` that wait, in the order in which they began to. May name goals that have registered or ended
    /// since.
    queue: VecDeque<GoalId>,
    waiting: usize,
    waiting_bytes: usize,
    ended: RecentSet<GoalId, REMEMBERED_ENDS>,
    seen: RecentSet<Box<str>, REMEMBERED_IDS>,
    pub(super) todo: Vec<GoalId>,
}

impl RoutingTable {
    pub(super) fn register(&mut self, goal: GoalId) -> Arc<InboxBuffer> {
        self.ended.remove(&goal);
        let slot = self.slots.entry(goal).or_insert_with(|| GoalSlot::new(goal, None));
        if let Some(waiting) = slot.waiting.take() {
            self.waiting -= 1;
            self.waiting_bytes -= waiting.bytes;
        }
        Arc::clone(&slot.buffer)
    }

    pub(super) fn expect(&mut self, goal: GoalId, now: Instant, options: &RouterOptions) {
        self.ended.remove(&goal);
        if !self.slots.contains_key(&goal) && self.make_room(now, options) {
            self.add_waiting(goal, now);
        }
    }

    /// Returns the buffer for a message, or why there is none.
    pub(super) fn buffer_for(
        &mut self,
        goal: GoalId,
        bytes: usize,
        options: &RouterOptions,
    ) -> Result<Arc<InboxBuffer>, &'static str> {
        if let Some(GoalSlot { buffer, waiting: None, .. }) = self.slots.get(&goal) {
            return Ok(Arc::clone(buffer));
        }
        if self.ended.contains(&goal) {
            return Err("the goal has ended");
        }
        let now = Instant::now();
        if self.waiting_bytes + bytes > options.max_waiting_bytes {
            return Err("too much mail waits for goals that have not registered");
        }
        if !self.slots.contains_key(&goal) {
            if !self.make_room(now, options) {
                return Err("too many goals that have not registered have mail waiting");
            }
            self.add_waiting(goal, now);
        }
        let slot = self.slots.get_mut(&goal).ok_or("the goal has ended")?;
        if let Some(waiting) = &mut slot.waiting {
            waiting.bytes += bytes;
            self.waiting_bytes += bytes;
        }
        Ok(Arc::clone(&slot.buffer))
    }

    fn add_waiting(&mut self, goal: GoalId, now: Instant) {
        self.slots.insert(goal, GoalSlot::new(goal, Some(now)));
        self.queue.push_back(goal);
        self.waiting += 1;
    }

    /// Whether one more goal may wait, after removing expired ones. Others are never evicted, so that a flood of
    /// made-up goal ids cannot push out the mail of a goal that is about to start.
    fn make_room(&mut self, now: Instant, options: &RouterOptions) -> bool {
        if self.waiting >= options.max_waiting_goals {
            drop(self.sweep(now, options.waiting_time));
        }
        self.waiting < options.max_waiting_goals
    }

    /// Removes buffers that have waited too long. Returns their subscriptions, to be dropped outside the lock.
    pub(super) fn sweep(&mut self, now: Instant, waiting_time: Duration) -> Vec<SubscriptionState> {
        let mut ended = Vec::new();
        while let Some(goal) = self.queue.front() {
            match self.slots.get(goal).and_then(|slot| slot.waiting.as_ref()) {
                Some(waiting) if now.saturating_duration_since(waiting.since) < waiting_time => break,
                Some(waiting) => {
                    self.waiting -= 1;
                    self.waiting_bytes -= waiting.bytes;
                    let goal = *goal;
                    if let Some(slot) = self.slots.remove(&goal) {
                        let lost = slot.buffer.len();
                        if lost > 0 {
                            tracing::warn!(%goal, lost, "a goal never registered; the mail that waited for it was dropped");
                        }
                        ended.push(slot.subscription);
                    }
                }
                None => {}
            }
            self.queue.pop_front();
        }
        ended
    }

    pub(super) fn forget(&mut self, goal: GoalId) -> Option<SubscriptionState> {
        self.ended.insert(goal);
        let slot = self.slots.remove(&goal)?;
        if let Some(waiting) = slot.waiting {
            self.waiting -= 1;
            self.waiting_bytes -= waiting.bytes;
        }
        Some(slot.subscription)
    }

    pub(super) fn subscription(&self, goal: GoalId) -> Option<&SubscriptionState> {
        self.slots.get(&goal).map(|slot| &slot.subscription)
    }

    /// Whether the caller should subscribe now, because nobody else does.
    pub(super) fn claim_subscribing(&mut self, goal: GoalId) -> bool {
        match self.slots.get_mut(&goal) {
            Some(GoalSlot {
                subscription: subscription @ (SubscriptionState::Wanted | SubscriptionState::Failed(_)),
                ..
            }) => {
                *subscription = SubscriptionState::Trying;
                true
            }
            _ => false,
        }
    }

    /// Returns the state that is no longer used, to be dropped outside the lock.
    pub(super) fn set_subscription(&mut self, goal: GoalId, subscription: SubscriptionState) -> SubscriptionState {
        match self.slots.get_mut(&goal) {
            Some(slot) => std::mem::replace(&mut slot.subscription, subscription),
            None => subscription,
        }
    }

    pub(super) fn take_subscriptions(&mut self) -> Vec<SubscriptionState> {
        self.slots
            .values_mut()
            .map(|slot| std::mem::replace(&mut slot.subscription, SubscriptionState::Wanted))
            .collect()
    }

    /// Whether a publication with this id is in a buffer already, or was.
    pub(super) fn has_seen(&self, id: &str) -> bool {
        self.seen.contains(id)
    }

    /// Records that a publication with this id went into a buffer.
    pub(super) fn mark_seen(&mut self, id: &str) {
        self.seen.insert(id.into());
    }

    pub(super) fn registered(&self) -> usize {
        self.slots.len() - self.waiting
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }
}

impl GoalSlot {
    fn new(goal: GoalId, waiting: Option<Instant>) -> Self {
        Self {
            buffer: Arc::new(InboxBuffer::new(goal)),
            subscription: SubscriptionState::Wanted,
            waiting: waiting.map(|since| WaitingMail { since, bytes: 0 }),
        }
    }
}
