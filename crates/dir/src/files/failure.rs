//! What the file system says, as an error of the office: one sentence for the caller, the cause for the log.

use std::io;

use amb_core::error::{Code, OfficeError};

use crate::files::open;

/// The office's error for a failed file operation. Nothing was accepted.
///
/// A full or read-only disk is something that the caller can change, so those have texts of their own.
pub(crate) fn failed(doing: &str, error: io::Error) -> OfficeError {
    if open::is_refusal(&error) {
        return OfficeError::new(Code::Unavailable, format!("{doing}: {error}")).caused_by(error);
    }
    let (code, why) = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            (Code::Unavailable, "the disk is full; free some space and try again")
        }
        io::ErrorKind::ReadOnlyFilesystem => (Code::Unavailable, "the file system is read-only"),
        io::ErrorKind::PermissionDenied => {
            (Code::Unavailable, "the directory's permissions forbid it; it must belong to the user who runs this")
        }
        io::ErrorKind::NotADirectory => {
            (Code::Unavailable, "a file stands where a directory should be; move it away or name another directory")
        }
        io::ErrorKind::NotFound => (Code::Unavailable, "the mailbox's directory is gone"),
        io::ErrorKind::AlreadyExists => (Code::Unavailable, "something else stands there already"),
        _ => (Code::Unavailable, "the file system failed"),
    };
    OfficeError::new(code, format!("{doing}: {why} ({error})")).caused_by(error)
}

/// Adds to a result of the file system what was being done.
pub(crate) trait Doing<T> {
    /// Says what was being done, in words that go before a colon.
    fn doing(self, what: &str) -> Result<T, OfficeError>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: &str) -> Result<T, OfficeError> {
        self.map_err(|error| failed(what, error))
    }
}

/// Something of ours on disk that does not hold together; the detail names it.
pub(crate) fn broken(detail: impl Into<String>) -> OfficeError {
    OfficeError::new(Code::Unavailable, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_says_so() {
        let error = failed("could not store the message", io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(error.code(), Code::Unavailable);
        assert!(error.detail().starts_with("could not store the message: the disk is full"), "{error}");
    }
}
