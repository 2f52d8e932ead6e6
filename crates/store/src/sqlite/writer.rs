//! The one thread that writes.
//!
//! It takes whatever waits in its queue, runs it in one transaction, commits, and answers. So the cost of a sync is shared by everybody who waited for it. An operation runs under a savepoint of its own, so that one that
//! fails takes no other with it; a plain send needs none, because it fails only before it writes.

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
use view_version::{Changed, ViewVersions};

use super::error::{closed, failed, is_failed_sync};
use super::files::disk::Disk;
use super::plans::Prepared;
use crate::StoreError;
use crate::error::Result;
use crate::known::KnownKeys;
use crate::newest::Newest;
use crate::types::{AgentKey, LogEntry};
use crate::unindexed::Unindexed;

/// Operations that wait. Beyond this a caller waits for its place, so that a slow disk is felt where mail comes in.
const QUEUE: usize = 4_096;
/// Operations in one transaction: enough to share a sync, few enough that the first does not wait long for the last.
const BATCH: usize = 512;

/// Prepared statements kept: all that there are.
pub(super) const STATEMENTS: usize = 256;

/// The write transaction under way: what operations work with.
pub(super) struct WriteTx {
    pub(super) db: Connection,
    pub(super) caches: Caches,
    pub(super) office: OfficeUsage,
    /// Whose new mail can be found by search after this transaction.
    pub(super) findable: Vec<AgentKey>,
    /// Who sees something else after this transaction.
    pub(super) changed: Changed,
    /// Whether a key has ended after this transaction.
    pub(super) ended_key: bool,
    pub(super) newest: Newest,
    /// What the operation under way has put into logs.
    pub(super) entries: Vec<LogEntry>,
}

/// How an operation runs in the transaction that it shares with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Isolation {
    /// Under a savepoint, because it may fail in the middle. Everybody is taken to see something else after it.
    Everybody,
    /// Under a savepoint. It says itself who sees something else after it ([`WriteTx::changed`]).
    Own,
    /// The same, but it fails only before it writes anything, and so needs no savepoint.
    Unguarded,
}

/// Answers an operation, once it is known whether its transaction was committed.
type CommitReply = Box<dyn FnOnce(Result<()>) + Send>;

/// An operation in the queue.
trait WriteJob: Send {
    /// Runs it within the transaction. Its answer is sent after the commit.
    fn run(self: Box<Self>, tx: &mut WriteTx) -> CommitReply;
    /// Answers it without running it.
    fn refuse(self: Box<Self>, error: StoreError);
}

struct Operation<T, F> {
    isolation: Isolation,
    operation: F,
    answer: oneshot::Sender<Result<T>>,
}

impl<T, F> WriteJob for Operation<T, F>
where
    T: Send + 'static,
    F: FnOnce(&mut WriteTx) -> Result<T> + Send + 'static,
{
    fn run(self: Box<Self>, tx: &mut WriteTx) -> CommitReply {
        let Self { isolation, operation, answer } = *self;
        let before = tx.db.total_changes();
        let outcome = match isolation {
            Isolation::Everybody | Isolation::Own => tx.guarded(operation),
            Isolation::Unguarded => tx.unguarded(operation),
        };
        if isolation == Isolation::Everybody && tx.db.total_changes() != before {
            tx.changed.everybody();
        }
        // A caller that went away has no use for its answer; what was done stays done.
        Box::new(move |committed| drop(answer.send(outcome.and_then(|value| committed.map(|()| value)))))
    }

    fn refuse(self: Box<Self>, error: StoreError) {
        drop(self.answer.send(Err(error)));
    }
}

/// What the thread tells others.
#[derive(Debug)]
pub(super) struct WriterShared {
    pub(super) unindexed: Arc<Unindexed>,
    pub(super) versions: Arc<ViewVersions>,
    pub(super) disk: Arc<Disk>,
    pub(super) known: Arc<KnownKeys>,
}

/// The way to the thread.
#[derive(Debug, Clone)]
pub(super) struct SqliteWriter {
    queue: mpsc::Sender<Box<dyn WriteJob>>,
}

impl SqliteWriter {
    /// Starts the thread on this connection. It ends when all its `SqliteWriter`s are gone.
    pub(super) fn start(
        db: Connection,
        office: OfficeUsage,
        shared: WriterShared,
    ) -> std::io::Result<(Self, JoinHandle<()>)> {
        let (queue, jobs) = mpsc::channel(QUEUE);
        let WriterShared { unindexed, versions, disk, known } = shared;
        db.set_prepared_statement_cache_capacity(STATEMENTS);
        let thread = std::thread::Builder::new().name("amb-sqlite-writer".into()).spawn(move || {
            let tx = WriteTx {
                db,
                caches: Caches::default(),
                office,
                findable: Vec::new(),
                changed: Changed::default(),
                ended_key: false,
                newest: Newest::default(),
                entries: Vec::new(),
            };
            Transactions { tx, versions, unindexed, known, disk }.run(jobs);
        })?;
        Ok((Self { queue }, thread))
    }

    /// Runs an operation, and returns when it is durable.
    pub(super) async fn write<T, F>(&self, isolation: Isolation, operation: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut WriteTx) -> Result<T> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        self.queue.send(Box::new(Operation { isolation, operation, answer })).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }
}

impl WriteTx {
    /// Runs an operation so that a failure leaves nothing of it behind.
    pub(super) fn guarded<T>(&mut self, operation: impl FnOnce(&mut WriteTx) -> Result<T>) -> Result<T> {
        self.db.prepared("SAVEPOINT operation").and_then(|mut s| s.execute([])).map_err(failed)?;
        let (before, office) = (self.db.total_changes(), self.office.now());
        let outcome = caught(|| operation(self));
        if outcome.is_err() && self.db.total_changes() != before {
            self.rolled_back();
            self.office.back_to(office);
            self.db.prepared("ROLLBACK TO operation").and_then(|mut s| s.execute([])).map_err(failed)?;
        }
        self.db.prepared("RELEASE operation").and_then(|mut s| s.execute([])).map_err(failed)?;
        outcome
    }

    /// Runs an operation that fails only before it writes anything. Should it fail later all the same, it takes the whole
    /// transaction with it. That spares every send a savepoint, which costs as much as the send.
    fn unguarded<T>(&mut self, operation: impl FnOnce(&mut WriteTx) -> Result<T>) -> Result<T> {
        let before = self.db.total_changes();
        let outcome = caught(|| operation(self));
        if outcome.is_err() && self.db.total_changes() != before {
            self.abandon();
        }
        outcome
    }

    /// What an operation put into the caches is as untrue as what it wrote.
    fn rolled_back(&mut self) {
        self.caches.clear();
    }

    fn begin(&self) -> Result<()> {
        self.db.prepared("BEGIN IMMEDIATE").and_then(|mut s| s.execute([])).map_err(failed).map(drop)
    }

    fn commit(&self) -> Result<()> {
        self.db.prepared("COMMIT").and_then(|mut s| s.execute([])).map_err(failed).map(drop)
    }

    /// After a failure that may have ended the transaction: nothing that it did is there, nor in the caches.
    fn abandon(&mut self) {
        self.rolled_back();
        self.office.abandoned();
        if !self.db.is_autocommit()
            && let Err(error) = self.db.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "a transaction could not be rolled back");
        }
    }
}

/// The thread at work.
struct Transactions {
    tx: WriteTx,
    versions: Arc<ViewVersions>,
    unindexed: Arc<Unindexed>,
    known: Arc<KnownKeys>,
    disk: Arc<Disk>,
}

impl Transactions {
    fn run(mut self, mut jobs: mpsc::Receiver<Box<dyn WriteJob>>) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            if jobs.blocking_recv_many(&mut batch, BATCH) == 0 {
                break;
            }
            self.transaction(&mut batch);
        }
        self.finish();
    }

    /// Runs a batch. Should the database end the transaction in the middle (a full disk does), what came before is answered
    /// with the failure, and the rest gets a transaction of its own.
    fn transaction(&mut self, batch: &mut Vec<Box<dyn WriteJob>>) {
        let mut jobs = batch.drain(..).peekable();
        while jobs.peek().is_some() {
            let tx = &mut self.tx;
            if let Err(error) = self.disk.check().and_then(|()| tx.begin()) {
                tracing::error!(error = %source_of(&error), "the database takes no writes");
                tx.abandon();
                jobs.for_each(|job| job.refuse(lost()));
                return;
            }
            let before = tx.db.total_changes();
            let mut replies: Vec<CommitReply> = Vec::with_capacity(jobs.len());
            for job in jobs.by_ref() {
                replies.push(job.run(tx));
                if tx.db.is_autocommit() {
                    break;
                }
            }
            let changed = tx.db.total_changes() != before;
            let committed = if tx.db.is_autocommit() { Err(lost()) } else { tx.commit() };
            let outcome = committed.map_err(|error| {
                if std::error::Error::source(&error).and_then(|cause| cause.downcast_ref()).is_some_and(is_failed_sync)
                {
                    self.disk.fail(&error);
                }
                tracing::error!(error = %source_of(&error), "a transaction was not committed");
                tx.abandon();
                // Whatever became of it.
                tx.changed.everybody();
            });
            if changed && outcome.is_ok() {
                self.disk.count_commit();
            }
            self.show();
            for reply in replies {
                reply(outcome.map_err(|()| self.disk.check().err().unwrap_or_else(lost)));
            }
        }
    }

    /// Says what others can see from now on. Only after the commit: until then they see it as it was.
    fn show(&mut self) {
        self.tx.office.committed();
        self.versions.change(&mut self.tx.changed);
        // Here and not after the verb's `.await`: its caller may be gone by then.
        if std::mem::take(&mut self.tx.ended_key) {
            self.known.forget();
        }
        self.tx.findable.drain(..).for_each(|agent| self.unindexed.add(agent));
    }

    fn finish(self) {
        let Self { tx, disk, .. } = self;
        if disk.keep_log_after_failure(&tx.db) {
            return;
        }
        // Leaves one file behind for backups made by copying; failing to is no loss.
        if let Err(error) = tx.db.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)") {
            tracing::warn!(%error, "the write-ahead log was not folded in at closing; the next start does it");
        }
    }
}

fn caught<T>(operation: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(operation))
        .unwrap_or_else(|_| Err(StoreError::internal("an operation of the store panicked")))
}

fn lost() -> StoreError {
    StoreError::unavailable("the office could not write to its database; nothing was accepted, try again")
}

fn source_of(error: &StoreError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}
