//! Copies of a database file: made while a server works on it, and put back when none does.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err::os::unix::fs::OpenOptionsExt;
use rusqlite::{Connection, OpenFlags};
use serde::Serialize;

use crate::error::{Result, conflict};
use crate::sqlite::error::failed;
use crate::{StoreError, refusals};

/// How often progress is reported.
const TELL: Duration = Duration::from_millis(200);

/// What a copy of a database holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Contents {
    /// Agents, deleted ones too.
    pub agents: u64,
    /// Messages.
    pub messages: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// How far a copy has come, in bytes. The copy of a file with gaps in it ends before the total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BytesDone {
    /// Written.
    pub done: u64,
    /// To be written at most.
    pub total: u64,
}

/// Copies a SQLite database, as it is at one moment, into a file of its own, while a server may work on it.
///
/// The copy gets its name only when it is whole, checked and on disk. An existing file is replaced only where `replace`
/// says so, and only then.
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
    let making = making(to);
    let total = fs_err::metadata(from).map_err(cannot)?.len();
    let mut work = tokio::task::spawn_blocking({
        let (from, making, to) = (from.to_path_buf(), making.clone(), to.to_path_buf());
        move || make(&from, &making, &to, replace)
    });
    let mut ticks = tokio::time::interval(TELL);
    loop {
        tokio::select! {
            done = &mut work => return done.map_err(StoreError::internal)?,
            _ = ticks.tick() => {
                let done = fs_err::metadata(&making).map_or(0, |made| made.len());
                progress(BytesDone { done: done.min(total), total });
            }
        }
    }
}

fn making(to: &Path) -> PathBuf {
    PathBuf::from(format!("{}.making", to.display()))
}

fn make(from: &Path, making: &Path, to: &Path, replace: bool) -> Result<Contents> {
    // Held until the copy has its name, so that two copies to one place do not write into each other.
    let file = fs_err::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(making)
        .map_err(cannot)?;
    file.file().try_lock().map_err(|_| conflict(format!("another copy to {} is under way", to.display())))?;
    let made = fill(&file, from, making).and_then(|contents| {
        name(making, to, replace)?;
        Ok(contents)
    });
    if made.is_err() {
        let _ = fs_err::remove_file(making);
    }
    made
}

fn fill(file: &fs_err::File, from: &Path, making: &Path) -> Result<Contents> {
    // What an interrupted copy left.
    file.set_len(0).map_err(cannot)?;
    let db = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(failed)?;
    db.execute_batch("PRAGMA busy_timeout = 30000").map_err(failed)?;
    is_ours(&db, from)?;
    // One reading transaction sees one moment. Not the backup API: that one begins anew with every write.
    db.execute("VACUUM INTO ?1", [making.to_string_lossy()]).map_err(failed)?;
    drop(db);
    file.sync_all().map_err(cannot)?;
    examine(making)
}

/// Gives the finished copy its name.
fn name(making: &Path, to: &Path, replace: bool) -> Result<()> {
    if replace {
        fs_err::rename(making, to).map_err(cannot)?;
    } else {
        // Unlike a rename, a link never takes the place of a file that came meanwhile.
        fs_err::hard_link(making, to).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => refusals::file_is_there(to),
            _ => cannot(error),
        })?;
        fs_err::remove_file(making).map_err(cannot)?;
    }
    sync_directory(to)
}

/// Whether this is a database of an office at all.
pub(in crate::sqlite) fn is_ours(db: &Connection, path: &Path) -> Result<()> {
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name IN ('refinery_schema_history', 'agents', 'messages')";
    match db.query_row(sql, [], |row| row.get::<_, i64>(0)) {
        Ok(3) => Ok(()),
        _ => Err(StoreError::invalid(format!("{} is not the database of an office", path.display()))),
    }
}

/// Checks that a copy is an office's, whole, and of a form that this program knows. Returns what it holds.
pub(in crate::sqlite) fn examine(path: &Path) -> Result<Contents> {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
    is_ours(&db, path)?;
    let sound: String =
        db.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).unwrap_or_else(|error| error.to_string());
    if sound != "ok" {
        let detail = format!("{} is damaged ({sound}); take another copy", path.display());
        return Err(StoreError::invalid(detail));
    }
    let form: i64 = db
        .query_row("SELECT coalesce(max(version), 0) FROM refinery_schema_history", [], |row| row.get(0))
        .map_err(failed)?;
    if form > crate::sqlite::open::newest_form() {
        let detail = format!("{} was made by a newer amb; use that one, or a newer still", path.display());
        return Err(StoreError::invalid(detail));
    }
    let count = |what: &str| -> Result<u64> {
        let sql = format!("SELECT count(*) {what}");
        let rows: i64 = db.query_row(&sql, [], |row| row.get(0)).map_err(failed)?;
        Ok(u64::try_from(rows).unwrap_or(0))
    };
    let bytes = fs_err::metadata(path).map_err(cannot)?.len();
    // Staged mail of the forms from the third to the sixth is mail too.
    let staged = match form {
        3..=6 => count("FROM tray t WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.id = t.message_id)")?,
        _ => 0,
    };
    Ok(Contents { agents: count("FROM agents")?, messages: count("FROM messages")? + staged, bytes })
}

/// Makes sure that a name in a directory is there after a crash.
pub(in crate::sqlite) fn sync_directory(file: &Path) -> Result<()> {
    let directory = file.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs_err::File::open(directory).and_then(|directory| directory.sync_all()).map_err(cannot)
}

pub(in crate::sqlite) fn cannot(error: std::io::Error) -> StoreError {
    StoreError::unavailable(format!("the copy could not be made: {error}")).caused_by(error)
}
