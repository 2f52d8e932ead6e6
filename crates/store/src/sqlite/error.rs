//! SQLite's failures in the office's words.

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

/// Whether a unique constraint refused the row.
pub(super) fn is_taken(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
}

/// The office is closing, or its writer is gone.
pub(super) fn closed() -> StoreError {
    StoreError::unavailable("the office is closing; try again when it is back")
}
