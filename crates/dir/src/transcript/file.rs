//! Opens and locks the file of a transcript.

use std::fs::TryLockError;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use amb_core::Backoff;
use fs_err::File;

use crate::files::open;
use crate::files::syncer::Syncer;

/// A longer line is no transcript line: the longest content with every character escaped is shorter.
pub(super) const MAX_LINE_BYTES: usize = 2 * 1024 * 1024;

/// How long an appender waits for other processes. Each holds the lock for one write, without its sync.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens a transcript for appending. Its directory entry is durable when this returns.
pub(super) fn open_append(path: &Path, syncer: &Syncer) -> io::Result<File> {
    let file = open::regular_with(path, open::options().read(true).append(true).create(true))?;
    if let Some(parent) = path.parent() {
        syncer.sync(parent)?;
    }
    Ok(file)
}

/// Opens a transcript for reading; `None` if there is none.
pub(super) fn open_read(path: &Path) -> io::Result<Option<File>> {
    open::if_exists(open::regular(path))
}

/// An advisory lock. Released on drop.
pub(super) struct TranscriptLock<'a>(&'a File);

impl Drop for TranscriptLock<'_> {
    fn drop(&mut self) {
        // Unlocking fails only if the file, and with it the lock, is gone.
        let _ = self.0.unlock();
    }
}

/// Takes the lock that appenders hold while they write.
///
/// Polls instead of blocking, so that a stopped process that holds the lock causes an error and not a hang. On a file
/// system without locks there is none.
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
        if start.elapsed() > LOCK_TIMEOUT {
            let detail = format!("another process has held the lock of {} for too long", file.path().display());
            return Err(io::Error::new(io::ErrorKind::TimedOut, detail));
        }
        std::thread::sleep(backoff.pause());
    }
}
