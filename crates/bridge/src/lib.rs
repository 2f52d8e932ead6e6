//! Wakes an agent runtime on new mail and carries its answer back.
//!
//! A bridge is a long-lived process of its own: it claims a mail, gives the runtime one turn with it, and sends the
//! answer back in the same session. [`Bridge`] is written against any [`Mailbox`](amb_core::Mailbox) and any [`Runtime`];
//! [`openclaw`], [`acp`] and [`exec`] are the runtimes there are.
//!
//! # What is promised
//! One reply for a mail, whatever crashes when: the answer is in the [`Ledger`] before it is sent, and it is sent under a
//! key made from the mail's id, so that a repeat sends nothing. Where the runtime takes such a key too (OpenClaw's
//! WebSocket), the turn itself runs once. Where it does not (chat completions, `sessions_send`, a command, an ACP agent), a crash in the
//! middle of a turn means that the turn runs again; still only one of its answers is sent.
//!
//! Several turns run at once, each as a task of its own; the turns of one conversation follow each other.

#![forbid(unsafe_code)]

pub mod acp;
mod bridge;
mod directive;
mod error;
pub mod exec;
mod file;
mod handle;
mod ledger;
pub mod openclaw;
mod options;
mod page;
mod processes;
mod queue;
mod requests;
mod runtime;
mod split;
mod status;
mod task;

pub use bridge::Bridge;
pub use ledger::{Dead, Ledger};
pub use options::{Conversations, DEFAULT_CONCURRENCY, OnReady, Options, Step, Tasks};
pub use runtime::{Outcome, Runtime, Trouble, Turn, TurnError};
pub use status::{Connection, Status};
