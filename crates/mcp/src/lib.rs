//! The door for models: MCP tools over any office.
//!
//! [`serve_stdio`] serves one client on the process's standard streams; [`serve_http`] serves many on a loopback
//! address. Both speak the stateless protocol (2026-07-28: `server/discover`, `subscriptions/listen`) and the ones with
//! a handshake (2025-11-25 and older: `initialize`, `resources/subscribe`).
//!
//! An office that is unreachable when a client connects is no reason to reject the client: a [`LazyMailbox`] is opened
//! once the office is there, and until then the tools return an error that says what is wrong.
//!
//! The door stores no messages. It remembers which ones this client has been shown, so that a preview costs its tokens
//! once; if it is killed, every message that was not read is still unread in its office.
//!
//! Messages are untrusted text. The text of a result is fenced by [`amb_core::render`]; the structured content beside
//! it is JSON, whose strings no body can leave, with invisible characters made visible. Hints (resource updates,
//! channel notifications, wake-ups) carry names and counts, never a sender's text.

#![forbid(unsafe_code)]

mod activity;
mod answer;
mod arguments;
mod budget;
mod channel;
mod client_memory;
mod handler;
mod http;
mod inbox;
mod lazy_mailbox;
mod options;
mod part;
mod peer_messages;
mod peers;
mod resources;
mod schema;
mod show;
mod stdio;
mod subscriptions;
mod tools;
mod view;
mod wake;
mod watch;
mod work;

pub use http::serve_http;
pub use lazy_mailbox::LazyMailbox;
pub use options::{McpOptions, ServeError};
pub use peer_messages::PeerMessages;
pub use peers::{Mailed, PeerDelivery, PeerListing, PeerNetwork};
pub use stdio::{serve_io, serve_stdio};
pub use wake::WakeOptions;
