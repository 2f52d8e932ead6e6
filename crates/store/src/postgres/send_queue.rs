//! The queue of sends. Sends that wait at the same time share a transaction, as they do in SQLite.
//!
//! One task takes all messages that wait in the queue and writes them in one transaction, then the next. With two tasks
//! the throughput was a fifth lower, and with four lower still, because each wrote smaller batches.

use std::sync::Arc;

use deadpool_postgres::Pool;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::batch::{self, Outcomes};
use super::error::unavailable;
use super::open::client;
use super::transact::{InUse, MAX_ATTEMPTS, TIMEOUT};
use crate::StoreError;
use crate::engine::Failed;
use crate::error::Result;
use crate::outgoing::OutgoingMessage;
use crate::quota::Account;
use crate::types::Agent;
use crate::verbs::Outcome;

/// Messages that wait; beyond this a sender waits for a place in the queue.
const QUEUE: usize = 2_048;
/// Messages in one transaction.
const BATCH: usize = 128;

/// A message in the queue.
#[derive(Debug)]
struct QueuedSend {
    caller: Agent,
    message: OutgoingMessage,
    answer: oneshot::Sender<Result<Queued>>,
}

/// The result of a queued send.
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

    /// Sends a message. Returns when it is durable.
    pub(super) async fn send(&self, caller: Agent, message: OutgoingMessage) -> Result<Queued> {
        let queue = self.queue.lock().clone().ok_or_else(closed)?;
        let (answer, answered) = oneshot::channel();
        queue.send(QueuedSend { caller, message, answer }).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }

    /// Closes the queue, and waits for the messages in it.
    pub(super) async fn close(&self) {
        drop(self.queue.lock().take());
        let task = self.task.lock().take();
        if let Some(task) = task {
            // Where it panicked, the senders got an error.
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
            // The sender may be gone; its message is committed all the same.
            drop(answer.send(queued));
        }
    }
}

/// Writes messages in one transaction; where that fails, each in one of its own, so that one bad message does not fail
/// the others.
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
    let mut attempts = 0;
    loop {
        attempts += 1;
        let client = InUse::new(client(pool).await?);
        let Ok(outcome) = tokio::time::timeout(TIMEOUT, batch::write(client, account, messages)).await else {
            return Err(unavailable());
        };
        match outcome {
            Err(Failed::Retry(_)) if attempts < MAX_ATTEMPTS => {}
            outcome => return outcome.map_err(StoreError::from),
        }
    }
}

fn closed() -> StoreError {
    StoreError::unavailable("the office is closing; try again when it is back")
}
