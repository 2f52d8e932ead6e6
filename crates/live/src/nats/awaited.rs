//! Acknowledgements on the sender's side: which messages await one, and the outcome of each.
//!
//! A message is published with a reply subject `PREFIX.amb.TOKEN`, where the token names a slot here. One reply may
//! acknowledge many messages (see `acks`); the server itself replies with status 503 where nobody listens. Messages to
//! subscribers that never reply, as other runtimes do, time out: one task checks all slots a few times within the
//! timeout, which is cheaper than a timer for each message.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_nats::{Message, StatusCode, Subscriber};
use futures_util::StreamExt;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::bytes::BytesMut;

use super::acks::REPLY_MARK;

/// Checks within the acknowledgement timeout: a message times out at most this fraction too late.
const CHECKS_PER_TIMEOUT: u32 = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AckOutcome {
    Buffered,
    Refused(String),
    NobodyListens,
    ConnectionLost,
    NoAnswer,
}

/// Messages whose acknowledgement is awaited.
#[derive(Debug)]
pub(super) struct Awaited {
    prefix: String,
    timeout: Duration,
    slots: Mutex<Slots>,
    /// Wakes the task that times messages out.
    waiting_began: Notify,
}

#[derive(Debug, Default)]
struct Slots {
    all: Vec<AckSlot>,
    free: Vec<u32>,
    /// Number of checks so far.
    check: u32,
    /// Whether the timeout task is running; it sleeps while nothing waits.
    is_watched: bool,
}

#[derive(Debug)]
struct AckSlot {
    /// Generation of the slot: a late acknowledgement must not settle its next user.
    generation: u32,
    state: AckState,
}

#[derive(Debug)]
enum AckState {
    Free,
    /// Number of the check at which it began to wait, and its waker.
    Waiting(u32, Option<Waker>),
    Settled(AckOutcome),
}

impl Awaited {
    /// `inbox` is a subject that only this connection uses.
    pub(super) fn new(inbox: &str, timeout: Duration) -> Arc<Self> {
        let prefix = format!("{inbox}.{REPLY_MARK}.");
        Arc::new(Self { prefix, timeout, slots: Mutex::default(), waiting_began: Notify::new() })
    }

    /// The subject on which all replies arrive.
    pub(super) fn subject(&self) -> String {
        format!("{}*", self.prefix)
    }

    /// Allocates a slot for the acknowledgement of one message.
    pub(super) fn ask(self: &Arc<Self>) -> PendingAck {
        let mut slots = self.slots.lock();
        let state = AckState::Waiting(slots.check, None);
        let (index, generation) = match slots.free.pop() {
            Some(index) => {
                let slot = &mut slots.all[index as usize];
                slot.state = state;
                (index, slot.generation)
            }
            None => {
                slots.all.push(AckSlot { generation: 0, state });
                (slots.all.len() as u32 - 1, 0)
            }
        };
        let wake = !std::mem::replace(&mut slots.is_watched, true);
        drop(slots);
        if wake {
            self.waiting_began.notify_one();
        }
        PendingAck { index, generation, is_freed: false, owner: Arc::clone(self) }
    }

    /// Handles one reply from the wire.
    fn settle(&self, message: &Message) {
        let Some(token) = message.subject.strip_prefix(&self.prefix) else { return };
        if message.status == Some(StatusCode::NO_RESPONDERS) {
            return self.settle_tokens([token].into_iter(), &AckOutcome::NobodyListens);
        }
        let text = std::str::from_utf8(&message.payload).unwrap_or_default();
        match text.strip_prefix('!') {
            Some(why) => self.settle_tokens([token].into_iter(), &AckOutcome::Refused(why.chars().take(200).collect())),
            None => self.settle_tokens([token].into_iter().chain(text.split_ascii_whitespace()), &AckOutcome::Buffered),
        }
    }

    fn settle_tokens<'a>(&self, tokens: impl Iterator<Item = &'a str>, outcome: &AckOutcome) {
        let mut wakers = Vec::new();
        let mut slots = self.slots.lock();
        for (index, generation) in tokens.filter_map(read_token) {
            if let Some(slot) = slots.all.get_mut(index as usize)
                && slot.generation == generation
            {
                wakers.extend(slot.settle(outcome));
            }
        }
        drop(slots);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Settles every slot as lost, after the connection broke.
    pub(super) fn fail_all(&self) {
        let wakers: Vec<_> =
            self.slots.lock().all.iter_mut().filter_map(|slot| slot.settle(&AckOutcome::ConnectionLost)).collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Times out what has waited too long. Returns whether anything still waits.
    fn expire(&self) -> bool {
        let mut wakers = Vec::new();
        let mut slots = self.slots.lock();
        slots.check = slots.check.wrapping_add(1);
        let now = slots.check;
        let mut waiting = false;
        for slot in &mut slots.all {
            if let AckState::Waiting(since, _) = slot.state {
                match now.wrapping_sub(since) > CHECKS_PER_TIMEOUT {
                    true => wakers.extend(slot.settle(&AckOutcome::NoAnswer)),
                    false => waiting = true,
                }
            }
        }
        slots.is_watched = waiting;
        drop(slots);
        wakers.into_iter().for_each(Waker::wake);
        waiting
    }
}

impl AckSlot {
    /// Returns the waker, to be called without the lock.
    fn settle(&mut self, outcome: &AckOutcome) -> Option<Waker> {
        let AckState::Waiting(_, waker) = &mut self.state else { return None };
        let waker = waker.take();
        self.state = AckState::Settled(outcome.clone());
        waker
    }
}

/// Faster than `format!`, on the path of every message.
fn write_hex(out: &mut BytesMut, number: u32) {
    let digits = (8 - number.leading_zeros() / 4).max(1);
    for place in (0..digits).rev() {
        let digit = (number >> (4 * place)) & 0xf;
        out.extend_from_slice(&[b"0123456789abcdef"[digit as usize]]);
    }
}

fn read_token(token: &str) -> Option<(u32, u32)> {
    let (index, generation) = token.split_once('-')?;
    Some((u32::from_str_radix(index, 16).ok()?, u32::from_str_radix(generation, 16).ok()?))
}

/// Future of one acknowledgement. Dropping it frees the slot.
#[derive(Debug)]
pub(super) struct PendingAck {
    index: u32,
    generation: u32,
    /// Whether the slot was freed.
    is_freed: bool,
    owner: Arc<Awaited>,
}

impl PendingAck {
    /// Upper bound of the reply subject's length in bytes.
    pub(super) fn reply_size(&self) -> usize {
        self.owner.prefix.len() + 17
    }

    /// Writes the reply subject of the message.
    pub(super) fn write_reply(&self, out: &mut BytesMut) {
        out.extend_from_slice(self.owner.prefix.as_bytes());
        write_hex(out, self.index);
        out.extend_from_slice(b"-");
        write_hex(out, self.generation);
    }

    fn free(slots: &mut Slots, index: u32) {
        let slot = &mut slots.all[index as usize];
        slot.state = AckState::Free;
        slot.generation = slot.generation.wrapping_add(1);
        slots.free.push(index);
    }
}

impl Future for PendingAck {
    type Output = AckOutcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<AckOutcome> {
        let pending = &mut *self;
        let mut slots = pending.owner.slots.lock();
        match &mut slots.all[pending.index as usize].state {
            // Polled again after completion.
            _ if pending.is_freed => Poll::Ready(AckOutcome::ConnectionLost),
            AckState::Waiting(_, Some(waker)) if waker.will_wake(context.waker()) => Poll::Pending,
            AckState::Waiting(_, waker) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            AckState::Settled(outcome) => {
                let outcome = std::mem::replace(outcome, AckOutcome::Buffered);
                PendingAck::free(&mut slots, pending.index);
                drop(slots);
                pending.is_freed = true;
                Poll::Ready(outcome)
            }
            AckState::Free => Poll::Ready(AckOutcome::ConnectionLost),
        }
    }
}

impl Drop for PendingAck {
    fn drop(&mut self) {
        if !self.is_freed {
            PendingAck::free(&mut self.owner.slots.lock(), self.index);
        }
    }
}

/// Reads acknowledgements until the connection is closed for good.
pub(super) async fn listen(mut answers: Subscriber, awaited: Arc<Awaited>) {
    while let Some(message) = answers.next().await {
        awaited.settle(&message);
    }
}

/// Times out messages that are not acknowledged in time.
pub(super) async fn watch(awaited: Arc<Awaited>) {
    loop {
        awaited.waiting_began.notified().await;
        loop {
            tokio::time::sleep(awaited.timeout / CHECKS_PER_TIMEOUT).await;
            if !awaited.expire() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn awaited() -> Arc<Awaited> {
        Awaited::new("_INBOX.x", Duration::from_secs(2))
    }

    fn reply(pending: &PendingAck) -> String {
        let mut reply = BytesMut::new();
        pending.write_reply(&mut reply);
        assert!(reply.len() <= pending.reply_size());
        String::from_utf8(reply.to_vec()).unwrap()
    }

    fn answer(to: &PendingAck, payload: &str) -> Message {
        Message {
            subject: reply(to).into(),
            reply: None,
            payload: payload.to_owned().into(),
            headers: None,
            status: None,
            description: None,
            length: 0,
        }
    }

    fn token(pending: &PendingAck) -> String {
        reply(pending).rsplit('.').next().unwrap().to_owned()
    }

    fn waiting(awaited: &Awaited) -> usize {
        let slots = awaited.slots.lock();
        slots.all.len() - slots.free.len()
    }

    #[tokio::test]
    async fn one_reply_settles_all_that_it_names_and_no_other() {
        let awaited = awaited();
        let [first, second, third] = std::array::from_fn(|_| awaited.ask());
        awaited.settle(&answer(&first, &format!("{} ", token(&third))));
        assert_eq!(first.await, AckOutcome::Buffered);
        assert_eq!(third.await, AckOutcome::Buffered);
        awaited.settle(&answer(&second, "!the goal has ended"));
        assert_eq!(second.await, AckOutcome::Refused("the goal has ended".into()));
        assert_eq!(waiting(&awaited), 0);
    }

    #[test]
    fn a_token_is_read_as_it_was_written() {
        for number in [0, 1, 9, 0xa, 0xf, 0x10, 0xff, 0x1234_5678, u32::MAX] {
            let mut out = BytesMut::new();
            write_hex(&mut out, number);
            assert_eq!(out, format!("{number:x}"));
            assert_eq!(read_token(&format!("{number:x}-{number:x}")), Some((number, number)));
        }
    }

    #[tokio::test]
    async fn a_lost_connection_settles_all_slots() {
        let awaited = awaited();
        let pending = awaited.ask();
        awaited.fail_all();
        assert_eq!(pending.await, AckOutcome::ConnectionLost);
    }

    #[test]
    fn a_dropped_acknowledgement_frees_its_slot() {
        let awaited = awaited();
        drop(awaited.ask());
        assert_eq!(waiting(&awaited), 0);
    }

    #[tokio::test]
    async fn a_late_reply_does_not_settle_the_next_user_of_the_slot() {
        let awaited = awaited();
        let late = awaited.ask();
        let answer = answer(&late, "");
        drop(late);
        let next = awaited.ask();
        awaited.settle(&answer);
        awaited.fail_all();
        assert_eq!(next.await, AckOutcome::ConnectionLost);
    }

    #[tokio::test]
    async fn an_unacknowledged_message_times_out_and_not_sooner() {
        let awaited = awaited();
        let pending = awaited.ask();
        for _ in 0..CHECKS_PER_TIMEOUT {
            assert!(awaited.expire(), "it still waits");
        }
        assert!(!awaited.expire());
        assert_eq!(pending.await, AckOutcome::NoAnswer);
    }
}
