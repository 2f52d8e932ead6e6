//! Background jobs: heartbeats, deliveries, deadlines, expiry, indexing, pruning, mounts.

use std::sync::Arc;
use std::time::Duration;

use amb_core::{Backoff, Code, OfficeError, Timestamp};
use amb_mount::Terms;
use amb_store::{LogEntry, Written};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep};

use crate::app::App;
use crate::dashboard;
use crate::replicas;

/// How often idle rate limit states are dropped and histograms folded into their buckets.
const UPKEEP: Duration = Duration::from_secs(10);
/// How often heartbeats are written; well within the time after which an agent is offline.
const SEEN: Duration = Duration::from_secs(5);
/// How often the usage of all agents is counted: what replicas may not know of each other when they check the office's
/// quota.
const USAGE: Duration = Duration::from_secs(5);
/// How often deadlines and expiries are checked.
const SWEEP: Duration = Duration::from_secs(1);
/// How often old entries are looked for, where they are not kept for ever.
const PRUNE: Duration = Duration::from_secs(300);
/// Pause between two batches of deletions, for other users of the database.
const KEEP_REST: Duration = Duration::from_millis(20);
/// How long deliveries are gathered before they are written.
const GATHER: Duration = Duration::from_millis(100);
/// Longest backoff after a failure to write receipts.
const RETRY: Duration = Duration::from_secs(5);
/// How long new mail is collected before it is indexed.
const INDEX_GATHER: Duration = Duration::from_millis(100);
/// A batch of more entries means that mail arrives faster than it is indexed.
const INDEX_MUCH: u64 = 1_500;
/// After such a batch, indexing pauses this many times its duration, up to the bound below, so that it does not slow
/// sends.
const INDEX_REST: u32 = 7;
const INDEX_MOST: Duration = Duration::from_secs(1);
/// How often mail to index is looked for without a hint.
const INDEX_LOOK: Duration = Duration::from_secs(30);

/// Starts all jobs; they end when the office closes.
pub(crate) fn start(app: &App) {
    app.tasks.spawn(regular(app.clone()));
    app.tasks.spawn(keeping(app.clone()));
    app.tasks.spawn(deliveries(app.clone()));
    app.tasks.spawn(index(app.clone()));
    app.tasks.spawn(dashboard::sample(app.clone()));
    for mount in &app.mounts {
        app.tasks.spawn(mount.clone().run(
            app.store.clone(),
            Arc::new({
                let app = app.clone();
                move |entries: &[LogEntry]| app.hint(entries)
            }),
            Terms {
                private_codes: app.config.private_codes,
                code_ttl: app.config.code_ttl,
                max_pending: app.config.max_pending,
                open: app.config.mount_open,
            },
            app.closing.clone(),
        ));
    }
    replicas::start(app);
}

fn every(period: Duration) -> Interval {
    let mut interval = interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// Logs a job that failed; its next run is the retry. A store without the verb is no failure.
pub(crate) fn failed(job: &str, error: &OfficeError) {
    if error.code() != Code::Unsupported {
        tracing::warn!(job, %error, cause = ?std::error::Error::source(error), "background job failed; retrying later");
    }
}

async fn regular(app: App) {
    let (mut upkeep, mut seen, mut sweep, mut usage) = (every(UPKEEP), every(SEEN), every(SWEEP), every(USAGE));
    loop {
        tokio::select! {
            _ = upkeep.tick() => {
                app.limits.sweep();
                app.metrics.upkeep();
                if let Err(error) = app.store.prune_rate_limits().await {
                    failed("forgiving what is earned back", &error);
                }
            }
            _ = seen.tick() => write_seen(&app).await,
            _ = sweep.tick() => sweep_due(&app).await,
            _ = usage.tick() => match app.store.office_usage().await {
                Ok(usage) => app.metrics.stored(usage),
                Err(error) => failed("counting what is stored", &error),
            },
            () = app.closing.cancelled() => return,
        }
    }
}

async fn write_seen(app: &App) {
    let mut agents = app.heartbeats.take();
    app.hub.listening(&mut agents);
    if agents.is_empty() {
        return;
    }
    let agents: Vec<_> = agents.into_iter().collect();
    if let Err(error) = app.store.seen(&agents, Timestamp::now()).await {
        failed("signs of life", &error);
    }
}

async fn sweep_due(app: &App) {
    while publish_batch(app, "overdue tasks", app.store.sweep_overdue(Timestamp::now()).await) {}
    while publish_batch(app, "expired requests", app.store.expire_connections(Timestamp::now()).await) {}
}

/// Publishes one batch of a sweep. Returns whether there may be another.
fn publish_batch(app: &App, job: &str, swept: Result<Written<u64>, OfficeError>) -> bool {
    match swept {
        Ok(written) => app.publish(written) > 0,
        Err(error) => {
            failed(job, &error);
            false
        }
    }
}

/// Prunes by retention. A task of its own, since a round may take long.
async fn keeping(app: App) {
    let mut rounds = every(PRUNE);
    loop {
        tokio::select! {
            _ = rounds.tick() => {}
            () = app.closing.cancelled() => return,
        }
        tokio::select! {
            () = keep(&app) => {}
            () = app.closing.cancelled() => return,
        }
    }
}

async fn keep(app: &App) {
    let before = |keep: Option<Duration>| keep.and_then(|keep| Timestamp::now().checked_sub(keep).ok());
    if let Some(before) = before(app.config.event_retention)
        && let Err(error) = prune(app, before).await
    {
        failed("pruning", &error);
    }
    if let Some(before) = before(app.config.read_mail_retention)
        && let Err(error) = remove_read_mail(app, before).await
    {
        failed("removing read mail", &error);
    }
}

async fn prune(app: &App, before: Timestamp) -> Result<(), OfficeError> {
    while app.store.prune(before).await? > 0 {
        sleep(KEEP_REST).await;
    }
    Ok(())
}

async fn remove_read_mail(app: &App, before: Timestamp) -> Result<(), OfficeError> {
    let (mut removed, mut from) = (0, None);
    loop {
        let page = app.store.remove_read_mail(before, from).await?;
        app.metrics.mail_removed.increment(page.messages);
        removed += page.messages;
        from = page.next;
        if from.is_none() {
            break;
        }
        sleep(KEEP_REST).await;
    }
    if removed > 0 {
        tracing::info!(removed, %before, "removed mail that everybody read before");
    }
    Ok(())
}

/// Records which entries reached their readers, with receipts for the senders. Failures are retried.
async fn deliveries(app: App) {
    let mut backoff = Backoff::new(GATHER, RETRY);
    let mut pause = GATHER;
    loop {
        let closing = tokio::select! {
            () = app.deliveries.waiting() => false,
            () = app.closing.cancelled() => true,
        };
        if !closing {
            tokio::select! {
                () = sleep(pause) => {}
                () = app.closing.cancelled() => {}
            }
        }
        pause = if write_deliveries(&app).await {
            backoff.reset();
            GATHER
        } else {
            backoff.pause()
        };
        if closing {
            return;
        }
    }
}

/// Returns whether all of them could be written.
async fn write_deliveries(app: &App) -> bool {
    let mut stretches = app.deliveries.take().into_iter();
    let mut well = true;
    while let Some(mut stretch) = stretches.next() {
        while stretch.after < stretch.up_to {
            match app.store.delivered(&stretch.agent, stretch.after, stretch.up_to, Timestamp::now()).await {
                Ok(written) => stretch.after = app.publish(written).reached,
                Err(error) => {
                    failed("receipts", &error);
                    well = false;
                    app.deliveries.again(stretch, !error.is_passing());
                    if error.is_passing() {
                        // The database is unavailable: the others would fail too.
                        stretches.by_ref().for_each(|stretch| app.deliveries.again(stretch, false));
                    }
                    break;
                }
            }
        }
    }
    well
}

/// Indexes new mail in batches. Under load, indexing takes an eighth of one processor, and catches up when less
/// arrives.
async fn index(app: App) {
    loop {
        let begun = Instant::now();
        let mut rest = INDEX_GATHER;
        match app.store.index_mail().await {
            Ok(0) => tokio::select! {
                () = app.mail_came.notified() => {}
                // Other replicas write mail too, and may die before indexing it.
                () = sleep(INDEX_LOOK) => {}
                () = app.closing.cancelled() => return,
            },
            Ok(INDEX_MUCH..) => rest = (begun.elapsed() * INDEX_REST).min(INDEX_MOST),
            Ok(_) => {}
            Err(error) if error.code() == Code::Unsupported => return,
            Err(error) => {
                failed("indexing", &error);
                rest = INDEX_MOST;
            }
        }
        tokio::select! {
            () = sleep(rest) => {}
            () = app.closing.cancelled() => return,
        }
    }
}
