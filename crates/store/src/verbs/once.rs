//! Idempotency keys: a verb that creates something does it once for each key.

use amb_core::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::{Exclusive, Failed, Query, Tried, Tx, values};
use crate::types::Agent;
use crate::{StoreError, outgoing, refusals};

/// Runs a verb in its transaction, unless the caller's request was answered before: then that answer is given, and nothing
/// is changed.
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

/// What the caller's request was answered before. Repeats at the same time take turns.
pub(super) async fn answered_before<T: DeserializeOwned>(tx: &mut dyn Tx, caller: &Agent) -> Tried<Option<T>> {
    let Some(once) = &caller.once else { return Ok(None) };
    tx.lock_exclusive(Exclusive::Key(caller.key.0, &once.key)).await?;
    let sql = "SELECT draft_hash, answer FROM idempotency WHERE agent_id = $1 AND key = $2";
    match tx.find::<(Vec<u8>, String)>(sql, values![caller.key.0, &once.key]).await? {
        Some((hash, _)) if hash != once.draft_hash => Err(refusals::key_reused().into()),
        Some((_, answer)) => Ok(Some(serde_json::from_str(&answer).map_err(StoreError::internal)?)),
        None => Ok(None),
    }
}

/// Keeps the answer under the caller's key: the last that its transaction writes.
pub(super) async fn remember(tx: &mut dyn Tx, caller: &Agent, answer: &impl Serialize, now: Timestamp) -> Tried<()> {
    let Some(once) = &caller.once else { return Ok(()) };
    tx.flush().await?;
    let (answer, hash) = (outgoing::json(answer)?, once.draft_hash.as_slice());
    let sql = "INSERT INTO idempotency (agent_id, key, draft_hash, answer, created_at) VALUES ($1, $2, $3, $4, $5)";
    match tx.execute(sql, values![caller.key.0, &once.key, hash, &answer, now]).await {
        // Used for a send meanwhile.
        Err(Failed::Taken(_)) => Err(refusals::key_reused().into()),
        inserted => inserted.map(drop),
    }
}
