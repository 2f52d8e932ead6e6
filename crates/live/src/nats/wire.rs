//! The connection, as far as sending needs it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, HeaderMap, Subject, connection::State};
use futures_util::future::{Either, select};
use tokio_util::bytes::Bytes;

use super::ID_HEADER;
use super::awaited::{AckOutcome, Awaited, PendingAck};
use super::pad::Pad;
use super::presence::causes;
use crate::broker::{BrokerError, PublishOutcome};

/// Publishes messages and awaits their acknowledgements.
pub(super) struct Wire {
    pub(super) client: Client,
    pub(super) url: String,
    pub(super) awaited: Arc<Awaited>,
    pub(super) pad: Pad,
    ack_timeout: Duration,
}

/// A message as the client crate takes it. Cheap to clone.
#[derive(Clone)]
pub(super) struct Publish {
    subject: Subject,
    payload: Bytes,
    headers: Option<HeaderMap>,
}

impl Wire {
    pub(super) fn new(client: Client, url: String, awaited: Arc<Awaited>, ack_timeout: Duration) -> Self {
        Self { client, url, awaited, pad: Pad::default(), ack_timeout }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    pub(super) fn offline(&self) -> BrokerError {
        BrokerError::Offline { broker: self.url.clone() }
    }

    pub(super) fn lost(&self) -> BrokerError {
        BrokerError::Lost { broker: self.url.clone() }
    }

    /// Sends one message and waits for its outcome.
    pub(super) async fn send(
        &self,
        subject: &str,
        payload: Bytes,
        id: Option<&str>,
    ) -> Result<PublishOutcome, BrokerError> {
        let question = self.ask(subject, payload, id).await?;
        self.outcome(question).await
    }

    /// Sends one message, and returns its pending acknowledgement.
    pub(super) async fn ask(&self, subject: &str, payload: Bytes, id: Option<&str>) -> Result<PendingAck, BrokerError> {
        self.hand_over(self.publish(subject, payload, id)?).await
    }

    /// Builds a message.
    pub(super) fn publish(&self, subject: &str, payload: Bytes, id: Option<&str>) -> Result<Publish, BrokerError> {
        let headers = id.map(|id| {
            let mut headers = HeaderMap::new();
            headers.insert(ID_HEADER, id);
            headers
        });
        Ok(Publish { subject: text(self.pad.copy(subject.as_bytes()))?, payload, headers })
    }

    /// Hands one message to the connection, waiting only while that has no room, and returns its pending
    /// acknowledgement.
    pub(super) async fn hand_over(&self, publish: Publish) -> Result<PendingAck, BrokerError> {
        if !self.is_connected() {
            return Err(self.offline());
        }
        let mut question = self.awaited.ask();
        let reply = self.reply(&question)?;
        let Publish { subject, payload, headers } = publish;
        let publish = async {
            match headers {
                None => self.client.publish_with_reply(subject, reply, payload).await,
                Some(headers) => self.client.publish_with_reply_and_headers(subject, reply, headers, payload).await,
            }
        };
        // If the connection is full and then breaks, the acknowledgement settles before the message is handed over.
        match select(pin!(publish), &mut question).await {
            Either::Left((Ok(()), _)) => Ok(question),
            Either::Left((Err(error), _)) => Err(BrokerError::Rejected(causes(&error))),
            Either::Right(_) => Err(self.offline()),
        }
    }

    /// Waits for the outcome of a message that was handed over.
    pub(super) async fn outcome(&self, question: PendingAck) -> Result<PublishOutcome, BrokerError> {
        match question.await {
            AckOutcome::Buffered => Ok(PublishOutcome::Delivered),
            AckOutcome::Refused(why) => Err(BrokerError::Refused(why)),
            AckOutcome::NobodyListens => Err(BrokerError::NoSubscriber),
            AckOutcome::ConnectionLost => Err(self.lost()),
            // A message to ourselves comes back only after the server has processed the one before it.
            AckOutcome::NoAnswer => match self.comes_back().await {
                true => Ok(PublishOutcome::Published),
                false => Err(self.lost()),
            },
        }
    }

    /// Whether a message published to our own subject comes back in time.
    async fn comes_back(&self) -> bool {
        let question = self.awaited.ask();
        let round_trip = async {
            let Ok(to_self) = self.reply(&question) else { return false };
            self.client.publish(to_self, Bytes::new()).await.is_ok() && question.await == AckOutcome::Buffered
        };
        tokio::time::timeout(self.ack_timeout, round_trip).await.unwrap_or(false)
    }

    fn reply(&self, question: &PendingAck) -> Result<Subject, BrokerError> {
        text(self.pad.write(question.reply_size(), |sheet| question.write_reply(sheet)))
    }
}

fn text(subject: Bytes) -> Result<Subject, BrokerError> {
    Subject::from_utf8(subject).map_err(|bad| BrokerError::Rejected(format!("the subject is no text: {bad}")))
}
