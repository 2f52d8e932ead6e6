//! What every loop of a mount can reach.

use std::sync::Arc;
use std::time::Duration;

use amb_core::{Code, OfficeError};
use amb_dir::DirOffice;
use amb_store::{News, Store, Written};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::ledger::Ledger;
use crate::people::People;
use crate::stats::Stats;

/// Tells the office's listeners what was written into logs.
pub type Tell = Arc<dyn Fn(&[News]) + Send + Sync>;

/// On which terms the office lets agents ask for connections (a resident asks on the same), and who reaches residents.
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

/// A mounted directory at work.
pub(crate) struct Post {
    pub(crate) office: DirOffice,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) tell: Tell,
    pub(crate) terms: Terms,
    pub(crate) ledger: Ledger,
    pub(crate) people: People,
    pub(crate) stats: Arc<Stats>,
    pub(crate) closing: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

impl Post {
    /// Tells the listeners what a verb wrote, and gives its answer.
    pub(crate) fn told<T>(&self, written: Written<T>) -> T {
        if !written.news.is_empty() {
            (self.tell)(&written.news);
        }
        written.answer
    }
}

/// Whether the same may succeed later, with nothing changed: the database or the disk is away.
pub(crate) fn is_passing(error: &OfficeError) -> bool {
    matches!(error.code(), Code::Unavailable | Code::Internal | Code::TooManyRequests)
}

/// How long to wait before trying again: longer each time, never very long.
#[derive(Debug, Default)]
pub(crate) struct Patience(u32);

impl Patience {
    const FIRST: Duration = Duration::from_millis(200);
    const MOST: Duration = Duration::from_secs(15);

    pub(crate) fn next(&mut self) -> Duration {
        let wait = Self::FIRST.saturating_mul(1 << self.0.min(10)).min(Self::MOST);
        self.0 += 1;
        wait
    }

    pub(crate) fn restore(&mut self) {
        self.0 = 0;
    }
}
