//! Background jobs: heartbeats, deliveries, deadlines, expiry, indexing, pruning, mounts.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use amb_core::{Backoff, Code, OfficeError, Timestamp};
use amb_mount::Terms;
use amb_store::{AgentKey, LogEntry, Written};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep};

use crate::app::App;
use crate::dashboard;
use crate::replicas;

/// How often idle rate limit states are dropped and histograms folded into their buckets.
const UPKEEP: Duration = Duration::from_secs(10);
/// How often heartbeats are written; well within the time after which an agent is offline.
const HEARTBEATS: Duration = Duration::from_secs(5);
/// How long the heartbeats of agents that come back are collected before they are written out of turn.
const HEARTBEAT_DELAY: Duration = Duration::from_millis(100);
/// How often the usage of all agents is counted. Until then, replicas check the office's quota without each other's
/// sends.
const USAGE: Duration = Duration::from_secs(5);
/// How often deadlines and expiries are checked.
const SWEEP: Duration = Duration::from_secs(1);
/// How often old entries and mail are deleted, if there is a retention.
const PRUNE: Duration = Duration::from_secs(300);
/// Pause between two batches of deletions, for other users of the database.
const PRUNE_PAUSE: Duration = Duration::from_millis(20);
/// How long deliveries are collected before they are written.
const DELIVERY_DELAY: Duration = Duration::from_millis(100);
/// Longest backoff after a failure to write deliveries.
const DELIVERY_BACKOFF: Duration = Duration::from_secs(5);
/// How long new mail is collected before it is indexed.
const INDEX_DELAY: Duration = Duration::from_millis(100);
/// From this batch size on, mail arrives faster than it is indexed.
const INDEX_LARGE_BATCH: u64 = 1_500;
/// After such a batch, indexing pauses this many times its duration, up to [`INDEX_MAX_PAUSE`], so that it does not
/// slow sends.
const INDEX_PAUSE_FACTOR: u32 = 7;
const INDEX_MAX_PAUSE: Duration = Duration::from_secs(1);
/// How often mail to index is looked for without a hint.
const INDEX_POLL: Duration = Duration::from_secs(30);

/// Starts all jobs; they end when the office closes.
pub(crate) fn start(app: &App) {
    app.tasks.spawn(regular(app.clone()));
    spawn_until_closing(app, prune_regularly(app.clone()));
    app.tasks.spawn(deliveries(app.clone()));
    app.tasks.spawn(index(app.clone()));
    app.tasks.spawn(dashboard::sample(app.clone()));
    for mount in &app.mounts {
        app.tasks.spawn(mount.clone().run(
            app.store.clone(),
            Arc::new({
                let app = app.clone();
                move |entries: &[LogEntry]| app.publish_entries(entries)
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

/// Runs a task until the office closes. It may be dropped at any `.await`.
pub(crate) fn spawn_until_closing(app: &App, task: impl Future<Output = ()> + Send + 'static) {
    let closing = app.closing.clone();
    app.tasks.spawn(async move { closing.run_until_cancelled(task).await });
}

fn every(period: Duration) -> Interval {
    let mut interval = interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// Logs the failure of a job; its next run is the retry. A store that does not support the verb is not a failure.
pub(crate) fn failed(job: &str, error: &OfficeError) {
    if error.code() != Code::Unsupported {
        tracing::warn!(job, %error, cause = ?std::error::Error::source(error), "background job failed; retrying later");
    }
}

async fn regular(app: App) {
    let (mut upkeep, mut heartbeats) = (every(UPKEEP), every(HEARTBEATS));
    let (mut sweep, mut usage) = (every(SWEEP), every(USAGE));
    loop {
        tokio::select! {
            _ = upkeep.tick() => {
                app.limits.sweep();
                app.metrics.upkeep();
                if let Err(error) = app.store.prune_rate_limits().await {
                    failed("deletion of expired rate limit charges", &error);
                }
            }
            _ = heartbeats.tick() => {
                let mut agents = app.heartbeats.take();
                app.hub.add_agents(&mut agents);
                write_heartbeats(&app, agents).await;
            }
            () = app.heartbeats.returned() => {
                sleep(HEARTBEAT_DELAY).await;
                write_heartbeats(&app, app.heartbeats.take_early()).await;
            }
            _ = sweep.tick() => sweep_due(&app).await,
            _ = usage.tick() => match app.store.office_usage().await {
                Ok(usage) => app.metrics.stored(usage),
                Err(error) => failed("count of stored mail", &error),
            },
            () = app.closing.cancelled() => return,
        }
    }
}

async fn write_heartbeats(app: &App, agents: HashSet<AgentKey>) {
    if agents.is_empty() {
        return;
    }
    let agents: Vec<_> = agents.into_iter().collect();
    if let Err(error) = app.store.seen(&agents, Timestamp::now()).await {
        failed("heartbeats", &error);
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

/// Deletes what is older than its retention. A task of its own, since a round may take long.
async fn prune_regularly(app: App) {
    let mut rounds = every(PRUNE);
    let before = |keep: Option<Duration>| keep.and_then(|keep| Timestamp::now().checked_sub(keep).ok());
    loop {
        rounds.tick().await;
        if let Some(before) = before(app.config.event_retention)
            && let Err(error) = prune_events(&app, before).await
        {
            failed("pruning of log entries", &error);
        }
        if let Some(before) = before(app.config.read_mail_retention)
            && let Err(error) = remove_read_mail(&app, before).await
        {
            failed("removal of read mail", &error);
        }
    }
}

async fn prune_events(app: &App, before: Timestamp) -> Result<(), OfficeError> {
    while app.store.prune(before).await? > 0 {
        sleep(PRUNE_PAUSE).await;
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
        sleep(PRUNE_PAUSE).await;
    }
    if removed > 0 {
        tracing::info!(removed, %before, "removed mail that all recipients read before");
    }
    Ok(())
}

/// Records which entries were delivered, with receipts for the senders. Failures are retried.
async fn deliveries(app: App) {
    let mut backoff = Backoff::new(DELIVERY_DELAY, DELIVERY_BACKOFF);
    let mut pause = DELIVERY_DELAY;
    loop {
        let collect = async {
            app.deliveries.notified().await;
            sleep(pause).await;
        };
        let closing = app.closing.run_until_cancelled(collect).await.is_none();
        pause = if write_deliveries(&app).await {
            backoff.reset();
            DELIVERY_DELAY
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
    let mut ranges = app.deliveries.take().into_iter();
    let mut all_written = true;
    while let Some(mut range) = ranges.next() {
        while range.after < range.up_to {
            match app.store.delivered(&range.agent, range.after, range.up_to, Timestamp::now()).await {
                Ok(written) => range.after = app.publish(written).reached,
                Err(error) => {
                    failed("receipts", &error);
                    all_written = false;
                    app.deliveries.retry(range, !error.is_transient());
                    if error.is_transient() {
                        // The database is unavailable: the others would fail too.
                        ranges.by_ref().for_each(|range| app.deliveries.retry(range, false));
                    }
                    break;
                }
            }
        }
    }
    all_written
}

/// Indexes new mail in batches. Under load, indexing takes an eighth of one processor, and catches up later.
async fn index(app: App) {
    loop {
        let begun = Instant::now();
        let mut pause = INDEX_DELAY;
        match app.store.index_mail().await {
            Ok(0) => tokio::select! {
                () = app.new_mail.notified() => {}
                // Other replicas write mail too, and may die before indexing it.
                () = sleep(INDEX_POLL) => {}
                () = app.closing.cancelled() => return,
            },
            Ok(INDEX_LARGE_BATCH..) => pause = (begun.elapsed() * INDEX_PAUSE_FACTOR).min(INDEX_MAX_PAUSE),
            Ok(_) => {}
            Err(error) if error.code() == Code::Unsupported => return,
            Err(error) => {
                failed("indexing", &error);
                pause = INDEX_MAX_PAUSE;
            }
        }
        if app.closing.run_until_cancelled(sleep(pause)).await.is_none() {
            return;
        }
    }
}
