//! State shared by all requests and background jobs.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::{Arc, Once};

use amb_core::OfficeError;
use amb_core::transcript::TranscriptKey;
use amb_mount::Mount;
use amb_store::{Agent, AgentKey, LogEntry, Store, Written};
use tokio::sync::{Notify, broadcast};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::concurrency::ConcurrencyLimit;
use crate::config::Config;
use crate::dashboard::{Loops, Ring, Watchers};
use crate::deliveries::DeliveryRecorder;
use crate::heartbeats::Heartbeats;
use crate::hub::Hub;
use crate::metrics::Metrics;
use crate::rate::Limiter;
use crate::replicas::ReplicaHints;
use crate::response_cache::ResponseCache;

/// Hints that a follower of transcripts may fall behind before it reads instead.
const TRANSCRIPT_HINTS: usize = 64;

/// The running office. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App(Arc<AppState>);

/// See [`App`].
pub(crate) struct AppState {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) config: Config,
    pub(crate) hub: Hub,
    pub(crate) limits: Limiter,
    /// Connections by address.
    pub(crate) connections: ConcurrencyLimit<IpAddr>,
    /// Requests under way by address.
    pub(crate) requests: ConcurrencyLimit<IpAddr>,
    pub(crate) metrics: Metrics,
    /// Kept responses.
    pub(crate) response_cache: ResponseCache,
    /// Heartbeats not yet written.
    pub(crate) heartbeats: Heartbeats,
    /// Other processes on the same database.
    pub(crate) replicas: ReplicaHints,
    /// Entries that reached their readers, to be recorded as delivered.
    pub(crate) deliveries: DeliveryRecorder,
    /// Transcripts that grew.
    pub(crate) transcripts: broadcast::Sender<TranscriptKey>,
    /// Notified when there may be mail to index.
    pub(crate) mail_came: Notify,
    /// Pages that are open.
    pub(crate) watchers: Watchers,
    /// Loops that were stopped.
    pub(crate) loops: Loops,
    /// Figures of the last hour.
    pub(crate) ring: Ring,
    /// Mounted directories.
    pub(crate) mounts: Vec<Mount>,
    /// Cancelled when the office shuts down: long polls return, sockets are closed.
    pub(crate) closing: CancellationToken,
    /// Everything that a shutdown waits for.
    pub(crate) tasks: TaskTracker,
}

impl Deref for App {
    type Target = AppState;

    fn deref(&self) -> &AppState {
        &self.0
    }
}

impl App {
    /// # Errors
    /// Where a directory that is to be mounted is none.
    pub(crate) fn new(store: Arc<dyn Store>, config: Config) -> Result<Self, OfficeError> {
        let mounts = config.mounts.iter().map(|directory| Mount::new(directory)).collect::<Result<_, _>>()?;
        store.set_quotas(config.quotas);
        Ok(Self(Arc::new(AppState {
            store,
            hub: Hub::default(),
            limits: Limiter::new(config.rate_limits),
            connections: ConcurrencyLimit::new(config.connections_per_address),
            requests: ConcurrencyLimit::new(config.requests_per_address),
            metrics: Metrics::new(),
            response_cache: ResponseCache::default(),
            heartbeats: Heartbeats::default(),
            replicas: ReplicaHints::default(),
            deliveries: DeliveryRecorder::default(),
            transcripts: broadcast::Sender::new(TRANSCRIPT_HINTS),
            mail_came: Notify::new(),
            watchers: Watchers::default(),
            loops: Loops::default(),
            ring: Ring::default(),
            closing: CancellationToken::new(),
            tasks: TaskTracker::new(),
            mounts,
            config,
        })))
    }

    /// Hints at what a verb wrote, to sockets here and on other replicas, and returns the verb's answer. Called after
    /// the commit, never before.
    pub(crate) fn publish<T>(&self, written: Written<T>) -> T {
        self.hint(&written.entries);
        written.answer
    }

    /// Hints at new log entries.
    pub(crate) fn hint(&self, entries: &[LogEntry]) {
        if entries.is_empty() {
            return;
        }
        self.hub.publish(entries);
        self.watchers.hint(entries);
        self.replicas.hint(entries);
        self.mail_came.notify_one();
        for mount in &self.mounts {
            entries.iter().for_each(|one| mount.hint(one.agent));
        }
    }

    /// The cursor from which a listener continues that names this one.
    pub(crate) async fn resume(&self, agent: &Agent, named: u64) -> Result<u64, OfficeError> {
        static SAID: Once = Once::new();
        let cursor = self.store.resume(agent.key, named).await?;
        if cursor != named {
            SAID.call_once(|| {
                tracing::warn!(
                    agent = %agent.name, named, cursor,
                    "a client remembers a cursor beyond the end of its log, as after a restore of an older database: see \
                     `amb admin advance-cursors`; it goes on from what was not delivered yet"
                );
            });
        }
        Ok(cursor)
    }

    /// Another replica wrote to this agent's log, which has entries up to this number now.
    pub(crate) fn grew(&self, agent: AgentKey, up_to: u64) {
        self.hub.hint(agent, up_to);
        self.watchers.grew(agent);
        self.mounts.iter().for_each(|mount| mount.hint(agent));
    }

    /// Hints that a transcript grew.
    pub(crate) fn hint_transcript(&self, key: &TranscriptKey) {
        // An error means that nobody follows.
        let _ = self.transcripts.send(key.clone());
    }
}
