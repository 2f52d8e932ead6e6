//! Counters and health of a mount.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use amb_core::{AgentName, OfficeError};
use parking_lot::Mutex;
use serde::Serialize;

/// State of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MountState {
    /// Starting, or another process has the directory.
    #[default]
    Waiting,
    /// Running without failures.
    Mounted,
    /// Something fails and is retried; no mail is lost.
    Failing,
}

impl MountState {
    /// The value on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            MountState::Waiting => "waiting",
            MountState::Mounted => "mounted",
            MountState::Failing => "failing",
        }
    }
}

/// Health of a mount, for operators.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MountHealth {
    /// The mounted directory.
    pub directory: PathBuf,
    /// Its state.
    pub state: MountState,
    /// Agents of the directory that the office knows.
    pub residents: u64,
    /// Agents of the office that the directory knows.
    pub guests: u64,
    /// Messages carried to the directory since the start.
    pub carried_in: u64,
    /// Messages carried to the office since the start.
    pub carried_out: u64,
    /// Messages refused since the start.
    pub refused: u64,
    /// Failed attempts since the start.
    pub failures: u64,
    /// Messages that wait for their recipient's consent.
    pub waiting: u64,
    /// Names under which no mail is carried: both sides have them, or they are reserved.
    pub collisions: Vec<AgentName>,
    /// The current failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// Counters shared by the loops.
#[derive(Debug, Default)]
pub(crate) struct MountCounters {
    directory: PathBuf,
    pub(crate) carried_in: AtomicU64,
    pub(crate) carried_out: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) residents: AtomicU64,
    pub(crate) guests: AtomicU64,
    pub(crate) waiting: AtomicU64,
    failures: AtomicU64,
    current: Mutex<Current>,
}

#[derive(Debug, Default)]
struct Current {
    mounted: bool,
    /// Current failures by loop.
    failures: BTreeMap<String, String>,
    collisions: BTreeMap<AgentName, &'static str>,
}

impl MountCounters {
    pub(crate) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), ..Self::default() }
    }

    pub(crate) fn set_mounted(&self, mounted: bool) {
        self.current.lock().mounted = mounted;
    }

    /// Records a failure that will be retried. Logged once, until it succeeds or fails differently.
    pub(crate) fn failed(&self, doing: &str, error: &OfficeError) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let before = self.current.lock().failures.insert(doing.to_owned(), error.to_string());
        if before.as_deref() != Some(error.detail()) {
            let (directory, cause) = (self.directory.display(), std::error::Error::source(error));
            tracing::warn!(%directory, doing, %error, ?cause, "mount failed; retrying, mail waits");
        }
    }

    /// Clears a failure.
    pub(crate) fn succeeded(&self, doing: &str) {
        if self.current.lock().failures.remove(doing).is_some() {
            tracing::info!(directory = %self.directory.display(), doing, "mount recovered");
        }
    }

    /// Records that both sides have an agent of this name, or that it is not allowed in the office.
    pub(crate) fn record_collision(&self, name: &AgentName, why: &'static str) {
        if self.current.lock().collisions.insert(name.clone(), why) != Some(why) {
            tracing::warn!(
                directory = %self.directory.display(), agent = %name, why,
                "no mail crosses the mount under this name; register under another"
            );
        }
    }

    /// Clears a collision.
    pub(crate) fn clear_collision(&self, name: &AgentName) {
        self.current.lock().collisions.remove(name);
    }

    pub(crate) fn health(&self) -> MountHealth {
        let current = self.current.lock();
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        MountHealth {
            directory: self.directory.clone(),
            state: match (current.failures.is_empty(), current.mounted) {
                (false, _) => MountState::Failing,
                (true, true) => MountState::Mounted,
                (true, false) => MountState::Waiting,
            },
            residents: get(&self.residents),
            guests: get(&self.guests),
            carried_in: get(&self.carried_in),
            carried_out: get(&self.carried_out),
            refused: get(&self.refused),
            failures: get(&self.failures),
            waiting: get(&self.waiting),
            collisions: current.collisions.keys().cloned().collect(),
            trouble: current.failures.values().next().cloned(),
        }
    }
}
