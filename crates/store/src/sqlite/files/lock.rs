//! The lock that lets one process use a database file. With two, each writer's caches would be stale.
//!
//! A database is locked twice: by name, with a lock file beside it that contains the process id; and by inode, so that
//! another name of the same file (a hard link) is refused as well. The second lock is a `flock` on the database itself,
//! which does not interfere with the `fcntl` locks of SQLite. But those are dropped when a process closes *any*
//! descriptor of the file, so ours stays open until SQLite is done, and a file that this process has locked is not
//! opened here again.

use std::collections::HashSet;
use std::fs::TryLockError;
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use fs_err::os::unix::fs::OpenOptionsExt;
use parking_lot::Mutex;

use crate::StoreError;
use crate::error::{Result, conflict};

/// Device and inode.
type Inode = (u64, u64);

/// The databases that this process has locked.
static LOCKED: LazyLock<Mutex<HashSet<Inode>>> = LazyLock::new(Mutex::default);

/// Holds the lock of a database until it is dropped; the kernel releases it when the process dies.
#[derive(Debug)]
pub(crate) struct Lock {
    /// The path of the database file, with symbolic links resolved.
    database: PathBuf,
    /// `None` where the file does not exist yet.
    _inode: Option<InodeLock>,
    _name: fs_err::File,
}

impl Lock {
    /// Locks a database, which may not exist yet. Symbolic links are followed: SQLite does so too, and keeps its other
    /// files beside the target.
    pub(crate) fn take(database: &Path) -> Result<Self> {
        let database = resolve(database)?;
        let path = PathBuf::from(format!("{}.lock", database.display()));
        let mut file = fs_err::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(cannot)?;
        match file.file().try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // For the error message only.
                let _ = file.read_to_string(&mut holder);
                let holder = holder.trim();
                let by = if holder.is_empty() { String::new() } else { format!(" (process {holder})") };
                return Err(conflict(format!(
                    "another server{by} has {} open; stop it, or give this one another database",
                    database.display()
                )));
            }
            Err(TryLockError::Error(error)) => return Err(cannot(error)),
        }
        let inode = InodeLock::take(&database)?;
        file.set_len(0).and_then(|()| file.rewind()).map_err(cannot)?;
        writeln!(file, "{}", std::process::id()).map_err(cannot)?;
        Ok(Self { database, _inode: inode, _name: file })
    }

    /// Locks a database, which is created with mode 0600 where it is missing.
    pub(crate) fn take_or_create(database: &Path) -> Result<Self> {
        let database = resolve(database)?;
        if !database.exists() {
            // SQLite gives its other files the mode of this one.
            let mut options = fs_err::OpenOptions::new();
            match options.write(true).create_new(true).mode(0o600).open(&database) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(cannot(error)),
                _ => {}
            }
        }
        Self::take(&database)
    }

    /// The path of the database file, with symbolic links resolved.
    pub(crate) fn database(&self) -> &Path {
        &self.database
    }
}

/// The lock of a file under all its names.
#[derive(Debug)]
struct InodeLock {
    inode: Inode,
    _file: fs_err::File,
}

impl InodeLock {
    fn take(database: &Path) -> Result<Option<Self>> {
        let inode = match fs_err::metadata(database) {
            Ok(found) => (found.dev(), found.ino()),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(cannot(error)),
        };
        let taken = || {
            conflict(format!(
                "another server has the file {} open under another name; stop it, or give this one another database",
                database.display()
            ))
        };
        let mut locked = LOCKED.lock();
        if locked.contains(&inode) {
            return Err(taken());
        }
        let file = fs_err::OpenOptions::new().read(true).write(true).open(database).map_err(cannot)?;
        match file.file().try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(taken()),
            Err(TryLockError::Error(error)) => return Err(cannot(error)),
        }
        locked.insert(inode);
        Ok(Some(Self { inode, _file: file }))
    }
}

impl Drop for InodeLock {
    fn drop(&mut self) {
        LOCKED.lock().remove(&self.inode);
    }
}

/// Resolves symbolic links, also to a file that does not exist yet.
fn resolve(database: &Path) -> Result<PathBuf> {
    let mut path = database.to_path_buf();
    // The limit of the kernel.
    for _ in 0..40 {
        match fs_err::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("")).join(target),
            Err(_) => return Ok(path),
        }
    }
    Err(StoreError::invalid(format!("{} is a symbolic link that leads nowhere", database.display())))
}

fn cannot(error: std::io::Error) -> StoreError {
    StoreError::unavailable(format!("the database cannot be locked: {error}")).caused_by(error)
}
