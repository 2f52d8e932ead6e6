//! State shared by the loops of a mount.

use std::sync::Arc;
use std::time::Duration;

use amb_core::Backoff;
use amb_dir::DirOffice;
use amb_store::{LogEntry, Store, Written};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::ledger::CrossingLedger;
use crate::membership::Membership;
use crate::stats::Stats;

/// Called with what was written to agents' logs, so that listeners get a hint.
pub type HintListeners = Arc<dyn Fn(&[LogEntry]) + Send + Sync>;

/// The office's rules for connection requests, which apply to residents too, and who reaches residents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Codes are withheld from the target's inbox and events.
    pub private_codes: bool,
    /// How long a request can be approved.
    pub code_ttl: Duration,
    /// Most requests that one agent may have waiting.
    pub max_pending: u32,
    /// `*` in a resident's `allow_from` means every agent of the office, not only those of its directory.
    pub open: bool,
}

/// A running mount.
pub(crate) struct Context {
    pub(crate) office: DirOffice,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) hint: HintListeners,
    pub(crate) terms: Terms,
    pub(crate) ledger: CrossingLedger,
    pub(crate) membership: Membership,
    pub(crate) stats: Arc<Stats>,
    pub(crate) closing: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

impl Context {
    /// Hints at what a verb wrote, and returns its answer.
    pub(crate) fn publish<T>(&self, written: Written<T>) -> T {
        if !written.entries.is_empty() {
            (self.hint)(&written.entries);
        }
        written.answer
    }
}

/// Backoff of a loop that failed.
pub(crate) fn backoff() -> Backoff {
    Backoff::new(Duration::from_millis(200), Duration::from_secs(15))
}
