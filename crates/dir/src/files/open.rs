//! Opening files in a directory that others may write to.
//!
//! Every file in the office's directory is opened here. A symbolic link could lead to any file of the reader's, opening
//! a pipe would block, and a device has no end: only regular files are opened, without following a link at the last
//! component, and whole files are read up to a bound.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use fs_err::os::unix::fs::OpenOptionsExt;
use rustix::fs::OFlags;

/// Options for opening a file, without the access mode.
pub(crate) fn options() -> fs_err::OpenOptions {
    let mut options = fs_err::OpenOptions::new();
    options.mode(0o600).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    options
}

/// Refuses a symbolic link in the place of a directory: files would be written elsewhere.
pub(crate) fn refuse_link(directory: &Path) -> io::Result<()> {
    match fs_err::symlink_metadata(directory) {
        Ok(metadata) if metadata.is_symlink() => {
            let detail = format!("{} is a link; put a directory in its place", directory.display());
            Err(io::Error::new(io::ErrorKind::InvalidInput, detail))
        }
        _ => Ok(()),
    }
}

/// Opens a regular file with these [`options`] and an access mode.
pub(crate) fn regular_with(path: &Path, options: &fs_err::OpenOptions) -> io::Result<fs_err::File> {
    match options.open(path) {
        Ok(file) if file.metadata()?.is_file() => Ok(file),
        Ok(_) => Err(not_regular(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error),
        // The kernel's error for a link or a socket is unclear; say what it is.
        Err(error) => match fs_err::symlink_metadata(path) {
            Ok(metadata) if !metadata.is_file() => Err(not_regular(path)),
            _ => Err(error),
        },
    }
}

/// Opens a regular file for reading.
pub(crate) fn regular(path: &Path) -> io::Result<fs_err::File> {
    regular_with(path, options().read(true))
}

/// Returns the metadata of a regular file, without opening it.
pub(crate) fn metadata(path: &Path) -> io::Result<Metadata> {
    let metadata = fs_err::symlink_metadata(path)?;
    if metadata.is_file() { Ok(metadata) } else { Err(not_regular(path)) }
}

/// Returns the time since a file was modified; `None` if that is in the future.
pub(crate) fn age(metadata: &Metadata) -> Option<Duration> {
    metadata.modified().ok()?.elapsed().ok()
}

/// Reads a regular file of at most `max` bytes.
pub(crate) fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let file = regular(path)?;
    read_file(file.file(), path, max)
}

/// Reads an open file of at most `max` bytes, from its position on.
pub(crate) fn read_file(file: &File, path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let len = file.metadata()?.len();
    if len > max {
        return Err(too_large(path, max));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or_default() + 1);
    // It may grow while it is read.
    file.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max { Err(too_large(path, max)) } else { Ok(bytes) }
}

/// Lists a directory; empty if it does not exist.
pub(crate) fn entries(directory: &Path) -> io::Result<impl Iterator<Item = io::Result<fs_err::DirEntry>>> {
    Ok(if_exists(fs_err::read_dir(directory))?.into_iter().flatten())
}

/// Turns `NotFound` into `None`.
pub(crate) fn if_exists<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the file was refused here: not regular, or too large.
pub(crate) fn is_refused(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::FileTooLarge)
}

fn not_regular(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not a regular file; move it away", path.display()))
}

fn too_large(path: &Path, max: u64) -> io::Error {
    let detail = format!("{} has more than {max} bytes; move it away", path.display());
    io::Error::new(io::ErrorKind::FileTooLarge, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_regular_files_are_opened_and_nothing_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let (plain, pipe, link, socket) =
            (dir.path().join("plain"), dir.path().join("pipe"), dir.path().join("link"), dir.path().join("socket"));
        fs_err::write(&plain, "hello").unwrap();
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        fs_err::os::unix::fs::symlink(&plain, &link).unwrap();
        let _listening = UnixListener::bind(&socket).unwrap();
        assert_eq!(read(&plain, 5).unwrap(), b"hello");
        for path in [&pipe, &link, &socket, &dir.path().to_owned(), &"/dev/zero".into()] {
            for result in [regular(path), regular_with(path, options().write(true))] {
                let error = result.unwrap_err();
                assert!(is_refused(&error), "{}: {error}", path.display());
            }
            assert!(is_refused(&metadata(path).unwrap_err()));
        }
        let gone = regular(&dir.path().join("gone")).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_file_larger_than_the_bound_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large");
        fs_err::File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let error = read(&path, 1 << 20).unwrap_err();
        assert!(is_refused(&error) && error.to_string().contains("1048576 bytes"), "{error}");
    }
}
