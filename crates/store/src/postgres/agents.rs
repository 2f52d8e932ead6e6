//! Agents and their keys.

use amb_core::{AgentName, Timestamp};
use deadpool_postgres::GenericClient;
use tokio_postgres::Row;

use super::error::failed;
use crate::engine::Failed;
use crate::error::Result;
use crate::row;
use crate::types::{Agent, AgentKey, KeyHash};

/// Whose key this is, and until when, where that is limited.
pub(super) async fn by_key<C: GenericClient>(
    client: &C,
    hash: KeyHash,
    now: Timestamp,
) -> Result<Option<(Agent, Option<Timestamp>)>> {
    let select = client
        .prepare_cached(
            "SELECT id, public_id, name, NULL::timestamptz FROM agents WHERE api_key_hash = $1
             UNION ALL
             SELECT id, public_id, name, previous_key_until FROM agents
             WHERE previous_key_hash = $1 AND previous_key_until > $2",
        )
        .await
        .map_err(failed)?;
    let row = client.query_opt(&select, &[&hash.to_hex(), &now]).await.map_err(failed)?;
    row.map(|row| Ok((agent(&row)?, row.try_get(3).map_err(failed)?))).transpose()
}

/// The row of the agent that this name means, even if it was deleted: its mail is still there.
pub(super) async fn row_of<C: GenericClient>(client: &C, name: &AgentName) -> Result<Option<i64>, Failed> {
    let select = client.prepare_cached("SELECT id, name FROM agents WHERE lower(name) = $1").await?;
    let rows = client.query(&select, &[&name.folded()]).await?;
    let found: Vec<(i64, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    Ok(name.meant(found, |(_, name)| name).map(|(id, _)| id))
}

fn agent(row: &Row) -> Result<Agent> {
    Ok(Agent {
        key: AgentKey(row.try_get(0).map_err(failed)?),
        id: row.try_get(1).map_err(failed)?,
        name: row::name(row.try_get(2).map_err(failed)?)?,
        once: None,
    })
}
