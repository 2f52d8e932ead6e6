//! Detects a database that is in an earlier state than before: a restored dump, a recovered server, or a promoted
//! standby that lacks the last transactions.
//!
//! Clients remember cursors. Such a database would assign the numbers after its last entry a second time, and clients
//! with cursors from before would skip the new mail under them. So all logs are advanced by a million.

use tokio_postgres::{Client, Error};

use crate::database::CURSOR_ADVANCE;
use crate::error::Result;

/// Identifies the state of this database: the timeline of its server, which changes with a recovery or a promotion, and
/// the OID of a table, which changes when a dump is restored. NULL on a standby.
const LINEAGE: &str = "SELECT CASE WHEN pg_is_in_recovery() THEN NULL
    ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) || ':' || to_regclass('mailboxes')::oid::text END";

/// Identifies the server: dumps restored into new servers may give a table the same OID each time. Not every role may
/// read it.
const SERVER: &str = "SELECT system_identifier::text FROM pg_control_system()";

const ADVANCE: &str = "
WITH locked AS MATERIALIZED (SELECT agent_id FROM mailboxes ORDER BY agent_id FOR NO KEY UPDATE)
UPDATE mailboxes m SET head = m.head + $1 FROM locked l WHERE l.agent_id = m.agent_id";

/// Whether a server accepts writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerRole {
    Primary,
    /// A standby, or in recovery. It has to be checked again after its promotion.
    Standby,
}

/// Advances all logs where the database is in another state than at the last check.
pub(super) async fn check(client: &mut Client) -> Result<ServerRole, Error> {
    let lineage: Option<String> = match client.query_one(LINEAGE, &[]).await {
        Ok(row) => row.get(0),
        // A service that speaks the PostgreSQL protocol but has no timelines.
        Err(error) if error.as_db_error().is_some() => {
            tracing::debug!(%error, "cannot tell whether this database was restored");
            return Ok(ServerRole::Primary);
        }
        Err(error) => return Err(error),
    };
    let Some(lineage) = lineage else { return Ok(ServerRole::Standby) };
    let server: Option<String> = match client.query_one(SERVER, &[]).await {
        Ok(row) => row.get(0),
        Err(error) if error.as_db_error().is_some() => None,
        Err(error) => return Err(error),
    };
    let lineage = server.map_or(lineage.clone(), |server| format!("{lineage}:{server}"));
    let known: Option<String> = client.query_one("SELECT lineage FROM office WHERE one", &[]).await?.get(0);
    if known.as_ref().is_some_and(|known| *known == lineage || adds_server(known, &lineage)) {
        return Ok(ServerRole::Primary);
    }
    let tx = client.transaction().await?;
    // Of the processes that detect it at the same time, one advances the logs.
    let noted = tx
        .query_opt(
            "UPDATE office o SET lineage = $1 FROM (SELECT lineage FROM office WHERE one FOR NO KEY UPDATE) before
             WHERE o.one AND o.lineage IS DISTINCT FROM $1 RETURNING before.lineage",
            &[&lineage],
        )
        .await?;
    let before: Option<String> = noted.and_then(|row| row.get(0));
    if let Some(before) = before.filter(|before| !adds_server(&lineage, before)) {
        let logs = tx.execute(ADVANCE, &[&CURSOR_ADVANCE]).await?;
        tracing::warn!(
            before,
            now = lineage,
            logs,
            "this database was restored, recovered or promoted; all logs were advanced by a million, so that clients with \
             older cursors skip no new mail"
        );
    }
    tx.commit().await?;
    Ok(ServerRole::Primary)
}

/// Returns whether the two are the same but for the server, which only the first has: the second was stored by an older
/// version, or by a role that may not read it.
fn adds_server(one: &str, other: &str) -> bool {
    one.strip_prefix(other).is_some_and(|server| server.starts_with(':')) && other.split(':').count() == 2
}

/// Advances all logs.
pub(crate) async fn advance_cursors(url: &str) -> Result<u64> {
    let (client, driver) = super::open::connect(url, "amb admin").await?;
    let done = client.execute(ADVANCE, &[&CURSOR_ADVANCE]).await.map_err(super::error::failed);
    drop(client);
    // The connection ends when its client is dropped.
    let _ = driver.await;
    done
}

#[cfg(test)]
mod tests {
    use super::adds_server;

    #[test]
    fn a_lineage_without_its_server_is_the_same_state() {
        assert!(adds_server("00000001:16400:77", "00000001:16400"));
        for other in ["00000001:16400:77", "00000001:1640", "00000002:16400", "00000001:16400:7", "00000001"] {
            assert!(!adds_server("00000001:16400:77", other), "{other}");
        }
    }
}
