//! Failures of the file system as the caller sees them.

use std::io;

use amb_core::OfficeError;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A transcript could not be read.
pub(super) fn unreadable(error: io::Error) -> OfficeError {
    let detail = match error.kind() {
        io::ErrorKind::PermissionDenied => "this user may not read the transcript; change its permissions or the root",
        io::ErrorKind::InvalidData => "the record of who owns a transcript is damaged; mend or remove the file named",
        _ => "the transcript cannot be read; see that its root is a directory within reach",
    };
    OfficeError::unavailable(detail).caused_by(error)
}

/// A line could not be written; it is not in the transcript.
pub(super) fn unwritable(kind: io::ErrorKind, cause: impl Into<Cause>) -> OfficeError {
    let detail = match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "the disk is full; the line was not written, make room and append it again"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "this user may not write the transcript; change its permissions or the root"
        }
        io::ErrorKind::TimedOut => "another process holds the transcript; the line was not written, append it again",
        io::ErrorKind::InvalidData => "the record of who owns a transcript is damaged; mend or remove the file named",
        _ => "the line could not be written; see that the transcript's root is a directory within reach",
    };
    OfficeError::unavailable(detail).caused_by(cause)
}
