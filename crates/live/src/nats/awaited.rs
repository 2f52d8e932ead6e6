//! Acknowledgements, the sender's side: which messages await one, and the outcome of each.
//!
//! A message is published with a reply subject `PREFIX.amb.TOKEN`, where the token names a slot here. One answer may settle
//! many (see `answers`); the server itself answers with status 503 where nobody listens. A subscriber that never answers
//! (the original's) is noticed by the time that passes: one task looks at all slots a few times within the patience, which
//! is cheaper than a timer for each message.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_nats::{Message, StatusCode, Subscriber};
use futures_util::StreamExt;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::bytes::BytesMut;

use super::answers::MARK;

/// Checks within the acknowledgement timeout: a message times out at most this fraction too late.
const LOOKS: u32 = 8;

/// The outcome of one message.
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
    patience: Duration,
    slots: Mutex<Slots>,
    /// Wakes the task that times messages out.
    some: Notify,
}

#[derive(Debug, Default)]
struct Slots {
    all: Vec<AckSlot>,
    free: Vec<u32>,
    /// Number of checks so far.
    look: u32,
    /// Whether the timeout task is running; it sleeps while nothing waits.
    watched: bool,
}

#[derive(Debug)]
struct AckSlot {
    /// Generation of the slot: a late acknowledgement must not settle its next user.
    turn: u32,
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
    /// `inbox` is a subject of this connection alone.
    pub(super) fn new(inbox: &str, patience: Duration) -> Arc<Self> {
        let prefix = format!("{inbox}.{MARK}.");
        Arc::new(Self { prefix, patience, slots: Mutex::default(), some: Notify::new() })
    }

    /// The subject on which all answers come.
    pub(super) fn subject(&self) -> String {
        format!("{}*", self.prefix)
    }

    /// Allocates a slot for the acknowledgement of one message.
    pub(super) fn ask(self: &Arc<Self>) -> PendingAck {
        let mut slots = self.slots.lock();
        let state = AckState::Waiting(slots.look, None);
        let (index, turn) = match slots.free.pop() {
            Some(index) => {
                let slot = &mut slots.all[index as usize];
                slot.state = state;
                (index, slot.turn)
            }
            None => {
                slots.all.push(AckSlot { turn: 0, state });
                (slots.all.len() as u32 - 1, 0)
            }
        };
        let wake = !std::mem::replace(&mut slots.watched, true);
        drop(slots);
        if wake {
            self.some.notify_one();
        }
        PendingAck { index, turn, done: false, owner: Arc::clone(self) }
    }

    /// Handles one reply from the wire.
    fn settle(&self, message: &Message) {
        let Some(token) = message.subject.strip_prefix(&self.prefix) else { return };
        if message.status == Some(StatusCode::NO_RESPONDERS) {
            return self.tell([token].into_iter(), &AckOutcome::NobodyListens);
        }
        let text = std::str::from_utf8(&message.payload).unwrap_or_default();
        match text.strip_prefix('!') {
            Some(why) => self.tell([token].into_iter(), &AckOutcome::Refused(why.chars().take(200).collect())),
            None => self.tell([token].into_iter().chain(text.split_ascii_whitespace()), &AckOutcome::Buffered),
        }
    }

    fn tell<'a>(&self, tokens: impl Iterator<Item = &'a str>, verdict: &AckOutcome) {
        let mut wakers = Vec::new();
        let mut slots = self.slots.lock();
        for (index, turn) in tokens.filter_map(read_token) {
            if let Some(slot) = slots.all.get_mut(index as usize)
                && slot.turn == turn
            {
                wakers.extend(slot.settle(verdict));
            }
        }
        drop(slots);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Settles every slot as lost, after the connection broke.
    pub(super) fn lose_all(&self) {
        let wakers: Vec<_> =
            self.slots.lock().all.iter_mut().filter_map(|slot| slot.settle(&AckOutcome::ConnectionLost)).collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Times out what has waited too long. Returns whether anything still waits.
    fn look(&self) -> bool {
        let mut wakers = Vec::new();
        let mut slots = self.slots.lock();
        slots.look = slots.look.wrapping_add(1);
        let now = slots.look;
        let mut waiting = false;
        for slot in &mut slots.all {
            if let AckState::Waiting(since, _) = slot.state {
                match now.wrapping_sub(since) > LOOKS {
                    true => wakers.extend(slot.settle(&AckOutcome::NoAnswer)),
                    false => waiting = true,
                }
            }
        }
        slots.watched = waiting;
        drop(slots);
        wakers.into_iter().for_each(Waker::wake);
        waiting
    }
}

impl AckSlot {
    /// Returns the waker, to be called without the lock.
    fn settle(&mut self, verdict: &AckOutcome) -> Option<Waker> {
        let AckState::Waiting(_, waker) = &mut self.state else { return None };
        let waker = waker.take();
        self.state = AckState::Settled(verdict.clone());
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
    let (index, turn) = token.split_once('-')?;
    Some((u32::from_str_radix(index, 16).ok()?, u32::from_str_radix(turn, 16).ok()?))
}

/// Future of one acknowledgement. Dropping it frees the slot.
#[derive(Debug)]
pub(super) struct PendingAck {
    index: u32,
    turn: u32,
    /// The slot was given back.
    done: bool,
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
        write_hex(out, self.turn);
    }

    fn leave(slots: &mut Slots, index: u32) {
        let slot = &mut slots.all[index as usize];
        slot.state = AckState::Free;
        slot.turn = slot.turn.wrapping_add(1);
        slots.free.push(index);
    }
}

impl Future for PendingAck {
    type Output = AckOutcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<AckOutcome> {
        let question = &mut *self;
        let mut slots = question.owner.slots.lock();
        match &mut slots.all[question.index as usize].state {
            // Polled again after completion.
            _ if question.done => Poll::Ready(AckOutcome::ConnectionLost),
            AckState::Waiting(_, Some(waker)) if waker.will_wake(context.waker()) => Poll::Pending,
            AckState::Waiting(_, waker) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            AckState::Settled(verdict) => {
                let verdict = std::mem::replace(verdict, AckOutcome::Buffered);
                PendingAck::leave(&mut slots, question.index);
                drop(slots);
                question.done = true;
                Poll::Ready(verdict)
            }
            AckState::Free => Poll::Ready(AckOutcome::ConnectionLost),
        }
    }
}

impl Drop for PendingAck {
    fn drop(&mut self) {
        if !self.done {
            PendingAck::leave(&mut self.owner.slots.lock(), self.index);
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
        awaited.some.notified().await;
        loop {
            tokio::time::sleep(awaited.patience / LOOKS).await;
            if !awaited.look() {
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

    fn reply(question: &PendingAck) -> String {
        let mut reply = BytesMut::new();
        question.write_reply(&mut reply);
        assert!(reply.len() <= question.reply_size());
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

    fn token(question: &PendingAck) -> String {
        reply(question).rsplit('.').next().unwrap().to_owned()
    }

    fn waiting(awaited: &Awaited) -> usize {
        let slots = awaited.slots.lock();
        slots.all.len() - slots.free.len()
    }

    #[tokio::test]
    async fn one_answer_settles_all_that_it_names_and_no_other() {
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
    async fn a_lost_connection_answers_everybody() {
        let awaited = awaited();
        let question = awaited.ask();
        awaited.lose_all();
        assert_eq!(question.await, AckOutcome::ConnectionLost);
    }

    #[test]
    fn a_question_nobody_waits_for_is_forgotten() {
        let awaited = awaited();
        drop(awaited.ask());
        assert_eq!(waiting(&awaited), 0);
    }

    #[tokio::test]
    async fn an_answer_that_comes_too_late_settles_no_other_question() {
        let awaited = awaited();
        let late = awaited.ask();
        let answer = answer(&late, "");
        drop(late);
        let next = awaited.ask();
        awaited.settle(&answer);
        awaited.lose_all();
        assert_eq!(next.await, AckOutcome::ConnectionLost);
    }

    #[tokio::test]
    async fn what_nobody_answers_is_given_up_and_not_sooner() {
        let awaited = awaited();
        let question = awaited.ask();
        for _ in 0..LOOKS {
            assert!(awaited.look(), "it still waits");
        }
        assert!(!awaited.look());
        assert_eq!(question.await, AckOutcome::NoAnswer);
    }
}
