//! Advancing the numbers of all logs, after a database was restored to an earlier state.

use crate::error::Result;
use crate::{DatabaseUrl, postgres, sqlite};

/// How far. Clients may have cursors from after that state; were those numbers given again, they would skip the mail under them.
pub(crate) const FORWARD: i64 = 1_000_000;

/// Advances the numbers of every log in this database by a million, so that no client with an older cursor skips new mail.
/// Returns the number of logs. With SQLite no server may have the file open.
///
/// Numbers in a log only have to grow, so this is always safe.
pub async fn advance_cursors(database: &DatabaseUrl) -> Result<u64> {
    match database {
        DatabaseUrl::Sqlite(path) => sqlite::advance_cursors(path).await,
        DatabaseUrl::Postgres(url) => postgres::advance_cursors(url).await,
    }
}
