//! Removing what nobody will ask for again.

use amb_core::Timestamp;
use deadpool_postgres::Transaction;

use crate::engine::Failed;
use crate::error::Result;

/// Rows in one transaction, so that it is a short one.
const SOME: i64 = 500;

pub(super) async fn prune(tx: &Transaction<'_>, before: Timestamp) -> Result<u64, Failed> {
    let entries = tx
        .prepare_cached(
            "DELETE FROM entries e USING
                 (SELECT agent_id, number FROM entries WHERE session_id IS NULL AND at < $1 ORDER BY at LIMIT $2
                  FOR UPDATE SKIP LOCKED) old
             WHERE e.agent_id = old.agent_id AND e.number = old.number",
        )
        .await?;
    let answers = tx
        .prepare_cached(
            "DELETE FROM idempotency i USING
                 (SELECT agent_id, key FROM idempotency WHERE created_at < $1 ORDER BY created_at LIMIT $2
                  FOR UPDATE SKIP LOCKED) old
             WHERE i.agent_id = old.agent_id AND i.key = old.key",
        )
        .await?;
    Ok(tx.execute(&entries, &[&before, &SOME]).await? + tx.execute(&answers, &[&before, &SOME]).await?)
}
