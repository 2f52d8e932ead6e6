//! The connections that read. In WAL mode a reader sees one consistent state and never waits for the writer.

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

/// A few read-only connections.
#[derive(Debug, Clone)]
pub(super) struct Readers {
    shared: Arc<ReaderPool>,
}

#[derive(Debug)]
struct ReaderPool {
    idle: Mutex<Vec<Connection>>,
    /// As many as there are connections, so that whoever has one finds a connection.
    permits: Arc<Semaphore>,
    /// Fewer, so that long reads leave connections to short ones.
    long: Arc<Semaphore>,
}

/// Reads at once that may take long.
const LONG: usize = 2;

impl Readers {
    /// Opens `count` connections for short reads, and some more for long ones.
    pub(super) fn open(path: &Path, count: usize) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let count = count + LONG;
        let mut idle = Vec::with_capacity(count);
        for _ in 0..count {
            let db = Connection::open_with_flags(path, flags).map_err(failed)?;
            tune(&db).map_err(failed)?;
            db.execute("ATTACH DATABASE ?1 AS search", [path_of(path).to_string_lossy()]).map_err(failed)?;
            // Less than the writer has: there are several of these, and the system keeps pages too.
            db.execute_batch("PRAGMA cache_size = -6000").map_err(failed)?;
            db.execute_batch("PRAGMA query_only = ON").map_err(failed)?;
            idle.push(db);
        }
        let (permits, long) = (Arc::new(Semaphore::new(count)), Arc::new(Semaphore::new(LONG)));
        Ok(Self { shared: Arc::new(ReaderPool { idle: Mutex::new(idle), permits, long }) })
    }

    /// Reads one consistent state on the calling thread: for what takes microseconds, less than a switch to another thread and back.
    pub(super) async fn look<T>(&self, look: impl FnOnce(&mut Connection) -> Result<T>) -> Result<T> {
        let permit = self.shared.permits.acquire().await.map_err(|_| closed())?;
        let seen = self.shared.with(|db| snapshot(db, look));
        drop(permit);
        seen
    }

    /// Reads one consistent state, on a thread that may block.
    pub(super) async fn read<T, F>(&self, look: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> Result<T> + Send + 'static,
    {
        let long = self.shared.long.clone().acquire_owned().await.map_err(|_| closed())?;
        let permit = self.shared.permits.clone().acquire_owned().await.map_err(|_| closed())?;
        let shared = self.shared.clone();
        // The permits go along: a caller that goes away meanwhile leaves the connection in use.
        let task = tokio::task::spawn_blocking(move || {
            let seen = shared.with(|db| snapshot(db, look));
            drop((permit, long));
            seen
        });
        task.await.map_err(StoreError::internal)?
    }

    /// Takes no more reads, and closes the connections as they become idle.
    pub(super) fn close(&self) {
        self.shared.long.close();
        self.shared.permits.close();
        self.shared.idle.lock().clear();
    }
}

impl ReaderPool {
    fn with<T>(&self, look: impl FnOnce(&mut Connection) -> Result<T>) -> Result<T> {
        let mut db = self.take()?;
        let seen = catch_unwind(AssertUnwindSafe(|| look(&mut db)))
            .unwrap_or_else(|_| Err(StoreError::internal("a look into the store panicked")));
        // What panicked may have left its transaction open.
        if !db.is_autocommit() {
            db.execute_batch("ROLLBACK").map_err(failed)?;
        }
        self.give_back(db);
        seen
    }

    fn take(&self) -> Result<Connection> {
        self.idle.lock().pop().ok_or_else(closed)
    }

    fn give_back(&self, db: Connection) {
        if !self.permits.is_closed() {
            self.idle.lock().push(db);
        }
    }
}

fn snapshot<T>(db: &mut Connection, look: impl FnOnce(&mut Connection) -> Result<T>) -> Result<T> {
    db.prepared("BEGIN").and_then(|mut s| s.execute([])).map_err(failed)?;
    let seen = look(db);
    db.prepared("COMMIT").and_then(|mut s| s.execute([])).map_err(failed)?;
    seen
}
