//! Free disk space.

use std::io::{ErrorKind, Write};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};

use crate::StoreError;
use crate::error::Result;

/// Bytes that must be free: far more than a message needs, so that an operator is warned before sends fail.
const MIN_FREE: usize = 1 << 20;

/// Allocates space beside the database and frees it again. A test transaction is not enough: it may fit into free pages
/// of the database where the next message does not.
pub(in crate::sqlite) fn check(database: &Path) -> Result<()> {
    let directory = database.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // An unnamed file, which a crash cannot leave behind.
    let mut file = tempfile::tempfile_in(directory).map_err(no_room)?;
    match fallocate(&file, FallocateFlags::empty(), 0, MIN_FREE as u64).map_err(std::io::Error::from) {
        Ok(()) => Ok(()),
        // The file system has no fallocate: write the bytes.
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            file.write_all(&vec![0; MIN_FREE]).and_then(|()| file.sync_data()).map_err(no_room)
        }
        Err(error) => Err(no_room(error)),
    }
}

fn no_room(error: std::io::Error) -> StoreError {
    let detail = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "the disk of the database is full; make room on it",
        _ => "the directory of the database takes no files; see what is wrong with it",
    };
    StoreError::unavailable(detail).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_leaves_no_file_behind() {
        let directory = tempfile::tempdir().unwrap();
        check(&directory.path().join("mail.db")).unwrap();
        assert_eq!(fs_err::read_dir(directory.path()).unwrap().count(), 0);
        assert!(check(Path::new("/proc/mail.db")).is_err());
    }
}
