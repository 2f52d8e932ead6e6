//! What comes from the wire.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use async_nats::{Client, Message, Subscriber};
use futures_util::stream::SelectAll;
use futures_util::task::AtomicWaker;
use futures_util::{FutureExt, Stream, StreamExt};
use tokio::sync::mpsc;

use super::ID_HEADER;
use super::answers::{ANSWERS_AT_ONCE, Acknowledgement, together};
use super::presence::PresenceBucket;
use super::wire::Wire;
use crate::broker::{Inlet, Parcel};

/// Subscriptions that may wait to be taken up.
const NEW_SUBSCRIPTIONS: usize = 256;
/// Messages that one goal may have taken in before the others' turn.
const TURN: usize = 64;
/// Messages found at once that tell of more to come.
const BUSY: usize = 8;

/// One goal's messages, and where they go. Each turn of it answers what is to be told to their senders. Dropping it
/// unsubscribes.
pub(super) struct GoalSubscription {
    messages: Subscriber,
    inlet: Arc<dyn Inlet>,
    end: Arc<Unsubscribe>,
}

/// Ends a line from elsewhere.
#[derive(Default)]
pub(super) struct Unsubscribe {
    came: AtomicBool,
    line: AtomicWaker,
}

impl Unsubscribe {
    pub(super) fn come(&self) {
        self.came.store(true, Ordering::Release);
        self.line.wake();
    }
}

impl GoalSubscription {
    /// A goal's messages for the router, until the end that comes with it.
    pub(super) fn new(messages: Subscriber, inlet: Arc<dyn Inlet>) -> (Self, Arc<Unsubscribe>) {
        let end = Arc::<Unsubscribe>::default();
        (Self { messages, inlet, end: Arc::clone(&end) }, end)
    }
}

impl Stream for GoalSubscription {
    type Item = Vec<Acknowledgement>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Vec<Acknowledgement>>> {
        let line = &mut *self;
        if line.end.came.load(Ordering::Acquire) {
            return Poll::Ready(None);
        }
        let mut answers = Vec::new();
        for taken in 0..TURN {
            match line.messages.poll_next_unpin(context) {
                Poll::Ready(Some(message)) => answers.extend(take(message, &*line.inlet)),
                Poll::Ready(None) if taken == 0 => return Poll::Ready(None),
                Poll::Pending if taken == 0 => {
                    line.end.line.register(context.waker());
                    // It may have come between the look and the registration.
                    return match line.end.came.load(Ordering::Acquire) {
                        true => Poll::Ready(None),
                        false => Poll::Pending,
                    };
                }
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        Poll::Ready(Some(answers))
    }
}

/// The way to the task that receives.
pub(super) fn lines() -> (mpsc::Sender<GoalSubscription>, mpsc::Receiver<GoalSubscription>) {
    mpsc::channel(NEW_SUBSCRIPTIONS)
}

/// Hands every goal's messages to the router and answers them. One task for all goals: under load it finds many messages
/// ready at once, wakes for them once, and answers each sender once.
pub(super) async fn receive(client: Client, mut new: mpsc::Receiver<GoalSubscription>) {
    let mut lines = SelectAll::new();
    let mut answers = Vec::new();
    loop {
        tokio::select! {
            line = new.recv() => match line {
                Some(line) => lines.push(line),
                None => return,
            },
            Some(first) = lines.next(), if !lines.is_empty() => {
                answers.extend(first);
                gather(&mut lines, &mut answers);
                if answers.len() > BUSY {
                    // Let the connection read on first: one answer for more messages.
                    tokio::task::yield_now().await;
                    gather(&mut lines, &mut answers);
                }
                for (reply, payload) in together(answers.drain(..)) {
                    if let Err(error) = client.publish(reply, payload).await {
                        tracing::debug!(%error, "an acknowledgement could not be sent");
                    }
                }
            }
        }
    }
}

/// Takes in what is there.
fn gather(lines: &mut SelectAll<GoalSubscription>, answers: &mut Vec<Acknowledgement>) {
    while answers.len() < ANSWERS_AT_ONCE
        && let Some(Some(more)) = lines.next().now_or_never()
    {
        answers.extend(more);
    }
}

fn take(message: Message, inlet: &dyn Inlet) -> Option<Acknowledgement> {
    let verdict = if message.payload.is_empty() {
        // A knock: is anybody there?
        Ok(())
    } else {
        let id = message.headers.as_ref().and_then(|headers| headers.get(ID_HEADER));
        inlet.deliver(&message.subject, Parcel::Raw(message.payload), id.map(|id| id.as_str()))
    };
    message.reply.map(|reply| Acknowledgement { reply, verdict })
}

/// Takes note of what other processes write about their goals.
pub(super) async fn hear_presence(mut messages: Subscriber, presence: Arc<PresenceBucket>) {
    while let Some(message) = messages.next().await {
        presence.hear(&message);
    }
}

/// Tells others, again and again, that this process's goals live.
pub(super) async fn keep_present(presence: Arc<PresenceBucket>, wire: Arc<Wire>) {
    presence.keep(|| wire.is_connected()).await;
}
