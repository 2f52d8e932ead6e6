//! Receives messages and presence from the wire.

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

/// Capacity of the queue of new subscriptions.
const NEW_SUBSCRIPTIONS: usize = 256;
/// Most messages of one goal before the others get a turn.
const TURN: usize = 64;
/// A turn with this many messages suggests that more are coming.
const BUSY: usize = 8;

/// One goal's messages and their inlet, as a stream of acknowledgements to send. Dropping it unsubscribes.
pub(super) struct GoalSubscription {
    messages: Subscriber,
    inlet: Arc<dyn Inlet>,
    end: Arc<Unsubscribe>,
}

/// Ends a subscription from another task.
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
    /// Returns the stream and the handle that ends it.
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
                    // The end may have come between the check and the registration.
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

/// The queue to the receiving task.
pub(super) fn lines() -> (mpsc::Sender<GoalSubscription>, mpsc::Receiver<GoalSubscription>) {
    mpsc::channel(NEW_SUBSCRIPTIONS)
}

/// Passes every goal's messages to the router and acknowledges them. One task for all goals: under load it finds many
/// messages ready at once, and acknowledges each sender once.
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
                    // Lets the connection read more first, so that one reply acknowledges more messages.
                    tokio::task::yield_now().await;
                    gather(&mut lines, &mut answers);
                }
                for (reply, payload) in together(answers.drain(..)) {
                    if let Err(error) = client.publish(reply, payload).await {
                        tracing::debug!(%error, "sending an acknowledgement failed");
                    }
                }
            }
        }
    }
}

/// Processes what is ready.
fn gather(lines: &mut SelectAll<GoalSubscription>, answers: &mut Vec<Acknowledgement>) {
    while answers.len() < ANSWERS_AT_ONCE
        && let Some(Some(more)) = lines.next().now_or_never()
    {
        answers.extend(more);
    }
}

fn take(message: Message, inlet: &dyn Inlet) -> Option<Acknowledgement> {
    let verdict = if message.payload.is_empty() {
        // A probe of the subscription.
        Ok(())
    } else {
        let id = message.headers.as_ref().and_then(|headers| headers.get(ID_HEADER));
        inlet.deliver(&message.subject, Parcel::Raw(message.payload), id.map(|id| id.as_str()))
    };
    message.reply.map(|reply| Acknowledgement { reply, verdict })
}

/// Applies presence entries that other processes write.
pub(super) async fn hear_presence(mut messages: Subscriber, presence: Arc<PresenceBucket>) {
    while let Some(message) = messages.next().await {
        presence.hear(&message);
    }
}

/// Sends heartbeats for this process's goals.
pub(super) async fn keep_present(presence: Arc<PresenceBucket>, wire: Arc<Wire>) {
    presence.keep(|| wire.is_connected()).await;
}
