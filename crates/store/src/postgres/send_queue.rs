//! Sends that wait at the same time share a transaction, as they share a sync in SQLite.
//!
//! A task takes whatever messages wait in the queue and writes them in one transaction, then the next. There
//! is one: two carried a fifth less, and four that began when one took long less still, because each carried fewer messages.

use std::sync::Arc;

use deadpool_postgres::Pool;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::batch::{self, Outcomes};
use super::error::unavailable;
use super::open::client;
use super::transact::{InUse, PATIENCE, TRIES};
use crate::StoreError;
use crate::engine::Failed;
use crate::error::Result;
use crate::outgoing::OutgoingMessage;
use crate::quota::Account;
use crate::types::Agent;
use crate::verbs::Outcome;

/// Messages that wait; beyond this a sender waits for its place.
const QUEUE: usize = 2_048;
/// Messages in one transaction.
const BATCH: usize = 128;

/// A message on its way.
#[derive(Debug)]
pub(super) struct QueuedSend {
    pub(super) caller: Agent,
    pub(super) message: OutgoingMessage,
    answer: oneshot::Sender<Result<Queued>>,
}

/// What became of a message.
#[derive(Debug)]
pub(super) enum Queued {
    Done(Outcome),
    /// No agent has the recipient's name; a group may.
    NoAgent(Box<OutgoingMessage>),
}

/// The queue of one store, and the task that empties it.
#[derive(Debug)]
pub(super) struct SendQueue {
    /// `None` once closed.
    queue: Mutex<Option<mpsc::Sender<QueuedSend>>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl SendQueue {
    pub(super) fn start(pool: &Pool, account: Arc<Account>) -> Self {
        let (queue, jobs) = mpsc::channel(QUEUE);
        let task = tokio::spawn(run(pool.clone(), account, jobs));
        Self { queue: Mutex::new(Some(queue)), task: Mutex::new(Some(task)) }
    }

    /// Sends a message, and answers when it is durable.
    pub(super) async fn send(&self, caller: Agent, message: OutgoingMessage) -> Result<Queued> {
        let queue = self.queue.lock().clone().ok_or_else(closed)?;
        let (answer, answered) = oneshot::channel();
        queue.send(QueuedSend { caller, message, answer }).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }

    /// Finishes what was accepted.
    pub(super) async fn close(&self) {
        drop(self.queue.lock().take());
        let task = self.task.lock().take();
        if let Some(task) = task {
            // One that panicked has dropped its messages, whose senders got an error.
            let _ = task.await;
        }
    }
}

async fn run(pool: Pool, account: Arc<Account>, mut jobs: mpsc::Receiver<QueuedSend>) {
    let mut batch = Vec::with_capacity(BATCH);
    while jobs.recv_many(&mut batch, BATCH).await > 0 {
        let (messages, answers): (Vec<_>, Vec<_>) =
            batch.drain(..).map(|job| ((job.caller, job.message), job.answer)).unzip();
        let outcomes = write(&pool, &account, &messages).await;
        for ((answer, outcome), (_, message)) in answers.into_iter().zip(outcomes).zip(messages) {
            let queued = outcome.map(|outcome| outcome.map_or_else(|| Queued::NoAgent(message.into()), Queued::Done));
            // A sender that went away has no use for its answer; what was done stays done.
            drop(answer.send(queued));
        }
    }
}

/// Writes messages in one transaction; where the database refuses them together, each in one of its own, so that one bad
/// message spoils nobody else's.
async fn write(pool: &Pool, account: &Account, messages: &[(Agent, OutgoingMessage)]) -> Outcomes {
    match attempt(pool, account, messages).await {
        Ok(outcomes) => outcomes,
        Err(error) if messages.len() > 1 && error.code() == amb_core::Code::Internal => {
            let mut outcomes = Vec::with_capacity(messages.len());
            for message in messages {
                outcomes.push(match attempt(pool, account, std::slice::from_ref(message)).await {
                    Ok(mut one) => one.pop().unwrap_or_else(|| Err(unavailable())),
                    Err(error) => Err(error),
                });
            }
            outcomes
        }
        Err(error) => {
            tracing::error!(error = ?error, "messages were not written");
            messages.iter().map(|_| Err(StoreError::new(error.code(), error.detail()))).collect()
        }
    }
}

async fn attempt(pool: &Pool, account: &Account, messages: &[(Agent, OutgoingMessage)]) -> Result<Outcomes> {
    let mut tries = 0;
    loop {
        tries += 1;
        let client = InUse::new(client(pool).await?);
        let Ok(outcome) = tokio::time::timeout(PATIENCE, batch::write(client, account, messages)).await else {
            return Err(unavailable());
        };
        match outcome {
            Err(Failed::Retry(_)) if tries < TRIES => {}
            outcome => return outcome.map_err(StoreError::from),
        }
    }
}

fn closed() -> StoreError {
    StoreError::unavailable("the office is closing; try again when it is back")
}
