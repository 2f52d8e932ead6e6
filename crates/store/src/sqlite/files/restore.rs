//! Restoring a backup.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use amb_core::Timestamp;
use fs_err::os::unix::fs::OpenOptionsExt;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use serde::Serialize;

use super::backup::{BytesDone, Contents, cannot, check_is_office, examine, sync_directory};
use super::lock::Lock;
use crate::StoreError;
use crate::database::CURSOR_ADVANCE;
use crate::error::{Result, conflict};
use crate::sqlite::error::failed;
use crate::sqlite::search;

/// A log number has 32 bits; logs beyond this are not advanced any more.
const MAX_ADVANCED: i64 = 4_000_000_000;
/// Bytes per read.
const CHUNK: usize = 1 << 20;

/// The result of a restore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// The contents of the restored database.
    #[serde(flatten)]
    pub contents: Contents,
    /// Where the previous database is kept; `None` where there was none.
    pub kept: Option<PathBuf>,
}

/// Replaces a database that no server has open by a backup that [`backup`](crate::backup()) made.
///
/// The backup is checked first. The previous database is kept beside the new one, and stays in place until the last
/// step. The next server rebuilds the search index.
pub async fn restore(
    from: &Path,
    database: &Path,
    progress: impl FnMut(BytesDone) + Send + 'static,
) -> Result<Restored> {
    let (from, database) = (from.to_path_buf(), database.to_path_buf());
    tokio::task::spawn_blocking(move || restore_now(&from, &database, progress)).await.map_err(StoreError::internal)?
}

/// Advances all logs of a database that no server has open.
pub(crate) async fn advance_cursors(database: &Path) -> Result<u64> {
    if !database.exists() {
        return Err(StoreError::not_found(format!("there is no database {}", database.display())));
    }
    let database = database.to_path_buf();
    let advanced = tokio::task::spawn_blocking(move || {
        let lock = Lock::take(&database)?;
        let db = Connection::open_with_flags(lock.database(), OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(failed)?;
        check_is_office(&db, &database)?;
        db.execute_batch("PRAGMA synchronous = FULL").map_err(failed)?;
        let logs = advance(&db)?;
        drop(db);
        drop(lock);
        Ok(logs)
    });
    advanced.await.map_err(StoreError::internal)?
}

fn restore_now(from: &Path, database: &Path, progress: impl FnMut(BytesDone)) -> Result<Restored> {
    if !from.is_file() {
        return Err(StoreError::not_found(format!("there is no file {}", from.display())));
    }
    // Its write-ahead log is beside the file itself, not beside a link to it.
    let from = &fs_err::canonicalize(from).map_err(cannot)?;
    if Some(from) == fs_err::canonicalize(database).ok().as_ref() {
        return Err(StoreError::invalid("a database cannot be restored from itself; name a copy of it"));
    }
    if fs_err::metadata(beside(from, "-wal")).is_ok_and(|log| log.len() > 0) {
        let detail =
            format!("{} is in use or was left by a crash; make a copy of it with `amb backup`", from.display());
        return Err(StoreError::invalid(detail));
    }
    if let Some(directory) = database.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        fs_err::create_dir_all(directory).map_err(cannot)?;
    }
    let lock = Lock::take(database)?;
    let database = lock.database();
    let temporary = beside(database, ".restoring");
    let restored = copy_checked(from, &temporary, progress).and_then(|contents| {
        let kept = keep_old(database)?;
        // The index belongs to the previous database; without it everything is indexed again.
        search::remove(database)?;
        fs_err::rename(&temporary, database).map_err(cannot)?;
        sync_directory(database)?;
        Ok(Restored { contents, kept })
    });
    if restored.is_err() {
        let _ = fs_err::remove_file(&temporary);
    }
    drop(lock);
    restored
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

/// Copies the backup to a temporary file, checks it, and advances its logs.
fn copy_checked(from: &Path, temporary: &Path, mut progress: impl FnMut(BytesDone)) -> Result<Contents> {
    let mut source = fs_err::File::open(from).map_err(cannot)?;
    let total = source.metadata().map_err(cannot)?.len();
    let mut options = fs_err::OpenOptions::new();
    let mut target = options.write(true).create(true).truncate(true).mode(0o600).open(temporary).map_err(cannot)?;
    let (mut chunk, mut done) = (vec![0; CHUNK], 0);
    loop {
        let read = source.read(&mut chunk).map_err(cannot)?;
        if read == 0 {
            break;
        }
        target.write_all(chunk.get(..read).unwrap_or_default()).map_err(cannot)?;
        done += read as u64;
        progress(BytesDone { done, total });
    }
    target.sync_all().map_err(cannot)?;
    examine(temporary)?;
    let db = Connection::open_with_flags(temporary, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(failed)?;
    // No write-ahead log, so that one rename replaces the database.
    db.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(())).map_err(failed)?;
    db.execute_batch("PRAGMA synchronous = FULL").map_err(failed)?;
    advance(&db)?;
    drop(db);
    examine(temporary)
}

/// Advances all logs. Returns their number.
pub(in crate::sqlite) fn advance(db: &Connection) -> Result<u64> {
    // Older schemas have one table for the log, with the row id agent << 32 | number.
    let of_entries = "coalesce((SELECT max(e.id) & 4294967295 FROM entries e
                      WHERE e.id > agents.id << 32 AND e.id <= (agents.id << 32 | 4294967295)), 0)";
    let of_both = "coalesce((SELECT max(number) FROM deliveries WHERE agent_id = agents.id), 0),
                   coalesce((SELECT max(number) FROM events WHERE agent_id = agents.id), 0)";
    let earlier = db.table_exists(None, "entries").map_err(failed)?;
    let head = format!("max(log_floor, {})", if earlier { of_entries } else { of_both });
    let sql = format!("UPDATE agents SET log_floor = {head} + ?1 WHERE {head} < ?2");
    let logs = db.execute(&sql, [CURSOR_ADVANCE, MAX_ADVANCED]).map_err(failed)?;
    Ok(logs as u64)
}

/// Keeps the previous database under another name, which is returned.
fn keep_old(database: &Path) -> Result<Option<PathBuf>> {
    if !database.exists() {
        return Ok(None);
    }
    // Checkpoints its write-ahead log, where that still works: then one file has everything.
    let checkpointed = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_WRITE)
        .and_then(|db| db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0)));
    match checkpointed {
        Ok(false) => {}
        Ok(true) => return Err(in_use(database)),
        Err(error) if is_busy(&error) => return Err(in_use(database)),
        Err(error) => {
            tracing::warn!(%error, "the previous database could not be checkpointed; it is kept with its write-ahead log")
        }
    }
    let kept = free_name(database);
    if fs_err::hard_link(database, &kept).is_err() {
        // A file system without hard links.
        fs_err::copy(database, &kept).map_err(cannot)?;
        fs_err::File::open(&kept).and_then(|file| file.sync_all()).map_err(cannot)?;
    }
    // A write-ahead log that is left belongs to the old file; SQLite would replay it into the new one.
    if beside(database, "-wal").exists() {
        fs_err::rename(beside(database, "-wal"), beside(&kept, "-wal")).map_err(cannot)?;
    }
    if beside(database, "-shm").exists() {
        fs_err::remove_file(beside(database, "-shm")).map_err(cannot)?;
    }
    sync_directory(database)?;
    Ok(Some(kept))
}

fn in_use(database: &Path) -> StoreError {
    conflict(format!("another program has {} open; close it and restore again", database.display()))
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

fn free_name(database: &Path) -> PathBuf {
    let stamp = Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let named = |n: u32| match n {
        0 => beside(database, &format!(".before-{stamp}")),
        n => beside(database, &format!(".before-{stamp}-{n}")),
    };
    (0..).map(named).find(|path| !path.exists()).unwrap_or_else(|| named(0))
}
