//! A board on which the processes of one office leave each other short notes. Nothing on it is kept: whoever is not there
//! misses it, and is told that it may have.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, Event, RequestErrorKind};
use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio_util::bytes::Bytes;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::NatsOptions;
use super::connect::connect;
use super::presence::causes;
use crate::broker::BrokerError;

/// Notes that may wait for their reader; beyond this they are missed.
const QUEUE: usize = 1_024;
/// How long to wait before it is asked again whether the subscription stands.
const AGAIN: Duration = Duration::from_millis(500);

/// What is heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A note of another process's.
    Note(Bytes),
    /// Notes may have been missed: the connection was lost and is back, or too much came at once.
    Missed,
}

/// See the module: notes between processes, on one subject.
pub struct NoticeBoard {
    client: Client,
    subject: String,
    url: String,
    hears: Arc<Hears>,
    _tasks: DropGuard,
}

impl NoticeBoard {
    /// Connects and listens. From then on it connects again by itself, for as long as it takes. The first notice is
    /// [`Notice::Missed`]: from then on, what others post is heard.
    pub async fn open(options: &NatsOptions, subject: &str) -> Result<(Self, mpsc::Receiver<Notice>), BrokerError> {
        let (events_in, events) = mpsc::channel(64);
        // Our own notes are no news to us.
        let client = connect(options, events_in, |connect| connect.no_echo()).await?;
        let url = options.servers.to_string();
        let notes = client.subscribe(subject.to_owned()).await;
        let notes = notes.map_err(|error| BrokerError::Rejected(causes(&error)))?;
        let (notices_in, notices) = mpsc::channel(QUEUE);
        let tasks = CancellationToken::new();
        let hears = Arc::<Hears>::default();
        let watch =
            Watch { client: client.clone(), subject: subject.to_owned(), url: url.clone(), hears: hears.clone() };
        let (reading, watching) = (tasks.clone(), tasks.clone());
        tokio::spawn({
            let notices = notices_in.clone();
            async move { reading.run_until_cancelled(read(notes, notices)).await }
        });
        tokio::spawn(async move { watching.run_until_cancelled(watch.run(events, notices_in)).await });
        Ok((Self { client, subject: subject.to_owned(), url, hears, _tasks: tasks.drop_guard() }, notices))
    }

    /// Leaves a note for whoever is there now.
    pub async fn post(&self, note: Bytes) -> Result<(), BrokerError> {
        if !self.is_connected() {
            return Err(BrokerError::Offline { broker: self.url.clone() });
        }
        let posted = self.client.publish(self.subject.clone(), note).await;
        posted.map_err(|error| BrokerError::Rejected(causes(&error)))
    }

    fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Whether what others post reaches this process now.
    pub fn hears(&self) -> bool {
        let Hears { subscribed, denied } = &*self.hears;
        self.is_connected() && subscribed.load(Ordering::Acquire) && !denied.load(Ordering::Acquire)
    }
}

async fn read(mut notes: async_nats::Subscriber, notices: mpsc::Sender<Notice>) {
    while let Some(note) = notes.next().await {
        // A reader that is slower than its writers looks once instead of reading it all.
        if notices.try_send(Notice::Note(note.payload)).is_err() && notices.send(Notice::Missed).await.is_err() {
            return;
        }
    }
}

/// Whether what others post reaches us.
#[derive(Default)]
struct Hears {
    subscribed: AtomicBool,
    /// The server will not let us.
    denied: AtomicBool,
}

/// What watches over the connection.
struct Watch {
    client: Client,
    subject: String,
    url: String,
    hears: Arc<Hears>,
}

impl Watch {
    async fn run(self, mut events: mpsc::Receiver<Event>, notices: mpsc::Sender<Notice>) {
        // Whether the subscription has yet to stand on this connection.
        let mut fresh = false;
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    None => return,
                    Some(Event::Disconnected) => {
                        tracing::warn!(url = %self.url, "the connection to NATS is lost; trying again");
                        self.hears.subscribed.store(false, Ordering::Release);
                        self.hears.denied.store(false, Ordering::Release);
                        fresh = false;
                    }
                    Some(Event::Connected) => fresh = true,
                    Some(Event::SlowConsumer(_)) => drop(notices.try_send(Notice::Missed)),
                    Some(Event::ServerError(error)) => {
                        let denied = error.to_string().to_ascii_lowercase().contains("permissions violation");
                        self.hears.denied.fetch_or(denied, Ordering::AcqRel);
                        tracing::warn!(url = %self.url, subject = %self.subject, %error, "NATS; may this user use the subject?");
                    }
                    Some(event) => tracing::warn!(url = %self.url, %event, "NATS"),
                },
                () = self.stands(), if fresh => {
                    fresh = false;
                    tracing::info!(url = %self.url, "hearing other processes by NATS");
                    if notices.send(Notice::Missed).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Waits until the server has taken in our subscription: it takes what we say in order, and to a question that nobody
    /// hears it answers at once.
    async fn stands(&self) {
        let nobody = format!("{}.nobody", self.subject);
        loop {
            match self.client.request(nobody.clone(), Bytes::new()).await {
                Err(error) if error.kind() == RequestErrorKind::NoResponders => break,
                Ok(_) => break,
                Err(error) => {
                    tracing::debug!(%error, "asking NATS again");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
        self.hears.subscribed.store(true, Ordering::Release);
    }
}
