//! One process a file. Two writers would each trust caches that the other makes stale.

use std::fs::TryLockError;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use fs_err::os::unix::fs::OpenOptionsExt;

use crate::StoreError;
use crate::error::{Result, conflict};

/// Holds the file until it is dropped; the kernel lets go of it when the process dies.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: fs_err::File,
}

impl Lock {
    /// Takes the lock of this database.
    pub(crate) fn take(database: &Path) -> Result<Self> {
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
                // Only for the message; without it the message says less.
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
        file.set_len(0).and_then(|()| file.rewind()).map_err(cannot)?;
        writeln!(file, "{}", std::process::id()).map_err(cannot)?;
        Ok(Self { _file: file })
    }
}

fn cannot(error: std::io::Error) -> StoreError {
    StoreError::unavailable(format!("the database cannot be locked: {error}")).caused_by(error)
}
