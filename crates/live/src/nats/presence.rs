//! Which goals are live, across processes: lists of goals in a key-value bucket whose entries expire.
//!
//! A process writes its goals in parts of [`GOALS_PER_PART`], one key each (`PROCESS.PART`), and repeats each write
//! three times within the expiry: the cost of a heartbeat grows with the number of parts, not of goals. Other processes
//! receive the writes by a plain subscription to the bucket's subjects, so that a query needs no round trip and the
//! server keeps no consumer per process. Earlier writes are read once, on every (re)connect. Entries expire by the
//! bucket's age limit, which every server since 2.9 has, and each reader applies the expiry itself, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use amb_core::{GoalId, Timestamp};
use async_nats::Subscriber;
use async_nats::jetstream::{self, kv, stream};
use futures_util::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio_util::bytes::Bytes;
use uuid::Uuid;

use super::wire::Wire;
use crate::broker::{BrokerError, LiveGoal, Roster};

/// Goals in one entry: 64 with the longest descriptions stay well below the server's limit of a message.
const GOALS_PER_PART: usize = 64;
/// The shortest age limit that a server accepts.
const SHORTEST_EXPIRY: Duration = Duration::from_millis(100);
/// Entries read concurrently after connecting.
const CONCURRENT_READS: usize = 32;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct PresencePart {
    goals: Vec<LiveGoal>,
}

/// This process's goals in the bucket, and everybody's in the roster.
pub(super) struct PresenceBucket {
    jetstream: jetstream::Context,
    bucket: String,
    process: String,
    wanted_expiry: Duration,
    roster: Arc<Roster>,
    parts: Mutex<Vec<OwnPart>>,
    /// One writer at a time, so that an older list never overwrites a newer one.
    writer: tokio::sync::Mutex<Option<kv::Store>>,
    expiry: Mutex<Duration>,
    /// Requests an early refresh.
    refresh_soon: Notify,
    /// Set after a reconnect: writes of others may have been missed.
    may_have_missed: AtomicBool,
}

#[derive(Debug, Default)]
struct OwnPart {
    goals: Vec<LiveGoal>,
    /// Changed since it was last written.
    dirty: bool,
}

impl PresenceBucket {
    pub(super) fn new(client: async_nats::Client, bucket: String, expiry: Duration, roster: Arc<Roster>) -> Self {
        let mut jetstream = jetstream::new(client);
        jetstream.set_timeout(Duration::from_secs(3));
        let expiry = expiry.max(SHORTEST_EXPIRY);
        Self {
            jetstream,
            bucket,
            process: Uuid::now_v7().simple().to_string(),
            wanted_expiry: expiry,
            roster,
            parts: Mutex::default(),
            writer: tokio::sync::Mutex::new(None),
            expiry: Mutex::new(expiry),
            refresh_soon: Notify::new(),
            may_have_missed: AtomicBool::new(false),
        }
    }

    /// The subjects of the bucket's entries.
    pub(super) fn subject(&self) -> String {
        format!("$KV.{}.>", self.bucket)
    }

    pub(super) fn expiry(&self) -> Duration {
        *self.expiry.lock()
    }

    /// Adds a goal and writes its part.
    pub(super) async fn announce(&self, goal: LiveGoal) -> Result<(), BrokerError> {
        let id = goal.goal_id;
        let part = {
            let mut parts = self.parts.lock();
            let room = parts.iter().position(|part| part.goals.len() < GOALS_PER_PART);
            let part = room.unwrap_or_else(|| {
                parts.push(OwnPart::default());
                parts.len() - 1
            });
            parts[part].goals.push(goal);
            parts[part].dirty = true;
            self.list_own(part, &parts[part].goals);
            part
        };
        let written = self.write(part, false).await;
        if written.is_err() {
            // The caller gets an error, so the goal must not be announced by a later refresh.
            self.remove_own(id);
        }
        written
    }

    /// Removes a goal and writes its part. If the process dies before that, the entry expires.
    pub(super) async fn withdraw(&self, goal: GoalId) -> Result<(), BrokerError> {
        match self.remove_own(goal) {
            Some(part) => self.write(part, false).await,
            None => Ok(()),
        }
    }

    /// Removes a goal here at once, and writes that soon.
    pub(super) fn withdraw_soon(&self, goal: GoalId) {
        if self.remove_own(goal).is_some() {
            self.refresh_soon.notify_one();
        }
    }

    /// Reloads and refreshes after a reconnect.
    pub(super) fn reconnected(&self) {
        self.may_have_missed.store(true, Ordering::Relaxed);
        self.refresh_soon.notify_one();
    }

    /// Sends heartbeats until the task is cancelled; only while connected.
    pub(super) async fn keep(self: Arc<Self>, wire: Arc<Wire>) {
        let mut last = Instant::now();
        let mut failed = false;
        loop {
            let beat = self.expiry() / 3;
            // Retries soon after a failure: a restarted server has lost the bucket, and no goal is listed until it is
            // written again.
            let pause = if failed { beat.min(Duration::from_millis(200)) } else { beat };
            let requested = tokio::time::timeout(pause, self.refresh_soon.notified()).await.is_ok();
            if !wire.is_connected() {
                continue;
            }
            let due = failed || last.elapsed() >= beat || self.may_have_missed.load(Ordering::Relaxed);
            let refreshed = async {
                self.refresh(due || !requested).await?;
                if self.may_have_missed.swap(false, Ordering::Relaxed) {
                    let loaded = self.load().await;
                    self.may_have_missed.fetch_or(loaded.is_err(), Ordering::Relaxed);
                    return loaded;
                }
                Ok(())
            };
            failed = match refreshed.await {
                Ok(()) => {
                    if due {
                        last = Instant::now();
                    }
                    false
                }
                Err(error) => {
                    tracing::warn!(%error, "writing presence failed; retrying");
                    true
                }
            };
        }
    }

    /// Writes every part again: a heartbeat, and the complete list after an outage.
    async fn refresh(&self, also_unchanged: bool) -> Result<(), BrokerError> {
        let parts = self.parts.lock().len();
        for part in 0..parts {
            // An empty part has been written once; it may expire.
            let empty = self.parts.lock()[part].goals.is_empty();
            self.write(part, also_unchanged && !empty).await?;
        }
        self.roster.sweep();
        Ok(())
    }

    /// Reads the entries that others wrote before we subscribed.
    pub(super) async fn load(&self) -> Result<(), BrokerError> {
        let store = self.store(&mut *self.writer.lock().await).await?;
        let keys: Vec<String> = match store.keys().await {
            Ok(keys) => keys.try_collect().await.map_err(|error| self.failed(error))?,
            Err(error) => return Err(self.failed(error)),
        };
        let mut entries =
            futures_util::stream::iter(keys).map(|key| store.entry(key)).buffer_unordered(CONCURRENT_READS);
        while let Some(entry) = entries.next().await {
            let Some(entry) = entry.map_err(|error| self.failed(error))? else { continue };
            let age = Timestamp::now().as_nanosecond() - entry.created.unix_timestamp_nanos();
            // Compares two machines' clocks. A negative age counts as none: the entry then lives one expiry from now.
            let age = u64::try_from(age).map_or(Duration::ZERO, Duration::from_nanos);
            let left = self.expiry().checked_sub(age).unwrap_or_else(|| self.expiry());
            if entry.operation == kv::Operation::Put {
                self.apply(&entry.key, &entry.value, left);
            }
        }
        Ok(())
    }

    /// Handles one write to the bucket, received on its subjects.
    pub(super) fn on_write(&self, message: &async_nats::Message) {
        let key = message.subject.strip_prefix("$KV.").and_then(|rest| rest.strip_prefix(&*self.bucket));
        let Some(key) = key.and_then(|key| key.strip_prefix('.')) else { return };
        if message.headers.as_ref().is_some_and(|headers| headers.get("KV-Operation").is_some()) {
            // Deleted or purged by an operator.
            return self.roster.remove(key);
        }
        self.apply(key, &message.payload, self.expiry());
    }

    fn apply(&self, key: &str, value: &[u8], valid: Duration) {
        if key.split('.').next() == Some(&*self.process) {
            // Our own goals stay listed as long as this process lives, also while it cannot reach the bucket.
            return;
        }
        match serde_json::from_slice::<PresencePart>(value) {
            Ok(part) if part.goals.len() <= GOALS_PER_PART => self.roster.put(key, part.goals, Some(valid)),
            Ok(part) => tracing::debug!(key, goals = part.goals.len(), "dropped: too many goals in one presence entry"),
            Err(error) => tracing::debug!(key, %error, "dropped: not a presence entry"),
        }
    }

    /// Writes a part, unless another call has just written it as it is. Creates the bucket at the first error that its
    /// absence explains: a restarted server has lost a bucket in memory.
    async fn write(&self, part: usize, even_if_clean: bool) -> Result<(), BrokerError> {
        let mut writer = self.writer.lock().await;
        let value = {
            let mut parts = self.parts.lock();
            let own = &mut parts[part];
            if !own.dirty && !even_if_clean {
                return Ok(());
            }
            own.dirty = false;
            serde_json::to_vec(&PresencePart { goals: own.goals.clone() }).map_err(|error| self.failed(error))?
        };
        let value = Bytes::from(value);
        let key = format!("{}.{part}", self.process);
        let had_store = writer.is_some();
        let store = match self.store(&mut writer).await {
            Ok(store) => store,
            Err(error) => {
                self.parts.lock()[part].dirty = true;
                return Err(error);
            }
        };
        let mut written = store.put(&key, value.clone()).await;
        if written.is_err() && had_store {
            *writer = None;
            if let Ok(store) = self.store(&mut writer).await {
                written = store.put(&key, value).await;
            }
        }
        match written {
            Ok(_) => Ok(()),
            Err(error) => {
                self.parts.lock()[part].dirty = true;
                *writer = None;
                Err(self.failed(error))
            }
        }
    }

    /// Returns the bucket, created where it is missing.
    async fn store(&self, known: &mut Option<kv::Store>) -> Result<kv::Store, BrokerError> {
        if let Some(store) = known {
            return Ok(store.clone());
        }
        let store = match self.jetstream.get_key_value(&self.bucket).await {
            Ok(store) => store,
            Err(_) => {
                let made = self.create_bucket().await;
                // Another process may have created it concurrently, with another expiry, which then applies.
                match (self.jetstream.get_key_value(&self.bucket).await, made) {
                    (Ok(store), _) => store,
                    (Err(_), Err(error)) => return Err(error),
                    (Err(error), Ok(())) => return Err(self.failed(error)),
                }
            }
        };
        let status = store.status().await.map_err(|error| self.failed(error))?;
        match status.max_age() {
            Duration::ZERO => {
                tracing::warn!(bucket = %self.bucket, "the presence bucket has no age limit; only live readers keep time");
            }
            age => *self.expiry.lock() = age,
        }
        *known = Some(store.clone());
        Ok(store)
    }

    /// Creates the bucket, a stream with the settings of a key-value store. The client crate's own function asks for
    /// the account first, and cannot parse the reply of a 2.9 server.
    async fn create_bucket(&self) -> Result<(), BrokerError> {
        let config = stream::Config {
            name: format!("KV_{}", self.bucket),
            description: Some("agents' live goals".into()),
            subjects: vec![self.subject()],
            max_messages_per_subject: 1,
            max_age: self.wanted_expiry,
            // Everything is written again within the expiry, so it need not be on disk.
            storage: stream::StorageType::Memory,
            discard: stream::DiscardPolicy::New,
            allow_rollup: true,
            deny_delete: true,
            allow_direct: true,
            num_replicas: 1,
            ..stream::Config::default()
        };
        match self.jetstream.create_stream(config).await {
            Ok(_) => Ok(()),
            Err(error) => Err(BrokerError::Rejected(format!(
                "cannot make the presence bucket {:?}: {}; the server needs JetStream (nats-server -js)",
                self.bucket,
                causes(&error)
            ))),
        }
    }

    fn remove_own(&self, goal: GoalId) -> Option<usize> {
        let mut parts = self.parts.lock();
        let part = parts.iter().position(|part| part.goals.iter().any(|own| own.goal_id == goal))?;
        parts[part].goals.retain(|own| own.goal_id != goal);
        parts[part].dirty = true;
        self.list_own(part, &parts[part].goals);
        Some(part)
    }

    fn list_own(&self, part: usize, goals: &[LiveGoal]) {
        self.roster.put(&format!("{}.{part}", self.process), goals.to_vec(), None);
    }

    fn failed(&self, error: impl std::error::Error) -> BrokerError {
        BrokerError::Rejected(format!("the presence bucket {:?} cannot be used: {}", self.bucket, causes(&error)))
    }
}

/// Applies presence entries that other processes write.
pub(super) async fn watch(mut writes: Subscriber, presence: Arc<PresenceBucket>) {
    while let Some(message) = writes.next().await {
        presence.on_write(&message);
    }
}

/// An error with its causes, in one line.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        // Many errors of the client crate already print their cause.
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}
