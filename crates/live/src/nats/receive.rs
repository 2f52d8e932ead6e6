//! What comes from the wire.

use std::sync::Arc;

use async_nats::Subscriber;
use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::acks::Answer;
use super::presence::Presence;
use super::{ID_HEADER, Wire};
use crate::broker::{Inlet, Parcel};

/// Hands one goal's messages to the router and answers each, until `ended`. Dropping the subscriber unsubscribes.
pub(super) async fn receive(
    mut messages: Subscriber,
    inlet: Arc<dyn Inlet>,
    answers: mpsc::Sender<Answer>,
    ended: CancellationToken,
) {
    loop {
        let message = tokio::select! {
            () = ended.cancelled() => return,
            message = messages.next() => match message {
                Some(message) => message,
                None => return,
            },
        };
        let verdict = if message.payload.is_empty() {
            // A knock: is anybody there?
            Ok(())
        } else {
            let id = message.headers.as_ref().and_then(|headers| headers.get(ID_HEADER));
            inlet.deliver(&message.subject, Parcel::Raw(message.payload), id.map(|id| id.as_str()))
        };
        if let Some(reply) = message.reply
            && answers.send(Answer { reply, verdict }).await.is_err()
        {
            return;
        }
    }
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
