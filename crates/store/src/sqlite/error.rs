//! What SQLite's failures mean to callers.

use rusqlite::ErrorCode;

use crate::StoreError;

/// What a failure of SQLite means to the caller: try later, or a defect here.
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

/// Whether a sync failed. What was to be synced may be lost then, although later syncs succeed.
pub(super) fn is_failed_sync(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi::{SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_FSYNC};
    matches!(error.sqlite_error().map(|error| error.extended_code), Some(SQLITE_IOERR_FSYNC | SQLITE_IOERR_DIR_FSYNC))
}

/// Whether a unique constraint refused the row.
pub(super) fn is_taken(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
}

/// The office is closing, or its writer is gone.
pub(super) fn closed() -> StoreError {
    StoreError::unavailable("the office is closing; try again when it is back")
}
