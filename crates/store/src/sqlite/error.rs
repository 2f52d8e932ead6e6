//! Errors of SQLite as errors of the store.

use rusqlite::ErrorCode;

use crate::StoreError;

/// Maps an error of SQLite: `unavailable` where a retry may help, else `internal`.
pub(super) fn failed(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(
            ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure
            | ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::ReadOnly
            | ErrorCode::CannotOpen
            | ErrorCode::OutOfMemory,
        ) => StoreError::unavailable("the office cannot use its database now; nothing was accepted, try again")
            .caused_by(error),
        _ => StoreError::internal(error),
    }
}

/// Returns whether a sync failed. Its data may be lost then, although later syncs succeed.
pub(super) fn is_failed_sync(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi::{SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_FSYNC};
    matches!(error.sqlite_error().map(|error| error.extended_code), Some(SQLITE_IOERR_FSYNC | SQLITE_IOERR_DIR_FSYNC))
}

/// Returns whether a constraint was violated.
pub(super) fn is_taken(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
}

/// The office is closing, or its writer is gone.
pub(super) fn closed() -> StoreError {
    StoreError::unavailable("the office is closing; try again when it is back")
}
