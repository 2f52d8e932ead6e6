//! Short messages between the processes of one office, on one NATS subject. None is stored: a process that was
//! disconnected is told that it may have missed some.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, Event, RequestErrorKind};
use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio_util::bytes::Bytes;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::connect::connect;
use super::presence::causes;
use super::{NatsOptions, spawn};
use crate::broker::BrokerError;

/// Messages that may wait for their reader; beyond this they are missed.
const QUEUE_CAPACITY: usize = 1_024;
/// Pause between two checks whether the subscription is active.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// What a process receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broadcast {
    /// A message of another process.
    Message(Bytes),
    /// Messages may have been missed: the connection was lost and is back, or too much came at once.
    Missed,
}

/// Sends short messages to the other processes of one office, and receives theirs.
pub struct NatsBroadcast {
    client: Client,
    subject: String,
    url: String,
    health: Arc<SubscriptionHealth>,
    _tasks: DropGuard,
}

impl NatsBroadcast {
    /// Connects and subscribes, and reconnects by itself from then on. The first item is [`Broadcast::Missed`]:
    /// messages that are published after it arrive.
    pub async fn open(options: &NatsOptions, subject: &str) -> Result<(Self, mpsc::Receiver<Broadcast>), BrokerError> {
        let (events_in, events) = mpsc::channel(64);
        // Without our own messages.
        let client = connect(options, events_in, |connect| connect.no_echo()).await?;
        let url = options.servers.to_string();
        let messages = client.subscribe(subject.to_owned()).await;
        let messages = messages.map_err(|error| BrokerError::Rejected(causes(&error)))?;
        let (items_in, broadcasts) = mpsc::channel(QUEUE_CAPACITY);
        let tasks = CancellationToken::new();
        let health = Arc::<SubscriptionHealth>::default();
        let watch = ConnectionWatch {
            client: client.clone(),
            subject: subject.to_owned(),
            url: url.clone(),
            health: health.clone(),
        };
        spawn(&tasks, read(messages, items_in.clone()));
        spawn(&tasks, watch.run(events, items_in));
        Ok((Self { client, subject: subject.to_owned(), url, health, _tasks: tasks.drop_guard() }, broadcasts))
    }

    /// Sends a message to every process that is connected now.
    pub async fn publish(&self, message: Bytes) -> Result<(), BrokerError> {
        if !self.is_connected() {
            return Err(BrokerError::Offline { broker: self.url.clone() });
        }
        let published = self.client.publish(self.subject.clone(), message).await;
        published.map_err(|error| BrokerError::Rejected(causes(&error)))
    }

    fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Whether messages of others reach this process now.
    pub fn is_subscribed(&self) -> bool {
        let SubscriptionHealth { subscribed, denied } = &*self.health;
        self.is_connected() && subscribed.load(Ordering::Acquire) && !denied.load(Ordering::Acquire)
    }
}

async fn read(mut messages: async_nats::Subscriber, broadcasts: mpsc::Sender<Broadcast>) {
    while let Some(message) = messages.next().await {
        // A reader that falls behind gets one `Missed` for all that it missed.
        if broadcasts.try_send(Broadcast::Message(message.payload)).is_err()
            && broadcasts.send(Broadcast::Missed).await.is_err()
        {
            return;
        }
    }
}

/// Whether messages of others reach us.
#[derive(Default)]
struct SubscriptionHealth {
    subscribed: AtomicBool,
    /// The server refused the subscription.
    denied: AtomicBool,
}

/// Follows the state of the connection.
struct ConnectionWatch {
    client: Client,
    subject: String,
    url: String,
    health: Arc<SubscriptionHealth>,
}

impl ConnectionWatch {
    async fn run(self, mut events: mpsc::Receiver<Event>, broadcasts: mpsc::Sender<Broadcast>) {
        // Whether the subscription is not confirmed yet on this connection.
        let mut unconfirmed = false;
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    None => return,
                    Some(Event::Disconnected) => {
                        tracing::warn!(url = %self.url, "NATS connection lost; reconnecting");
                        self.health.subscribed.store(false, Ordering::Release);
                        self.health.denied.store(false, Ordering::Release);
                        unconfirmed = false;
                    }
                    Some(Event::Connected) => unconfirmed = true,
                    Some(Event::SlowConsumer(_)) => drop(broadcasts.try_send(Broadcast::Missed)),
                    Some(Event::ServerError(error)) => {
                        let denied = error.to_string().to_ascii_lowercase().contains("permissions violation");
                        self.health.denied.fetch_or(denied, Ordering::AcqRel);
                        tracing::warn!(url = %self.url, subject = %self.subject, %error, "NATS server error; check this user's permission for the subject");
                    }
                    Some(event) => tracing::warn!(url = %self.url, %event, "NATS"),
                },
                () = self.wait_until_subscribed(), if unconfirmed => {
                    unconfirmed = false;
                    tracing::info!(url = %self.url, "subscribed to hints of other replicas by NATS");
                    if broadcasts.send(Broadcast::Missed).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Waits until the server has processed our subscription: it processes commands in order, and answers a request
    /// without responders at once.
    async fn wait_until_subscribed(&self) {
        let nobody = format!("{}.nobody", self.subject);
        loop {
            match self.client.request(nobody.clone(), Bytes::new()).await {
                Err(error) if error.kind() == RequestErrorKind::NoResponders => break,
                Ok(_) => break,
                Err(error) => {
                    tracing::debug!(%error, "subscription not confirmed; retrying");
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            }
        }
        self.health.subscribed.store(true, Ordering::Release);
    }
}
