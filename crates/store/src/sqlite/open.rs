//! Opening the file: its lock, its schema, its connections.

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
use crate::known::KnownKeys;
use crate::quota::Account;
use crate::unindexed::Unindexed;

mod schema {
    refinery::embed_migrations!("migrations/sqlite");
}

/// What the office remembers, in one file.
#[derive(Debug)]
pub struct SqliteStore {
    pub(super) path: PathBuf,
    /// `None` once closed.
    writer: Mutex<Option<SqliteWriter>>,
    readers: Readers,
    #[cfg(test)]
    disk: Arc<Disk>,
    pub(super) versions: Arc<ViewVersions>,
    pub(super) indexer: Indexer,
    pub(super) unindexed: Arc<Unindexed>,
    pub(super) known: Arc<KnownKeys>,
    pub(super) account: Arc<Account>,
    checkpoints: Mutex<Option<Checkpoints>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Dropped last, when nothing of ours uses the file any more.
    lock: Mutex<Option<Lock>>,
}

impl SqliteStore {
    /// Opens the file, made with its directory where missing, and brings its schema up to date. A second process on the
    /// same file is refused.
    pub async fn open(path: &Path) -> Result<Self> {
        let path = path.to_path_buf();
        let opened = tokio::task::spawn_blocking(move || Self::open_now(&path, |log| log.sync_data()));
        opened.await.map_err(StoreError::internal)?
    }

    /// Opens the file; `sync` makes the write-ahead log durable that an earlier process left.
    fn open_now(path: &Path, sync: impl Fn(&fs_err::File) -> std::io::Result<()>) -> Result<Self> {
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            fs_err::create_dir_all(directory).map_err(cannot_open)?;
        }
        let lock = Lock::take_or_make(path)?;
        let path = lock.database().to_path_buf();
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut db = Connection::open_with_flags(&path, flags).map_err(failed)?;
        prepare_writer(&db).map_err(failed)?;
        migrate(&mut db)?;
        inherit_log(&db, &path, sync)?;
        let indexer = Indexer::open(&path)?;
        let disk = Arc::<Disk>::default();
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let readers = Readers::open(&path, cores.clamp(2, 8))?;
        let folding = Connection::open_with_flags(&path, flags).map_err(failed)?;
        folding.execute_batch("PRAGMA synchronous = FULL").map_err(failed)?;
        let checkpoints = Checkpoints::start(folding, disk.clone()).map_err(cannot_open)?;
        let (unindexed, versions) = (Arc::<Unindexed>::default(), Arc::<ViewVersions>::default());
        let (known, account) = (Arc::<KnownKeys>::default(), Arc::<Account>::default());
        let office = OfficeUsage::count(&db, account.clone())?;
        let (writer, thread) = SqliteWriter::start(
            db,
            office,
            WriterShared {
                unindexed: unindexed.clone(),
                versions: versions.clone(),
                disk: disk.clone(),
                known: known.clone(),
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
            unindexed,
            known,
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

    /// The connections that read.
    pub(super) fn readers(&self) -> &Readers {
        &self.readers
    }

    pub(super) async fn shut(&self) {
        drop(self.writer.lock().take());
        self.readers.close();
        drop(self.checkpoints.lock().take());
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // Joining waits for the last transaction; the thread reports its own failures.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
        drop(self.lock.lock().take());
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        drop(self.writer.lock().take());
        if let Some(thread) = self.thread.lock().take() {
            // Nobody is left who could give it work, so this waits for one transaction at most. Its lock goes after it.
            let _ = thread.join();
        }
    }
}

/// What every connection wants.
pub(super) fn tune(db: &Connection) -> rusqlite::Result<()> {
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    // Without this every new value of a parameter in a range makes SQLite plan the statement again.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    db.execute_batch("PRAGMA temp_store = MEMORY; PRAGMA cache_size = -16000; PRAGMA busy_timeout = 5000;")
}

/// Opens the write-ahead log and syncs what is in it: a process that was killed may have left commits that nobody synced, and
/// readers would see them; and that the log is there at all has to last too. Where that fails, the log stays as it is.
fn inherit_log(db: &Connection, path: &Path, sync: impl Fn(&fs_err::File) -> std::io::Result<()>) -> Result<()> {
    let opened = fs_err::OpenOptions::new().write(true).open(format!("{}-wal", path.display())).map_err(cannot_open);
    let synced = opened.and_then(|log| {
        sync(&log).map_err(cannot_open)?;
        sync_directory(path)
    });
    if synced.is_err()
        && let Err(error) = db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
    {
        tracing::error!(%error, "the write-ahead log may be folded in after the disk failed");
    }
    synced
}

fn prepare_writer(db: &Connection) -> rusqlite::Result<()> {
    tune(db)?;
    // FULL syncs at each commit: see `disk`.
    db.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;
         PRAGMA wal_autocheckpoint = 16000; PRAGMA journal_size_limit = 67108864;",
    )
}

/// Brings a file to an older version of the schema, for tests of what comes after it.
#[cfg(feature = "test-support")]
pub fn migrate_to(path: &Path, version: i32) -> Result<()> {
    let mut db = Connection::open(path).map_err(failed)?;
    let runner = schema::migrations::runner().set_target(refinery::Target::Version(version));
    runner.run(&mut db).map(drop).map_err(StoreError::internal)
}

/// The newest form of the schema that this program knows.
pub(super) fn newest_form() -> i64 {
    let runner = schema::migrations::runner();
    runner.get_migrations().iter().map(|step| i64::from(step.version())).max().unwrap_or(0)
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
