//! The interface of brokers, which carry peer messages: one within the process, one over NATS.

mod local;
mod receipt;
mod roster;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use amb_core::{AgentName, GoalId};
use async_trait::async_trait;
use futures_util::FutureExt;
use serde::{Deserialize, Serialize};
use tokio_util::bytes::Bytes;

pub use local::LocalBroker;
pub use receipt::{PublishReceipt, Soon};
pub use roster::Roster;

use crate::InboxMessage;
use crate::message::BadPayload;

/// Carries publications from a sender to the subscribers of their subject, and knows which goals are live.
#[async_trait]
pub trait Broker: Send + Sync + 'static {
    /// Describes the broker, for people and logs.
    fn describe(&self) -> String;

    /// Publishes a publication on a subject. The receipt resolves to what is known of the delivery; a broker may send
    /// nothing before it is awaited.
    fn publish<'a>(&'a self, subject: &'a str, publication: Publication) -> PublishReceipt<'a>;

    /// Like `publish`, for a sender that has more to send: returns once the connection has taken the publication, with a
    /// receipt to await later. Publications of one sender to one subject arrive in the order in which they were posted.
    fn post<'a>(&'a self, subject: &'a str, publication: Publication) -> Soon<'a, PublishReceipt<'static>> {
        Soon::later(self.publish(subject, publication).map(PublishReceipt::now))
    }

    /// Passes everything published on a subject to `handler`, from the moment this returns until the subscription is
    /// dropped.
    async fn subscribe(&self, subject: &str, handler: Arc<dyn MessageHandler>) -> Result<Subscription, BrokerError>;

    /// Like `subscribe`, without waiting; `None` where the broker has to wait.
    fn subscribe_now(&self, subject: &str, handler: &Arc<dyn MessageHandler>) -> Option<Subscription> {
        let _ = (subject, handler);
        None
    }

    /// Passes publications on inbox subjects without a subscriber to `handler`, if all goals live in this process. A broker
    /// between processes returns `None`: each process must see only the messages of its own goals.
    fn catch_strays(&self, handler: &Arc<dyn MessageHandler>) -> Option<Subscription> {
        let _ = handler;
        None
    }

    /// Announces a goal of this process to all others, and repeats that until [`withdraw`](Self::withdraw). When the
    /// process ends, the others drop the goal within [`expiry`](Self::expiry).
    async fn announce(&self, goal: LiveGoal) -> Result<(), BrokerError>;

    /// Announces that a goal of this process has ended.
    async fn withdraw(&self, goal: GoalId) -> Result<(), BrokerError>;

    /// Like `withdraw`, without waiting: holds here at once, and reaches the others as soon as possible.
    fn withdraw_soon(&self, goal: GoalId);

    /// The live goals that this process knows of. Costs no round trip.
    fn roster(&self) -> &Roster;

    /// How long the goals of a dead process may still be listed. `None` where they end with the caller's process.
    fn expiry(&self) -> Option<Duration>;
}

/// Receives a subscription's publications. Called on the broker's own task: it must not block.
pub trait MessageHandler: Send + Sync {
    /// Takes a publication. `Ok` means that it is in the goal's buffer. `id` is set where the same publication may be delivered
    /// twice.
    fn deliver(&self, subject: &str, publication: Publication, id: Option<&str>) -> Result<(), PublicationRefused>;
}

/// Why a publication was refused, for its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicationRefused(pub String);

/// What is published: a message, or bytes that should be one.
#[derive(Debug, Clone)]
pub enum Publication {
    /// A message. Within one process it is never turned into bytes.
    Message(Arc<InboxMessage>),
    /// Bytes from the wire.
    Raw(Bytes),
}

impl Publication {
    /// Parses the message, in its bare form or in the event envelope. Refuses blank and oversized bodies.
    pub fn open(self) -> Result<Arc<InboxMessage>, BadPayload> {
        let message = match self {
            Publication::Message(message) => message,
            Publication::Raw(bytes) => Arc::new(InboxMessage::parse(&bytes)?),
        };
        crate::message::check(&message)?;
        Ok(message)
    }
}

impl From<InboxMessage> for Publication {
    fn from(message: InboxMessage) -> Self {
        Publication::Message(Arc::new(message))
    }
}

/// The outcome of publishing a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishOutcome {
    /// The receiving router acknowledged that the message is in the goal's buffer.
    Delivered,
    /// The broker handed it to a subscriber, which does not acknowledge (or did not in time).
    Published,
    /// The broker is out of reach; the message is in the outbox on disk and is sent after the reconnect.
    Queued,
}

/// Why a publication or a subscription did not get through.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// Nobody listens on the subject.
    #[error("nobody listens: the goal has ended")]
    NoSubscriber,
    /// The receiving side answered that it does not take the publication.
    #[error("refused by the receiver: {0}")]
    Refused(String),
    /// There is no connection now; nothing was sent. Whether to try again is for the caller to say: the message may go by mail.
    #[error("not connected to {broker}; nothing was sent that way")]
    Offline {
        /// Which broker.
        broker: String,
    },
    /// The connection broke while the message was on its way.
    #[error("the connection to {broker} broke before an acknowledgement came; the message may or may not have arrived")]
    Lost {
        /// Which broker.
        broker: String,
    },
    /// The outbox has no room.
    #[error("not connected, and the outbox is full ({0}); nothing was queued")]
    OutboxFull(String),
    /// The outbox cannot be written.
    #[error("not connected, and the outbox cannot be written; nothing was queued")]
    Outbox(#[source] std::io::Error),
    /// The broker rejected the request.
    #[error("{0}")]
    Rejected(String),
}

/// A standing subscription: it ends when this is dropped.
#[must_use = "the subscription ends when this is dropped"]
pub struct Subscription(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Subscription {
    /// Calls `end` when dropped.
    pub fn new(end: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(end)))
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end();
        }
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscription")
    }
}

/// One live run of an agent, as announced to others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveGoal {
    /// Which run.
    pub goal_id: GoalId,
    /// Of which agent.
    pub agent_id: AgentName,
    /// What the agent is for.
    #[serde(default)]
    pub description: String,
}
