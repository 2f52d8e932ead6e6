//! The connections that read. In WAL mode a reader sees one consistent snapshot and never waits for the writer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags};
use tokio::sync::Semaphore;

use super::error::{closed, failed};
use super::open::tune;
use super::plans::Prepared;
use super::search::path_of;
use crate::StoreError;
use crate::error::Result;

/// A pool of read-only connections.
#[derive(Debug)]
pub(super) struct Readers {
    idle: Mutex<Vec<Connection>>,
    /// As many permits as connections.
    permits: Arc<Semaphore>,
    /// Fewer permits, so that long reads leave connections to short ones.
    long: Arc<Semaphore>,
}

/// Most long reads at the same time.
const LONG_READS: usize = 2;

impl Readers {
    /// Opens `count` connections for short reads, and some more for long ones.
    pub(super) fn open(path: &Path, count: usize) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let count = count + LONG_READS;
        let mut idle = Vec::with_capacity(count);
        for _ in 0..count {
            let db = Connection::open_with_flags(path, flags).map_err(failed)?;
            tune(&db).map_err(failed)?;
            db.execute("ATTACH DATABASE ?1 AS search", [path_of(path).to_string_lossy()]).map_err(failed)?;
            // Smaller than the writer's cache: there are several of these, and the system caches pages too.
            db.execute_batch("PRAGMA cache_size = -6000").map_err(failed)?;
            db.execute_batch("PRAGMA query_only = ON").map_err(failed)?;
            idle.push(db);
        }
        let (permits, long) = (Arc::new(Semaphore::new(count)), Arc::new(Semaphore::new(LONG_READS)));
        Ok(Self { idle: Mutex::new(idle), permits, long })
    }

    /// Reads one snapshot on the calling thread: for reads that take less time than switching to another thread and
    /// back.
    pub(super) async fn read_short<T>(&self, read: impl FnOnce(&mut Connection) -> Result<T>) -> Result<T> {
        let _permit = self.permits.acquire().await.map_err(|_| closed())?;
        self.read_snapshot(read)
    }

    /// Reads one snapshot on a blocking thread.
    pub(super) async fn read_long<T, F>(self: &Arc<Self>, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> Result<T> + Send + 'static,
    {
        let long = self.long.clone().acquire_owned().await.map_err(|_| closed())?;
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| closed())?;
        let readers = self.clone();
        // The permits move into the task: where the caller is cancelled, the connection stays in use.
        let task = tokio::task::spawn_blocking(move || {
            let outcome = readers.read_snapshot(read);
            drop((permit, long));
            outcome
        });
        task.await.map_err(StoreError::internal)?
    }

    /// Takes no more reads, and closes the connections as they become idle.
    pub(super) fn close(&self) {
        self.long.close();
        self.permits.close();
        self.idle.lock().clear();
    }

    /// Reads in a transaction on an idle connection, for which the caller holds a permit.
    fn read_snapshot<T>(&self, read: impl FnOnce(&mut Connection) -> Result<T>) -> Result<T> {
        let mut db = self.idle.lock().pop().ok_or_else(closed)?;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            db.prepared("BEGIN").and_then(|mut begin| begin.execute([])).map_err(failed)?;
            let outcome = read(&mut db);
            db.prepared("COMMIT").and_then(|mut commit| commit.execute([])).map_err(failed)?;
            outcome
        }))
        .unwrap_or_else(|_| Err(StoreError::internal("a read of the store panicked")));
        // A panic may have left the transaction open.
        if !db.is_autocommit() {
            db.execute_batch("ROLLBACK").map_err(failed)?;
        }
        if !self.permits.is_closed() {
            self.idle.lock().push(db);
        }
        outcome
    }
}
