//! Sends that wait at the same time share a transaction, as they share a sync in SQLite.
//!
//! A lane is a task that takes whatever letters wait in its queue and writes them in one transaction. Letters to one
//! recipient always take the same lane, so lanes of one process do not wait for each other's locks.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use deadpool_postgres::Pool;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::batch::{self, Outcome};
use super::error::{Trouble, unavailable};
use super::open::client;
use super::transact::{PATIENCE, TRIES};
use crate::StoreError;
use crate::error::Result;
use crate::letter::Letter;
use crate::types::Agent;

/// Transactions of sends under way at once. Few, so that each carries many: two carry more than four did, and one that waits
/// for a lock does not hold up everybody.
const LANES: usize = 2;
/// Letters that wait in one lane; beyond this a sender waits for its place.
const QUEUE: usize = 1_024;
/// Letters in one transaction.
const BATCH: usize = 128;

/// A letter on its way.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) caller: Agent,
    pub(super) letter: Letter,
    answer: oneshot::Sender<Result<Outcome>>,
}

/// The lanes of one store.
#[derive(Debug)]
pub(super) struct Lanes {
    /// Empty once closed.
    queues: Mutex<Vec<mpsc::Sender<Job>>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Lanes {
    pub(super) fn start(pool: &Pool) -> Self {
        let (mut queues, mut tasks) = (Vec::new(), Vec::new());
        for _ in 0..LANES {
            let (queue, jobs) = mpsc::channel(QUEUE);
            queues.push(queue);
            tasks.push(tokio::spawn(run(pool.clone(), jobs)));
        }
        Self { queues: Mutex::new(queues), tasks: Mutex::new(tasks) }
    }

    /// Sends a letter, and answers when it is durable.
    pub(super) async fn send(&self, caller: Agent, letter: Letter) -> Result<Outcome> {
        let mut hasher = DefaultHasher::new();
        letter.to.hash(&mut hasher);
        let queue = {
            let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
            let lane = usize::try_from(hasher.finish() % LANES as u64).unwrap_or(0);
            queues.get(lane).cloned().ok_or_else(closed)?
        };
        let (answer, answered) = oneshot::channel();
        queue.send(Job { caller, letter, answer }).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }

    /// Finishes what was accepted.
    pub(super) async fn close(&self) {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            // A lane that panicked has dropped its letters, whose senders were told.
            let _ = task.await;
        }
    }
}

async fn run(pool: Pool, mut jobs: mpsc::Receiver<Job>) {
    let mut batch = Vec::with_capacity(BATCH);
    while jobs.recv_many(&mut batch, BATCH).await > 0 {
        let (letters, answers): (Vec<_>, Vec<_>) =
            batch.drain(..).map(|job| ((job.caller, job.letter), job.answer)).unzip();
        let outcomes = write(&pool, &letters).await;
        for (answer, outcome) in answers.into_iter().zip(outcomes) {
            // A sender that went away has no use for its answer; what was done stays done.
            drop(answer.send(outcome));
        }
    }
}

/// Writes letters in one transaction; where the database refuses them together, each in one of its own, so that one bad
/// letter spoils nobody else's.
async fn write(pool: &Pool, letters: &[(Agent, Letter)]) -> Vec<Result<Outcome>> {
    match attempt(pool, letters).await {
        Ok(outcomes) => outcomes,
        Err(error) if letters.len() > 1 && error.code() == amb_core::Code::Internal => {
            let mut outcomes = Vec::with_capacity(letters.len());
            for letter in letters {
                outcomes.push(match attempt(pool, std::slice::from_ref(letter)).await {
                    Ok(mut one) => one.pop().unwrap_or_else(|| Err(unavailable())),
                    Err(error) => Err(error),
                });
            }
            outcomes
        }
        Err(error) => {
            tracing::error!(error = ?error, "letters were not written");
            letters.iter().map(|_| Err(StoreError::new(error.code(), error.detail()))).collect()
        }
    }
}

async fn attempt(pool: &Pool, letters: &[(Agent, Letter)]) -> Result<Vec<Result<Outcome>>> {
    let mut tries = 0;
    loop {
        tries += 1;
        let mut client = client(pool).await?;
        match tokio::time::timeout(PATIENCE, batch::write(&mut client, letters)).await {
            Ok(Ok(outcomes)) => return Ok(outcomes),
            Ok(Err(trouble)) if trouble.is_passing() && tries < TRIES => {}
            Ok(Err(trouble)) => return Err(trouble.into()),
            Err(_) => {
                drop(deadpool_postgres::Object::take(client));
                return Err(Trouble::Store(unavailable()).into());
            }
        }
    }
}

fn closed() -> StoreError {
    StoreError::unavailable("the office is closing; try again when it is back")
}
