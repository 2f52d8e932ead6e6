//! Which key a file belongs to.
//!
//! `ROOT/.owners/NAME` holds the key that owns `ROOT/NAME.jsonl`. It is written once, whole, before the first line, and
//! never changed, so that two keys whose names collide (`a:b` and `a_b`) find the same answer in every process: the
//! first owns the plain name and the other goes to the next candidate.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use amb_core::transcript::TranscriptKey;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use uuid::Uuid;

use super::durable;
use super::file_name::{candidates, file_name};

/// Hidden, so that nobody takes it for a transcript.
const OWNERS: &str = ".owners";

/// Where the lines of a key are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The file.
    pub(super) path: PathBuf,
    /// Whether it is recorded as this key's. If not, another key may still claim it, so a reader looks again after reading.
    pub(super) owned: bool,
}

/// Finds the key's file without writing anything.
pub(super) fn resolve(root: &Path, key: &TranscriptKey) -> io::Result<Place> {
    for name in candidates(key) {
        let path = root.join(file_name(&name));
        match owner(root, &name)? {
            None => return Ok(Place { path, owned: false }),
            Some(owner) if owner == key.as_str() => return Ok(Place { path, owned: true }),
            Some(_) => {}
        }
    }
    Err(exhausted())
}

/// Finds the key's file, and makes it this key's, durably, if it is nobody's yet.
pub(super) fn claim(root: &Path, key: &TranscriptKey) -> io::Result<PathBuf> {
    for name in candidates(key) {
        if owner(root, &name)?.is_none() {
            record(root, &name, key)?;
        }
        // Whoever won a race for this name is read back here, ourselves included.
        if owner(root, &name)?.as_deref() == Some(key.as_str()) {
            // Another process may have recorded it and died before its directory sync.
            durable::sync_dir(&root.join(OWNERS))?;
            return Ok(root.join(file_name(&name)));
        }
    }
    Err(exhausted())
}

fn owner(root: &Path, name: &str) -> io::Result<Option<String>> {
    let path = root.join(OWNERS).join(name);
    match fs_err::read_to_string(&path) {
        Ok(text) if text.ends_with('\n') => Ok(Some(text[..text.len() - 1].to_owned())),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} is damaged; write the key that owns {name} into it, with a newline", path.display()),
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the record under a temporary name and moves it into place unless one is there already.
fn record(root: &Path, name: &str, key: &TranscriptKey) -> io::Result<()> {
    let owners = root.join(OWNERS);
    durable::make_dir(&owners)?;
    let temporary = owners.join(format!(".{}.tmp", Uuid::now_v7().simple()));
    let placed = write_new(&temporary, key).and_then(|()| place(&temporary, &owners.join(name)));
    if !matches!(placed, Ok(true)) {
        // Lost the race, or failed: either way the temporary file is nobody's.
        let _ = fs_err::remove_file(&temporary);
    }
    placed.map(|_| ())
}

fn write_new(path: &Path, key: &TranscriptKey) -> io::Result<()> {
    let mut file = fs_err::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(format!("{key}\n").as_bytes())?;
    file.sync_all()
}

/// Moves `from` to `to` if nothing is there. Says whether it did.
fn place(from: &Path, to: &Path) -> io::Result<bool> {
    use rustix::io::Errno;
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        // File systems without that flag have hard links, which do not replace either.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match fs_err::hard_link(from, to) {
            Ok(()) => fs_err::remove_file(from).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        },
        Err(errno) => Err(errno.into()),
    }
}

fn exhausted() -> io::Error {
    io::Error::other("every name this transcript may have belongs to another key; choose another root or key")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_key_owns_the_plain_name_and_the_second_never_gets_it() {
        let root = tempfile::tempdir().unwrap();
        let (first, second) = ("a:b".parse().unwrap(), "a_b".parse().unwrap());
        assert!(!resolve(root.path(), &second).unwrap().owned);
        let one = claim(root.path(), &first).unwrap();
        let two = claim(root.path(), &second).unwrap();
        assert_eq!(one, root.path().join("a_b.jsonl"));
        assert_ne!(one, two);
        assert_eq!(resolve(root.path(), &first).unwrap(), Place { path: one.clone(), owned: true });
        assert_eq!(resolve(root.path(), &second).unwrap(), Place { path: two.clone(), owned: true });
        assert_eq!(claim(root.path(), &first).unwrap(), one);
        assert_eq!(claim(root.path(), &second).unwrap(), two);
    }

    #[test]
    fn a_key_that_spells_the_hashed_name_of_another_gets_its_own() {
        let root = tempfile::tempdir().unwrap();
        claim(root.path(), &"a:b".parse().unwrap()).unwrap();
        let second = claim(root.path(), &"a_b".parse().unwrap()).unwrap();
        let stem = second.file_stem().unwrap().to_str().unwrap().to_owned();
        let third = claim(root.path(), &stem.parse().unwrap()).unwrap();
        assert_ne!(second, third);
    }

    #[test]
    fn threads_that_race_for_one_name_agree_on_its_owner() {
        let root = tempfile::tempdir().unwrap();
        let keys: Vec<TranscriptKey> = ["r:x", "r_x", "r/x", "r|x"].iter().map(|k| k.parse().unwrap()).collect();
        let mut paths: Vec<PathBuf> = std::thread::scope(|scope| {
            let running: Vec<_> = keys.iter().map(|key| scope.spawn(|| claim(root.path(), key).unwrap())).collect();
            running.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), 4);
        let left: Vec<_> = fs_err::read_dir(root.path().join(OWNERS)).unwrap().collect();
        assert_eq!(left.len(), 4, "no temporary file stays");
    }

    #[test]
    fn a_damaged_record_is_an_error_and_not_a_second_transcript() {
        let root = tempfile::tempdir().unwrap();
        let key = "a:b".parse().unwrap();
        claim(root.path(), &key).unwrap();
        fs_err::write(root.path().join(OWNERS).join("a_b"), "").unwrap();
        assert_eq!(resolve(root.path(), &key).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
