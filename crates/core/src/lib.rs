//! The domain: names, messages, tasks, cards, rules, wire formats and rendering.
//!
//! This crate does no I/O, starts no runtime and reads no clock: callers pass the time in. Every office (a directory, a
//! server) and every door (the command line, MCP, a bridge) uses its types, so that a message that enters by one door
//! can leave by any other.
//!
//! | module | what it holds |
//! |---|---|
//! | [`name`], [`id`] | names and ids that cannot hold a bad value |
//! | [`message`] | what is sent: [`Draft`] before the office accepts it, [`Message`] after |
//! | [`card`] | an agent's description, whose messages it accepts, whether it is alive |
//! | [`consent`] | who may write to whom |
//! | [`task`] | the states of a task and the office's part of accepting one |
//! | [`route`] | ttl and trace: how loops end and replies still pass |
//! | [`send`] | deciding a send, for every office |
//! | [`stepping_in`] | what a household's person may do, and the rules for it |
//! | [`wake`] | the state of waking an agent's clients |
//! | [`doc`] | request bodies and answers; their JSON is the network contract |
//! | [`event`] | the log of a mailbox and its cursor |
//! | [`quota`] | how much may be stored, and for whom |
//! | [`mailbox`] | the trait that offices implement and doors are written against |
//! | [`wire`] | the files and payloads of other systems, read leniently and written strictly |
//! | [`render`] | messages as a model sees them: fenced, so that no text can imitate the frame |

#![forbid(unsafe_code)]

pub mod backoff;
pub mod card;
pub mod consent;
pub mod doc;
pub mod draft;
pub mod error;
pub mod event;
pub mod id;
pub mod limits;
pub mod mailbox;
pub mod message;
pub mod name;
pub mod quota;
pub mod receipt;
pub mod recent;
pub mod render;
pub mod route;
#[cfg(feature = "openapi")]
mod schema;
pub mod send;
pub mod stepping_in;
pub mod suggest;
pub mod task;
pub mod transcript;
pub mod wake;
pub mod web;
pub mod wire;

pub use backoff::Backoff;
pub use card::{AllowFrom, Card, Presence, Status};
pub use consent::Consent;
pub use draft::Draft;
pub use error::{Code, OfficeError};
pub use event::{Cursor, Entry, Event};
pub use id::{ConnectionId, CorrelationId, GoalId, MessageId, SessionId, TaskId};
pub use mailbox::Mailbox;
pub use message::{Callback, Kind, Message, Part, Priority};
pub use name::AgentName;
pub use quota::{Quotas, Usage};
pub use receipt::{Receipt, ReceiptState};
pub use recent::RecentSet;
pub use task::{Task, TaskState};
pub use wake::{WakeReport, WakeState};

/// An instant. Core never reads the clock: callers pass the time in.
pub use jiff::Timestamp;

/// An open JSON object: fields that are kept but not interpreted.
pub type Object = serde_json::Map<String, serde_json::Value>;
