//! State shared by the loops of a mount.

use std::sync::Arc;
use std::time::Duration;

use amb_core::{Backoff, OfficeError};
use amb_dir::DirOffice;
use amb_store::{LogEntry, Store, Written};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::ledger::CrossingLedger;
use crate::membership::Membership;
use crate::stats::MountCounters;

/// Called with new entries in agents' logs, so that listeners get a hint.
pub type HintListeners = Arc<dyn Fn(&[LogEntry]) + Send + Sync>;

/// The office's rules for connection requests, and who may write to residents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Whether codes are withheld from the target's inbox and events.
    pub private_codes: bool,
    /// How long a request stays valid.
    pub code_ttl: Duration,
    /// Most pending requests of one agent.
    pub max_pending: u32,
    /// Whether `*` in a resident's `allow_from` means every agent of the office, not only those of its directory.
    pub open: bool,
}

/// State of a running mount.
pub(crate) struct Context {
    pub(crate) office: DirOffice,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) hint: HintListeners,
    pub(crate) terms: Terms,
    pub(crate) ledger: CrossingLedger,
    pub(crate) membership: Membership,
    pub(crate) stats: Arc<MountCounters>,
    pub(crate) closing: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

impl Context {
    /// Sends hints for what a verb wrote, and returns its answer.
    pub(crate) fn publish<T>(&self, written: Written<T>) -> T {
        if !written.entries.is_empty() {
            (self.hint)(&written.entries);
        }
        written.answer
    }
}

/// Paces a loop of rounds.
pub(crate) struct Rounds<'a> {
    context: &'a Context,
    /// What the loop does, for logs and health.
    doing: String,
    /// Cuts a pause short.
    hint: Arc<Notify>,
    backoff: Backoff,
}

impl<'a> Rounds<'a> {
    pub(crate) fn new(context: &'a Context, doing: impl Into<String>, hint: Arc<Notify>) -> Self {
        Self { context, doing: doing.into(), hint, backoff: backoff() }
    }

    /// Records the result of a round, and waits for the pause that it returned or, after a failure, for the backoff.
    /// Returns `false` once the mount closes.
    pub(crate) async fn next(&mut self, result: Result<Duration, OfficeError>) -> bool {
        let pause = match result {
            Ok(pause) => {
                self.context.stats.succeeded(&self.doing);
                self.backoff.reset();
                pause
            }
            Err(error) => {
                self.context.stats.failed(&self.doing, &error);
                self.backoff.pause()
            }
        };
        tokio::select! {
            () = self.hint.notified() => true,
            () = tokio::time::sleep(pause) => true,
            () = self.context.closing.cancelled() => false,
        }
    }
}

/// Backoff of failed rounds.
pub(crate) fn backoff() -> Backoff {
    Backoff::new(Duration::from_millis(200), Duration::from_secs(15))
}
