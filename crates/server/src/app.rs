//! State shared by all requests and background jobs.

use std::ops::Deref;
use std::sync::{Arc, Once};

use amb_core::OfficeError;
use amb_core::transcript::TranscriptKey;
use amb_mount::Mount;
use amb_store::{Agent, AgentKey, LogEntry, Store, Written};
use tokio::sync::{Notify, broadcast};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::connection::ConcurrencyLimit;
use crate::dashboard::{Loops, Stats, Watchers};
use crate::deliveries::DeliveryRecorder;
use crate::heartbeats::Heartbeats;
use crate::hub::Hub;
use crate::metrics::Metrics;
use crate::rate::Limiter;
use crate::replicas::ReplicaHints;
use crate::response_cache::ResponseCache;

/// Capacity of the transcript hints; a follower that lags further reads its transcript.
const TRANSCRIPT_HINTS: usize = 64;

/// The state of a running office. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App(Arc<AppState>);

/// See [`App`].
pub(crate) struct AppState {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) config: Config,
    pub(crate) hub: Hub,
    pub(crate) limits: Limiter,
    /// Connections by address.
    pub(crate) connections: ConcurrencyLimit,
    /// Requests in flight by address.
    pub(crate) requests: ConcurrencyLimit,
    pub(crate) metrics: Metrics,
    pub(crate) response_cache: ResponseCache,
    /// Heartbeats not yet written.
    pub(crate) heartbeats: Heartbeats,
    /// Other processes on the same database.
    pub(crate) replicas: ReplicaHints,
    /// Log entries that reached their readers, to be recorded as delivered.
    pub(crate) deliveries: DeliveryRecorder,
    /// Hints: the keys of transcripts with new lines.
    pub(crate) transcripts: broadcast::Sender<TranscriptKey>,
    /// Notified when there may be mail to index.
    pub(crate) new_mail: Notify,
    /// Open dashboard pages and household polls.
    pub(crate) watchers: Watchers,
    /// Messages refused because of a loop.
    pub(crate) loops: Loops,
    /// Statistics of the last hour, for the dashboard.
    pub(crate) stats: Stats,
    /// Mounted directories.
    pub(crate) mounts: Vec<Mount>,
    /// Cancelled at shutdown: long polls return, sockets are closed.
    pub(crate) closing: CancellationToken,
    /// Tasks that a shutdown waits for.
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
    /// If a path to mount is not a directory.
    pub(crate) fn new(store: Arc<dyn Store>, config: Config) -> Result<Self, OfficeError> {
        let mounts = config.mounts.iter().map(|directory| Mount::new(directory)).collect::<Result<_, _>>()?;
        store.set_quotas(config.quotas);
        Ok(Self(Arc::new(AppState {
            limits: Limiter::new(Arc::clone(&store), config.rate_limits),
            store,
            hub: Hub::default(),
            connections: ConcurrencyLimit::new(config.connections_per_address),
            requests: ConcurrencyLimit::new(config.requests_per_address),
            metrics: Metrics::new(),
            response_cache: ResponseCache::default(),
            heartbeats: Heartbeats::default(),
            replicas: ReplicaHints::default(),
            deliveries: DeliveryRecorder::default(),
            transcripts: broadcast::Sender::new(TRANSCRIPT_HINTS),
            new_mail: Notify::new(),
            watchers: Watchers::default(),
            loops: Loops::default(),
            stats: Stats::default(),
            closing: CancellationToken::new(),
            tasks: TaskTracker::new(),
            mounts,
            config,
        })))
    }

    /// Publishes the log entries that a verb wrote, and returns the verb's result. Called after the commit, never
    /// before.
    pub(crate) fn publish<T>(&self, written: Written<T>) -> T {
        self.publish_entries(&written.entries);
        written.answer
    }

    /// Offers new log entries to subscribers here, and sends hints to everything else that reads logs.
    pub(crate) fn publish_entries(&self, entries: &[LogEntry]) {
        if entries.is_empty() {
            return;
        }
        self.hub.publish(entries);
        self.watchers.hint(entries);
        self.replicas.hint(entries);
        self.new_mail.notify_one();
        for mount in &self.mounts {
            entries.iter().for_each(|one| mount.hint(one.agent));
        }
    }

    /// Handles a hint of another replica: the agent's log now has entries up to this number.
    pub(crate) fn log_grew(&self, agent: AgentKey, up_to: u64) {
        self.hub.hint(agent, up_to);
        self.watchers.hint_agent(agent);
        self.mounts.iter().for_each(|mount| mount.hint(agent));
    }

    /// Returns the cursor from which a subscriber continues that asked for `since`: the same, or an earlier one if
    /// `since` is beyond the end of the log.
    pub(crate) async fn resume(&self, agent: &Agent, since: u64) -> Result<u64, OfficeError> {
        static WARNED: Once = Once::new();
        let cursor = self.store.resume(agent.key, since).await?;
        if cursor != since {
            WARNED.call_once(|| {
                tracing::warn!(
                    agent = %agent.name, since, cursor,
                    "a client has a cursor beyond the end of its log, as after a restore of an older database: see \
                     `amb admin advance-cursors`; it continues with the first entry not yet delivered"
                );
            });
        }
        Ok(cursor)
    }
}
