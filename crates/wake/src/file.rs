//! Small JSON files, replaced by rename.

use std::io::{self, Write};
use std::path::Path;

use fs_err::os::unix::fs::OpenOptionsExt;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Reads a file; `None` where there is none or it does not parse: what is lost then is a note about rings, never a
/// message.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs_err::read(path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)
            .inspect_err(|error| tracing::warn!(path = %path.display(), %error, "corrupt file ignored"))
            .ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces a file. Survives a kill; a power cut may bring the previous one back.
pub(crate) fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        create_private(directory)?;
    }
    // Each writing process has a draft of its own.
    let draft = path.with_extension(format!("{}.tmp", std::process::id()));
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    let mut file = fs_err::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&draft)?;
    file.write_all(&bytes)?;
    fs_err::rename(&draft, path)
}

/// Creates a directory that only this user can enter.
pub(crate) fn create_private(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    if directory.is_dir() {
        return Ok(());
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Locks a file until the result is dropped, so that processes change another file one after the other.
pub(crate) fn lock(path: &Path) -> io::Result<fs_err::File> {
    if let Some(directory) = path.parent() {
        create_private(directory)?;
    }
    let file = fs_err::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    file.file().lock()?;
    Ok(file)
}
