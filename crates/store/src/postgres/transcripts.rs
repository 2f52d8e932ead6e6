//! Transcripts over the network: lines by many agents under one key.

use amb_core::transcript::{Line, TranscriptKey};
use amb_core::{AgentName, Timestamp};
use deadpool_postgres::{GenericClient, Transaction};

use super::error::Trouble;
use super::page::rows_of_page;
use crate::StoreError;
use crate::error::Result;
use crate::letter::json;
use crate::query::{Access, Appended, NumberedLine};
use crate::types::Agent;
use crate::words;

/// A transcript, whether the agent owns it, and what it may do with it.
async fn find<C: GenericClient>(
    client: &C,
    key: &TranscriptKey,
    agent: i64,
) -> Result<Option<(i64, bool, Option<Access>)>, Trouble> {
    let select = client
        .prepare_cached(
            "SELECT t.id, t.owner_id, x.may_write FROM transcripts t
             LEFT JOIN transcript_access x ON x.transcript_id = t.id AND x.agent_id = $2 WHERE t.key = $1",
        )
        .await?;
    let row = client.query_opt(&select, &[&key.as_str(), &agent]).await?;
    Ok(row.map(|row| {
        let owned = row.get::<_, i64>(1) == agent;
        let access = match row.get::<_, Option<bool>>(2) {
            _ if owned => Some(Access::Write),
            Some(true) => Some(Access::Write),
            Some(false) => Some(Access::Read),
            None => None,
        };
        (row.get(0), owned, access)
    }))
}

pub(super) async fn append(
    tx: &Transaction<'_>,
    caller: &Agent,
    key: &TranscriptKey,
    line: &Line,
    now: Timestamp,
) -> Result<Appended, Trouble> {
    let me = caller.key.0;
    if find(tx, key, me).await?.is_none() {
        let insert = tx
            .prepare_cached(
                "INSERT INTO transcripts (key, owner_id, created_at) VALUES ($1, $2, $3) ON CONFLICT (key) DO NOTHING",
            )
            .await?;
        tx.execute(&insert, &[&key.as_str(), &me, &now]).await?;
    }
    let id = match find(tx, key, me).await? {
        Some((id, _, Some(Access::Write))) => id,
        _ => return Err(words::not_your_transcript(key).into()),
    };
    // The transcript's own row is its lock: places are given and duplicates found under it.
    let lock = tx.prepare_cached("SELECT last_seq FROM transcripts WHERE id = $1 FOR NO KEY UPDATE").await?;
    let last: i64 = tx.query_one(&lock, &[&id]).await?.try_get(0)?;
    if let Some(message_id) = &line.message_id {
        let known =
            tx.prepare_cached("SELECT seq FROM transcript_lines WHERE transcript_id = $1 AND message_id = $2").await?;
        if let Some(row) = tx.query_opt(&known, &[&id, message_id]).await? {
            let number = u64::try_from(row.try_get::<_, i64>(0)?).unwrap_or(0);
            return Ok(Appended { number, duplicate: true });
        }
    }
    let line = Line { ts: line.ts.or_else(|| Some(now.as_millisecond() as f64)), ..line.clone() };
    let next = last + 1;
    let insert = tx
        .prepare_cached(
            "INSERT INTO transcript_lines (transcript_id, seq, author_id, message_id, line, created_at)
             VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .await?;
    tx.execute(&insert, &[&id, &next, &me, &line.message_id, &json(&line)?, &now]).await?;
    let update = tx.prepare_cached("UPDATE transcripts SET last_seq = $2 WHERE id = $1").await?;
    tx.execute(&update, &[&id, &next]).await?;
    Ok(Appended { number: u64::try_from(next).unwrap_or(0), duplicate: false })
}

pub(super) async fn share(
    tx: &Transaction<'_>,
    caller: &Agent,
    key: &TranscriptKey,
    with: &AgentName,
    access: Option<Access>,
) -> Result<(), Trouble> {
    let Some((id, owned, _)) = find(tx, key, caller.key.0).await? else { return Err(words::no_transcript(key).into()) };
    if !owned {
        return Err(words::not_your_transcript(key).into());
    }
    let select = tx.prepare_cached("SELECT id FROM agents WHERE name = $1 AND deleted_at IS NULL").await?;
    let Some(peer) = tx.query_opt(&select, &[&with.as_str()]).await? else { return Err(words::no_agent(with).into()) };
    let peer: i64 = peer.try_get(0)?;
    match access {
        Some(access) => {
            let insert = tx
                .prepare_cached(
                    "INSERT INTO transcript_access (transcript_id, agent_id, may_write) VALUES ($1, $2, $3)
                     ON CONFLICT (transcript_id, agent_id) DO UPDATE SET may_write = excluded.may_write",
                )
                .await?;
            tx.execute(&insert, &[&id, &peer, &(access == Access::Write)]).await?;
        }
        None => {
            let delete =
                tx.prepare_cached("DELETE FROM transcript_access WHERE transcript_id = $1 AND agent_id = $2").await?;
            tx.execute(&delete, &[&id, &peer]).await?;
        }
    }
    Ok(())
}

async fn lines<C: GenericClient>(
    client: &C,
    caller: &Agent,
    key: &TranscriptKey,
    sql: &str,
    after: i64,
    limit: usize,
) -> Result<Vec<NumberedLine>, Trouble> {
    let Some((id, _, Some(_))) = find(client, key, caller.key.0).await? else {
        return Err(words::no_transcript(key).into());
    };
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let select = client.prepare_cached(sql).await?;
    let (rows, _) = rows_of_page(client, &select, &[&id, &after, &limit]).await?;
    rows.iter()
        .map(|row| {
            let number = u64::try_from(row.try_get::<_, i64>(0)?).unwrap_or(0);
            let line = serde_json::from_str(row.try_get(1)?).map_err(StoreError::internal)?;
            Ok(NumberedLine { number, line })
        })
        .collect()
}

/// The last lines, oldest first.
pub(super) async fn recent<C: GenericClient>(
    client: &C,
    caller: &Agent,
    key: &TranscriptKey,
    limit: usize,
) -> Result<Vec<NumberedLine>, Trouble> {
    let sql = "SELECT seq, line FROM transcript_lines WHERE transcript_id = $1 AND seq > $2 ORDER BY seq DESC LIMIT $3";
    let mut found = lines(client, caller, key, sql, 0, limit).await?;
    found.reverse();
    Ok(found)
}

/// The lines after a place, oldest first.
pub(super) async fn after<C: GenericClient>(
    client: &C,
    caller: &Agent,
    key: &TranscriptKey,
    after: u64,
    limit: usize,
) -> Result<Vec<NumberedLine>, Trouble> {
    let sql = "SELECT seq, line FROM transcript_lines WHERE transcript_id = $1 AND seq > $2 ORDER BY seq LIMIT $3";
    lines(client, caller, key, sql, i64::try_from(after).unwrap_or(i64::MAX), limit).await
}
