//! Opening and locking the file of a transcript.

use std::fs::TryLockError;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use amb_core::Backoff;
use fs_err::File;

use crate::files::open;
use crate::files::syncer::Syncer;

/// How long an appender waits for other processes. Each holds the lock for one write, without its sync.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

/// Opens a transcript for appending. Its name is durable when this returns.
pub(super) fn open_append(path: &Path, syncer: &Syncer) -> io::Result<File> {
    let file = open::regular_with(path, open::options().read(true).append(true).create(true))?;
    if let Some(parent) = path.parent() {
        syncer.sync(parent)?;
    }
    Ok(file)
}

/// Opens a transcript for reading; `None` if there is none.
pub(super) fn open_read(path: &Path) -> io::Result<Option<File>> {
    open::if_there(open::regular(path))
}

/// A held advisory lock; dropping it gives it back.
pub(super) struct TranscriptLock<'a>(&'a File);

impl Drop for TranscriptLock<'_> {
    fn drop(&mut self) {
        // Failing to unlock can only mean that the file is gone with its lock.
        let _ = self.0.unlock();
    }
}

/// Takes the lock that appenders hold while they write.
///
/// It asks again and again rather than sleeping in the kernel, so that a stopped process that holds it becomes an error
/// here and not a hang. A file system without locks is used without: its appends are whole by themselves or not at all.
pub(super) fn lock(file: &File) -> io::Result<Option<TranscriptLock<'_>>> {
    let start = Instant::now();
    let mut backoff = Backoff::new(Duration::from_micros(50), Duration::from_millis(2));
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(TranscriptLock(file))),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        if start.elapsed() > LOCK_PATIENCE {
            let detail = format!("another process has held the lock of {} for too long", file.path().display());
            return Err(io::Error::new(io::ErrorKind::TimedOut, detail));
        }
        std::thread::sleep(backoff.pause());
    }
}
