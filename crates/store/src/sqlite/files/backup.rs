//! Backups of a database file, made while a server has it open.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err::os::unix::fs::OpenOptionsExt;
use rusqlite::{Connection, OpenFlags};
use serde::Serialize;

use crate::error::{Result, conflict};
use crate::sqlite::error::failed;
use crate::{StoreError, refusals};

/// How often progress is reported.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// The contents of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Contents {
    /// Agents, including deleted ones.
    pub agents: u64,
    /// Messages.
    pub messages: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Progress in bytes. A file with free pages is done before `done` reaches `total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BytesDone {
    /// Bytes written.
    pub done: u64,
    /// Most bytes to be written.
    pub total: u64,
}

/// Copies a snapshot of a SQLite database into a file, while a server may have the database open.
///
/// The copy gets its name only when it is complete, checked and synced. Only then an existing file is replaced, if
/// `replace` is set.
pub async fn backup(
    from: &Path,
    to: &Path,
    replace: bool,
    mut progress: impl FnMut(BytesDone) + Send,
) -> Result<Contents> {
    if !from.exists() {
        return Err(StoreError::not_found(format!("there is no database {}", from.display())));
    }
    if to.exists() && !replace {
        return Err(refusals::file_is_there(to));
    }
    let temporary = PathBuf::from(format!("{}.making", to.display()));
    let total = fs_err::metadata(from).map_err(cannot)?.len();
    let mut work = tokio::task::spawn_blocking({
        let (from, temporary, to) = (from.to_path_buf(), temporary.clone(), to.to_path_buf());
        move || make(&from, &temporary, &to, replace)
    });
    let mut ticks = tokio::time::interval(PROGRESS_INTERVAL);
    loop {
        tokio::select! {
            done = &mut work => return done.map_err(StoreError::internal)?,
            _ = ticks.tick() => {
                let done = fs_err::metadata(&temporary).map_or(0, |file| file.len());
                progress(BytesDone { done: done.min(total), total });
            }
        }
    }
}

fn make(from: &Path, temporary: &Path, to: &Path, replace: bool) -> Result<Contents> {
    // Locked until the copy has its name, so that two backups to one path do not write to the same file.
    let file = fs_err::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(temporary)
        .map_err(cannot)?;
    file.file().try_lock().map_err(|_| conflict(format!("another copy to {} is under way", to.display())))?;
    let contents = fill(&file, from, temporary).and_then(|contents| {
        put_in_place(temporary, to, replace)?;
        Ok(contents)
    });
    if contents.is_err() {
        let _ = fs_err::remove_file(temporary);
    }
    contents
}

fn fill(file: &fs_err::File, from: &Path, temporary: &Path) -> Result<Contents> {
    // An interrupted backup may have left something.
    file.set_len(0).map_err(cannot)?;
    let db = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(failed)?;
    db.execute_batch("PRAGMA busy_timeout = 30000").map_err(failed)?;
    check_is_office(&db, from)?;
    // Reads one snapshot. The backup API would start over with every write.
    db.execute("VACUUM INTO ?1", [temporary.to_string_lossy()]).map_err(failed)?;
    drop(db);
    file.sync_all().map_err(cannot)?;
    examine(temporary)
}

/// Gives the finished copy its name.
fn put_in_place(temporary: &Path, to: &Path, replace: bool) -> Result<()> {
    if replace {
        fs_err::rename(temporary, to).map_err(cannot)?;
    } else {
        // Unlike a rename, a link never replaces a file that was created meanwhile.
        fs_err::hard_link(temporary, to).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => refusals::file_is_there(to),
            _ => cannot(error),
        })?;
        fs_err::remove_file(temporary).map_err(cannot)?;
    }
    sync_directory(to)
}

/// Fails where this is not the database of an office.
pub(in crate::sqlite) fn check_is_office(db: &Connection, path: &Path) -> Result<()> {
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name IN ('refinery_schema_history', 'agents', 'messages')";
    match db.query_row(sql, [], |row| row.get::<_, i64>(0)) {
        Ok(3) => Ok(()),
        _ => Err(StoreError::invalid(format!("{} is not the database of an office", path.display()))),
    }
}

/// Checks that a file is the database of an office, not corrupt, and of a known schema version. Returns its contents.
pub(in crate::sqlite) fn examine(path: &Path) -> Result<Contents> {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
    check_is_office(&db, path)?;
    let integrity: String =
        db.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).unwrap_or_else(|error| error.to_string());
    if integrity != "ok" {
        let detail = format!("{} is damaged ({integrity}); take another copy", path.display());
        return Err(StoreError::invalid(detail));
    }
    let version: i64 = db
        .query_row("SELECT coalesce(max(version), 0) FROM refinery_schema_history", [], |row| row.get(0))
        .map_err(failed)?;
    if version > crate::sqlite::open::newest_schema() {
        let detail = format!("{} was made by a newer amb; use that one, or a newer still", path.display());
        return Err(StoreError::invalid(detail));
    }
    let count = |what: &str| -> Result<u64> {
        let sql = format!("SELECT count(*) {what}");
        let rows: i64 = db.query_row(&sql, [], |row| row.get(0)).map_err(failed)?;
        Ok(u64::try_from(rows).unwrap_or(0))
    };
    let bytes = fs_err::metadata(path).map_err(cannot)?.len();
    // The schema versions 3 to 6 had a staging table for mail.
    let staged = match version {
        3..=6 => count("FROM tray t WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.id = t.message_id)")?,
        _ => 0,
    };
    Ok(Contents { agents: count("FROM agents")?, messages: count("FROM messages")? + staged, bytes })
}

/// Syncs the directory of a file, so that its name survives a crash.
pub(in crate::sqlite) fn sync_directory(file: &Path) -> Result<()> {
    let directory = file.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs_err::File::open(directory).and_then(|directory| directory.sync_all()).map_err(cannot)
}

pub(in crate::sqlite) fn cannot(error: std::io::Error) -> StoreError {
    StoreError::unavailable(format!("the copy could not be made: {error}")).caused_by(error)
}
