//! The ledger's files: JSON, each replaced as a whole.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use fs_err::os::unix::fs::OpenOptionsExt;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// When a change must be durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sync {
    /// Before the function returns.
    Now,
    /// When the kernel writes it back: it survives a kill, not a power cut.
    Later,
}

/// The file name for an id, which may be any text.
pub(crate) fn name(id: &str) -> String {
    let mut name: String = id.bytes().map(|byte| format!("{byte:02x}")).collect();
    // A file name has at most 255 bytes; our ids have 36 characters, those of other systems up to 200.
    if name.len() > 240 {
        let hash = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, id.as_bytes());
        name.truncate(200);
        name.push_str(&hash.simple().to_string());
    }
    name + ".json"
}

pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs_err::read(path) {
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(value) => Ok(Some(value)),
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()))),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads all files of a directory, which may not exist.
pub(crate) fn read_all<T: DeserializeOwned>(directory: &Path) -> io::Result<Vec<T>> {
    let entries = match fs_err::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut all = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            all.extend(read(&path)?);
        }
    }
    Ok(all)
}

pub(crate) fn write(path: &Path, value: &impl Serialize, sync: Sync) -> io::Result<()> {
    let draft = path.with_extension("tmp");
    let mut bytes = serde_json::to_vec(value)?;
    bytes.push(b'\n');
    let mut file = fs_err::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&draft)?;
    file.write_all(&bytes)?;
    if sync == Sync::Now {
        file.sync_all()?;
    }
    fs_err::rename(&draft, path)?;
    sync_parent(path, sync)
}

/// Renames a file; returns whether it existed.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<bool> {
    match fs_err::rename(from, to) {
        Ok(()) => {
            sync_parent(to, Sync::Now)?;
            sync_parent(from, Sync::Now)?;
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

pub(crate) fn remove(path: &Path, sync: Sync) -> io::Result<()> {
    match fs_err::remove_file(path) {
        Ok(()) => sync_parent(path, sync),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn sync_parent(path: &Path, sync: Sync) -> io::Result<()> {
    let parent: Option<PathBuf> = path.parent().map(Path::to_owned);
    match (sync, parent) {
        (Sync::Now, Some(parent)) => fs_err::File::open(parent)?.sync_all(),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_id_is_a_path_and_no_two_have_one_file() {
        let long = "x".repeat(200);
        let ids = ["m-1", "../../etc/passwd", "a/b", &long, &format!("{}y", &long[..199])];
        let names: std::collections::BTreeSet<_> = ids.iter().map(|id| name(id)).collect();
        assert_eq!(names.len(), ids.len());
        assert!(
            names.iter().all(|name| name.len() <= 255 && !name.contains('/') && !name.starts_with('.')),
            "{names:?}"
        );
    }
}
