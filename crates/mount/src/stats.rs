//! Counters and health of a mount.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use amb_core::{AgentName, OfficeError};
use parking_lot::Mutex;
use serde::Serialize;

/// How a mount is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MountState {
    /// Starting, or another process has the directory.
    #[default]
    Waiting,
    /// At work.
    Mounted,
    /// Something fails and is retried; mail waits, and none is lost.
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
    /// Which directory.
    pub directory: PathBuf,
    /// How it is.
    pub state: MountState,
    /// Agents of the directory that the office knows.
    pub residents: u64,
    /// Agents of the office that the directory knows.
    pub guests: u64,
    /// Messages carried to the directory since the start.
    pub carried_in: u64,
    /// Messages carried to the office since the start.
    pub carried_out: u64,
    /// Messages put aside since the start.
    pub refused: u64,
    /// Tries that failed since the start.
    pub failures: u64,
    /// Messages that wait for their recipient's consent.
    pub waiting: u64,
    /// Names under which no mail crosses: both sides have them, or they are reserved.
    pub collisions: Vec<AgentName>,
    /// The current failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// Counters shared by the loops.
#[derive(Debug)]
pub(crate) struct Stats {
    directory: PathBuf,
    pub(crate) carried_in: AtomicU64,
    pub(crate) carried_out: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) residents: AtomicU64,
    pub(crate) guests: AtomicU64,
    pub(crate) waiting: AtomicU64,
    failures: AtomicU64,
    now: Mutex<Now>,
}

#[derive(Debug, Default)]
struct Now {
    mounted: bool,
    /// Current failures by loop.
    troubles: BTreeMap<String, String>,
    collisions: BTreeMap<AgentName, &'static str>,
}

impl Stats {
    pub(crate) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            carried_in: AtomicU64::new(0),
            carried_out: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            residents: AtomicU64::new(0),
            guests: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            now: Mutex::default(),
        }
    }

    pub(crate) fn mounted(&self, mounted: bool) {
        self.now.lock().mounted = mounted;
    }

    /// Records a failure that will be retried. Logged once, until it works or fails differently.
    pub(crate) fn failed(&self, doing: &str, error: &OfficeError) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let before = self.now.lock().troubles.insert(doing.to_owned(), error.to_string());
        if before.as_deref() != Some(error.detail()) {
            let (directory, cause) = (self.directory.display(), std::error::Error::source(error));
            tracing::warn!(%directory, doing, %error, ?cause, "mount failed; retrying, mail waits");
        }
    }

    /// Clears a failure.
    pub(crate) fn works(&self, doing: &str) {
        if self.now.lock().troubles.remove(doing).is_some() {
            tracing::info!(directory = %self.directory.display(), doing, "mount recovered");
        }
    }

    /// Both sides have an agent of this name, or no new agent may have it.
    pub(crate) fn collides(&self, name: &AgentName, why: &'static str) {
        if self.now.lock().collisions.insert(name.clone(), why) != Some(why) {
            tracing::warn!(
                directory = %self.directory.display(), agent = %name, why,
                "no mail crosses the mount under this name; register under another"
            );
        }
    }

    /// Clears a collision.
    pub(crate) fn no_collision(&self, name: &AgentName) {
        self.now.lock().collisions.remove(name);
    }

    pub(crate) fn health(&self) -> MountHealth {
        let now = self.now.lock();
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        MountHealth {
            directory: self.directory.clone(),
            state: match (now.troubles.is_empty(), now.mounted) {
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
            collisions: now.collisions.keys().cloned().collect(),
            trouble: now.troubles.values().next().cloned(),
        }
    }
}
