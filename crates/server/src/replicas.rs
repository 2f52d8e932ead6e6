//! Other processes (replicas) on the same database: exchanges hints with them and counts them.
//!
//! The log in the database is the truth; a hint says only up to which number an agent's log reaches. It
//! travels after the commit, by NATS where that is configured and stands, else by the database's own notifications. A hint
//! that is lost costs time and nothing else: every few seconds each replica asks the store which of its listeners are
//! behind their log or came with a key that has ended ([`look`]), and at once after it may have missed something.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use amb_core::{Backoff, Timestamp};
use amb_live::{Broadcast, NatsBroadcast, NatsOptions};
use amb_store::{AgentKey, Hint, ListenerState, LogEntry, Replicas};
use axum::body::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use crate::app::App;
use crate::hub::Subscriber;
use crate::jobs::failed;

/// Heartbeat interval of a replica; several times within its timeout.
const BEAT: Duration = Duration::from_secs(2);
/// How often what was spent of the limits is settled between replicas.
const SETTLE: Duration = Duration::from_secs(1);
/// Listeners asked about in one statement.
const CHECKED_AT_ONCE: usize = 1_000;
/// Logs in one hint.
const HINTS_AT_ONCE: usize = 1_000;
/// The first and the longest pause between two tries to reach NATS for the first time.
const NATS_PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// Hints to send, and what is known of other replicas.
#[derive(Default)]
pub(crate) struct ReplicaHints {
    /// How many other replicas there are.
    others: AtomicU32,
    /// Whether all of them receive hints by NATS.
    others_hear: AtomicBool,
    /// Logs that grew since the last hint, with their newest number.
    grown: Mutex<HashMap<AgentKey, u64>>,
    /// Notified when there is a hint to send.
    grew: Notify,
    /// A replica came or went.
    changed: Notify,
    /// A hint may have been missed.
    missed: Notify,
    broadcast: OnceLock<NatsBroadcast>,
}

impl ReplicaHints {
    /// Queues a hint for other replicas. Without any it costs one atomic load.
    pub(crate) fn hint(&self, entries: &[LogEntry]) {
        if self.others.load(Ordering::Relaxed) == 0 {
            return;
        }
        {
            let mut grown = self.grown.lock();
            for LogEntry { agent, entry } in entries {
                let number = entry.cursor.as_number().unwrap_or(0);
                let up_to = grown.entry(*agent).or_default();
                *up_to = number.max(*up_to);
            }
        }
        self.grew.notify_one();
    }

    /// Processes on this database, this one among them.
    pub(crate) fn count(&self) -> u32 {
        self.others.load(Ordering::Relaxed) + 1
    }

    fn hears(&self) -> bool {
        self.broadcast.get().is_some_and(NatsBroadcast::is_subscribed)
    }
}

/// Starts the tasks of this module; they end when the office closes.
pub(crate) fn start(app: &App) {
    until_closing(app, look_regularly(app.clone()));
    let Some(hints) = app.store.hints() else { return };
    until_closing(app, hear(app.clone(), hints));
    until_closing(app, beat(app.clone()));
    until_closing(app, send_hints(app.clone()));
    until_closing(app, settle(app.clone()));
}

fn until_closing(app: &App, task: impl Future<Output = ()> + Send + 'static) {
    let closing = app.closing.clone();
    app.tasks.spawn(async move { closing.run_until_cancelled(task).await });
}

/// Receives hints of other replicas through the database.
async fn hear(app: App, mut hints: Receiver<Hint>) {
    loop {
        match hints.recv().await {
            Ok(Hint::Grew(agent, up_to)) => app.grew(agent, up_to),
            Ok(Hint::Keys(agent)) => look(&app, app.hub.subscribers(Some(agent))).await,
            Ok(Hint::Replicas) => app.replicas.changed.notify_one(),
            Ok(Hint::Missed) | Err(RecvError::Lagged(_)) => app.replicas.missed.notify_one(),
            Err(RecvError::Closed) => return,
        }
    }
}

/// Writes this replica's heartbeat and counts the others.
async fn beat(app: App) {
    let replicas = &app.replicas;
    let mut nats = app.config.nats.clone();
    loop {
        match app.store.heartbeat(replicas.hears()).await {
            Ok(Replicas { office, others, others_hear }) => {
                replicas.others_hear.store(others_hear, Ordering::Relaxed);
                let before = replicas.others.load(Ordering::Relaxed);
                if before == 0 && others > 0 {
                    // What was spent while this was the only replica is not charged.
                    app.limits.forget_spent();
                }
                replicas.others.store(others, Ordering::Relaxed);
                if before != others {
                    tracing::info!(others, "other replicas on this database");
                    replicas.missed.notify_one();
                }
                app.metrics.replicas.set(f64::from(others) + 1.0);
                if let Some(options) = nats.take() {
                    until_closing(&app, listen_to_nats(app.clone(), options, office));
                }
            }
            Err(error) => failed("a replica's sign of life", &error),
        }
        let _ = timeout(BEAT, replicas.changed.notified()).await;
    }
}

/// Sends hints. What grows while one is sent goes with the next.
async fn send_hints(app: App) {
    loop {
        app.replicas.grew.notified().await;
        send_hints_now(&app).await;
    }
}

/// Sends the queued hints; called once more after the office has closed.
pub(crate) async fn send_hints_now(app: &App) {
    let replicas = &app.replicas;
    let grown = std::mem::take(&mut *replicas.grown.lock());
    if grown.is_empty() {
        return;
    }
    let grown: Vec<_> = grown.into_iter().collect();
    let posted = match replicas.broadcast.get() {
        Some(broadcast) => post(broadcast, &grown).await,
        None => false,
    };
    if posted && replicas.others_hear.load(Ordering::Relaxed) {
        return;
    }
    if let Err(error) = app.store.hint(&grown).await {
        // They poll anyway.
        failed("hints to other replicas", &error);
    }
}

async fn post(broadcast: &NatsBroadcast, grown: &[(AgentKey, u64)]) -> bool {
    for some in grown.chunks(HINTS_AT_ONCE) {
        let words: Vec<_> = some.iter().map(|(agent, up_to)| format!("{agent}:{up_to}")).collect();
        if let Err(error) = broadcast.publish(Bytes::from(words.join(" "))).await {
            tracing::debug!(%error, "publishing a hint by NATS failed; using the database");
            return false;
        }
    }
    true
}

/// Connects to NATS, however long it takes, and receives the hints of other replicas.
async fn listen_to_nats(app: App, options: NatsOptions, office: Uuid) {
    let subject = format!("amb.hints.{}", office.simple());
    let mut backoff = Backoff::new(NATS_PAUSES.0, NATS_PAUSES.1);
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
                // Others learn that we receive hints by NATS.
                app.replicas.changed.notify_one();
            }
            Broadcast::Message(hints) => {
                for word in hints.split(|byte| *byte == b' ') {
                    if let Some((agent, up_to)) = grown_of(word) {
                        app.grew(agent, up_to);
                    }
                }
            }
        }
    }
}

fn grown_of(word: &[u8]) -> Option<(AgentKey, u64)> {
    let (agent, up_to) = std::str::from_utf8(word).ok()?.split_once(':')?;
    Some((agent.parse().ok()?, up_to.parse().ok()?))
}

/// Checks all subscribers periodically, and whenever a hint may have been missed.
async fn look_regularly(app: App) {
    loop {
        // A timeout and a missed hint are handled alike.
        let _ = timeout(app.config.look_interval, app.replicas.missed.notified()).await;
        look(&app, app.hub.subscribers(None)).await;
        if app.replicas.others.load(Ordering::Relaxed) > 0 {
            app.mounts.iter().for_each(amb_mount::Mount::hint_all);
        }
    }
}

/// Wakes subscribers that are behind their log, and evicts those whose key has ended.
async fn look(app: &App, subscribers: Vec<(ListenerState, std::sync::Arc<Subscriber>)>) {
    for some in subscribers.chunks(CHECKED_AT_ONCE) {
        let asked: Vec<_> = some.iter().map(|(subscribers, _)| *subscribers).collect();
        let stale = match app.store.stale_listeners(&asked, Timestamp::now()).await {
            Ok(stale) => stale,
            Err(error) => return failed("looking after listeners", &error),
        };
        for found in stale {
            let Some((_, subscriber)) = some.get(found.index) else { continue };
            match found.key_ended {
                true => subscriber.evict(),
                false => subscriber.hint(found.head),
            }
        }
    }
}

/// Charges what was spent of the limits to the shared account.
async fn settle(app: App) {
    let mut last = Instant::now();
    loop {
        sleep(SETTLE).await;
        let others = app.replicas.others.load(Ordering::Relaxed);
        let since = last.elapsed();
        last = Instant::now();
        if others > 0
            && let Err(error) = app.limits.settle(&*app.store, others, since).await
        {
            failed("settling limits", &error);
        }
    }
}
