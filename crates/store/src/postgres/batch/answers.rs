//! What sends were answered under their idempotency keys.

use std::collections::HashMap;

use amb_core::Timestamp;
use amb_core::doc::Sent;
use deadpool_postgres::GenericClient;

use super::Outcome;
use crate::engine::Failed;
use crate::error::Result;
use crate::outgoing::json;
use crate::refusals;
use crate::types::Once;

/// What was answered under idempotency keys, and for what. Nothing where the answer was none to a send.
pub(super) type Answers = HashMap<(i64, String), (Vec<u8>, Option<Sent>)>;

/// The answer to a send under a key that was used before.
pub(in crate::postgres) fn repeat(once: &Once, hash: &[u8], sent: Option<&Sent>) -> Result<Outcome> {
    match sent {
        Some(sent) if hash == once.draft_hash => Ok(Outcome::Repeat(sent.clone())),
        _ => Err(refusals::key_reused()),
    }
}

pub(super) async fn answers<C: GenericClient>(client: &C, callers: &[i64], keys: &[&str]) -> Result<Answers, Failed> {
    if keys.is_empty() {
        return Ok(Answers::new());
    }
    let select = client
        .prepare_cached(
            "SELECT i.agent_id, i.key, i.draft_hash, i.answer
             FROM unnest($1::bigint[], $2::text[]) AS w (agent_id, key)
             JOIN idempotency i ON i.agent_id = w.agent_id AND i.key = w.key",
        )
        .await?;
    let rows = client.query(&select, &[&callers, &keys]).await?;
    rows.iter().map(|row| Ok(((row.get(0), row.get(1)), (row.get(2), serde_json::from_str(row.get(3)).ok())))).collect()
}

/// What a send with this key was answered before, and the draft it was for.
pub(in crate::postgres) async fn answer_before<C: GenericClient>(
    client: &C,
    caller: i64,
    key: &str,
) -> Result<Option<(Vec<u8>, Option<Sent>)>, Failed> {
    Ok(answers(client, &[caller], &[key]).await?.into_values().next())
}

/// Remembers what a send was answered.
pub(in crate::postgres) async fn remember<C: GenericClient>(
    client: &C,
    caller: i64,
    once: &Once,
    sent: &Sent,
    at: Timestamp,
) -> Result<(), Failed> {
    let insert = client
        .prepare_cached(
            "INSERT INTO idempotency (agent_id, key, draft_hash, answer, created_at) VALUES ($1, $2, $3, $4, $5)",
        )
        .await?;
    client.execute(&insert, &[&caller, &once.key, &once.draft_hash.as_slice(), &json(sent)?, &at]).await?;
    Ok(())
}
