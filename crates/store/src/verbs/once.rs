//! Idempotency keys: a verb that creates something creates it once for each key.

use amb_core::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::{Db, Exclusive, Failed, Query, Tried, Tx, values};
use crate::types::{Agent, Once};
use crate::{StoreError, outgoing, refusals};

/// Runs a verb in its transaction; where the caller's request was answered before, returns that answer and changes
/// nothing.
macro_rules! once {
    ($tx:ident, $caller:expr, $now:expr, $verb:expr) => {
        futures_util::FutureExt::boxed(async move {
            if let Some(answer) = $crate::verbs::once::answered_before($tx, $caller).await? {
                return Ok(answer);
            }
            let answer = $verb.await?;
            $crate::verbs::once::remember($tx, $caller, &answer, $now).await?;
            Ok(answer)
        })
    };
}
pub(super) use once;

/// Returns the earlier answer to the caller's request. Concurrent repeats are serialized.
pub(super) async fn answered_before<T: DeserializeOwned>(tx: &mut dyn Tx, caller: &Agent) -> Tried<Option<T>> {
    let Some(once) = &caller.once else { return Ok(None) };
    tx.lock_exclusive(Exclusive::Key(caller.key.0, &once.key)).await?;
    answer_under(tx, caller.key.0, once).await
}

/// Returns the answer stored under this key.
pub(crate) async fn answer_under<T: DeserializeOwned>(db: &mut dyn Db, agent: i64, once: &Once) -> Tried<Option<T>> {
    let sql = "SELECT draft_hash, answer FROM idempotency WHERE agent_id = $1 AND key = $2";
    match db.find::<(Vec<u8>, String)>(sql, values![agent, &once.key]).await? {
        Some((hash, _)) if hash != once.draft_hash => Err(refusals::key_reused().into()),
        Some((_, answer)) => Ok(Some(serde_json::from_str(&answer).map_err(StoreError::internal)?)),
        None => Ok(None),
    }
}

/// Stores the answer under the caller's key, as the last write of its transaction.
pub(super) async fn remember(tx: &mut dyn Tx, caller: &Agent, answer: &impl Serialize, now: Timestamp) -> Tried<()> {
    let Some(once) = &caller.once else { return Ok(()) };
    let answer = outgoing::json(answer)?;
    tx.flush().await?;
    keep_answer(tx, caller.key.0, once, &answer, now).await
}

/// Stores an answer, as JSON, under a key.
pub(crate) async fn keep_answer(tx: &mut dyn Tx, agent: i64, once: &Once, answer: &str, now: Timestamp) -> Tried<()> {
    let sql = "INSERT INTO idempotency (agent_id, key, draft_hash, answer, created_at) VALUES ($1, $2, $3, $4, $5)";
    match tx.execute(sql, values![agent, &once.key, once.draft_hash.as_slice(), answer, now]).await {
        // A concurrent send used the key.
        Err(Failed::Taken(_)) => Err(refusals::key_reused().into()),
        inserted => inserted.map(drop),
    }
}
