//! Routes publications by subject to the buffers of this process's goals.

mod table;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use amb_core::{Backoff, GoalId};
use futures_util::StreamExt;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::broker::{Broker, BrokerError, MessageHandler, Publication, PublicationRefused, Subscription};
use crate::buffer::InboxBuffer;
use crate::message::{goal_of_subject, inbox_subject};
use table::{RoutingTable, SubscriptionState};

/// Most concurrent subscribe requests.
const CONCURRENT_SUBSCRIBES: usize = 64;

/// Bounds of a router.
#[derive(Debug, Clone)]
pub struct RouterOptions {
    /// Most buffers for goals that have not registered.
    pub max_waiting_goals: usize,
    /// Bytes of bodies in those buffers, at most, all together.
    pub max_waiting_bytes: usize,
    /// How long such a buffer is kept.
    pub waiting_time: Duration,
    /// The first pause after a failed subscribe; it doubles up to `max_backoff`.
    pub backoff: Duration,
    /// The longest pause between tries.
    pub max_backoff: Duration,
}

impl Default for RouterOptions {
    fn default() -> Self {
        Self {
            max_waiting_goals: 1_024,
            max_waiting_bytes: 16 * 1024 * 1024,
            waiting_time: Duration::from_secs(60),
            backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(10),
        }
    }
}

/// What a router has dropped so far. Each drop is also logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RouterCounts {
    /// Publications whose subject is no goal's.
    pub bad_subjects: u64,
    /// Publications whose bytes are no message.
    pub bad_payloads: u64,
    /// Publications for goals that have ended, or that never registered while there was no more room.
    pub refused: u64,
    /// Duplicate publications that were skipped.
    pub repeated: u64,
}

/// Routes publications to the buffers of this process's goals, by their subject alone.
///
/// It subscribes to the subjects of its own goals only, and tries again when a subscribe fails. Where all goals live in
/// this process (the local broker), a message to a goal that has not registered yet waits for it in a buffer made on
/// demand, bounded in number, bytes and time; between processes [`expect`](Self::expect) does the same for a goal about
/// to start.
#[derive(Clone)]
pub struct InboxRouter {
    inner: Arc<RouterState>,
}

struct RouterState {
    broker: Arc<dyn Broker>,
    options: RouterOptions,
    table: Mutex<RoutingTable>,
    /// Wakes the task when there is something to subscribe to.
    work: Arc<Notify>,
    /// Incremented whenever a subscription is made or fails.
    progress: watch::Sender<u64>,
    handler: Arc<dyn MessageHandler>,
    strays: Mutex<Option<Subscription>>,
    counts: Mutex<RouterCounts>,
}

/// The broker's reference: weak, so that it does not keep the router alive.
struct WeakRouter(Weak<RouterState>);

impl MessageHandler for WeakRouter {
    fn deliver(&self, subject: &str, publication: Publication, id: Option<&str>) -> Result<(), PublicationRefused> {
        match self.0.upgrade() {
            Some(inner) => inner.deliver(subject, publication, id),
            None => Err(PublicationRefused("the receiving process is shutting down".into())),
        }
    }
}

impl InboxRouter {
    /// A router with the default bounds.
    pub fn new(broker: Arc<dyn Broker>) -> Self {
        Self::with_options(broker, RouterOptions::default())
    }

    /// A router with these bounds.
    pub fn with_options(broker: Arc<dyn Broker>, options: RouterOptions) -> Self {
        let inner = Arc::new_cyclic(|weak: &Weak<RouterState>| {
            let handler: Arc<dyn MessageHandler> = Arc::new(WeakRouter(Weak::clone(weak)));
            RouterState {
                strays: Mutex::new(broker.catch_strays(&handler)),
                broker,
                options,
                table: Mutex::default(),
                work: Arc::default(),
                progress: watch::Sender::new(0),
                handler,
                counts: Mutex::default(),
            }
        });
        Self { inner }
    }

    /// Starts the task that makes and renews subscriptions, once per process. It ends with `cancel`, and then drops
    /// every subscription.
    pub fn spawn(&self, cancel: CancellationToken) -> JoinHandle<()> {
        let inner = Arc::downgrade(&self.inner);
        tokio::spawn(async move { run(inner, cancel).await })
    }

    /// Returns the buffer of a goal that runs in this process, with the messages that arrived before.
    pub fn register(&self, goal: GoalId) -> Arc<InboxBuffer> {
        let buffer = self.inner.table.lock().register(goal);
        self.inner.subscribe(goal);
        buffer
    }

    /// Keeps messages for a goal that is about to start, for a time; `register` then finds them. Needed between
    /// processes, where no other process would keep them.
    pub fn expect(&self, goal: GoalId) {
        self.inner.table.lock().expect(goal, Instant::now(), &self.inner.options);
        self.inner.subscribe(goal);
    }

    /// Waits until messages for a registered goal reach this process. An error is the broker's last one; the router
    /// retries all the same.
    pub async fn ready(&self, goal: GoalId, timeout: Duration) -> Result<(), BrokerError> {
        let mut progress = self.inner.progress.subscribe();
        let last_refusal = Mutex::new(None::<String>);
        let subscribed = async {
            loop {
                match self.inner.table.lock().subscription(goal) {
                    None => return Err(BrokerError::Rejected(format!("goal {goal} is not registered here"))),
                    Some(SubscriptionState::Up(_)) => return Ok(()),
                    Some(SubscriptionState::Failed(why)) => {
                        *last_refusal.lock() = Some(why.clone());
                    }
                    Some(SubscriptionState::Wanted | SubscriptionState::Trying) => {}
                }
                if progress.changed().await.is_err() {
                    return Err(BrokerError::Rejected("the router has stopped".into()));
                }
            }
        };
        match tokio::time::timeout(timeout, subscribed).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let why = last_refusal.into_inner();
                let why = why.unwrap_or_else(|| "no answer yet; was the router spawned?".into());
                Err(BrokerError::Rejected(format!("cannot subscribe to the inbox of goal {goal}: {why}")))
            }
        }
    }

    /// Removes a goal that has ended; messages that still come for it are refused.
    pub fn forget(&self, goal: GoalId) {
        let ended = self.inner.table.lock().forget(goal);
        // Dropped outside the lock: ending a subscription calls into the broker.
        drop(ended);
    }

    /// Registered goals.
    pub fn goals(&self) -> usize {
        self.inner.table.lock().registered()
    }

    /// Buffers that wait for a goal which has not registered.
    pub fn waiting(&self) -> usize {
        self.inner.table.lock().waiting()
    }

    /// What was dropped so far.
    pub fn counts(&self) -> RouterCounts {
        *self.inner.counts.lock()
    }
}

impl RouterState {
    /// Subscribes at once if the broker can, else leaves it to the task.
    fn subscribe(&self, goal: GoalId) {
        // A goal whose last attempt failed is retried by the task.
        if matches!(self.table.lock().subscription(goal), Some(SubscriptionState::Failed(_)))
            || !self.table.lock().claim_subscribing(goal)
        {
            return;
        }
        match self.broker.subscribe_now(&inbox_subject(goal), &self.handler) {
            Some(subscription) => self.finish_subscribing(goal, Ok(subscription)),
            None => {
                self.table.lock().todo.push(goal);
                self.work.notify_one();
            }
        }
    }

    fn finish_subscribing(&self, goal: GoalId, outcome: Result<Subscription, String>) {
        let subscription = match outcome {
            Ok(subscription) => SubscriptionState::Up(subscription),
            Err(why) => SubscriptionState::Failed(why),
        };
        // Returns the old state, or the new one of a goal that was removed meanwhile.
        let unused = self.table.lock().set_subscription(goal, subscription);
        drop(unused);
        self.progress.send_modify(|number| *number += 1);
    }

    fn deliver(&self, subject: &str, publication: Publication, id: Option<&str>) -> Result<(), PublicationRefused> {
        let Some(goal) = goal_of_subject(subject) else {
            self.counts.lock().bad_subjects += 1;
            tracing::debug!(subject, "dropped: the subject is no goal's inbox");
            return Err(PublicationRefused("the subject is no goal's inbox".into()));
        };
        let message = publication.open().map_err(|bad| {
            self.counts.lock().bad_payloads += 1;
            tracing::debug!(%goal, %bad, "dropped: the payload is no inbox message");
            PublicationRefused("the payload is no inbox message".into())
        })?;
        let buffer = {
            let mut table = self.table.lock();
            if id.is_some_and(|id| table.has_seen(id)) {
                self.counts.lock().repeated += 1;
                return Ok(());
            }
            let buffer = table.buffer_for(goal, message.body.len(), &self.options);
            if let (Some(id), Ok(_)) = (id, &buffer) {
                table.mark_seen(id);
            }
            buffer
        };
        match buffer {
            Ok(buffer) => {
                buffer.push(message);
                Ok(())
            }
            Err(why) => {
                self.counts.lock().refused += 1;
                tracing::debug!(%goal, why, "refused a peer message");
                Err(PublicationRefused(why.into()))
            }
        }
    }
}

async fn run(inner: Weak<RouterState>, cancel: CancellationToken) {
    let mut failures = HashMap::new();
    loop {
        // Held for one round only, so that dropping the last owner ends the task.
        let Some(router) = inner.upgrade() else { return };
        round(&router, &mut failures, &cancel).await;
        if cancel.is_cancelled() {
            let ended = router.table.lock().take_subscriptions();
            drop(ended);
            router.strays.lock().take();
            return;
        }
        failures.retain(|goal, _| router.table.lock().subscription(*goal).is_some());
        let work = Arc::clone(&router.work);
        let pause = match router.table.lock().todo.is_empty() {
            true => router.options.waiting_time.min(Duration::from_secs(5)),
            false => Duration::ZERO,
        };
        drop(router);
        tokio::select! {
            () = cancel.cancelled() => {}
            () = work.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Drops what has waited too long and subscribes to what is new. `failures` holds each failing goal's backoff.
async fn round(router: &Arc<RouterState>, failures: &mut HashMap<GoalId, Backoff>, cancel: &CancellationToken) {
    let (todo, ended) = {
        let mut table = router.table.lock();
        (std::mem::take(&mut table.todo), table.sweep(Instant::now(), router.options.waiting_time))
    };
    drop(ended);
    let mut tries = futures_util::stream::iter(todo)
        .map(|goal| async move {
            let subject = inbox_subject(goal);
            (goal, router.broker.subscribe(&subject, Arc::clone(&router.handler)).await)
        })
        .buffer_unordered(CONCURRENT_SUBSCRIBES);
    loop {
        let next = tokio::select! {
            () = cancel.cancelled() => return,
            next = tries.next() => next,
        };
        match next {
            None => return,
            Some((goal, Ok(subscription))) => {
                failures.remove(&goal);
                router.finish_subscribing(goal, Ok(subscription));
            }
            Some((goal, Err(error))) => {
                let options = &router.options;
                let new = || Backoff::new(options.backoff, options.max_backoff);
                let wait = failures.entry(goal).or_insert_with(new).pause();
                tracing::warn!(%goal, %error, retry_in = ?wait, "subscribing to a goal's inbox failed; retrying");
                router.finish_subscribing(goal, Err(error.to_string()));
                retry_later(router, goal, wait, cancel);
            }
        }
    }
}

/// Retries one goal after its own pause, without holding up the others.
fn retry_later(router: &Arc<RouterState>, goal: GoalId, wait: Duration, cancel: &CancellationToken) {
    let router = Arc::downgrade(router);
    let cancel = cancel.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        if let Some(router) = router.upgrade()
            && router.table.lock().claim_subscribing(goal)
        {
            router.table.lock().todo.push(goal);
            router.work.notify_one();
        }
    });
}
