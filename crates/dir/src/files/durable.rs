//! Durable, atomic file writes.
//!
//! A new file is written under a unique temporary name in its target directory, synced, and renamed without replacing
//! anything; then the directory is synced. The writer holds a lock on the temporary file, so that a clean-up can tell
//! the files of dead writers from those in use.

use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use fs_err::os::unix::fs::OpenOptionsExt;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::files::lock::FileLock;
use crate::files::open;
use crate::files::step::step;
use crate::files::syncer::Syncer;

/// Prefix of temporary files: hidden, and never matched by `*.json`.
pub(crate) const TEMP_PREFIX: &str = ".amb-";
/// Suffix of temporary files.
pub(crate) const TEMP_SUFFIX: &str = ".tmp";

/// Attempts to find a free name. Each has fresh random digits, so the second one nearly always succeeds.
const MAX_TRIES: u32 = 100;

/// Durability of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Survives a power cut.
    Synced,
    /// Atomic, but may be lost in a power cut: for data that can be derived again.
    Cached,
}

/// Returns a random number that is unique across processes.
pub(crate) fn nonce() -> u64 {
    let (high, low) = uuid::Uuid::now_v7().as_u64_pair();
    // One half is the time, the other is random: mixed, the low digits differ even within one instant.
    high ^ low
}

/// Creates a directory and its parents, accessible to the owner alone, durably.
pub(crate) fn make_dir(path: &Path, syncer: &Syncer) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    // From the nearest existing ancestor downwards; each parent is synced.
    let mut missing = vec![path];
    let mut at = path;
    while let Some(parent) = at.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        if parent.exists() {
            break;
        }
        missing.push(parent);
        at = parent;
    }
    for directory in missing.into_iter().rev() {
        step();
        match std::fs::DirBuilder::new().mode(0o700).create(directory) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => {}
            Err(error) => {
                let in_the_way = error.kind() == io::ErrorKind::AlreadyExists;
                let kind = if in_the_way { io::ErrorKind::NotADirectory } else { error.kind() };
                return Err(io::Error::new(kind, format!("failed to make {}: {error}", directory.display())));
            }
        }
        if let Some(parent) = directory.parent() {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            syncer.sync(parent)?;
        }
    }
    Ok(())
}

/// A file under its temporary name. Removed on drop unless it was renamed.
struct TempFile {
    path: PathBuf,
    /// Open, and locked where the file system has locks: marks a live writer.
    _file: fs_err::File,
    renamed: bool,
}

impl TempFile {
    fn write(directory: &Path, bytes: &[u8], wait: Wait) -> io::Result<Self> {
        let path = directory.join(format!("{TEMP_PREFIX}{}-{:016x}{TEMP_SUFFIX}", std::process::id(), nonce()));
        step();
        let file = fs_err::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let mut temp = Self { path, _file: file, renamed: false };
        // Without a lock, the clean-up goes by the file's age.
        let _unsupported = temp._file.file().try_lock();
        temp._file.write_all(bytes)?;
        if wait == Wait::Synced {
            step();
            temp._file.sync_all()?;
        }
        Ok(temp)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.renamed {
            // The write has already failed with its own error; the doctor finds a leftover file.
            let _leaving = fs_err::remove_file(&self.path);
        }
    }
}

/// Stores a new file durably under the first free name, and returns that name.
///
/// `name` is called with attempt 0, 1, 2, … right before the rename, and must return a different name each time.
pub(crate) fn create(
    directory: &Path,
    bytes: &[u8],
    syncer: &Syncer,
    mut name: impl FnMut(u32) -> String,
) -> io::Result<String> {
    let mut temp = TempFile::write(directory, bytes, Wait::Synced)?;
    for attempt in 0..MAX_TRIES {
        let name = name(attempt);
        match rename_new(&temp.path, &directory.join(&name)) {
            Ok(()) => {
                temp.renamed = true;
                syncer.sync(directory)?;
                return Ok(name);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("no free name in {}", directory.display())))
}

/// Stores a new file durably under this name. If the name is taken, the existing file stays and counts as the same.
/// `before` is called right before the rename.
pub(crate) fn create_exact(
    directory: &Path,
    bytes: &[u8],
    syncer: &Syncer,
    name: &str,
    before: impl FnOnce(),
) -> io::Result<()> {
    let mut temp = TempFile::write(directory, bytes, Wait::Synced)?;
    before();
    match rename_new(&temp.path, &directory.join(name)) {
        Ok(()) => temp.renamed = true,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    syncer.sync(directory)
}

/// Stores a file under this name, replacing an existing one.
pub(crate) fn replace(path: &Path, bytes: &[u8], wait: Wait, syncer: &Syncer) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut temp = TempFile::write(directory, bytes, wait)?;
    step();
    fs_err::rename(&temp.path, path)?;
    temp.renamed = true;
    match wait {
        Wait::Synced => syncer.sync(directory),
        Wait::Cached => Ok(()),
    }
}

/// Replaces an existing file. If it has been moved away meanwhile, fails with `NotFound` and does not create it again.
///
/// `lock` is called once the new file is ready. It returns the lock under which the file is replaced, or `None` if
/// replacing it is no longer needed. Returns whether the file was replaced.
pub(crate) fn replace_existing(
    path: &Path,
    bytes: &[u8],
    syncer: &Syncer,
    lock: impl FnOnce() -> io::Result<Option<FileLock>>,
) -> io::Result<bool> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut temp = TempFile::write(directory, bytes, Wait::Synced)?;
    let Some(locked) = lock()? else { return Ok(false) };
    step();
    match renameat_with(CWD, &temp.path, CWD, path, RenameFlags::EXCHANGE) {
        // The temporary name now holds the old file, which the drop removes.
        Ok(()) => {}
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            // The file system cannot exchange names: only our own lock excludes a concurrent move.
            fs_err::metadata(path)?;
            fs_err::rename(&temp.path, path)?;
            temp.renamed = true;
        }
        Err(errno) => return Err(rename_error(errno, path)),
    }
    drop(locked);
    step();
    drop(temp);
    syncer.sync(directory)?;
    Ok(true)
}

/// Removes a file, if it exists.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    step();
    open::if_exists(fs_err::remove_file(path)).map(drop)
}

/// Result of [`swap`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Swapped {
    /// The file had the expected contents and was replaced.
    Done,
    /// Not replaced: the file does not have the expected contents.
    Changed,
    /// Replaced, but the file had these contents, which another program wrote at the last moment.
    Displaced(Vec<u8>),
}

/// Replaces a file that other programs replace without a lock. `expected` is what the caller has read there, at most
/// `max` bytes (`None`: no file). Names are exchanged, so that the displaced contents can be compared: no write of
/// another program is lost unnoticed.
///
/// The bytes are synced after the exchange, to keep the time between the caller's read and its write short.
pub(crate) fn swap(
    path: &Path,
    bytes: &[u8],
    expected: Option<&[u8]>,
    max: u64,
    wait: Wait,
    syncer: &Syncer,
) -> io::Result<Swapped> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut temp = TempFile::write(directory, bytes, Wait::Cached)?;
    let exchange = || renameat_with(CWD, &temp.path, CWD, path, RenameFlags::EXCHANGE);
    step();
    match expected {
        None => match rename_new(&temp.path, path) {
            Ok(()) => temp.renamed = true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(Swapped::Changed),
            Err(error) => return Err(error),
        },
        Some(expected) => match exchange() {
            // The temporary name now holds the old file, which the drop removes.
            Ok(()) => match open::read(&temp.path, max) {
                Ok(displaced) if displaced == expected => {}
                Ok(displaced) => return Ok(Swapped::Displaced(displaced)),
                Err(error) => {
                    // Unreadable: it is moved back.
                    exchange().map_err(|errno| rename_error(errno, path))?;
                    return Err(error);
                }
            },
            Err(Errno::NOENT) => return Ok(Swapped::Changed),
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                // The file system cannot exchange names: what another program writes between read and rename is lost.
                if open::read(path, max)? != expected {
                    return Ok(Swapped::Changed);
                }
                fs_err::rename(&temp.path, path)?;
                temp.renamed = true;
            }
            Err(errno) => return Err(rename_error(errno, path)),
        },
    }
    if wait == Wait::Synced {
        step();
        temp._file.sync_all()?;
        syncer.sync(directory)?;
    }
    Ok(Swapped::Done)
}

/// Renames without replacing: fails with `AlreadyExists` if the name is taken.
pub(crate) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    step();
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            // A hard link cannot replace a file either; for an instant the file has both names.
            fs_err::hard_link(from, to)?;
            fs_err::remove_file(from)
        }
        Err(errno) => Err(rename_error(errno, to)),
    }
}

/// Moves a file into another directory under its own name, or one with random digits if that is taken. Not synced: the
/// caller syncs both directories once for all files. Returns the name, or `None` if the file no longer exists.
pub(crate) fn move_into(from: &Path, directory: &Path, name: &str, suffix: &str) -> io::Result<Option<String>> {
    let stem = name.strip_suffix(suffix).unwrap_or(name);
    for attempt in 0..MAX_TRIES {
        let target = match attempt {
            0 => name.to_owned(),
            _ => format!("{stem}_{:08x}{suffix}", nonce() as u32),
        };
        match rename_new(from, &directory.join(&target)) {
            Ok(()) => return Ok(Some(target)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound && !from.exists() => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("no free name in {}", directory.display())))
}

fn rename_error(errno: Errno, path: &Path) -> io::Error {
    let error = io::Error::from(errno);
    io::Error::new(error.kind(), format!("failed to rename to {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs_err::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_taken_name_gets_another_and_is_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let syncer = Syncer::default();
        for (text, expected) in [("one", "m0"), ("two", "m1")] {
            let name = create(dir.path(), text.as_bytes(), &syncer, |n| format!("m{n}")).unwrap();
            assert_eq!(name, expected);
        }
        assert_eq!(fs_err::read_to_string(dir.path().join("m0")).unwrap(), "one");
        assert_eq!(names(dir.path()), ["m0", "m1"], "no temporary file is left");
        let mode = fs_err::metadata(dir.path().join("m0")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let syncer = Syncer::default();
        let result = create(dir.path(), b"x", &syncer, |n| format!("no/such/{n}"));
        assert!(result.is_err());
        assert!(names(dir.path()).is_empty());
        assert!(create(&dir.path().join("gone"), b"x", &syncer, |n| n.to_string()).is_err());
    }

    #[test]
    fn a_file_that_was_moved_away_is_not_created_again() {
        let dir = tempfile::tempdir().unwrap();
        let syncer = Syncer::default();
        let path = dir.path().join("m.json");
        fs_err::write(&path, "old").unwrap();
        let lock = dir.path().join("lock");
        let take_lock = || FileLock::try_lock(&lock);
        assert!(replace_existing(&path, b"new", &syncer, take_lock).unwrap());
        assert_eq!(fs_err::read_to_string(&path).unwrap(), "new");
        assert!(!replace_existing(&path, b"newer", &syncer, || Ok(None)).unwrap(), "no longer needed");
        fs_err::remove_file(&path).unwrap();
        let error = replace_existing(&path, b"newer", &syncer, take_lock).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(names(dir.path()), ["lock"]);
    }

    #[test]
    fn the_contents_that_another_program_wrote_meanwhile_are_returned() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        let swap = |new: &str, expected: Option<&str>| {
            let expected = expected.map(str::as_bytes);
            swap(&path, new.as_bytes(), expected, 100, Wait::Synced, &Syncer::default()).unwrap()
        };
        assert_eq!(swap("one", None), Swapped::Done);
        assert_eq!(swap("two", None), Swapped::Changed);
        assert_eq!(swap("two", Some("one")), Swapped::Done);
        assert_eq!(swap("four", Some("three")), Swapped::Displaced(b"two".to_vec()));
        assert_eq!(fs_err::read_to_string(&path).unwrap(), "four");
        fs_err::remove_file(&path).unwrap();
        assert_eq!(swap("five", Some("four")), Swapped::Changed);
        assert!(names(dir.path()).is_empty(), "no temporary file is left, and nothing was created again");
    }

    #[test]
    fn a_move_never_replaces() {
        let dir = tempfile::tempdir().unwrap();
        let (inbox, done) = (dir.path().join("inbox"), dir.path().join("done"));
        make_dir(&inbox, &Syncer::default()).unwrap();
        make_dir(&done, &Syncer::default()).unwrap();
        assert_eq!(fs_err::metadata(&inbox).unwrap().permissions().mode() & 0o777, 0o700);
        for text in ["one", "two"] {
            fs_err::write(inbox.join("1_a.msg.json"), text).unwrap();
            assert!(move_into(&inbox.join("1_a.msg.json"), &done, "1_a.msg.json", ".msg.json").unwrap().is_some());
        }
        assert!(move_into(&inbox.join("1_a.msg.json"), &done, "1_a.msg.json", ".msg.json").unwrap().is_none());
        let names = names(&done);
        assert_eq!(names.len(), 2);
        assert!(names.iter().all(|name| name.starts_with("1_a") && name.ends_with(".msg.json")));
    }
}
