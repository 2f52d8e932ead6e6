//! Wakes an agent runtime on new messages and carries its answers back.
//!
//! A bridge is a long-lived process: it claims a message, gives the runtime one turn with it, and sends the answer back
//! in the same session. [`Bridge`] works with any [`Mailbox`](amb_core::Mailbox) and any [`Runtime`]; the runtimes are
//! [`openclaw`], [`acp`] and [`exec`].
//!
//! # Guarantees
//! One reply for each message, whatever crashes when: the answer is in the [`Ledger`] before it is sent, and it is sent
//! under an idempotency key made from the message's id. Where the runtime accepts such a key too (OpenClaw's
//! WebSocket), the turn itself runs once. Where it does not (chat completions, `sessions_send`, a command, an ACP
//! agent), a turn that a crash interrupted runs again; still only one of its answers is sent.
//!
//! Several turns run at once, each in a task; the turns of one conversation run one after the other.

#![forbid(unsafe_code)]

pub mod acp;
mod bridge;
mod directive;
mod entry;
mod error;
pub mod exec;
mod file;
mod handle;
mod ledger;
pub mod openclaw;
mod options;
mod processes;
mod queue;
mod requests;
mod runtime;
mod split;
mod status;
mod task;

pub use bridge::Bridge;
pub use ledger::{DeadLetter, Ledger};
pub use options::{BridgeOptions, Conversations, DEFAULT_CONCURRENCY, OnReady, Step, TaskHandling};
pub use runtime::{FailureKind, Runtime, Turn, TurnError, TurnOutcome};
pub use status::{BridgeStatus, RuntimeState};
