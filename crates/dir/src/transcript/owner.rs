//! Records which key owns a file.
//!
//! `ROOT/.owners/NAME` holds the key that owns `ROOT/NAME.jsonl`. It is written once, before the first line, and never
//! changed, so that all processes agree about keys whose names collide (`a:b` and `a_b`): the first owns the plain name
//! and the other uses the next candidate.

use std::io;
use std::path::{Path, PathBuf};

use amb_core::transcript::TranscriptKey;

use super::file_name::{candidates, file_name};
use crate::files::durable::{create_exact, make_dir};
use crate::files::open;
use crate::files::syncer::Syncer;

/// Hidden, so that it is not taken for a transcript.
pub(crate) const OWNERS: &str = ".owners";
/// Bound on a record, which holds a key and a newline.
const MAX_BYTES: u64 = 64 << 10;

/// The file of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TranscriptPath {
    pub(super) path: PathBuf,
    /// Whether it is recorded as this key's. If not, another key may still claim it, so a reader checks again after
    /// reading.
    pub(super) owned: bool,
}

/// Finds the key's file without writing anything.
pub(super) fn resolve(root: &Path, key: &TranscriptKey) -> io::Result<TranscriptPath> {
    for name in candidates(key) {
        let path = root.join(file_name(&name));
        match owner(root, &name)? {
            None => return Ok(TranscriptPath { path, owned: false }),
            Some(owner) if owner == key.as_str() => return Ok(TranscriptPath { path, owned: true }),
            Some(_) => {}
        }
    }
    Err(exhausted())
}

/// Finds the key's file, and claims it durably if it has no owner yet.
pub(super) fn claim(root: &Path, key: &TranscriptKey, syncer: &Syncer) -> io::Result<PathBuf> {
    let owners = root.join(OWNERS);
    for name in candidates(key) {
        if owner(root, &name)?.is_none() {
            make_dir(&owners, syncer)?;
            create_exact(&owners, format!("{key}\n").as_bytes(), syncer, &name, || ())?;
        }
        // Reads back which of several racing processes has won.
        if owner(root, &name)?.as_deref() == Some(key.as_str()) {
            // Another process may have recorded it and died before its directory sync.
            syncer.sync(&owners)?;
            return Ok(root.join(file_name(&name)));
        }
    }
    Err(exhausted())
}

fn owner(root: &Path, name: &str) -> io::Result<Option<String>> {
    let path = root.join(OWNERS).join(name);
    let read = open::read(&path, MAX_BYTES).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    match read {
        Ok(text) if text.ends_with('\n') => Ok(Some(text[..text.len() - 1].to_owned())),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} is damaged; write the key that owns {name} into it, with a newline", path.display()),
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn exhausted() -> io::Error {
    io::Error::other("every name this transcript may have belongs to another key; choose another root or key")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim_in(root: &tempfile::TempDir, key: &TranscriptKey) -> io::Result<PathBuf> {
        claim(root.path(), key, &Syncer::default())
    }

    #[test]
    fn the_first_key_owns_the_plain_name_and_the_second_never_gets_it() {
        let root = tempfile::tempdir().unwrap();
        let (first, second) = ("a:b".parse().unwrap(), "a_b".parse().unwrap());
        assert!(!resolve(root.path(), &second).unwrap().owned);
        let one = claim_in(&root, &first).unwrap();
        let two = claim_in(&root, &second).unwrap();
        assert_eq!(one, root.path().join("a_b.jsonl"));
        assert_ne!(one, two);
        assert_eq!(resolve(root.path(), &first).unwrap(), TranscriptPath { path: one.clone(), owned: true });
        assert_eq!(resolve(root.path(), &second).unwrap(), TranscriptPath { path: two.clone(), owned: true });
        assert_eq!(claim_in(&root, &first).unwrap(), one);
        assert_eq!(claim_in(&root, &second).unwrap(), two);
    }

    #[test]
    fn a_key_that_equals_the_hashed_name_of_another_gets_its_own_file() {
        let root = tempfile::tempdir().unwrap();
        claim_in(&root, &"a:b".parse().unwrap()).unwrap();
        let second = claim_in(&root, &"a_b".parse().unwrap()).unwrap();
        let stem = second.file_stem().unwrap().to_str().unwrap().to_owned();
        let third = claim_in(&root, &stem.parse().unwrap()).unwrap();
        assert_ne!(second, third);
    }

    #[test]
    fn threads_that_race_for_one_name_agree_on_its_owner() {
        let root = tempfile::tempdir().unwrap();
        let keys: Vec<TranscriptKey> = ["r:x", "r_x", "r/x", "r|x"].iter().map(|k| k.parse().unwrap()).collect();
        let mut paths: Vec<PathBuf> = std::thread::scope(|scope| {
            let running: Vec<_> = keys.iter().map(|key| scope.spawn(|| claim_in(&root, key).unwrap())).collect();
            running.into_iter().map(|session| session.join().unwrap()).collect()
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
        claim_in(&root, &key).unwrap();
        fs_err::write(root.path().join(OWNERS).join("a_b"), "").unwrap();
        assert_eq!(resolve(root.path(), &key).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
