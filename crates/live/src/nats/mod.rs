//! The broker between processes: NATS. The client crate changes often; nothing outside this module names it.

mod acks;
mod board;
mod connect;
mod options;
mod presence;
mod receive;
mod replay;

use std::sync::Arc;
use std::time::Duration;

use amb_core::wire::inbox::Envelope;
use amb_core::{GoalId, Timestamp, id::fresh_uuid};
use async_nats::{Client, HeaderMap, connection::State};
use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio_util::bytes::Bytes;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use board::{Notice, NoticeBoard};
pub use options::{NatsAuth, NatsOptions, NatsTls, OnOutage, PRESENCE_BUCKET};

use crate::broker::{Broker, BrokerError, Inlet, LiveGoal, Outcome, Parcel, Roster, Subscription};
use crate::message::BadPayload;
use crate::outbox::{Entry, NotQueued, Outbox};
use acks::{Awaited, Verdict};
use presence::{Presence, causes};

/// Set where a message may be sent twice; receivers pass over the second.
const ID_HEADER: &str = "Nats-Msg-Id";

/// Live goals over NATS. Connects again by itself, for as long as it takes.
pub struct NatsBroker {
    wire: Arc<Wire>,
    presence: Arc<Presence>,
    roster: Arc<Roster>,
    outbox: Option<Arc<Outbox>>,
    envelope: bool,
    /// Wakes the replay of the outbox.
    replay: Arc<tokio::sync::Notify>,
    /// New subscriptions, for the task that receives.
    lines: mpsc::Sender<receive::Line>,
    /// Ends the tasks of this connection.
    _tasks: DropGuard,
}

/// What a message in the outbox is waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutboxCounts {
    /// Messages that wait for the connection or for their goal.
    pub queued: usize,
    /// Messages that were given up; they are in the outbox's `dead/`.
    pub dead: usize,
}

/// The connection, as far as sending one message needs it.
struct Wire {
    client: Client,
    url: String,
    awaited: Arc<Awaited>,
    ack_timeout: Duration,
}

impl NatsBroker {
    /// Connects. The first connection must succeed, so that a wrong address or key is told at once.
    pub async fn connect(options: NatsOptions) -> Result<Arc<Self>, BrokerError> {
        let outbox = match &options.on_outage {
            OnOutage::Refuse => None,
            OnOutage::Queue(outbox) => {
                let outbox = outbox.clone();
                let opened = tokio::task::spawn_blocking(move || Outbox::open(outbox)).await;
                let opened = opened.unwrap_or_else(|stopped| Err(std::io::Error::other(stopped)));
                Some(Arc::new(
                    opened.map_err(|error| BrokerError::Rejected(format!("cannot open the outbox: {error}")))?,
                ))
            }
        };
        let (events_in, events) = mpsc::channel(64);
        let client = connect::connect(&options, events_in, |connect| connect).await?;
        let (url, envelope) = (options.servers.join(","), options.envelope);
        let awaited = Awaited::new(&client.new_inbox());
        let subscribe = |subject: String| {
            let client = client.clone();
            async move { client.subscribe(subject).await.map_err(|error| BrokerError::Rejected(causes(&error))) }
        };
        let replies = subscribe(awaited.subject()).await?;
        let wire = Arc::new(Wire { client: client.clone(), url, awaited, ack_timeout: options.ack_timeout });
        let roster = Arc::new(Roster::default());
        let presence =
            Arc::new(Presence::new(client.clone(), options.presence_bucket, options.expiry, Arc::clone(&roster)));
        // Listen first, read then: an entry written in between is seen twice rather than not at all.
        let heard = subscribe(presence.subject()).await?;
        presence.load().await?;

        let tasks = CancellationToken::new();
        let (lines, new_lines) = receive::lines();
        let replay = Arc::new(tokio::sync::Notify::new());
        let run = |task: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>| {
            let tasks = tasks.clone();
            tokio::spawn(async move {
                tasks.run_until_cancelled(task).await;
            });
        };
        run(Box::pin(acks::listen(replies, Arc::clone(&wire.awaited))));
        run(Box::pin(receive::receive(client, new_lines)));
        run(Box::pin(receive::hear_presence(heard, Arc::clone(&presence))));
        run(Box::pin(connect::watch(events, Arc::clone(&wire), Arc::clone(&presence), Arc::clone(&replay))));
        run(Box::pin(receive::keep_present(Arc::clone(&presence), Arc::clone(&wire))));
        if let Some(outbox) = &outbox {
            run(Box::pin(replay::replay(Arc::clone(outbox), Arc::clone(&wire), Arc::clone(&replay))));
        }
        Ok(Arc::new(Self { wire, presence, roster, outbox, envelope, replay, lines, _tasks: tasks.drop_guard() }))
    }

    /// Whether there is a connection now.
    pub fn is_connected(&self) -> bool {
        self.wire.is_connected()
    }

    /// What waits in the outbox, where there is one.
    pub fn outbox(&self) -> std::io::Result<Option<OutboxCounts>> {
        match &self.outbox {
            Some(outbox) => Ok(Some(OutboxCounts { queued: outbox.len(), dead: outbox.dead()? })),
            None => Ok(None),
        }
    }

    fn payload(&self, subject: &str, parcel: &Parcel) -> Result<Bytes, BadPayload> {
        let Parcel::Message(message) = parcel else { return parcel.to_bytes() };
        if !self.envelope {
            return parcel.to_bytes();
        }
        let envelope = Envelope {
            id: fresh_uuid(message.sent_at),
            timestamp: message.sent_at,
            topic: subject,
            source: &message.from_agent_id,
            session_id: None,
            payload: message,
        };
        Ok(envelope.write()?.into())
    }

    async fn queue(&self, outbox: &Arc<Outbox>, entry: Entry) -> Result<Outcome, BrokerError> {
        let added = outbox.add(entry).await;
        self.replay.notify_one();
        match added {
            Ok(()) => Ok(Outcome::Queued),
            Err(NotQueued::Full(why)) => Err(BrokerError::OutboxFull(why)),
            Err(NotQueued::Io(error)) => Err(BrokerError::Outbox(error)),
        }
    }
}

impl Wire {
    fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Sends one message and waits for what becomes of it.
    async fn send(&self, subject: &str, payload: Bytes, id: Option<&str>) -> Result<Outcome, BrokerError> {
        if !self.is_connected() {
            return Err(BrokerError::Offline { broker: self.url.clone() });
        }
        let lost = || BrokerError::Lost { broker: self.url.clone() };
        match tokio::time::timeout(self.ack_timeout, self.ask(subject, payload, id)).await {
            Ok(Ok(Verdict::Buffered)) => Ok(Outcome::Delivered),
            Ok(Ok(Verdict::Refused(why))) => Err(BrokerError::Refused(why)),
            Ok(Ok(Verdict::NobodyListens)) => Err(BrokerError::NoSubscriber),
            Ok(Ok(Verdict::ConnectionLost)) => Err(lost()),
            Ok(Err(error)) => Err(error),
            // No answer. What we publish to ourselves now comes back only after the server has taken the message before it.
            Err(_) => match tokio::time::timeout(self.ack_timeout, self.round_trip()).await {
                Ok(true) => Ok(Outcome::Published),
                _ => Err(lost()),
            },
        }
    }

    async fn ask(&self, subject: &str, payload: Bytes, id: Option<&str>) -> Result<Verdict, BrokerError> {
        let mut question = self.awaited.ask();
        let (subject, reply) = (subject.to_owned(), std::mem::take(&mut question.reply));
        let sent = match id {
            None => self.client.publish_with_reply(subject, reply, payload).await,
            Some(id) => {
                let mut headers = HeaderMap::new();
                headers.insert(ID_HEADER, id);
                self.client.publish_with_reply_and_headers(subject, reply, headers, payload).await
            }
        };
        sent.map_err(|error| BrokerError::Rejected(causes(&error)))?;
        Ok(question.answer().await)
    }

    /// Whether a message to ourselves comes back.
    async fn round_trip(&self) -> bool {
        let mut question = self.awaited.ask();
        let to_self = std::mem::take(&mut question.reply);
        self.client.publish(to_self, Bytes::new()).await.is_ok() && question.answer().await == Verdict::Buffered
    }
}

#[async_trait]
impl Broker for NatsBroker {
    fn describe(&self) -> String {
        format!("NATS at {}", self.wire.url)
    }

    async fn publish(&self, subject: &str, parcel: Parcel) -> Result<Outcome, BrokerError> {
        let payload = self.payload(subject, &parcel).map_err(|bad| BrokerError::Rejected(bad.to_string()))?;
        let Some(outbox) = &self.outbox else { return self.wire.send(subject, payload, None).await };
        let now = Timestamp::now();
        let id = fresh_uuid(now).to_string();
        if !outbox.holds(subject) {
            match self.wire.send(subject, payload.clone(), Some(&id)).await {
                Err(BrokerError::Offline { .. } | BrokerError::Lost { .. }) => {}
                outcome => return outcome,
            }
        }
        let payload = String::from_utf8(payload.into())
            .map_err(|_| BrokerError::Rejected("only text can wait in the outbox".into()))?;
        self.queue(outbox, Entry { id, subject: subject.into(), queued_at: now, payload, why: None }).await
    }

    async fn subscribe(&self, subject: &str, inlet: Arc<dyn Inlet>) -> Result<Subscription, BrokerError> {
        if !self.is_connected() {
            return Err(BrokerError::Offline { broker: self.wire.url.clone() });
        }
        let messages = self.wire.client.subscribe(subject.to_owned()).await;
        let messages = messages.map_err(|error| BrokerError::Rejected(causes(&error)))?;
        let ended = CancellationToken::new();
        let line = receive::line(messages, inlet, ended.clone());
        self.lines.send(line).await.map_err(|_| BrokerError::Rejected("the connection is closed".into()))?;
        let subscription = Subscription::new(move || ended.cancel());
        // The server tells a refused subscription on a side channel, or not at all. So knock at our own door: an empty
        // message, which every receiver of ours answers.
        match tokio::time::timeout(self.wire.ack_timeout, self.wire.ask(subject, Bytes::new(), None)).await {
            Ok(Ok(Verdict::Buffered)) => Ok(subscription),
            Ok(Ok(Verdict::NobodyListens)) => Err(BrokerError::Rejected(format!(
                "the server does not hand us {subject}; may this user subscribe to agent.inbox.*?"
            ))),
            Ok(Ok(Verdict::ConnectionLost)) => Err(BrokerError::Lost { broker: self.wire.url.clone() }),
            Ok(Ok(Verdict::Refused(why))) => Err(BrokerError::Refused(why)),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                // A user that may receive but not send gets no answer to its knock, and yet is subscribed.
                tracing::debug!(subject, "the subscription could not be checked");
                Ok(subscription)
            }
        }
    }

    async fn announce(&self, goal: LiveGoal) -> Result<(), BrokerError> {
        self.presence.announce(goal).await
    }

    async fn withdraw(&self, goal: GoalId) -> Result<(), BrokerError> {
        self.presence.withdraw(goal).await
    }

    fn withdraw_soon(&self, goal: GoalId) {
        self.presence.withdraw_soon(goal);
    }

    fn roster(&self) -> &Roster {
        &self.roster
    }

    fn expiry(&self) -> Option<Duration> {
        Some(self.presence.expiry())
    }
}
