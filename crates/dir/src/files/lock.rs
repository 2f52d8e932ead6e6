//! Locks between processes. The kernel releases them when the holder dies.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err::os::unix::fs::OpenOptionsExt;

use crate::files::open;

/// Where the file system has no locks, a marker file older than this is abandoned.
const ABANDONED_AFTER: Duration = Duration::from_secs(30);

/// A lock, exclusive unless it was taken to be shared, held until dropped.
#[derive(Debug)]
pub(crate) enum FileLock {
    /// An advisory lock on this open file.
    Kernel { _file: File },
    /// A file that exists while the lock is held, for file systems without locks.
    Marker { path: PathBuf },
}

impl FileLock {
    /// Waits for the lock on the file at `path`, which is created if missing.
    pub(crate) fn lock(path: &Path) -> io::Result<Self> {
        loop {
            let file = open_or_create(path)?;
            match file.lock() {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Unsupported => return wait_for_marker(path),
                Err(error) => return Err(error),
            }
            // The file may have been removed and created again between the open and the lock.
            if same_file(&file, path) {
                return Ok(Self::Kernel { _file: file });
            }
        }
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_lock(path: &Path) -> io::Result<Option<Self>> {
        let file = open_or_create(path)?;
        match file.try_lock() {
            Ok(()) if same_file(&file, path) => Ok(Some(Self::Kernel { _file: file })),
            Ok(()) | Err(std::fs::TryLockError::WouldBlock) => Ok(None),
            Err(std::fs::TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => try_marker(path),
            Err(std::fs::TryLockError::Error(error)) => Err(error),
        }
    }

    /// Takes the lock together with others that share it; none where one holds it alone, or the file system has no locks.
    pub(crate) fn share(path: &Path) -> io::Result<Option<Self>> {
        let file = open_or_create(path)?;
        Ok(file.try_lock_shared().is_ok().then_some(Self::Kernel { _file: file }))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if let Self::Marker { path } = self {
            // If this fails, the marker counts as abandoned after a while.
            let _best_effort = fs_err::remove_file(path);
        }
    }
}

fn open_or_create(path: &Path) -> io::Result<File> {
    let file = open::regular_with(path, open::options().read(true).write(true).create(true).truncate(false))?;
    Ok(file.into_parts().0)
}

/// Whether the open file is still the one at this path.
pub(crate) fn same_file(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs_err::symlink_metadata(path)) {
        (Ok(open), Ok(there)) => open.ino() == there.ino() && open.dev() == there.dev(),
        _ => false,
    }
}

fn wait_for_marker(path: &Path) -> io::Result<FileLock> {
    loop {
        if let Some(locked) = try_marker(path)? {
            return Ok(locked);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn try_marker(path: &Path) -> io::Result<Option<FileLock>> {
    let mut marker = path.as_os_str().to_owned();
    marker.push(".held");
    let marker = PathBuf::from(marker);
    match fs_err::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&marker) {
        Ok(_) => Ok(Some(FileLock::Marker { path: marker })),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let age = fs_err::metadata(&marker).ok().and_then(|metadata| open::age(&metadata));
            if age.is_some_and(|age| age > ABANDONED_AFTER) {
                // Renamed first: of two processes that find it abandoned, one removes it.
                let aside = marker.with_extension(format!("old-{:x}", crate::files::durable::nonce()));
                if fs_err::rename(&marker, &aside).is_ok() {
                    fs_err::remove_file(&aside)?;
                }
            }
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_excludes_others_until_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = FileLock::lock(&path).unwrap();
        assert!(FileLock::try_lock(&path).unwrap().is_none());
        drop(held);
        assert!(FileLock::try_lock(&path).unwrap().is_some());
    }

    #[test]
    fn a_shared_lock_is_held_until_the_last_one_drops_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let (first, second) = (FileLock::share(&path).unwrap(), FileLock::share(&path).unwrap());
        assert!(first.is_some() && second.is_some());
        drop(first);
        assert!(FileLock::try_lock(&path).unwrap().is_none());
        drop(second);
        let alone = FileLock::try_lock(&path).unwrap();
        assert!(alone.is_some() && FileLock::share(&path).unwrap().is_none());
    }

    #[test]
    fn a_marker_file_excludes_others_where_there_are_no_locks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = try_marker(&path).unwrap().unwrap();
        assert!(try_marker(&path).unwrap().is_none());
        drop(held);
        let _held = wait_for_marker(&path).unwrap();
        let old = std::time::SystemTime::now() - Duration::from_secs(60);
        let marker = dir.path().join("lock.held");
        fs_err::OpenOptions::new().write(true).open(&marker).unwrap().set_modified(old).unwrap();
        let _second = wait_for_marker(&path).unwrap();
    }
}
