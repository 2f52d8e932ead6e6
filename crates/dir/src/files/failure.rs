//! Maps file-system errors to errors of the office: one sentence for the caller, the cause for the log.

use std::io;

use amb_core::OfficeError;

use crate::files::open;

/// Returns the office's error for a failed file operation. `context` says what failed and precedes a colon.
fn io_failure(context: &str, error: io::Error) -> OfficeError {
    let hint = match error.kind() {
        _ if open::is_refused(&error) => {
            return OfficeError::unavailable(format!("{context}: {error}")).caused_by(error);
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "the disk is full; free some space and try again",
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only",
        io::ErrorKind::PermissionDenied => {
            "the directory's permissions forbid it; it must belong to the user who runs this"
        }
        io::ErrorKind::NotADirectory => {
            "a file stands where a directory should be; move it away or name another directory"
        }
        io::ErrorKind::NotFound => "the mailbox's directory is gone",
        io::ErrorKind::AlreadyExists => "something else stands there already",
        _ => "the file system failed",
    };
    OfficeError::unavailable(format!("{context}: {hint} ({error})")).caused_by(error)
}

/// Adds to an I/O error what was being done.
pub(crate) trait IoContext<T> {
    /// Converts the error by [`io_failure`].
    fn context(self, context: &str) -> Result<T, OfficeError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn context(self, context: &str) -> Result<T, OfficeError> {
        self.map_err(|error| io_failure(context, error))
    }
}

#[cfg(test)]
mod tests {
    use amb_core::Code;

    use super::*;

    #[test]
    fn a_full_disk_is_named_in_the_error() {
        let error = io_failure("could not store the message", io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(error.code(), Code::Unavailable);
        assert!(error.detail().starts_with("could not store the message: the disk is full"), "{error}");
    }
}
