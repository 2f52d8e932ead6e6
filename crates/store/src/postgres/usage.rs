//! What each agent has stored, counted in the transaction that writes or removes it.

use amb_core::send::Storage;
use deadpool_postgres::{GenericClient, Transaction};

use super::engine::Reading;
use crate::engine::Failed;
use crate::error::Result;
use crate::quota::{Account, Stored};
use crate::verbs::stored_by;

/// The bytes of a message `m` that count, as they are stored.
macro_rules! stored_bytes {
    () => {
        "octet_length(m.content) + coalesce(octet_length(m.parts), 0) + coalesce(octet_length(m.metadata), 0)
         + coalesce(octet_length(m.callback), 0)"
    };
}
pub(super) use stored_bytes;

/// Refuses what would be more than this sender, or the office, may store. Not locked: of sends that run at the same time none sees
/// what the others add.
pub(super) async fn check(tx: &Transaction<'_>, account: &Account, sender: i64, more: Stored) -> Result<(), Failed> {
    let Storage { quotas, sender, office, more } =
        account.storage(stored_by(&mut Reading(tx), sender).await?, Stored::default(), more);
    Ok(quotas.check(sender, office, more)?)
}

/// Counts what this agent has added; the last lock of its transaction.
pub(super) async fn charge(tx: &Transaction<'_>, agent: i64, more: Stored) -> Result<(), Failed> {
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

/// What all agents have stored: reads the rows of all.
pub(super) async fn office<C: GenericClient>(client: &C) -> Result<Stored, Failed> {
    let sum = "SELECT coalesce(sum(messages), 0)::bigint, coalesce(sum(bytes), 0)::bigint FROM usage";
    let select = client.prepare_cached(sum).await?;
    let row = client.query_one(&select, &[]).await?;
    Ok(Stored { messages: row.try_get(0)?, bytes: row.try_get(1)? })
}
