//! Receives the messages of this process's goals.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_nats::{Client, Message, Subscriber};
use futures_util::stream::{Abortable, SelectAll};
use futures_util::{FutureExt, Stream, StreamExt};
use tokio::sync::mpsc;

use super::ID_HEADER;
use super::acks::{Acknowledgement, MAX_ACKS_PER_REPLY, group_by_sender};
use crate::broker::{MessageHandler, Publication};

/// Most messages of one goal before the others get a turn.
const MESSAGES_PER_TURN: usize = 64;
/// A turn with this many messages suggests that more are coming.
const BUSY: usize = 8;

/// One goal's messages and their handler, as a stream of acknowledgements to send. Dropping it unsubscribes.
pub(super) struct GoalMessages {
    pub(super) messages: Subscriber,
    pub(super) handler: Arc<dyn MessageHandler>,
}

/// The same, ended by an [`AbortHandle`](futures_util::future::AbortHandle).
pub(super) type GoalSubscription = Abortable<GoalMessages>;

impl Stream for GoalMessages {
    type Item = Vec<Acknowledgement>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Vec<Acknowledgement>>> {
        let mut acks = Vec::new();
        for taken in 0..MESSAGES_PER_TURN {
            match self.messages.poll_next_unpin(context) {
                Poll::Ready(Some(message)) => acks.extend(take(message, &*self.handler)),
                Poll::Ready(None) if taken == 0 => return Poll::Ready(None),
                Poll::Pending if taken == 0 => return Poll::Pending,
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        Poll::Ready(Some(acks))
    }
}

/// Passes every goal's messages to the router and acknowledges them. One task for all goals: under load it finds many
/// messages ready at once, and acknowledges each sender once.
pub(super) async fn receive(client: Client, mut new: mpsc::Receiver<GoalSubscription>) {
    let mut subscriptions = SelectAll::new();
    let mut acks = Vec::new();
    loop {
        tokio::select! {
            subscription = new.recv() => match subscription {
                Some(subscription) => subscriptions.push(subscription),
                None => return,
            },
            Some(first) = subscriptions.next(), if !subscriptions.is_empty() => {
                acks.extend(first);
                gather(&mut subscriptions, &mut acks);
                if acks.len() > BUSY {
                    // Lets the connection read more first, so that one reply acknowledges more messages.
                    tokio::task::yield_now().await;
                    gather(&mut subscriptions, &mut acks);
                }
                for (reply, payload) in group_by_sender(acks.drain(..)) {
                    if let Err(error) = client.publish(reply, payload).await {
                        tracing::debug!(%error, "sending an acknowledgement failed");
                    }
                }
            }
        }
    }
}

/// Processes what is ready.
fn gather(subscriptions: &mut SelectAll<GoalSubscription>, acks: &mut Vec<Acknowledgement>) {
    while acks.len() < MAX_ACKS_PER_REPLY
        && let Some(Some(more)) = subscriptions.next().now_or_never()
    {
        acks.extend(more);
    }
}

fn take(message: Message, handler: &dyn MessageHandler) -> Option<Acknowledgement> {
    let outcome = if message.payload.is_empty() {
        // A probe of the subscription.
        Ok(())
    } else {
        let id = message.headers.as_ref().and_then(|headers| headers.get(ID_HEADER));
        handler.deliver(&message.subject, Publication::Raw(message.payload), id.map(|id| id.as_str()))
    };
    message.reply.map(|reply| Acknowledgement { reply, outcome })
}
