//! Opening files in a directory that others may write to.
//!
//! Everything that is read from the office's directory is opened here. A symbolic link could lead to any file of the
//! reader's, opening a pipe would wait for its other end, and a device has no end: only regular files are opened, without
//! following a link at the last component, and what is read whole is read up to a bound.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;

use fs_err::os::unix::fs::OpenOptionsExt;
use rustix::fs::OFlags;

/// Options for opening a file of the office's, without the access mode.
pub(crate) fn options() -> fs_err::OpenOptions {
    let mut options = fs_err::OpenOptions::new();
    options.mode(0o600).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    options
}

/// Refuses a symbolic link in the place of a directory of the office's: what is written there would end up elsewhere.
pub(crate) fn refuse_link(directory: &Path) -> io::Result<()> {
    match fs_err::symlink_metadata(directory) {
        Ok(about) if about.is_symlink() => {
            let detail = format!("{} is a link; put a directory in its place", directory.display());
            Err(io::Error::new(io::ErrorKind::InvalidInput, detail))
        }
        _ => Ok(()),
    }
}

/// Opens a regular file with these [`options`], to which the access mode was added.
pub(crate) fn regular_with(path: &Path, options: &fs_err::OpenOptions) -> io::Result<fs_err::File> {
    match options.open(path) {
        Ok(file) if file.metadata()?.is_file() => Ok(file),
        Ok(_) => Err(not_regular(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error),
        // A link or a socket fails in words of the kernel's; say what it is.
        Err(error) => match fs_err::symlink_metadata(path) {
            Ok(about) if !about.is_file() => Err(not_regular(path)),
            _ => Err(error),
        },
    }
}

/// Opens a regular file for reading.
pub(crate) fn regular(path: &Path) -> io::Result<fs_err::File> {
    regular_with(path, options().read(true))
}

/// What is known of a regular file without opening it.
pub(crate) fn about(path: &Path) -> io::Result<Metadata> {
    let about = fs_err::symlink_metadata(path)?;
    if about.is_file() { Ok(about) } else { Err(not_regular(path)) }
}

/// All bytes of a regular file of at most `most` bytes.
pub(crate) fn bytes(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = regular(path)?;
    bytes_of(file.file(), path, most)
}

/// All bytes of an open file of at most `most` bytes, from its position on.
pub(crate) fn bytes_of(file: &File, path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let len = file.metadata()?.len();
    if len > most {
        return Err(too_large(path, most));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or_default() + 1);
    // It may grow while it is read.
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(too_large(path, most)) } else { Ok(bytes) }
}

/// `None` for what is not there; every other error stays one.
pub(crate) fn if_there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether an error says that the file is none that the office reads: not regular, or too large.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::FileTooLarge)
}

fn not_regular(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not a regular file; move it away", path.display()))
}

fn too_large(path: &Path, most: u64) -> io::Error {
    let detail = format!("{} has more than {most} bytes; move it away", path.display());
    io::Error::new(io::ErrorKind::FileTooLarge, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_regular_files_are_opened_and_nothing_waits() {
        let dir = tempfile::tempdir().unwrap();
        let (plain, pipe, link, socket) =
            (dir.path().join("plain"), dir.path().join("pipe"), dir.path().join("link"), dir.path().join("socket"));
        fs_err::write(&plain, "hello").unwrap();
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        fs_err::os::unix::fs::symlink(&plain, &link).unwrap();
        let _listening = UnixListener::bind(&socket).unwrap();
        assert_eq!(bytes(&plain, 5).unwrap(), b"hello");
        for path in [&pipe, &link, &socket, &dir.path().to_owned(), &"/dev/zero".into()] {
            for result in [regular(path), regular_with(path, options().write(true))] {
                let error = result.unwrap_err();
                assert!(is_refusal(&error), "{}: {error}", path.display());
            }
            assert!(is_refusal(&about(path).unwrap_err()));
        }
        let gone = regular(&dir.path().join("gone")).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_file_larger_than_the_bound_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large");
        fs_err::File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let error = bytes(&path, 1 << 20).unwrap_err();
        assert!(is_refusal(&error) && error.to_string().contains("1048576 bytes"), "{error}");
    }
}
