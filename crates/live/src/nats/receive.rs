//! What comes from the wire.

use std::pin::Pin;
use std::sync::Arc;

use async_nats::{Client, Message, Subscriber};
use futures_util::stream::SelectAll;
use futures_util::{FutureExt, Stream, StreamExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::acks::{ANSWERS_AT_ONCE, Answer, together};
use super::presence::Presence;
use super::{ID_HEADER, Wire};
use crate::broker::{Inlet, Parcel};

/// Subscriptions that may wait to be taken up.
const NEW_LINES: usize = 256;

/// One goal's messages. Dropping it unsubscribes.
pub(super) type Line = Pin<Box<dyn Stream<Item = (Message, Arc<dyn Inlet>)> + Send>>;

/// A goal's messages for the router, until `ended`.
pub(super) fn line(messages: Subscriber, inlet: Arc<dyn Inlet>, ended: CancellationToken) -> Line {
    let messages = messages.map(move |message| (message, Arc::clone(&inlet)));
    messages.take_until(ended.cancelled_owned()).boxed()
}

/// The way to the task that receives.
pub(super) fn lines() -> (mpsc::Sender<Line>, mpsc::Receiver<Line>) {
    mpsc::channel(NEW_LINES)
}

/// Hands every goal's messages to the router and answers them. One task for all goals: under load it finds many messages
/// ready at once, wakes for them once, and answers each sender once.
pub(super) async fn receive(client: Client, mut new: mpsc::Receiver<Line>) {
    let mut lines = SelectAll::new();
    let mut answers = Vec::new();
    loop {
        tokio::select! {
            line = new.recv() => match line {
                Some(line) => lines.push(line),
                None => return,
            },
            Some((message, inlet)) = lines.next(), if !lines.is_empty() => {
                answers.extend(take(message, &*inlet));
                while answers.len() < ANSWERS_AT_ONCE
                    && let Some(Some((message, inlet))) = lines.next().now_or_never()
                {
                    answers.extend(take(message, &*inlet));
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

fn take(message: Message, inlet: &dyn Inlet) -> Option<Answer> {
    let verdict = if message.payload.is_empty() {
        // A knock: is anybody there?
        Ok(())
    } else {
        let id = message.headers.as_ref().and_then(|headers| headers.get(ID_HEADER));
        inlet.deliver(&message.subject, Parcel::Raw(message.payload), id.map(|id| id.as_str()))
    };
    message.reply.map(|reply| Answer { reply, verdict })
}

/// Takes note of what other processes write about their goals.
pub(super) async fn hear_presence(mut messages: Subscriber, presence: Arc<Presence>) {
    while let Some(message) = messages.next().await {
        presence.hear(&message);
    }
}

/// Tells others, again and again, that this process's goals live.
pub(super) async fn keep_present(presence: Arc<Presence>, wire: Arc<Wire>) {
    presence.keep(|| wire.is_connected()).await;
}
