//! Errors of PostgreSQL as errors of the store.

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

/// Maps an error of PostgreSQL: `unavailable` where a retry may help, else `internal`.
pub(super) fn failed(error: tokio_postgres::Error) -> StoreError {
    let unreachable = match error.code() {
        // 08: connection, 53: out of disk, memory or connections, 57: shutting down or cancelled, 58: I/O of the
        // server. And a server that accepts no writes during a failover.
        Some(state) => {
            *state == SqlState::READ_ONLY_SQL_TRANSACTION
                || ["08", "53", "57", "58"].contains(&state.code().get(..2).unwrap_or_default())
        }
        // Not an error of the server: the connection is lost.
        None => {
            error.is_closed() || std::error::Error::source(&error).is_some_and(|source| source.is::<std::io::Error>())
        }
    };
    if unreachable { unavailable().caused_by(error) } else { StoreError::internal(error) }
}

/// The error where the pool has no connection.
pub(super) fn no_connection(error: PoolError) -> StoreError {
    unavailable().caused_by(error)
}

/// The error where the database cannot be used now.
pub(super) fn unavailable() -> StoreError {
    StoreError::unavailable(
        "the office cannot use its database now; try again, with an Idempotency-Key where sending twice would matter",
    )
}
