//! Durable, atomic file writes.
//!
//! A new file is written under a unique temporary name in its own directory (never another file system), synced, and
//! given its name by a rename that cannot replace anything; then the directory is synced. The writer holds a lock on the
//! temporary file while it lives, so that a clean-up can tell the files of dead writers from those in use.

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

/// Temporary files begin so: hidden, and never matched by `*.json`.
pub(crate) const TEMP_PREFIX: &str = ".amb-";
/// Temporary files end so.
pub(crate) const TEMP_SUFFIX: &str = ".tmp";

/// How often a new name is tried before giving up: each try has fresh random digits, so the second succeeds.
const TRIES: u32 = 100;

/// Whether a write waits for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Survives a power cut.
    Synced,
    /// Atomic, but may be lost in a power cut: for what can be derived again.
    Cached,
}

/// A random number that no other process has.
pub(crate) fn nonce() -> u64 {
    let (high, low) = uuid::Uuid::now_v7().as_u64_pair();
    // Time and order in the one half, random bits in the other; mixed, the low digits differ even within an instant.
    high ^ low
}

/// Makes a directory and its parents, for the owner alone, and makes them durable.
pub(crate) fn make_dir(path: &Path, syncer: &Syncer) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    // From the nearest that is there downwards, each made durable in its parent.
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

/// A file under its temporary name; removed when dropped before it got its real one.
struct Temp {
    path: PathBuf,
    /// Open, and locked where the file system can: the sign of a live writer.
    _file: fs_err::File,
    placed: bool,
}

impl Temp {
    fn write(directory: &Path, bytes: &[u8], wait: Wait) -> io::Result<Self> {
        let path = directory.join(format!("{TEMP_PREFIX}{}-{:016x}{TEMP_SUFFIX}", std::process::id(), nonce()));
        step();
        let file = fs_err::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let mut temp = Self { path, _file: file, placed: false };
        // Without a lock, cleaning up waits for the file's age instead.
        let _unsupported = temp._file.file().try_lock();
        temp._file.write_all(bytes)?;
        if wait == Wait::Synced {
            step();
            temp._file.sync_all()?;
        }
        Ok(temp)
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        if !self.placed {
            // The write has already failed with its own error; the doctor finds the leftover.
            let _leaving = fs_err::remove_file(&self.path);
        }
    }
}

/// Stores a new file durably under the first of the names that is free, and returns that name.
///
/// `name` is called with attempt 0, 1, 2, …, right before the file gets that name, and must return a different one each time.
pub(crate) fn create(
    directory: &Path,
    bytes: &[u8],
    syncer: &Syncer,
    mut name: impl FnMut(u32) -> String,
) -> io::Result<String> {
    let mut temp = Temp::write(directory, bytes, Wait::Synced)?;
    for attempt in 0..TRIES {
        let name = name(attempt);
        match rename_new(&temp.path, &directory.join(&name)) {
            Ok(()) => {
                temp.placed = true;
                syncer.sync(directory)?;
                return Ok(name);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("no free name in {}", directory.display())))
}

/// Stores a new file durably under this name; if the name is taken, what is there stays and counts as the same file.
/// `before` is called right before the file gets its name.
pub(crate) fn create_exact(
    directory: &Path,
    bytes: &[u8],
    syncer: &Syncer,
    name: &str,
    before: impl FnOnce(),
) -> io::Result<()> {
    let mut temp = Temp::write(directory, bytes, Wait::Synced)?;
    before();
    match rename_new(&temp.path, &directory.join(name)) {
        Ok(()) => temp.placed = true,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    syncer.sync(directory)
}

/// Stores a file under this name, in place of what may be there.
pub(crate) fn replace(path: &Path, bytes: &[u8], wait: Wait, syncer: &Syncer) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut temp = Temp::write(directory, bytes, wait)?;
    step();
    fs_err::rename(&temp.path, path)?;
    temp.placed = true;
    match wait {
        Wait::Synced => syncer.sync(directory),
        Wait::Cached => Ok(()),
    }
}

/// Stores a file in place of one that must be there: if it has been moved away meanwhile this fails with `NotFound` and
/// does not bring it back.
///
/// `still` is called once the new file is ready. It returns the lock that keeps others from replacing the file too, or `None` if
/// there is no need any more. Returns whether the file was replaced.
pub(crate) fn replace_existing(
    path: &Path,
    bytes: &[u8],
    syncer: &Syncer,
    still: impl FnOnce() -> io::Result<Option<FileLock>>,
) -> io::Result<bool> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut temp = Temp::write(directory, bytes, Wait::Synced)?;
    let Some(locked) = still()? else { return Ok(false) };
    step();
    match renameat_with(CWD, &temp.path, CWD, path, RenameFlags::EXCHANGE) {
        // The temporary name now holds the old file, which the drop removes.
        Ok(()) => {}
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            // No exchange here: only our own lock keeps a concurrent move away.
            fs_err::metadata(path)?;
            fs_err::rename(&temp.path, path)?;
            temp.placed = true;
        }
        Err(errno) => return Err(named(errno, path)),
    }
    drop(locked);
    step();
    drop(temp);
    syncer.sync(directory)?;
    Ok(true)
}

/// Removes a file; it is no error if it is gone already.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    step();
    open::if_there(fs_err::remove_file(path)).map(drop)
}

/// What became of [`swap`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Swapped {
    /// The new bytes are in place of exactly what was expected there.
    Done,
    /// Nothing was done: something else than expected is there.
    Changed,
    /// The new bytes are in place of these, which another program put there in the last moment.
    Displaced(Vec<u8>),
}

/// Stores a file in place of one that other programs replace without a lock. `expected` is what the caller has read
/// there (none: no file), of at most `most` bytes. Names are exchanged, so that what was displaced can be compared: no
/// write of another program is lost unnoticed.
///
/// The bytes are synced after the exchange, so that the time between the caller's read and its write has no sync in it.
pub(crate) fn swap(
    path: &Path,
    bytes: &[u8],
    expected: Option<&[u8]>,
    most: u64,
    wait: Wait,
    syncer: &Syncer,
) -> io::Result<Swapped> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut temp = Temp::write(directory, bytes, Wait::Cached)?;
    let exchange = || renameat_with(CWD, &temp.path, CWD, path, RenameFlags::EXCHANGE);
    step();
    match expected {
        None => match rename_new(&temp.path, path) {
            Ok(()) => temp.placed = true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(Swapped::Changed),
            Err(error) => return Err(error),
        },
        Some(expected) => match exchange() {
            // The temporary name now holds the old file, which the drop removes.
            Ok(()) => match open::bytes(&temp.path, most) {
                Ok(displaced) if displaced == expected => {}
                Ok(displaced) => return Ok(Swapped::Displaced(displaced)),
                Err(error) => {
                    // Not a file that can be read: it goes back where it was.
                    exchange().map_err(|errno| named(errno, path))?;
                    return Err(error);
                }
            },
            Err(Errno::NOENT) => return Ok(Swapped::Changed),
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                // No exchange here: what is written between these two lines is lost.
                if open::bytes(path, most)? != expected {
                    return Ok(Swapped::Changed);
                }
                fs_err::rename(&temp.path, path)?;
                temp.placed = true;
            }
            Err(errno) => return Err(named(errno, path)),
        },
    }
    if wait == Wait::Synced {
        step();
        temp._file.sync_all()?;
        syncer.sync(directory)?;
    }
    Ok(Swapped::Done)
}

/// Renames to a name that must be free: `AlreadyExists` if it is not.
pub(crate) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    step();
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            // A link cannot replace either; for an instant the file has both names.
            fs_err::hard_link(from, to)?;
            fs_err::remove_file(from)
        }
        Err(errno) => Err(named(errno, to)),
    }
}

/// Moves a file into another directory under its own name, or a near one if that is taken. Not synced: the caller syncs
/// both directories once for all it moved. Returns the name; `None` if the file was not there any more.
pub(crate) fn move_into(from: &Path, directory: &Path, name: &str, suffix: &str) -> io::Result<Option<String>> {
    let stem = name.strip_suffix(suffix).unwrap_or(name);
    for attempt in 0..TRIES {
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

fn named(errno: Errno, path: &Path) -> io::Error {
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
    fn a_file_that_was_moved_away_is_not_brought_back() {
        let dir = tempfile::tempdir().unwrap();
        let syncer = Syncer::default();
        let path = dir.path().join("m.json");
        fs_err::write(&path, "old").unwrap();
        let lock = dir.path().join("lock");
        let still = || FileLock::attempt(&lock);
        assert!(replace_existing(&path, b"new", &syncer, still).unwrap());
        assert_eq!(fs_err::read_to_string(&path).unwrap(), "new");
        assert!(!replace_existing(&path, b"newer", &syncer, || Ok(None)).unwrap(), "there was no need any more");
        fs_err::remove_file(&path).unwrap();
        let error = replace_existing(&path, b"newer", &syncer, still).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(names(dir.path()), ["lock"]);
    }

    #[test]
    fn a_file_that_another_program_replaced_meanwhile_is_handed_back() {
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
        assert!(names(dir.path()).is_empty(), "no temporary file is left, and nothing was brought back");
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
