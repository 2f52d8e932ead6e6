//! Wakes the client of an agent when mail waits.
//!
//! The mailbox is the memory; a wake-up is only a hint to look. It is rung for unread mail that this client has not been
//! shown, by one process for a mailbox, and it carries counts, ids and names of the office, never a sender's words
//! ([`Summary`]). A lost ring costs delay and a doubled one a short turn; neither costs mail.
//!
//! [`Bell`] decides when to ring: facts in, decision out, with the time as one of the facts. [`Place`] is the mailbox's
//! directory for what must outlive a process: a ledger for each client session, and the lease by which one of several
//! sessions rings. [`Door`] is how a client is reached: an inbox socket, a queue command, an app server.

#![forbid(unsafe_code)]

mod bell;
mod door;
mod file;
mod hooks;
mod lease;
mod ledger;
mod place;
mod process;
mod secret;
mod summary;
mod unread;

pub use bell::{Bell, ClientState, Decision, Facts, Limits, Quiet, Waiting};
pub use door::app_server;
pub use door::{
    ClaudeInbox, ClaudeSession, CodexQueue, Door, QwenInbox, RingError, RingErrorKind, Rung, claude_sessions,
};
pub use hooks::HookMemory;
pub use lease::Lease;
pub use ledger::{Failed, RingLedger};
pub use place::{Beside, Place, SessionKey};
pub use process::Process;
pub use secret::is_secret;
pub use summary::{PREFIX, Summary, is_tellable};
pub use unread::{SpentCache, leave_out_held, report_rung, unread};
