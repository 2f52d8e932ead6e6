//! Putting the numbers of all logs forward, after a database was put back to an earlier state.

use crate::error::Result;
use crate::{DatabaseUrl, postgres, sqlite};

/// How far. Clients may know cursors from after that state; were those numbers given again, mail under them would be taken
/// for known.
pub(crate) const FORWARD: i64 = 1_000_000;

/// Puts the numbers of every log in this database a million forward, so that no client which remembers a cursor from before
/// takes new mail for known. Returns the number of logs. With SQLite no server may have the file open.
///
/// Numbers in a log only have to grow, so this never does harm.
pub async fn advance_cursors(database: &DatabaseUrl) -> Result<u64> {
    match database {
        DatabaseUrl::Sqlite(path) => sqlite::advance_cursors(path).await,
        DatabaseUrl::Postgres(url) => postgres::advance_cursors(url).await,
    }
}
