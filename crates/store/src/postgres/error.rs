//! What PostgreSQL's failures mean to callers.

use deadpool_postgres::PoolError;
use tokio_postgres::error::SqlState;

use crate::StoreError;
use crate::engine::Failed;

impl From<tokio_postgres::Error> for Failed {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.code() {
            Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED) => {
                Failed::Retry(failed(error))
            }
            Some(&SqlState::UNIQUE_VIOLATION) => Failed::Taken(StoreError::internal(error)),
            _ => Failed::Error(failed(error)),
        }
    }
}

/// What a failure of PostgreSQL means to the caller: try later, or a defect here.
pub(super) fn failed(error: tokio_postgres::Error) -> StoreError {
    let away = match error.code() {
        // 08: connection, 53: out of disk, memory or connections, 57: shutting down or cancelled, 58: its own I/O. And a
        // server that does not take writes yet, or any more, while another takes over.
        Some(state) => {
            *state == SqlState::READ_ONLY_SQL_TRANSACTION
                || ["08", "53", "57", "58"].contains(&state.code().get(..2).unwrap_or_default())
        }
        // No error of the server's: the connection is gone.
        None => {
            error.is_closed() || std::error::Error::source(&error).is_some_and(|source| source.is::<std::io::Error>())
        }
    };
    if away { unavailable().caused_by(error) } else { StoreError::internal(error) }
}

/// The pool gives no connection.
pub(super) fn no_connection(error: PoolError) -> StoreError {
    unavailable().caused_by(error)
}

/// The database cannot be used now.
pub(super) fn unavailable() -> StoreError {
    StoreError::unavailable(
        "the office cannot use its database now; try again, with an Idempotency-Key where sending twice would matter",
    )
}
