//! What mail is: names, messages, tasks, cards, rules, wire formats and rendering.
//!
//! This crate does no I/O, starts no runtime and reads no clock: whoever calls it passes the time in. Every office
//! (a directory, a server) and every door (the command line, MCP, a bridge) speaks in its words, so that mail that
//! enters by one door can leave by any other.
//!
//! | module | what it holds |
//! |---|---|
//! | [`name`], [`id`] | names and ids that cannot hold a bad value |
//! | [`message`] | what is sent: [`Draft`] before the office takes it, [`Message`] after |
//! | [`card`] | who an agent says it is, whom it hears, whether it is alive |
//! | [`consent`] | who may write to whom |
//! | [`task`] | the life of a task and the office's part of accepting one |
//! | [`route`] | ttl and trace: how loops end and replies still pass |
//! | [`send`] | deciding a send, for every office |
//! | [`stepping_in`] | what a household's person may do, and what decides about it |
//! | [`doc`] | the documents offices answer with; their JSON is the network contract |
//! | [`event`] | the log of a mailbox and its cursor |
//! | [`quota`] | how much mail may be stored, and for whom |
//! | [`mailbox`] | the trait that offices implement and doors are written against |
//! | [`wire`] | the files and payloads of other systems, read leniently and written strictly |
//! | [`render`] | mail as a model sees it: fenced, so that no text can imitate the frame |

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
pub mod render;
pub mod route;
#[cfg(feature = "openapi")]
mod schema;
pub mod send;
pub mod stepping_in;
pub mod suggest;
pub mod task;
pub mod transcript;
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
pub use task::{Task, TaskState};

/// An instant. Core never asks for the present one: callers pass it in.
pub use jiff::Timestamp;

/// An open JSON object: fields we keep but do not interpret.
pub type Object = serde_json::Map<String, serde_json::Value>;
