//! How peer messages travel. One small trait; in one process and over NATS behind it.

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
pub use roster::{PresentAgent, Roster};

use crate::InboxMessage;
use crate::message::BadPayload;

/// Carries parcels from a sender to whoever subscribed to their subject, and tells who is live.
#[async_trait]
pub trait Broker: Send + Sync + 'static {
    /// What and where it is, for people and logs.
    fn describe(&self) -> String;

    /// Hands a parcel to the subscribers of a subject. The receipt tells what is known, not what is hoped; a broker may send
    /// nothing before it is awaited.
    fn publish<'a>(&'a self, subject: &'a str, parcel: Parcel) -> PublishReceipt<'a>;

    /// The same for a sender that has more to send: answers as soon as the parcel is on its way, with a receipt to await
    /// later. Parcels of one sender to one subject arrive in the order in which they were posted.
    fn post<'a>(&'a self, subject: &'a str, parcel: Parcel) -> Soon<'a, PublishReceipt<'static>> {
        Soon::later(self.publish(subject, parcel).map(PublishReceipt::now))
    }

    /// Has everything on a subject handed to `inlet`, from the moment this answers until the subscription is dropped.
    async fn subscribe(&self, subject: &str, inlet: Arc<dyn Inlet>) -> Result<Subscription, BrokerError>;

    /// The same without waiting, where the broker can.
    fn subscribe_now(&self, subject: &str, inlet: &Arc<dyn Inlet>) -> Option<Subscription> {
        let _ = (subject, inlet);
        None
    }

    /// Has parcels on inbox subjects that nobody subscribed to handed to `inlet`, where every goal there can be lives in this
    /// process. A broker between processes answers `None`: each of them must see the mail of its own goals only.
    fn catch_strays(&self, inlet: &Arc<dyn Inlet>) -> Option<Subscription> {
        let _ = inlet;
        None
    }

    /// Tells every process that a goal of this one lives. It is told again and again until [`withdraw`](Self::withdraw) or
    /// the end of the process, after which the others forget it within [`expiry`](Self::expiry).
    async fn announce(&self, goal: LiveGoal) -> Result<(), BrokerError>;

    /// Tells every process that a goal of this one has ended.
    async fn withdraw(&self, goal: GoalId) -> Result<(), BrokerError>;

    /// The same without waiting: here it holds at once, and the others are told as soon as possible.
    fn withdraw_soon(&self, goal: GoalId);

    /// Who is live, as far as this process knows now. Asking costs no round trip.
    fn roster(&self) -> &Roster;

    /// How long a dead process's goals may still be listed. `None` where they end together with the caller.
    fn expiry(&self) -> Option<Duration>;
}

/// Where a subscription's parcels go. Called on the broker's own path: it must not block.
pub trait Inlet: Send + Sync {
    /// Takes a parcel. `Ok` means that it is in the goal's buffer. `id` is set where the same parcel may come twice.
    fn deliver(&self, subject: &str, parcel: Parcel, id: Option<&str>) -> Result<(), ParcelRefused>;
}

/// Why a parcel was not taken, in words for its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParcelRefused(pub String);

/// What travels: a message, or bytes that claim to be one.
#[derive(Debug, Clone)]
pub enum Parcel {
    /// A message. Within one process it is never turned into bytes.
    Message(Arc<InboxMessage>),
    /// Bytes from the wire.
    Raw(Bytes),
}

impl Parcel {
    /// The message. Accepts the bare form and the event envelope around it, and neither blank nor oversized bodies.
    pub fn open(self) -> Result<Arc<InboxMessage>, BadPayload> {
        let message = match self {
            Parcel::Message(message) => message,
            Parcel::Raw(bytes) => Arc::new(InboxMessage::parse(&bytes)?),
        };
        crate::message::check(&message)?;
        Ok(message)
    }
}

impl From<InboxMessage> for Parcel {
    fn from(message: InboxMessage) -> Self {
        Parcel::Message(Arc::new(message))
    }
}

/// What became of a parcel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishOutcome {
    /// The receiving router acknowledged that the message is in the goal's buffer.
    Delivered,
    /// The broker handed it to a subscriber, which does not acknowledge (or did not in time).
    Published,
    /// The broker is out of reach; the message is on disk here and will be sent when it is back.
    Queued,
}

/// Why a parcel or a subscription did not get through.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// Nobody listens on the subject.
    #[error("nobody listens: the goal has ended")]
    NoSubscriber,
    /// The receiving side answered that it does not take the parcel.
    #[error("refused by the receiver: {0}")]
    Refused(String),
    /// There is no connection now; nothing was sent.
    #[error("not connected to {broker}; nothing was sent, try again when it is back")]
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
    /// The broker would not take this.
    #[error("{0}")]
    Rejected(String),
}

/// A standing subscription: it ends when this is dropped.
#[must_use = "the subscription ends when this is dropped"]
pub struct Subscription(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Subscription {
    /// A subscription that is ended by calling `end`.
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

/// One live run of an agent, as others are told of it.
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
