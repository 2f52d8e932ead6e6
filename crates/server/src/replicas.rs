//! Other processes (replicas) on the same database: exchanges hints with them and counts them.
//!
//! The log in the database is the truth; a hint says only up to which number an agent's log reaches. It is sent after
//! the commit, by NATS if that is configured and connected, else by the database's own notifications. A lost hint only
//! costs time: every few seconds, and at once after a hint may have been missed, each replica asks the store which of
//! its subscribers are behind their log or have a key that ended ([`check_subscribers`]).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use amb_core::{Backoff, Timestamp};
use amb_live::{Broadcast, NatsBroadcast, NatsOptions};
use amb_store::{AgentKey, Hint, LogEntry, Replicas};
use axum::body::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use crate::app::App;
use crate::hub::Subscriber;
use crate::jobs::{failed, spawn_until_closing};

/// Heartbeat interval of a replica; several times shorter than its timeout.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// How often spent rate limits are settled between replicas.
const SETTLE: Duration = Duration::from_secs(1);
/// Subscribers checked in one statement.
const CHECKED_AT_ONCE: usize = 1_000;
/// Logs in one hint.
const HINTS_AT_ONCE: usize = 1_000;
/// Shortest and longest backoff of the first connection to NATS.
const NATS_BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// Hints to send, and what is known of other replicas.
#[derive(Default)]
pub(crate) struct ReplicaHints {
    /// The number of other replicas.
    others: AtomicU32,
    /// Whether all of them receive hints by NATS.
    others_on_nats: AtomicBool,
    /// Hints to send: logs that grew, with their newest number.
    queue: Mutex<HashMap<AgentKey, u64>>,
    /// Notified when there is a hint to send.
    queued: Notify,
    /// Notified when a replica started or stopped.
    changed: Notify,
    /// Notified when a hint may have been missed.
    missed: Notify,
    broadcast: OnceLock<NatsBroadcast>,
}

impl ReplicaHints {
    /// Queues hints to other replicas. Without other replicas it costs one atomic load.
    pub(crate) fn hint(&self, entries: &[LogEntry]) {
        if self.others.load(Ordering::Relaxed) == 0 {
            return;
        }
        {
            let mut queue = self.queue.lock();
            for LogEntry { agent, entry } in entries {
                let number = entry.cursor.as_number().unwrap_or(0);
                let up_to = queue.entry(*agent).or_default();
                *up_to = number.max(*up_to);
            }
        }
        self.queued.notify_one();
    }

    /// The number of replicas, including this one.
    pub(crate) fn count(&self) -> u32 {
        self.others.load(Ordering::Relaxed) + 1
    }
}

/// Starts the tasks of this module; they end when the office closes.
pub(crate) fn start(app: &App) {
    spawn_until_closing(app, check_regularly(app.clone()));
    let Some(hints) = app.store.hints() else { return };
    spawn_until_closing(app, receive_hints(app.clone(), hints));
    spawn_until_closing(app, heartbeat(app.clone()));
    spawn_until_closing(app, send_hints(app.clone()));
    spawn_until_closing(app, settle(app.clone()));
}

/// Receives hints of other replicas through the database.
async fn receive_hints(app: App, mut hints: Receiver<Hint>) {
    loop {
        match hints.recv().await {
            Ok(Hint::Grew(agent, up_to)) => app.log_grew(agent, up_to),
            Ok(Hint::Keys(agent)) => check_subscribers(&app, app.hub.of(agent)).await,
            Ok(Hint::Replicas) => app.replicas.changed.notify_one(),
            Ok(Hint::Missed) | Err(RecvError::Lagged(_)) => app.replicas.missed.notify_one(),
            Err(RecvError::Closed) => return,
        }
    }
}

/// Writes this replica's heartbeat and counts the others.
async fn heartbeat(app: App) {
    let replicas = &app.replicas;
    let mut nats = app.config.nats.clone();
    loop {
        let is_on_nats = replicas.broadcast.get().is_some_and(NatsBroadcast::is_subscribed);
        match app.store.heartbeat(is_on_nats).await {
            Ok(Replicas { office, others, others_use_broker }) => {
                replicas.others_on_nats.store(others_use_broker, Ordering::Relaxed);
                let before = replicas.others.swap(others, Ordering::Relaxed);
                if before == 0 && others > 0 {
                    // What was spent while this was the only replica is not charged to the shared account.
                    app.limits.discard_spent();
                }
                if before != others {
                    tracing::info!(others, "other replicas on this database");
                    replicas.missed.notify_one();
                }
                app.metrics.replicas.set(f64::from(others) + 1.0);
                if let Some(options) = nats.take() {
                    spawn_until_closing(&app, listen_to_nats(app.clone(), options, office));
                }
            }
            Err(error) => failed("heartbeat of this replica", &error),
        }
        let _ = timeout(HEARTBEAT, replicas.changed.notified()).await;
    }
}

/// Sends hints. Those queued meanwhile go with the next batch.
async fn send_hints(app: App) {
    loop {
        app.replicas.queued.notified().await;
        send_queued_hints(&app).await;
    }
}

/// Sends the queued hints. Called once more after the office has closed.
pub(crate) async fn send_queued_hints(app: &App) {
    let replicas = &app.replicas;
    let hints: Vec<_> = std::mem::take(&mut *replicas.queue.lock()).into_iter().collect();
    if hints.is_empty() {
        return;
    }
    let published = match replicas.broadcast.get() {
        Some(broadcast) => publish_on_nats(broadcast, &hints).await,
        None => false,
    };
    if published && replicas.others_on_nats.load(Ordering::Relaxed) {
        return;
    }
    if let Err(error) = app.store.hint(&hints).await {
        // The other replicas check their logs periodically anyway.
        failed("hints to other replicas", &error);
    }
}

/// Returns whether all hints were published.
async fn publish_on_nats(broadcast: &NatsBroadcast, hints: &[(AgentKey, u64)]) -> bool {
    for some in hints.chunks(HINTS_AT_ONCE) {
        let words: Vec<_> = some.iter().map(|(agent, up_to)| format!("{agent}:{up_to}")).collect();
        if let Err(error) = broadcast.publish(Bytes::from(words.join(" "))).await {
            tracing::debug!(%error, "publishing a hint by NATS failed; using the database");
            return false;
        }
    }
    true
}

/// Connects to NATS, with retries, and receives the hints of other replicas.
async fn listen_to_nats(app: App, options: NatsOptions, office: Uuid) {
    let subject = format!("amb.hints.{}", office.simple());
    let mut backoff = Backoff::new(NATS_BACKOFF.0, NATS_BACKOFF.1);
    let mut broadcasts = loop {
        match NatsBroadcast::open(&options, &subject).await {
            Ok((broadcast, broadcasts)) => {
                let _ = app.replicas.broadcast.set(broadcast);
                break broadcasts;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot connect to NATS; hints go by the database, retrying");
                sleep(backoff.pause()).await;
            }
        }
    };
    while let Some(broadcast) = broadcasts.recv().await {
        match broadcast {
            Broadcast::Missed => {
                app.replicas.missed.notify_one();
                // The next heartbeat tells the others that this replica receives hints by NATS.
                app.replicas.changed.notify_one();
            }
            Broadcast::Message(hints) => {
                for (agent, up_to) in hints.split(|byte| *byte == b' ').filter_map(parse_hint) {
                    app.log_grew(agent, up_to);
                }
            }
        }
    }
}

fn parse_hint(text: &[u8]) -> Option<(AgentKey, u64)> {
    let (agent, up_to) = std::str::from_utf8(text).ok()?.split_once(':')?;
    Some((agent.parse().ok()?, up_to.parse().ok()?))
}

/// Checks all subscribers periodically, and whenever a hint may have been missed.
async fn check_regularly(app: App) {
    loop {
        // A timeout and a missed hint are handled alike.
        let _ = timeout(app.config.poll_interval, app.replicas.missed.notified()).await;
        check_subscribers(&app, app.hub.all()).await;
        if app.replicas.others.load(Ordering::Relaxed) > 0 {
            app.mounts.iter().for_each(amb_mount::Mount::hint_all);
        }
    }
}

/// Wakes subscribers that are behind their log, and evicts those whose key has ended.
async fn check_subscribers(app: &App, subscribers: Vec<Arc<Subscriber>>) {
    for some in subscribers.chunks(CHECKED_AT_ONCE) {
        let states: Vec<_> = some.iter().map(|subscriber| subscriber.state()).collect();
        let stale = match app.store.stale_listeners(&states, Timestamp::now()).await {
            Ok(stale) => stale,
            Err(error) => return failed("check of subscribers", &error),
        };
        for found in stale {
            let Some(subscriber) = some.get(found.index) else { continue };
            match found.key_ended {
                true => subscriber.evict(),
                false => subscriber.hint(found.head),
            }
        }
    }
}

/// Charges spent rate limits to the account shared by all replicas.
async fn settle(app: App) {
    let mut last = Instant::now();
    loop {
        sleep(SETTLE).await;
        let others = app.replicas.others.load(Ordering::Relaxed);
        let since = last.elapsed();
        last = Instant::now();
        if others > 0
            && let Err(error) = app.limits.settle(others, since).await
        {
            failed("settling of rate limits", &error);
        }
    }
}
