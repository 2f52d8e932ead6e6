//! The door for models: MCP tools over any office.
//!
//! [`serve_stdio`] answers one client on the process's standard streams; [`serve_http`] answers many on a loopback
//! address. Both speak the stateless protocol (2026-07-28: `server/discover`, `subscriptions/listen`) and the ones with a
//! handshake (2025-11-25 and older: `initialize`, `resources/subscribe`).
//!
//! An office that is out of reach when a client comes is no reason to send the client away: a [`LazyMailbox`] is taken when the
//! office is there, and until then the tools say what is wrong.
//!
//! The door holds no mail. What it remembers is which messages this client has been shown, so that a preview costs its
//! tokens once; kill it at any time and every message that was not read is still unread in its office.
//!
//! Mail is what strangers wrote. The readable text of an answer comes fenced from [`amb_core::render`]; the structured
//! content beside it is JSON, whose strings no body can leave, with invisible characters made visible. Hints
//! (resource updates, channel notifications, wake-ups) carry names and counts, never words of a sender.

#![forbid(unsafe_code)]

mod activity;
mod answer;
mod arguments;
mod budget;
mod channel;
mod handler;
mod http;
mod inbox;
mod lazy_mailbox;
mod options;
mod part;
mod peers;
mod resources;
mod schema;
mod seen;
mod show;
mod stdio;
mod subscriptions;
mod tools;
mod view;
mod wake;
mod watch;
mod words;
mod work;

pub use http::serve_http;
pub use lazy_mailbox::LazyMailbox;
pub use options::{Options, ServeError};
pub use peers::{Delivery, LivePeers, Mailed, Peer};
pub use stdio::{serve_io, serve_stdio};
pub use wake::WakeOptions;
pub use words::Words;
