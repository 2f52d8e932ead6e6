//! Wakes the client of an agent when messages wait.
//!
//! A wake-up is only a hint to read the mailbox. A client is rung for unread messages that it has not been shown, by
//! one process for a mailbox; the ring carries counts, ids and agent names, never a sender's text ([`Summary`]). A lost
//! ring costs delay and a doubled one a short turn; neither loses a message.
//!
//! [`Bell`] decides when to ring, from facts of which the time is one. [`WakeDirectory`] is the mailbox's directory for
//! what must outlive a process: a ledger for each client session, and the lease by which one of several sessions is
//! rung. [`Door`] is the interface of a client: an inbox socket, a queue command, an app server.

#![forbid(unsafe_code)]

mod bell;
mod directory;
mod door;
mod file;
mod hooks;
mod lease;
mod ledger;
mod process;
mod report;
mod summary;
mod unread;

pub use bell::{Bell, ClientState, Limits, Quiet, RingDecision, RingFacts, WaitingMessage};
pub use directory::{SessionKey, SiblingState, WakeDirectory};
pub use door::{
    ClaudeInbox, ClaudeSession, CodexQueue, Door, QwenInbox, RingError, RingErrorKind, Rung, claude_sessions, is_secret,
};
pub use hooks::HookMemory;
pub use lease::Lease;
pub use ledger::{FailedRing, RingLedger};
pub use process::{Process, kill_group};
pub use report::Reporter;
pub use summary::{PREFIX, Summary, is_showable};
pub use unread::{SpentCache, leave_out_held, report_rung, unread};
