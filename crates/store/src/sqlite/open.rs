//! Opening the database file: its lock, its schema, its connections.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::error::failed;
use super::files::backup::sync_directory;
use super::files::checkpoint::Checkpoints;
use super::files::disk::Disk;
use super::files::lock::Lock;
use super::readers::Readers;
use super::search::Indexer;
use super::writer::usage::OfficeUsage;
use super::writer::view_version::ViewVersions;
use super::writer::{STATEMENTS, SqliteWriter, WriterShared};
use crate::StoreError;
use crate::error::Result;
use crate::index_queue::IndexQueue;
use crate::key_cache::KeyCache;
use crate::quota::Account;

mod schema {
    refinery::embed_migrations!("migrations/sqlite");
}

/// The store in one SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    pub(super) path: PathBuf,
    /// `None` once closed.
    pub(super) writer: Mutex<Option<SqliteWriter>>,
    pub(super) readers: Arc<Readers>,
    #[cfg(test)]
    disk: Arc<Disk>,
    pub(super) versions: Arc<ViewVersions>,
    pub(super) indexer: Indexer,
    pub(super) index_queue: Arc<IndexQueue>,
    pub(super) key_cache: Arc<KeyCache>,
    pub(super) account: Arc<Account>,
    pub(super) checkpoints: Mutex<Option<Checkpoints>>,
    pub(super) thread: Mutex<Option<JoinHandle<()>>>,
    /// Dropped last, when the file is closed.
    pub(super) lock: Mutex<Option<Lock>>,
}

impl SqliteStore {
    /// Opens the file and migrates its schema; creates the file and its directory where they are missing. Fails where
    /// another process has the file open.
    pub async fn open(path: &Path) -> Result<Self> {
        let path = path.to_path_buf();
        let opened = tokio::task::spawn_blocking(move || Self::open_now(&path, |log| log.sync_data()));
        opened.await.map_err(StoreError::internal)?
    }

    /// Opens the file; `sync` syncs the write-ahead log that an earlier process left.
    fn open_now(path: &Path, sync: impl Fn(&fs_err::File) -> std::io::Result<()>) -> Result<Self> {
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            fs_err::create_dir_all(directory).map_err(cannot_open)?;
        }
        let lock = Lock::take_or_create(path)?;
        let path = lock.database().to_path_buf();
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut db = Connection::open_with_flags(&path, flags).map_err(failed)?;
        prepare_writer(&db).map_err(failed)?;
        migrate(&mut db)?;
        sync_inherited_log(&db, &path, sync)?;
        let indexer = Indexer::open(&path)?;
        let disk = Arc::<Disk>::default();
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let readers = Arc::new(Readers::open(&path, cores.clamp(2, 8))?);
        let checkpointer = Connection::open_with_flags(&path, flags).map_err(failed)?;
        checkpointer.execute_batch("PRAGMA synchronous = FULL").map_err(failed)?;
        let checkpoints = Checkpoints::start(checkpointer, disk.clone()).map_err(cannot_open)?;
        let (index_queue, versions) = (Arc::<IndexQueue>::default(), Arc::<ViewVersions>::default());
        let (key_cache, account) = (Arc::<KeyCache>::default(), Arc::<Account>::default());
        let office = OfficeUsage::count(&db, account.clone())?;
        let (writer, thread) = SqliteWriter::start(
            db,
            office,
            WriterShared {
                index_queue: index_queue.clone(),
                versions: versions.clone(),
                disk: disk.clone(),
                key_cache: key_cache.clone(),
            },
        )
        .map_err(cannot_open)?;
        Ok(Self {
            path,
            writer: Mutex::new(Some(writer)),
            readers,
            #[cfg(test)]
            disk,
            versions,
            indexer,
            index_queue,
            key_cache,
            account,
            checkpoints: Mutex::new(Some(checkpoints)),
            thread: Mutex::new(Some(thread)),
            lock: Mutex::new(Some(lock)),
        })
    }

    pub(super) fn writer(&self) -> Result<SqliteWriter> {
        let writer = self.writer.lock();
        writer.clone().ok_or_else(super::error::closed)
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        drop(self.writer.lock().take());
        if let Some(thread) = self.thread.lock().take() {
            // Its queue is closed, so this waits for one transaction at most. The file lock is dropped after it.
            let _ = thread.join();
        }
    }
}

/// Sets what all connections have in common.
pub(super) fn tune(db: &Connection) -> rusqlite::Result<()> {
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    // Without this SQLite plans a statement again for each new value of a range parameter.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    db.execute_batch("PRAGMA temp_store = MEMORY; PRAGMA cache_size = -16000; PRAGMA busy_timeout = 5000;")
}

/// Syncs the write-ahead log and its directory entry: a killed process may have left commits that were not synced,
/// which readers would see. Where the sync fails, closing the database leaves the log as it is.
fn sync_inherited_log(db: &Connection, path: &Path, sync: impl Fn(&fs_err::File) -> std::io::Result<()>) -> Result<()> {
    let opened = fs_err::OpenOptions::new().write(true).open(format!("{}-wal", path.display())).map_err(cannot_open);
    let synced = opened.and_then(|log| {
        sync(&log).map_err(cannot_open)?;
        sync_directory(path)
    });
    if synced.is_err()
        && let Err(error) = db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
    {
        tracing::error!(%error, "the write-ahead log may be checkpointed after a failed sync");
    }
    synced
}

fn prepare_writer(db: &Connection) -> rusqlite::Result<()> {
    tune(db)?;
    // FULL syncs at each commit; see `files::disk`.
    db.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;
         PRAGMA wal_autocheckpoint = 16000; PRAGMA journal_size_limit = 67108864;",
    )
}

/// Migrates a file to an older version of the schema, for tests of later migrations.
#[cfg(feature = "test-support")]
pub fn migrate_to(path: &Path, version: i32) -> Result<()> {
    let mut db = Connection::open(path).map_err(failed)?;
    let runner = schema::migrations::runner().set_target(refinery::Target::Version(version));
    runner.run(&mut db).map(drop).map_err(StoreError::internal)
}

/// Returns the newest schema version that this program knows.
pub(super) fn newest_schema() -> i64 {
    let runner = schema::migrations::runner();
    runner.get_migrations().iter().map(|migration| i64::from(migration.version())).max().unwrap_or(0)
}

fn migrate(db: &mut Connection) -> Result<()> {
    schema::migrations::runner().run(db).map(drop).map_err(|error| {
        let detail = format!("the database's schema could not be brought up to date: {error}");
        StoreError::unavailable(detail).caused_by(error)
    })
}

fn cannot_open(error: std::io::Error) -> StoreError {
    StoreError::unavailable(format!("the database cannot be opened: {error}")).caused_by(error)
}

#[cfg(test)]
mod tests;
