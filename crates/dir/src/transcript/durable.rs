//! Opening, locking and syncing the files of a transcript.

use std::fs::TryLockError;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use fs_err::File;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use rustix::fs::OFlags;

/// How long an appender waits for other processes. Each holds the lock for one write, without its sync.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

/// Makes what happened in a directory (a new file, a rename) survive a power cut.
pub(super) fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Makes `path` and what is missing above it, for the owner alone, durably.
pub(super) fn make_dir(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent {
        make_dir(parent)?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists || !path.is_dir() => {
            return Err(io::Error::new(error.kind(), format!("cannot make the directory {}: {error}", path.display())));
        }
        _ => {}
    }
    sync_dir(parent.unwrap_or(Path::new(".")))
}

/// Opens a transcript for appending. Its name is durable when this returns.
pub(super) fn open_append(path: &Path) -> io::Result<File> {
    let mut options = fs_err::OpenOptions::new();
    let file = options.read(true).append(true).create(true).mode(0o600).custom_flags(guards()).open(path)?;
    only_regular(&file)?;
    if let Some(parent) = path.parent() {
        sync_dir(parent)?;
    }
    Ok(file)
}

/// Opens a transcript for reading; `None` if there is none.
pub(super) fn open_read(path: &Path) -> io::Result<Option<File>> {
    match fs_err::OpenOptions::new().read(true).custom_flags(guards()).open(path) {
        Ok(file) => only_regular(&file).map(|()| Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A link could lead out of the root, and opening a pipe would wait for its other end.
fn guards() -> i32 {
    (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed()
}

fn only_regular(file: &File) -> io::Result<()> {
    if file.metadata()?.is_file() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not a regular file", file.path().display())))
}

/// Whether `path` still leads to the open file, or it was rotated or removed meanwhile.
pub(super) fn is_current(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    match fs_err::symlink_metadata(path) {
        Ok(named) => Ok(named.dev() == open.dev() && named.ino() == open.ino()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// A held advisory lock; dropping it gives it back.
pub(super) struct Locked<'a>(&'a File);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Failing to unlock can only mean that the file is gone with its lock.
        let _ = self.0.unlock();
    }
}

/// Takes the lock that appenders hold while they write.
///
/// It asks again and again rather than sleeping in the kernel, so that a stopped process that holds it becomes an error
/// here and not a hang. A file system without locks is used without: its appends are whole by themselves or not at all.
pub(super) fn lock(file: &File) -> io::Result<Option<Locked<'_>>> {
    let start = Instant::now();
    let mut pause = Duration::from_micros(50);
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(Locked(file))),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        if start.elapsed() > LOCK_PATIENCE {
            let detail = format!("another process has held the lock of {} for too long", file.path().display());
            return Err(io::Error::new(io::ErrorKind::TimedOut, detail));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(2));
    }
}
