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

const ADVANCE: &str = "
WITH locked AS MATERIALIZED (SELECT agent_id FROM mailboxes ORDER BY agent_id FOR NO KEY UPDATE)
UPDATE mailboxes m SET head = m.head + $1 FROM locked l WHERE l.agent_id = m.agent_id";

/// Puts all logs forward where this is not the database it was when that was last looked at.
pub(super) async fn check(client: &mut Client) -> Result<(), Error> {
    let lineage: Option<String> = match client.query_one(LINEAGE, &[]).await {
        Ok(row) => row.get(0),
        // A service that speaks PostgreSQL and has no timelines.
        Err(error) if error.as_db_error().is_some() => {
            tracing::debug!(%error, "cannot tell whether this database was restored");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let known: Option<String> = client.query_one("SELECT lineage FROM office WHERE one", &[]).await?.get(0);
    if lineage.is_none() || lineage == known {
        return Ok(());
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
    if let Some(before) = before {
        let logs = tx.execute(ADVANCE, &[&FORWARD]).await?;
        tracing::warn!(
            before,
            now = lineage,
            logs,
            "this database was restored, recovered or took over from another; the numbers in every log go on a million \
             higher, so that clients miss nothing that comes"
        );
    }
    tx.commit().await
}

/// Puts the numbers of all logs forward.
pub(crate) async fn advance_cursors(url: &str) -> Result<u64> {
    let (client, driver) = super::open::connect(url, "amb admin").await?;
    let done = client.execute(ADVANCE, &[&FORWARD]).await.map_err(super::error::failed);
    drop(client);
    // The connection ends when its client is gone.
    let _ = driver.await;
    done
}
