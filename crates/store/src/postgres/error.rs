//! PostgreSQL's failures in the office's words.

use deadpool_postgres::PoolError;
use tokio_postgres::error::SqlState;

use crate::StoreError;

/// Why a transaction did not come to its end: the database's word, or the verb's own.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The database failed, or refused a statement.
    Db(tokio_postgres::Error),
    /// The verb decided so.
    Store(StoreError),
    /// What was read to know which locks to take had changed by the time they were taken.
    Changed,
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        Trouble::Db(error)
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Trouble::Store(error)
    }
}

impl From<Trouble> for StoreError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Db(error) => failed(error),
            Trouble::Store(error) => error,
            Trouble::Changed => unavailable(),
        }
    }
}

impl Trouble {
    /// Whether the same again may succeed: two transactions were in each other's way.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Trouble::Db(error) => {
                matches!(error.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED))
            }
            Trouble::Store(_) => false,
            Trouble::Changed => true,
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
        // No word from the server at all: the connection is gone.
        None => {
            error.is_closed() || std::error::Error::source(&error).is_some_and(|source| source.is::<std::io::Error>())
        }
    };
    if away { unavailable().caused_by(error) } else { StoreError::internal(error) }
}

/// Whether a unique constraint refused the row.
pub(super) fn is_taken(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::UNIQUE_VIOLATION)
}

/// No connection is to be had.
pub(super) fn no_connection(error: PoolError) -> StoreError {
    unavailable().caused_by(error)
}

/// The database cannot be used now.
pub(super) fn unavailable() -> StoreError {
    StoreError::unavailable(
        "the office cannot use its database now; try again, with an Idempotency-Key where sending twice would matter",
    )
}
