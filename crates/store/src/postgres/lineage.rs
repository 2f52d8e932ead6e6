//! Noticing a database that was put back to an earlier state: a dump that was restored, a server that was recovered, or one
//! that took over from another and lacked its last transactions.
//!
//! Clients remember cursors. In such a database the numbers after its last entry would be given a second time, and a client
//! that knows them from the first time would take new mail for known. So the logs go on a million higher.

use tokio_postgres::{Client, Error};

use crate::advance::FORWARD;
use crate::error::Result;

/// Where this database comes from: the timeline of its server, which is another after a recovery or a promotion; and the
/// number of a table, which is another after a dump was restored. NULL on a server that only follows another.
const LINEAGE: &str = "SELECT CASE WHEN pg_is_in_recovery() THEN NULL
    ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) || ':' || to_regclass('mailboxes')::oid::text END";

/// Which server, from the day it was made: dumps restored into new servers may give a table the same number each time. Not
/// every role may ask for it.
const SERVER: &str = "SELECT system_identifier::text FROM pg_control_system()";

const ADVANCE: &str = "
WITH locked AS MATERIALIZED (SELECT agent_id FROM mailboxes ORDER BY agent_id FOR NO KEY UPDATE)
UPDATE mailboxes m SET head = m.head + $1 FROM locked l WHERE l.agent_id = m.agent_id";

/// Whether a server can be written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    Writes,
    /// It is a standby, or recovers; when that has ended it has to be checked again.
    Nothing,
}

/// Advances the numbers of all logs where this is not the database that it was at the last check.
pub(super) async fn check(client: &mut Client) -> Result<Takes, Error> {
    let lineage: Option<String> = match client.query_one(LINEAGE, &[]).await {
        Ok(row) => row.get(0),
        // A service with PostgreSQL's protocol and without timelines.
        Err(error) if error.as_db_error().is_some() => {
            tracing::debug!(%error, "cannot tell whether this database was restored");
            return Ok(Takes::Writes);
        }
        Err(error) => return Err(error),
    };
    let Some(lineage) = lineage else { return Ok(Takes::Nothing) };
    let server: Option<String> = match client.query_one(SERVER, &[]).await {
        Ok(row) => row.get(0),
        Err(error) if error.as_db_error().is_some() => None,
        Err(error) => return Err(error),
    };
    let lineage = server.map_or(lineage.clone(), |server| format!("{lineage}:{server}"));
    let known: Option<String> = client.query_one("SELECT lineage FROM office WHERE one", &[]).await?.get(0);
    if known.as_ref().is_some_and(|known| *known == lineage || says_more(known, &lineage)) {
        return Ok(Takes::Writes);
    }
    let tx = client.transaction().await?;
    // Of any number of processes that notice it at once, one does it.
    let noted = tx
        .query_opt(
            "UPDATE office o SET lineage = $1 FROM (SELECT lineage FROM office WHERE one FOR NO KEY UPDATE) before
             WHERE o.one AND o.lineage IS DISTINCT FROM $1 RETURNING before.lineage",
            &[&lineage],
        )
        .await?;
    let before: Option<String> = noted.and_then(|row| row.get(0));
    if let Some(before) = before.filter(|before| !says_more(&lineage, before)) {
        let logs = tx.execute(ADVANCE, &[&FORWARD]).await?;
        tracing::warn!(
            before,
            now = lineage,
            logs,
            "this database was restored, recovered or took over from another; the numbers in every log go on a million \
             higher, so that clients miss nothing that comes"
        );
    }
    tx.commit().await?;
    Ok(Takes::Writes)
}

/// Whether these are the same place, and the first tells the server too, which the second does not: it was noted before
/// that was asked for, or by a role that may not know.
fn says_more(one: &str, other: &str) -> bool {
    one.strip_prefix(other).is_some_and(|server| server.starts_with(':')) && other.split(':').count() == 2
}

/// Advances the numbers of all logs.
pub(crate) async fn advance_cursors(url: &str) -> Result<u64> {
    let (client, driver) = super::open::connect(url, "amb admin").await?;
    let done = client.execute(ADVANCE, &[&FORWARD]).await.map_err(super::error::failed);
    drop(client);
    // The connection ends when its client is gone.
    let _ = driver.await;
    done
}

#[cfg(test)]
mod tests {
    use super::says_more;

    #[test]
    fn a_lineage_without_its_server_is_the_same_place() {
        assert!(says_more("00000001:16400:77", "00000001:16400"));
        for other in ["00000001:16400:77", "00000001:1640", "00000002:16400", "00000001:16400:7", "00000001"] {
            assert!(!says_more("00000001:16400:77", other), "{other}");
        }
    }
}
