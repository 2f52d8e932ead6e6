//! The one thread that writes.
//!
//! It takes all operations that wait in its queue, runs them in one transaction, commits, and answers: they share the
//! cost of the sync. An operation runs in a savepoint, so that one that fails does not fail the others; a plain send
//! needs none, because it fails only before it writes.

pub(super) mod log;
pub(super) mod usage;
pub(super) mod view_version;

mod cache;
mod send;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use cache::Caches;
use usage::OfficeUsage;
use view_version::{ChangedViews, ViewVersions};

use super::error::{closed, failed, is_failed_sync};
use super::files::disk::Disk;
use super::plans::Prepared;
use crate::StoreError;
use crate::engine::Changes;
use crate::error::Result;
use crate::index_queue::IndexQueue;
use crate::key_cache::KeyCache;
use crate::message_clock::MessageClock;
use crate::types::{AgentKey, LogEntry};

/// Operations that wait. Beyond this a caller waits for a place in the queue: backpressure from a slow disk.
const QUEUE: usize = 4_096;
/// Operations in one transaction: enough to share a sync, few enough that the first does not wait long for the last.
const BATCH: usize = 512;

/// Capacity of the prepared statement cache: more than there are statements.
pub(super) const STATEMENTS: usize = 256;

/// The current write transaction: what operations work with.
pub(super) struct WriteTx {
    pub(super) db: Connection,
    pub(super) caches: Caches,
    pub(super) office: OfficeUsage,
    /// Agents with new mail to index after the commit.
    pub(super) to_index: Vec<AgentKey>,
    /// Agents whose views are invalid after the commit.
    pub(super) changed: ChangedViews,
    /// Whether the key cache is cleared after the commit.
    pub(super) key_ended: bool,
    pub(super) clock: MessageClock,
    /// The log entries of the current operation.
    pub(super) entries: Vec<LogEntry>,
}

/// How an operation runs in the transaction that it shares with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Isolation {
    /// In a savepoint, because it may fail half-way.
    Savepoint(Changes),
    /// Without a savepoint, which costs as much as a send: it fails only before it writes. Should it fail later all the
    /// same, the whole transaction fails. Changes the views of the agents that it writes to.
    None,
}

/// Answers an operation, once it is known whether its transaction was committed.
type CommitReply = Box<dyn FnOnce(Result<()>) + Send>;

/// An operation in the queue. Runs in the transaction, unless that could not begin, and returns its reply.
type WriteJob = Box<dyn FnOnce(Result<&mut WriteTx>) -> CommitReply + Send>;

/// What the writer shares with the rest of the store.
#[derive(Debug)]
pub(super) struct WriterShared {
    pub(super) index_queue: Arc<IndexQueue>,
    pub(super) versions: Arc<ViewVersions>,
    pub(super) disk: Arc<Disk>,
    pub(super) key_cache: Arc<KeyCache>,
}

/// A handle of the writer thread.
#[derive(Debug, Clone)]
pub(super) struct SqliteWriter {
    queue: mpsc::Sender<WriteJob>,
}

impl SqliteWriter {
    /// Starts the thread on this connection. It ends when all its handles are dropped.
    pub(super) fn start(
        db: Connection,
        office: OfficeUsage,
        shared: WriterShared,
    ) -> std::io::Result<(Self, JoinHandle<()>)> {
        let (queue, jobs) = mpsc::channel(QUEUE);
        db.set_prepared_statement_cache_capacity(STATEMENTS);
        let thread = std::thread::Builder::new().name("amb-sqlite-writer".into()).spawn(move || {
            let tx = WriteTx {
                db,
                caches: Caches::default(),
                office,
                to_index: Vec::new(),
                changed: ChangedViews::default(),
                key_ended: false,
                clock: MessageClock::default(),
                entries: Vec::new(),
            };
            WriterThread { tx, shared }.run(jobs);
        })?;
        Ok((Self { queue }, thread))
    }

    /// Runs an operation. Returns when it is durable.
    pub(super) async fn write<T, F>(&self, isolation: Isolation, operation: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut WriteTx) -> Result<T> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job: WriteJob = Box::new(move |tx| {
            let outcome = tx.and_then(|tx| tx.run(isolation, operation));
            // The caller may be gone; the operation is committed all the same.
            Box::new(move |committed| drop(answer.send(outcome.and_then(|value| committed.map(|()| value)))))
        });
        self.queue.send(job).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }
}

impl WriteTx {
    fn run<T>(&mut self, isolation: Isolation, operation: impl FnOnce(&mut WriteTx) -> Result<T>) -> Result<T> {
        let before = self.db.total_changes();
        let Isolation::Savepoint(changes) = isolation else {
            let outcome = caught(|| operation(self));
            if outcome.is_err() && self.db.total_changes() != before {
                self.roll_back();
            }
            return outcome;
        };
        let outcome = self.in_savepoint(operation);
        if changes == Changes::All && self.db.total_changes() != before {
            self.changed.add_all();
        }
        outcome
    }

    /// Runs an operation in a savepoint, which is rolled back where it fails.
    fn in_savepoint<T>(&mut self, operation: impl FnOnce(&mut WriteTx) -> Result<T>) -> Result<T> {
        self.execute_now("SAVEPOINT operation")?;
        let (before, office) = (self.db.total_changes(), self.office.now());
        let outcome = caught(|| operation(self));
        if outcome.is_err() && self.db.total_changes() != before {
            self.caches.clear();
            self.office.reset_to(office);
            self.execute_now("ROLLBACK TO operation")?;
        }
        self.execute_now("RELEASE operation")?;
        outcome
    }

    fn execute_now(&self, sql: &str) -> Result<()> {
        self.db.prepared(sql).and_then(|mut statement| statement.execute([])).map_err(failed).map(drop)
    }

    /// Rolls back after a failure that may have ended the transaction already.
    fn roll_back(&mut self) {
        self.caches.clear();
        self.office.roll_back();
        if !self.db.is_autocommit()
            && let Err(error) = self.db.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "a transaction could not be rolled back");
        }
    }
}

/// The state of the thread.
struct WriterThread {
    tx: WriteTx,
    shared: WriterShared,
}

impl WriterThread {
    fn run(mut self, mut jobs: mpsc::Receiver<WriteJob>) {
        let mut batch = Vec::with_capacity(BATCH);
        while jobs.blocking_recv_many(&mut batch, BATCH) > 0 {
            self.run_batch(&mut batch);
        }
        self.finish();
    }

    /// Runs a batch. Should the database end the transaction half-way (a full disk does), the operations so far are
    /// answered with the failure, and the rest gets a transaction of its own.
    fn run_batch(&mut self, batch: &mut Vec<WriteJob>) {
        let disk = &self.shared.disk;
        let mut jobs = batch.drain(..).peekable();
        while jobs.peek().is_some() {
            let tx = &mut self.tx;
            if let Err(error) = disk.check().and_then(|()| tx.execute_now("BEGIN IMMEDIATE")) {
                tracing::error!(error = %source_of(&error), "the database takes no writes");
                tx.roll_back();
                jobs.for_each(|job| job(Err(not_written()))(Ok(())));
                return;
            }
            let before = tx.db.total_changes();
            let mut replies: Vec<CommitReply> = Vec::with_capacity(jobs.len());
            for job in jobs.by_ref() {
                replies.push(job(Ok(tx)));
                if tx.db.is_autocommit() {
                    break;
                }
            }
            let changed = tx.db.total_changes() != before;
            let committed = if tx.db.is_autocommit() { Err(not_written()) } else { tx.execute_now("COMMIT") };
            let outcome = committed.map_err(|error| {
                if std::error::Error::source(&error).and_then(|cause| cause.downcast_ref()).is_some_and(is_failed_sync)
                {
                    disk.fail(&error);
                }
                tracing::error!(error = %source_of(&error), "a transaction was not committed");
                tx.roll_back();
                // It may have been committed all the same.
                tx.changed.add_all();
            });
            if changed && outcome.is_ok() {
                disk.count_commit();
            }
            publish(tx, &self.shared);
            for reply in replies {
                reply(outcome.map_err(|()| disk.check().err().unwrap_or_else(not_written)));
            }
        }
    }

    fn finish(self) {
        let Self { tx, shared } = self;
        if shared.disk.keep_log_after_failure(&tx.db) {
            return;
        }
        // Leaves one file for backups made by copying it.
        if let Err(error) = tx.db.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)") {
            tracing::warn!(%error, "no checkpoint of the write-ahead log at closing; the next start makes it");
        }
    }
}

/// Publishes the effects of a transaction. Only after the commit: until then readers see the state before it.
fn publish(tx: &mut WriteTx, shared: &WriterShared) {
    tx.office.commit();
    shared.versions.bump(&mut tx.changed);
    // Not after the `.await` of the verb: its caller may have been cancelled by then.
    if std::mem::take(&mut tx.key_ended) {
        shared.key_cache.clear();
    }
    tx.to_index.drain(..).for_each(|agent| shared.index_queue.add(agent));
}

fn caught<T>(operation: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(operation))
        .unwrap_or_else(|_| Err(StoreError::internal("an operation of the store panicked")))
}

fn not_written() -> StoreError {
    StoreError::unavailable("the office could not write to its database; nothing was accepted, try again")
}

fn source_of(error: &StoreError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}
