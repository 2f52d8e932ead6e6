//! This user's own files: each is replaced as a whole, durably, and changed by one process at a time.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use amb_core::Timestamp;
use anyhow::{Context, Result};
use fs_err::os::unix::fs::OpenOptionsExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The mode of a file that only this user reads.
pub(crate) const PRIVATE: u32 = 0o600;

/// Creates a directory, with those above it, that only this user enters.
pub(crate) fn create_private(directory: &Path) -> Result<()> {
    let created = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    created.with_context(|| {
        format!(
            "{} cannot be made; amb keeps its files there unless HOME, or the XDG_… variable for it, names another place",
            directory.display()
        )
    })
}

/// Replaces a file. Readers see either all of the old bytes or all of the new ones; once this returns, the new ones
/// survive a power cut.
pub(crate) fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    // Dropped before the rename, for example by a full disk, it removes itself.
    let mut draft = tempfile::Builder::new().prefix(".amb-").suffix(".tmp").tempfile_in(parent(path))?;
    draft.write_all(bytes)?;
    // Set on the open file, because a mode given at creation is cut by the umask.
    draft.as_file().set_permissions(std::fs::Permissions::from_mode(mode))?;
    draft.as_file().sync_all()?;
    draft.persist(path)?;
    sync_parent(path)
}

/// Makes a rename, creation or removal in the directory of this file survive a power cut.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    fs_err::File::open(parent(path))?.sync_all()
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// The bytes of a file; `None` where there is none.
pub(crate) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs_err::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The contents of a JSON file; the default where there is none.
pub(crate) fn read_json<T: Default + DeserializeOwned>(path: &Path) -> Result<T> {
    parse(path, read(path)?)
}

fn parse<T: Default + DeserializeOwned>(path: &Path, bytes: Option<Vec<u8>>) -> Result<T> {
    let Some(bytes) = bytes else { return Ok(T::default()) };
    serde_json::from_slice(&bytes).with_context(|| format!("{} is damaged", path.display()))
}

/// Replaces a private file, in a directory that is created where it is missing.
pub(crate) fn replace_private(path: &Path, bytes: &[u8]) -> Result<()> {
    create_private(parent(path))?;
    Ok(replace(path, bytes, PRIVATE)?)
}

/// Opens a private file to lock it. It is created where it is missing, with its directory.
pub(crate) fn open_lock(path: &Path) -> Result<fs_err::File> {
    create_private(parent(path))?;
    Ok(fs_err::OpenOptions::new().create(true).truncate(false).write(true).mode(PRIVATE).open(path)?)
}

/// Changes a private file: `edit` gets its bytes and returns those that replace them. A lock beside it (`keys.lock` for
/// `keys.json`) is held from the read to the write, so that of two processes neither overwrites the other's change.
pub(crate) fn update(path: &Path, edit: impl FnOnce(Option<Vec<u8>>) -> Result<Vec<u8>>) -> Result<()> {
    let lock = open_lock(&path.with_extension("lock"))?;
    lock.file().lock()?;
    let bytes = edit(read(path)?)?;
    replace(path, &bytes, PRIVATE).with_context(|| path.display().to_string())
}

/// Changes a private JSON file, as [`update`] does; a damaged one is left as it is and is an error.
pub(crate) fn update_json<T>(path: &Path, edit: impl FnOnce(&mut T)) -> Result<()>
where
    T: Default + Serialize + DeserializeOwned,
{
    update(path, |bytes| {
        let mut value: T = parse(path, bytes)?;
        edit(&mut value);
        let mut bytes = serde_json::to_vec_pretty(&value)?;
        bytes.push(b'\n');
        Ok(bytes)
    })
}

/// Removes the oldest entries of a map beyond `max`.
pub(crate) fn drop_oldest<K: Ord + Clone, V>(map: &mut BTreeMap<K, V>, max: usize, age: impl Fn(&V) -> Timestamp) {
    while map.len() > max {
        let oldest = map.iter().min_by_key(|(_, value)| age(value)).map(|(key, _)| key.clone());
        oldest.and_then(|key| map.remove(&key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Numbers = BTreeMap<String, u32>;

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs_err::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn concurrent_changes_are_all_kept() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("config/keys.json");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    for number in 0..25 {
                        update_json::<Numbers>(path, |all| {
                            all.insert(format!("{thread}-{number}"), number);
                        })
                        .unwrap();
                    }
                });
            }
        });
        assert_eq!(read_json::<Numbers>(&path).unwrap().len(), 100);
        assert_eq!(names(path.parent().unwrap()), ["keys.json", "keys.lock"], "no draft is left");
    }

    #[test]
    fn only_this_user_reads_the_file_its_lock_and_its_directory() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("config/keys.json");
        update_json::<Numbers>(&path, |_| {}).unwrap();
        let mode = |path: &Path| fs_err::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        assert_eq!((mode(&path), mode(&path.with_extension("lock"))), (0o600, 0o600));
    }

    #[test]
    fn a_damaged_file_is_an_error_and_is_left_as_it_is() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("keys.json");
        fs_err::write(&path, "{\"a\": 1").unwrap();
        let error = update_json::<Numbers>(&path, Numbers::clear).unwrap_err();
        assert!(error.to_string().ends_with("keys.json is damaged"), "{error}");
        assert_eq!(fs_err::read_to_string(&path).unwrap(), "{\"a\": 1");
    }

    #[test]
    fn a_write_that_fails_leaves_the_old_file_and_no_draft() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("taken");
        // A directory that is not empty cannot be replaced by a file.
        fs_err::create_dir_all(path.join("inside")).unwrap();
        replace(&path, b"new", PRIVATE).unwrap_err();
        assert_eq!((names(home.path()), names(&path)), (vec!["taken".to_owned()], vec!["inside".to_owned()]));
    }
}
