//! Idempotency keys: a verb that creates something does it once for each key.

use std::future::Future;

use amb_core::Timestamp;
use deadpool_postgres::Transaction;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::Trouble;
use crate::error::Result;
use crate::types::{Agent, Written};
use crate::{StoreError, outgoing, words};

/// Runs a verb in its transaction, unless the caller's request was answered before: then that answer is given, and nothing
/// is changed.
pub(super) async fn once<T: Serialize + DeserializeOwned>(
    tx: &Transaction<'_>,
    caller: &Agent,
    now: Timestamp,
    verb: impl Future<Output = Result<Written<T>, Trouble>>,
) -> Result<Written<T>, Trouble> {
    let Some(once) = &caller.once else { return verb.await };
    // Repeats at the same time take turns. Taken before every other lock, so that nobody waits for it who holds one.
    let turn = tx.prepare_cached("SELECT pg_advisory_xact_lock(hashtextextended($2, $1))").await?;
    tx.execute(&turn, &[&caller.key.0, &once.key]).await?;
    let select =
        tx.prepare_cached("SELECT draft_hash, answer FROM idempotency WHERE agent_id = $1 AND key = $2").await?;
    if let Some(row) = tx.query_opt(&select, &[&caller.key.0, &once.key]).await? {
        if row.try_get::<_, &[u8]>(0)? != once.draft_hash {
            return Err(words::key_reused().into());
        }
        let answer = serde_json::from_str(row.try_get(1)?).map_err(StoreError::internal)?;
        return Ok(Written::quiet(answer));
    }
    let written = verb.await?;
    let insert = tx
        .prepare_cached(
            "INSERT INTO idempotency (agent_id, key, draft_hash, answer, created_at) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT DO NOTHING",
        )
        .await?;
    let answer = outgoing::json(&written.answer)?;
    let hash = once.draft_hash.as_slice();
    match tx.execute(&insert, &[&caller.key.0, &once.key, &hash, &answer, &now]).await? {
        0 => Err(words::key_reused().into()),
        _ => Ok(written),
    }
}
