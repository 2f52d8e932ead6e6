//! The broker between processes: NATS. The client crate changes often; nothing outside this module names it.

mod acks;
mod awaited;
mod broadcast;
mod connect;
mod options;
mod presence;
mod receive;
mod replay;
mod servers;
mod wire;
mod write_buffer;

use std::sync::Arc;
use std::time::Duration;

use amb_core::wire::WireError;
use amb_core::wire::inbox::Envelope;
use amb_core::{GoalId, Timestamp, id::fresh_uuid};
use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::stream::abortable;
use tokio::sync::mpsc;
use tokio_util::bytes::Bytes;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use broadcast::{Broadcast, NatsBroadcast};
pub use options::{NatsAuth, NatsOptions, NatsTls, OnOutage, PRESENCE_BUCKET};
pub use servers::NatsServers;

use crate::broker::{
    Broker, BrokerError, LiveGoal, MessageHandler, Publication, PublishOutcome, PublishReceipt, Roster, Soon,
    Subscription,
};
use crate::outbox::{NotQueued, Outbox, OutboxEntry};
use awaited::{AckOutcome, Awaited, PendingAck};
use presence::{PresenceBucket, causes};
use wire::Wire;

/// Capacity of the queue of new subscriptions.
const NEW_SUBSCRIPTIONS: usize = 256;

/// Set where a message may be sent twice; receivers skip the second.
const ID_HEADER: &str = "Nats-Msg-Id";

/// Live goals over NATS. Reconnects by itself, without giving up.
pub struct NatsBroker {
    wire: Arc<Wire>,
    presence: Arc<PresenceBucket>,
    roster: Arc<Roster>,
    outbox: Option<Arc<Outbox>>,
    envelope: bool,
    /// Wakes the replay of the outbox.
    replay: Arc<tokio::sync::Notify>,
    /// New subscriptions, for the task that receives.
    subscriptions: mpsc::Sender<receive::GoalSubscription>,
    /// Ends the tasks of this connection.
    _tasks: DropGuard,
}

/// Counts of the outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutboxCounts {
    /// Messages that wait for the connection or for their goal.
    pub queued: usize,
    /// Messages that were given up and moved to the outbox's `dead/`.
    pub dead: usize,
}

impl NatsBroker {
    /// Connects. The first connection must succeed, so that a wrong address or key is reported at once.
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
        let (url, envelope) = (options.servers.to_string(), options.envelope);
        let awaited = Awaited::new(&client.new_inbox(), options.ack_timeout);
        let subscribe = |subject: String| {
            let client = client.clone();
            async move { client.subscribe(subject).await.map_err(|error| BrokerError::Rejected(causes(&error))) }
        };
        let replies = subscribe(awaited.subject()).await?;
        let wire = Arc::new(Wire::new(client.clone(), url, awaited, options.ack_timeout));
        let roster = Arc::new(Roster::default());
        let presence =
            Arc::new(PresenceBucket::new(client.clone(), options.presence_bucket, options.expiry, Arc::clone(&roster)));
        // Subscribes before reading: an entry written in between is seen twice rather than not at all.
        let writes = subscribe(presence.subject()).await?;
        presence.load().await?;

        let tasks = CancellationToken::new();
        let (subscriptions, new_subscriptions) = mpsc::channel(NEW_SUBSCRIPTIONS);
        let replay = Arc::new(tokio::sync::Notify::new());
        spawn(&tasks, awaited::listen(replies, Arc::clone(&wire.awaited)));
        spawn(&tasks, awaited::watch(Arc::clone(&wire.awaited)));
        spawn(&tasks, receive::receive(client, new_subscriptions));
        spawn(&tasks, presence::watch(writes, Arc::clone(&presence)));
        spawn(&tasks, connect::watch(events, Arc::clone(&wire), Arc::clone(&presence), Arc::clone(&replay)));
        spawn(&tasks, Arc::clone(&presence).keep(Arc::clone(&wire)));
        if let Some(outbox) = &outbox {
            spawn(&tasks, replay::replay(Arc::clone(outbox), Arc::clone(&wire), Arc::clone(&replay)));
        }
        Ok(Arc::new(Self {
            wire,
            presence,
            roster,
            outbox,
            envelope,
            replay,
            subscriptions,
            _tasks: tasks.drop_guard(),
        }))
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

    /// The bytes on the wire.
    fn payload(&self, subject: &str, publication: Publication) -> Result<Bytes, BrokerError> {
        let message = match publication {
            Publication::Message(message) => message,
            Publication::Raw(bytes) => return Ok(bytes),
        };
        let rejected = |bad: WireError| BrokerError::Rejected(bad.to_string());
        if self.envelope {
            let envelope = Envelope {
                id: fresh_uuid(message.sent_at),
                timestamp: message.sent_at,
                topic: subject,
                source: &message.from_agent_id,
                session_id: None,
                payload: &message,
            };
            return Ok(envelope.write().map_err(rejected)?.into());
        }
        Ok(self.wire.buffer.copy(&message.write().map_err(rejected)?))
    }

    async fn send(&self, subject: &str, payload: Bytes) -> Result<PublishOutcome, BrokerError> {
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
        self.queue(outbox, OutboxEntry { id, subject: subject.into(), queued_at: now, payload, why: None }).await
    }

    async fn queue(&self, outbox: &Arc<Outbox>, entry: OutboxEntry) -> Result<PublishOutcome, BrokerError> {
        let added = outbox.add(entry).await;
        self.replay.notify_one();
        match added {
            Ok(()) => Ok(PublishOutcome::Queued),
            Err(NotQueued::Full(why)) => Err(BrokerError::OutboxFull(why)),
            Err(NotQueued::Io(error)) => Err(BrokerError::Outbox(error)),
        }
    }
}

/// Runs a task until it ends or `tasks` is cancelled.
fn spawn(tasks: &CancellationToken, task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(tasks.clone().run_until_cancelled_owned(task));
}

#[async_trait]
impl Broker for NatsBroker {
    fn describe(&self) -> String {
        format!("NATS at {}", self.wire.url)
    }

    fn publish<'a>(&'a self, subject: &'a str, publication: Publication) -> PublishReceipt<'a> {
        match self.payload(subject, publication) {
            Ok(payload) => PublishReceipt::later(self.send(subject, payload)),
            Err(error) => PublishReceipt::now(Err(error)),
        }
    }

    fn post<'a>(&'a self, subject: &'a str, publication: Publication) -> Soon<'a, PublishReceipt<'static>> {
        let payload = match self.payload(subject, publication) {
            Ok(payload) => payload,
            Err(error) => return Soon::now(PublishReceipt::now(Err(error))),
        };
        if self.outbox.is_some() {
            // Must not overtake a message that may still go to the outbox.
            return Soon::later(self.send(subject, payload).map(PublishReceipt::now));
        }
        let receipt = move |result: Result<PendingAck, BrokerError>| match result {
            Ok(pending) => {
                let wire = Arc::clone(&self.wire);
                PublishReceipt::later(async move { wire.outcome(pending).await })
            }
            Err(error) => PublishReceipt::now(Err(error)),
        };
        // Usually the connection has room, and nothing is awaited.
        let publish = match self.wire.publish(subject, payload, None) {
            Ok(publish) => publish,
            Err(error) => return Soon::now(PublishReceipt::now(Err(error))),
        };
        match self.wire.hand_to_client(publish.clone()).now_or_never() {
            Some(result) => Soon::now(receipt(result)),
            None => Soon::later(self.wire.hand_to_client(publish).map(receipt)),
        }
    }

    async fn subscribe(&self, subject: &str, handler: Arc<dyn MessageHandler>) -> Result<Subscription, BrokerError> {
        if !self.is_connected() {
            return Err(self.wire.offline());
        }
        let messages = self.wire.client.subscribe(subject.to_owned()).await;
        let messages = messages.map_err(|error| BrokerError::Rejected(causes(&error)))?;
        let (subscription, end) = abortable(receive::GoalMessages { messages, handler });
        self.subscriptions
            .send(subscription)
            .await
            .map_err(|_| BrokerError::Rejected("the connection is closed".into()))?;
        let subscription = Subscription::new(move || end.abort());
        // The server reports a refused subscription asynchronously, or not at all. So the subject is probed by an empty
        // message, which every receiver of ours acknowledges.
        match self.wire.send_for_ack(subject, Bytes::new(), None).await?.await {
            AckOutcome::Buffered => Ok(subscription),
            AckOutcome::NobodyListens => Err(BrokerError::Rejected(format!(
                "the server does not hand us {subject}; may this user subscribe to agent.inbox.*?"
            ))),
            AckOutcome::ConnectionLost => Err(self.wire.lost()),
            AckOutcome::Refused(why) => Err(BrokerError::Refused(why)),
            AckOutcome::NoAnswer => {
                // A user that may receive but not send gets no acknowledgement of the probe, and is subscribed all the
                // same.
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
