//! The messages that a bridge holds: running, waiting for their turn, or waiting for a retry.
//!
//! The messages of one session are handled in the order in which they were sent. One that failed holds back later ones
//! of its session for a bounded time; then those go first.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use amb_core::{Message, MessageId, Priority, SessionId, Timestamp};
use tokio::time::Instant;

/// The most messages that are claimed without running. While fewer wait for busy conversations, those of others are
/// still claimed; above it messages stay in the office.
pub(crate) const MAX_HELD: usize = 1_000;

/// A message that this bridge has to handle.
#[derive(Debug, Clone)]
pub(crate) struct HeldMessage {
    pub(crate) mail: Message,
    /// Until when it is claimed. `None` for one that no claim returns: revived, or read by the agent itself meanwhile.
    pub(crate) until: Option<Timestamp>,
    pub(crate) session: SessionId,
    /// The runtime's conversation in which it is handled, one turn at a time.
    pub(crate) conversation: String,
    /// Whether it is not the first message of its session.
    pub(crate) is_later: bool,
    /// Until when, counted from its first failure, it holds back the rest of its session while it waits for a retry.
    pub(crate) holds_until: Option<Instant>,
}

#[derive(Debug)]
struct RunningTurn {
    conversation: String,
    /// The message, unless the turn is about connection requests; and whether it is claimed.
    mail: Option<(MessageId, bool)>,
}

#[derive(Debug)]
pub(crate) struct MessageQueue {
    /// Messages that failed, and when they are retried.
    waiting: Vec<(Instant, HeldMessage)>,
    /// Messages that wait for their turn: within a session by the time of sending, sessions by arrival.
    parked: VecDeque<HeldMessage>,
    running: Vec<RunningTurn>,
    /// How long a message that failed holds back the rest of its session.
    hold: Duration,
}

impl MessageQueue {
    pub(crate) fn new(hold: Duration) -> Self {
        Self { waiting: Vec::new(), parked: VecDeque::new(), running: Vec::new(), hold }
    }

    /// How many messages wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.parked.len()
    }

    pub(crate) fn under_way(&self) -> Vec<MessageId> {
        self.running.iter().filter_map(|running| Some(running.mail.as_ref()?.0.clone())).collect()
    }

    pub(crate) fn is_busy(&self, conversation: &str) -> bool {
        self.running.iter().any(|running| running.conversation == conversation)
    }

    pub(crate) fn is_running(&self, id: &MessageId) -> bool {
        self.running.iter().any(|running| running.mail.as_ref().is_some_and(|(mail, _)| mail == id))
    }

    /// Whether the message waits for a retry.
    pub(crate) fn is_waiting(&self, id: &MessageId) -> bool {
        self.waiting.iter().any(|(_, held)| held.mail.id == *id)
    }

    /// Until when a message that failed holds back this session. May be in the past.
    fn held_back_until(&self, session: &SessionId) -> Option<Instant> {
        let failed = self.waiting.iter().filter(|(_, held)| held.session == *session);
        failed.filter_map(|(_, held)| held.holds_until).max()
    }

    /// Adds a message to be retried at this time.
    pub(crate) fn wait(&mut self, at: Instant, mut held: HeldMessage) {
        held.holds_until.get_or_insert_with(|| Instant::now() + self.hold);
        self.waiting.push((at, held));
    }

    /// Adds a message that waits for its conversation, before later ones of its session.
    pub(crate) fn park(&mut self, held: HeldMessage) {
        let is_after = |other: &HeldMessage| other.session == held.session && other.mail.sent_at > held.mail.sent_at;
        let at = self.parked.iter().position(is_after).unwrap_or(self.parked.len());
        self.parked.insert(at, held);
    }

    /// Removes a message that has been claimed anew.
    pub(crate) fn forget(&mut self, id: &MessageId) {
        self.waiting.retain(|(_, held)| held.mail.id != *id);
        self.parked.retain(|held| held.mail.id != *id);
    }

    pub(crate) fn begin(&mut self, conversation: &str, mail: Option<&HeldMessage>) {
        let mail = mail.map(|held| (held.mail.id.clone(), held.until.is_some()));
        self.running.push(RunningTurn { conversation: conversation.to_owned(), mail });
    }

    pub(crate) fn end(&mut self, conversation: &str) {
        self.running.retain(|running| running.conversation != conversation);
    }

    /// Returns the next message that can run now: one whose retry is due; else the first of a session whose
    /// conversation is free and that nothing holds back, sessions with urgent messages before others.
    pub(crate) fn next(&mut self, now: Instant) -> Option<HeldMessage> {
        if let Some(due) = self.waiting.iter().position(|(at, held)| *at <= now && !self.is_busy(&held.conversation)) {
            return Some(self.waiting.swap_remove(due).1);
        }
        // The first message of each session, and the highest priority in it.
        let mut sessions: HashMap<&SessionId, (Reverse<Priority>, usize)> = HashMap::new();
        for (at, held) in self.parked.iter().enumerate() {
            let priority = Reverse(held.mail.priority);
            let (most, _) = sessions.entry(&held.session).or_insert((priority, at));
            *most = (*most).min(priority);
        }
        let can_begin = |at: usize| {
            self.parked.get(at).is_some_and(|held| {
                !self.is_busy(&held.conversation)
                    && self.held_back_until(&held.session).is_none_or(|until| until <= now)
            })
        };
        let (_, first) = sessions.into_values().filter(|(_, at)| can_begin(*at)).min()?;
        self.parked.remove(first)
    }

    /// When something can start without an event: a retry is due, or a session is no longer held back. May be in the
    /// past, since a hold can end after the last call of `next`.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let free = self.waiting.iter().filter(|(_, held)| !self.is_busy(&held.conversation));
        let tries = free.map(|(at, _)| *at);
        let parked = self.parked.iter().filter(|held| !self.is_busy(&held.conversation));
        tries.chain(parked.filter_map(|held| self.held_back_until(&held.session))).min()
    }

    /// Removes the messages that wait for this conversation.
    pub(crate) fn take_parked(&mut self, conversation: &str) -> Vec<HeldMessage> {
        let (taken, kept) = self.parked.drain(..).partition(|held| held.conversation == conversation);
        self.parked = kept;
        Vec::from(taken)
    }

    /// Removes all claimed messages that wait.
    pub(crate) fn take_claimed(&mut self) -> Vec<HeldMessage> {
        let (taken, kept) = self.parked.drain(..).partition(|held| held.until.is_some());
        self.parked = kept;
        let mut taken = Vec::from(taken);
        taken.extend(self.waiting.extract_if(.., |(_, held)| held.until.is_some()).map(|(_, held)| held));
        taken
    }

    /// Removes everything, and returns what is claimed.
    pub(crate) fn drain_claimed(&mut self) -> Vec<MessageId> {
        let waiting = self.waiting.drain(..).map(|(_, held)| held);
        let held = waiting.chain(self.parked.drain(..)).filter(|held| held.until.is_some()).map(|held| held.mail.id);
        let mut claimed: Vec<MessageId> = held.collect();
        claimed
            .extend(self.running.drain(..).filter_map(|running| running.mail.filter(|mail| mail.1)).map(|mail| mail.0));
        claimed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn held(id: &str, session: &str, sent: i64, priority: Priority) -> HeldMessage {
        let mail = serde_json::json!({
            "id": id, "from": "ann", "to": "ben", "sent_at": Timestamp::from_second(sent).unwrap(), "session": session,
            "parts": [], "priority": priority, "ttl": 1, "trace": [],
        });
        let mail: Message = serde_json::from_value(mail).unwrap();
        let session = mail.session.clone().unwrap();
        HeldMessage { mail, until: None, session, conversation: "one".into(), is_later: false, holds_until: None }
    }

    fn order(queue: &mut MessageQueue) -> Vec<String> {
        std::iter::from_fn(|| queue.next(Instant::now())).map(|held| held.mail.id.to_string()).collect()
    }

    #[test]
    fn urgent_mail_overtakes_other_sessions_and_never_its_own() {
        let mut queue = MessageQueue::new(HOUR);
        queue.park(held("other", "session-1", 1, Priority::Normal));
        queue.park(held("urgent", "session-2", 4, Priority::Urgent));
        queue.park(held("first", "session-2", 2, Priority::Normal));
        queue.park(held("last", "session-2", 5, Priority::Normal));
        assert_eq!(order(&mut queue), ["first", "urgent", "other", "last"]);
    }

    #[test]
    fn a_mail_that_failed_holds_back_its_own_session_for_a_bounded_time() {
        let mut queue = MessageQueue::new(HOUR);
        let now = Instant::now();
        queue.wait(now + HOUR * 2, held("failed", "session-1", 1, Priority::Normal));
        queue.park(held("behind", "session-1", 2, Priority::Urgent));
        queue.park(held("other", "session-2", 3, Priority::Normal));
        assert_eq!(order(&mut queue), ["other"]);
        let until = queue.next_due().unwrap();
        assert!(until < now + HOUR + Duration::from_secs(60), "it is looked at again when the time is over");
        assert_eq!(queue.next(until).unwrap().mail.id.as_str(), "behind");
        assert_eq!(queue.next_due(), Some(now + HOUR * 2), "only the next try is left");
    }

    #[test]
    fn a_hold_that_ends_between_looking_and_waiting_is_not_missed() {
        let mut queue = MessageQueue::new(Duration::ZERO);
        let before = Instant::now();
        queue.wait(before + HOUR, held("failed", "session-1", 1, Priority::Normal));
        queue.park(held("behind", "session-1", 2, Priority::Normal));
        assert!(queue.next(before - Duration::from_secs(1)).is_none(), "held back at the moment of the look");
        assert!(queue.next_due().unwrap() <= Instant::now(), "due at once, although the hold is over");
    }
}
