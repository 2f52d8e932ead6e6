//! The one thread that writes.
//!
//! It takes whatever waits in its queue, runs it in one transaction, each operation under a savepoint of its own, commits
//! with a full sync, and only then answers. So the cost of a sync is shared by everybody who waited for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::cache::Caches;
use super::error::{closed, failed};
use super::plans::Prepared;
use crate::StoreError;
use crate::error::Result;
use crate::unindexed::Unindexed;

/// Operations that wait. Beyond this a caller waits for its place, so that a slow disk is felt where mail comes in.
const QUEUE: usize = 4_096;
/// Operations in one transaction: enough to share a sync, few enough that the first does not wait long for the last.
const BATCH: usize = 512;

/// Prepared statements kept: all that there are.
pub(super) const STATEMENTS: usize = 256;

/// What operations work with.
pub(super) struct Desk {
    pub(super) db: Connection,
    pub(super) caches: Caches,
    pub(super) unindexed: Arc<Unindexed>,
}

/// Answers an operation, once it is known whether the transaction was committed.
type Reply = Box<dyn FnOnce(Result<()>) + Send>;

/// An operation in the queue.
trait Job: Send {
    /// Runs it within the transaction; what it answers is sent after the commit.
    fn run(self: Box<Self>, desk: &mut Desk) -> Reply;
    /// Answers it without running it.
    fn refuse(self: Box<Self>, error: StoreError);
}

struct Operation<T, F> {
    operation: F,
    answer: oneshot::Sender<Result<T>>,
}

impl<T, F> Job for Operation<T, F>
where
    T: Send + 'static,
    F: FnOnce(&mut Desk) -> Result<T> + Send + 'static,
{
    fn run(self: Box<Self>, desk: &mut Desk) -> Reply {
        let Self { operation, answer } = *self;
        let outcome = desk.guarded(operation);
        // A caller that went away has no use for its answer; what was done stays done.
        Box::new(move |committed| drop(answer.send(outcome.and_then(|value| committed.map(|()| value)))))
    }

    fn refuse(self: Box<Self>, error: StoreError) {
        drop(self.answer.send(Err(error)));
    }
}

/// The way to the thread.
#[derive(Debug, Clone)]
pub(super) struct Writer {
    queue: mpsc::Sender<Box<dyn Job>>,
}

impl Writer {
    /// Starts the thread on this connection. It ends when all its `Writer`s are gone.
    pub(super) fn start(db: Connection, unindexed: Arc<Unindexed>) -> std::io::Result<(Self, JoinHandle<()>)> {
        let (queue, jobs) = mpsc::channel(QUEUE);
        db.set_prepared_statement_cache_capacity(STATEMENTS);
        let thread = std::thread::Builder::new().name("amb-sqlite-writer".into()).spawn(move || {
            run(Desk { db, caches: Caches::default(), unindexed }, jobs);
        })?;
        Ok((Self { queue }, thread))
    }

    /// Runs an operation, and answers when it is durable.
    pub(super) async fn write<T, F>(&self, operation: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Desk) -> Result<T> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        self.queue.send(Box::new(Operation { operation, answer })).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }
}

impl Desk {
    /// Runs an operation so that a failure leaves nothing of it behind.
    fn guarded<T>(&mut self, operation: impl FnOnce(&mut Desk) -> Result<T>) -> Result<T> {
        self.db.prepared("SAVEPOINT operation").and_then(|mut s| s.execute([])).map_err(failed)?;
        let before = self.db.total_changes();
        let outcome = catch_unwind(AssertUnwindSafe(|| operation(self)))
            .unwrap_or_else(|_| Err(StoreError::internal("an operation of the store panicked")));
        if outcome.is_err() && self.db.total_changes() != before {
            // What it put into the caches is as untrue as what it wrote.
            self.caches.clear();
            self.db.prepared("ROLLBACK TO operation").and_then(|mut s| s.execute([])).map_err(failed)?;
        }
        self.db.prepared("RELEASE operation").and_then(|mut s| s.execute([])).map_err(failed)?;
        outcome
    }

    fn begin(&self) -> Result<()> {
        self.db.prepared("BEGIN IMMEDIATE").and_then(|mut s| s.execute([])).map_err(failed).map(drop)
    }

    fn commit(&self) -> Result<()> {
        self.db.prepared("COMMIT").and_then(|mut s| s.execute([])).map_err(failed).map(drop)
    }

    /// After a failure that may have ended the transaction: nothing that it did is there, nor in the caches.
    fn abandon(&mut self) {
        self.caches.clear();
        if !self.db.is_autocommit()
            && let Err(error) = self.db.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "a transaction could not be rolled back");
        }
    }
}

fn run(mut desk: Desk, mut jobs: mpsc::Receiver<Box<dyn Job>>) {
    let mut batch = Vec::with_capacity(BATCH);
    while jobs.blocking_recv_many(&mut batch, BATCH) > 0 {
        transaction(&mut desk, &mut batch);
    }
    // Leaves one file behind for backups made by copying; failing to is no loss.
    if let Err(error) = desk.db.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)") {
        tracing::warn!(%error, "the write-ahead log was not folded in at closing; the next start does it");
    }
}

/// Runs a batch. Should the database end the transaction in the middle (a full disk does), what came before is answered
/// with the failure, and the rest gets a transaction of its own.
fn transaction(desk: &mut Desk, batch: &mut Vec<Box<dyn Job>>) {
    let mut jobs = batch.drain(..).peekable();
    while jobs.peek().is_some() {
        if let Err(error) = desk.begin() {
            tracing::error!(error = %source_of(&error), "the database takes no writes");
            desk.abandon();
            jobs.for_each(|job| job.refuse(lost()));
            return;
        }
        let mut replies: Vec<Reply> = Vec::with_capacity(jobs.len());
        for job in jobs.by_ref() {
            replies.push(job.run(desk));
            if desk.db.is_autocommit() {
                break;
            }
        }
        let committed = if desk.db.is_autocommit() { Err(lost()) } else { desk.commit() };
        match committed {
            Ok(()) => replies.into_iter().for_each(|reply| reply(Ok(()))),
            Err(error) => {
                tracing::error!(error = %source_of(&error), "a transaction was not committed");
                desk.abandon();
                replies.into_iter().for_each(|reply| reply(Err(lost())));
            }
        }
    }
}

fn lost() -> StoreError {
    StoreError::unavailable("the office could not write to its database; nothing was accepted, try again")
}

fn source_of(error: &StoreError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}
