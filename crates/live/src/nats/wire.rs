//! The connection, as far as sending needs it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, HeaderMap, Subject, connection::State};
use futures_util::future::{Either, select};
use tokio_util::bytes::Bytes;

use super::ID_HEADER;
use super::awaited::{AckOutcome, Awaited, PendingAck};
use super::presence::causes;
use super::write_buffer::WriteBuffer;
use crate::broker::{BrokerError, PublishOutcome};

/// Publishes messages and awaits their acknowledgements.
pub(super) struct Wire {
    pub(super) client: Client,
    pub(super) url: String,
    pub(super) awaited: Arc<Awaited>,
    pub(super) buffer: WriteBuffer,
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
        Self { client, url, awaited, buffer: WriteBuffer::default(), ack_timeout }
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
        let pending = self.send_for_ack(subject, payload, id).await?;
        self.outcome(pending).await
    }

    /// Sends one message, and returns its pending acknowledgement.
    pub(super) async fn send_for_ack(
        &self,
        subject: &str,
        payload: Bytes,
        id: Option<&str>,
    ) -> Result<PendingAck, BrokerError> {
        self.hand_to_client(self.publish(subject, payload, id)?).await
    }

    pub(super) fn publish(&self, subject: &str, payload: Bytes, id: Option<&str>) -> Result<Publish, BrokerError> {
        let headers = id.map(|id| {
            let mut headers = HeaderMap::new();
            headers.insert(ID_HEADER, id);
            headers
        });
        Ok(Publish { subject: text(self.buffer.copy(subject.as_bytes()))?, payload, headers })
    }

    /// Passes one message to the client, waiting only while its queue is full, and returns the pending acknowledgement.
    pub(super) async fn hand_to_client(&self, publish: Publish) -> Result<PendingAck, BrokerError> {
        if !self.is_connected() {
            return Err(self.offline());
        }
        let mut pending = self.awaited.ask();
        let reply = self.reply(&pending)?;
        let Publish { subject, payload, headers } = publish;
        let publish = async {
            match headers {
                None => self.client.publish_with_reply(subject, reply, payload).await,
                Some(headers) => self.client.publish_with_reply_and_headers(subject, reply, headers, payload).await,
            }
        };
        // If the connection is full and then breaks, the acknowledgement settles before the message is handed over.
        match select(pin!(publish), &mut pending).await {
            Either::Left((Ok(()), _)) => Ok(pending),
            Either::Left((Err(error), _)) => Err(BrokerError::Rejected(causes(&error))),
            Either::Right(_) => Err(self.offline()),
        }
    }

    /// Waits for the outcome of a message that was handed over.
    pub(super) async fn outcome(&self, pending: PendingAck) -> Result<PublishOutcome, BrokerError> {
        match pending.await {
            AckOutcome::Buffered => Ok(PublishOutcome::Delivered),
            AckOutcome::Refused(why) => Err(BrokerError::Refused(why)),
            AckOutcome::NobodyListens => Err(BrokerError::NoSubscriber),
            AckOutcome::ConnectionLost => Err(self.lost()),
            // A message to ourselves arrives only after the server has processed the one before it.
            AckOutcome::NoAnswer => match self.is_connection_alive().await {
                true => Ok(PublishOutcome::Published),
                false => Err(self.lost()),
            },
        }
    }

    /// Whether a message published to our own subject arrives in time.
    async fn is_connection_alive(&self) -> bool {
        let pending = self.awaited.ask();
        let round_trip = async {
            let Ok(to_self) = self.reply(&pending) else { return false };
            self.client.publish(to_self, Bytes::new()).await.is_ok() && pending.await == AckOutcome::Buffered
        };
        tokio::time::timeout(self.ack_timeout, round_trip).await.unwrap_or(false)
    }

    fn reply(&self, pending: &PendingAck) -> Result<Subject, BrokerError> {
        text(self.buffer.write(pending.reply_size(), |block| pending.write_reply(block)))
    }
}

fn text(subject: Bytes) -> Result<Subject, BrokerError> {
    Subject::from_utf8(subject).map_err(|bad| BrokerError::Rejected(format!("the subject is no text: {bad}")))
}
