//! Live peers: goals that find each other and exchange messages, in one process and across machines by NATS.
//!
//! A **goal** is one live run of an agent, with a bounded inbox in memory. Peers write to an agent, and every live goal
//! of it gets the message at its next turn. Nothing here is durable except where it says so: mail that must not be lost
//! rests in a [`Mailbox`](amb_core::Mailbox), and the two meet in [`MailHints`] and in `durable` sends.
//!
//! | what | where |
//! |---|---|
//! | all of it in four verbs | [`LivePeers`] |
//! | a goal's inbox | [`InboxBuffer`] |
//! | from subjects to inboxes | [`InboxRouter`] |
//! | how messages travel | [`Broker`]: [`LocalBroker`], [`NatsBroker`] |
//! | who is live | [`broker::Roster`], [`PeerDirectory`] |
//! | the tools of a model | [`list_peers`], [`send_to_peer`], [`tools::call`] |
//! | bodies for programs | [`Protocol`] |
//! | durable mail wakes a goal | [`MailHints`] |
//! | notes between the processes of an office | [`NatsBroadcast`] |

#![forbid(unsafe_code)]

pub mod broker;
mod buffer;
mod delegates;
mod directory;
mod mail_hints;
mod message;
mod nats;
mod outbox;
mod peers;
mod protocol;
mod router;
pub mod tools;

pub use amb_core::GoalId;
/// How a background task ended, as its coordinator sees it.
pub use amb_core::render::TaskNotification;
pub use broker::{Broker, BrokerError, LocalBroker, Publication, PublishOutcome, PublishReceipt, Soon};
pub use buffer::{Batch, INBOX_CAPACITY, InboxBuffer};
pub use delegates::AllowedDelegates;
pub use directory::{Peer, PeerDirectory};
pub use mail_hints::MailHints;
pub use message::{
    BadPayload, INBOX_SUBJECT_PREFIX, InboxMessage, MAX_BODY_BYTES, MIN_BODY_CHARS, goal_of_subject, inbox_subject,
    render_peer_messages_block,
};
pub use nats::{
    Broadcast, NatsAuth, NatsBroadcast, NatsBroker, NatsOptions, NatsServers, NatsTls, OnOutage, OutboxCounts,
    PRESENCE_BUCKET,
};
pub use outbox::OutboxOptions;
pub use peers::{Goal, LivePeers, Sender, Transport};
pub use protocol::Protocol;
pub use router::{InboxRouter, RouterCounts, RouterOptions};
pub use tools::{PeerContext, SendError, SendReport, SendToPeer, list_peers, send_to_peer};
