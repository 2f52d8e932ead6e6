//! Removing what nobody will ask for again.

use amb_core::Timestamp;
use async_trait::async_trait;
use futures_util::FutureExt;

use crate::engine::{Changes, Engine, Tried, Tx, values, write};
use crate::error::Result;
use crate::types::to_micros;

/// Rows of each kind in one transaction, so that sends do not wait for a long one.
const SOME: i64 = 500;

/// Removing old rows.
#[async_trait]
pub trait Pruning: Engine {
    /// Removes, some at a time, what nobody will ask for again: events other than mail, and answers to idempotent requests,
    /// from before this moment. Returns how many rows went; 0 when done.
    async fn prune(&self, before: Timestamp) -> Result<u64> {
        let pruned = write(self, Changes::Logs, to_micros(before), |tx, before| prune(tx, *before).boxed());
        Ok(pruned.await?.answer)
    }
}

impl<E: Engine> Pruning for E {}

async fn prune(tx: &mut dyn Tx, before: Timestamp) -> Tried<u64> {
    let mut events = 0;
    for sql in tx.dialect().prune_events {
        events = tx.execute(sql, values![before, SOME]).await?;
    }
    let sql = format!(
        "DELETE FROM idempotency WHERE (agent_id, key) IN
         (SELECT agent_id, key FROM idempotency WHERE created_at < $1 ORDER BY created_at LIMIT $2{})",
        tx.dialect().skip_locked
    );
    Ok(events + tx.execute(&sql, values![before, SOME]).await?)
}
