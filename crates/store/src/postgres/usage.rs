//! What each agent has stored, counted in the transaction that writes or removes it.

use std::collections::HashMap;

use deadpool_postgres::{GenericClient, Transaction};

use super::error::Trouble;
use crate::error::Result;
use crate::quota::{Account, Stored};

/// The bytes of a message `m` that count, as they are stored.
macro_rules! stored_bytes {
    () => {
        "octet_length(m.content) + coalesce(octet_length(m.parts), 0) + coalesce(octet_length(m.metadata), 0)
         + coalesce(octet_length(m.callback), 0)"
    };
}
pub(super) use stored_bytes;

/// What these agents have stored. Not locked: of sends that run at the same time none sees what the others add.
pub(super) async fn stored<C: GenericClient>(client: &C, agents: &[i64]) -> Result<HashMap<i64, Stored>, Trouble> {
    let select = client.prepare_cached("SELECT agent_id, messages, bytes FROM usage WHERE agent_id = ANY($1)").await?;
    let rows = client.query(&select, &[&agents]).await?;
    Ok(rows.iter().map(|row| (row.get(0), Stored { messages: row.get(1), bytes: row.get(2) })).collect())
}

/// What this agent has stored.
pub(super) async fn stored_by<C: GenericClient>(client: &C, agent: i64) -> Result<Stored, Trouble> {
    Ok(stored(client, &[agent]).await?.remove(&agent).unwrap_or_default())
}

/// Refuses what would be more than this sender, or the office, may store.
pub(super) async fn check(tx: &Transaction<'_>, account: &Account, sender: i64, more: Stored) -> Result<(), Trouble> {
    Ok(account.check(stored_by(tx, sender).await?, Stored::default(), more)?)
}

/// Counts what this agent has added; the last lock of its transaction.
pub(super) async fn charge(tx: &Transaction<'_>, agent: i64, more: Stored) -> Result<(), Trouble> {
    let insert = tx
        .prepare_cached(
            "INSERT INTO usage AS u (agent_id, messages, bytes) VALUES ($1, $2, $3)
             ON CONFLICT (agent_id) DO UPDATE SET messages = u.messages + excluded.messages,
                                                  bytes = u.bytes + excluded.bytes",
        )
        .await?;
    tx.execute(&insert, &[&agent, &more.messages, &more.bytes]).await?;
    Ok(())
}

/// What all agents have stored: a look at the rows of all.
pub(super) async fn office<C: GenericClient>(client: &C) -> Result<Stored, Trouble> {
    let sum = "SELECT coalesce(sum(messages), 0)::bigint, coalesce(sum(bytes), 0)::bigint FROM usage";
    let select = client.prepare_cached(sum).await?;
    let row = client.query_one(&select, &[]).await?;
    Ok(Stored { messages: row.try_get(0)?, bytes: row.try_get(1)? })
}
