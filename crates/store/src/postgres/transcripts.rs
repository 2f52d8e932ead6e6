//! Transcripts over the network: lines by many agents under one key.

use amb_core::doc::{Access, Appended, NumberedLine};
use amb_core::transcript::{Line, TranscriptKey};
use amb_core::{AgentName, Timestamp};
use deadpool_postgres::{GenericClient, Transaction};

use super::agents;
use super::consent;
use super::error::Trouble;
use super::page::rows_of_page;
use super::usage;
use super::write::Heads;
use crate::error::Result;
use crate::outgoing::json;
use crate::query::numbered_line;
use crate::quota::{Account, Stored};
use crate::types::Agent;
use crate::words;

/// The transcript of this owner and key, and what the agent may do with it.
async fn find<C: GenericClient>(
    client: &C,
    owner: i64,
    key: &TranscriptKey,
    agent: i64,
) -> Result<Option<(i64, Option<Access>)>, Trouble> {
    let select = client
        .prepare_cached(
            "SELECT t.id, x.may_write FROM transcripts t
             LEFT JOIN transcript_access x ON x.transcript_id = t.id AND x.agent_id = $3
             WHERE t.owner_id = $1 AND t.key = $2",
        )
        .await?;
    let row = client.query_opt(&select, &[&owner, &key.as_str(), &agent]).await?;
    Ok(row.map(|row| {
        let access = match row.get::<_, Option<bool>>(1) {
            _ if owner == agent => Some(Access::Write),
            Some(true) => Some(Access::Write),
            Some(false) => Some(Access::Read),
            None => None,
        };
        (row.get(0), access)
    }))
}

/// The row of the owner that is meant.
async fn owner_row<C: GenericClient>(
    client: &C,
    caller: &Agent,
    owner: Option<&AgentName>,
) -> Result<Option<i64>, Trouble> {
    match owner {
        None => Ok(Some(caller.key.0)),
        Some(name) => Ok(agents::by_name(client, name).await?.map(|owner| owner.key.0)),
    }
}

pub(super) async fn append(
    tx: &Transaction<'_>,
    account: &Account,
    caller: &Agent,
    owner: Option<&AgentName>,
    key: &TranscriptKey,
    line: &Line,
    now: Timestamp,
) -> Result<Appended, Trouble> {
    let me = caller.key.0;
    let of = owner_row(tx, caller, owner).await?.ok_or_else(|| words::no_transcript(owner, key))?;
    if of != me {
        // Whoever ends the connection, or takes the access back, holds the caller's lock: this line is written before that is
        // answered, or finds that it may not be.
        Heads::lock(tx, &[me]).await?;
    }
    if of == me && find(tx, of, key, me).await?.is_none() {
        let insert = tx
            .prepare_cached(
                "INSERT INTO transcripts (key, owner_id, created_at) VALUES ($1, $2, $3)
                 ON CONFLICT (owner_id, key) DO NOTHING",
            )
            .await?;
        tx.execute(&insert, &[&key.as_str(), &me, &now]).await?;
    }
    let id = match find(tx, of, key, me).await? {
        Some((id, Some(Access::Write))) => id,
        Some((_, Some(Access::Read))) => return Err(words::read_only_transcript(key).into()),
        _ => return Err(words::no_transcript(owner, key).into()),
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
    // The office knows who writes; what the line says of it is not kept.
    let ts = line.ts.or_else(|| Some(now.as_millisecond() as f64));
    let line = Line { ts, author: None, ..line.clone() };
    let (next, text) = (last + 1, json(&line)?);
    let stored = Stored::message(1, text.len());
    usage::check(tx, account, me, stored).await?;
    let insert = tx
        .prepare_cached(
            "INSERT INTO transcript_lines (transcript_id, seq, author_id, message_id, line, created_at)
             VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .await?;
    tx.execute(&insert, &[&id, &next, &me, &line.message_id, &text, &now]).await?;
    let update = tx.prepare_cached("UPDATE transcripts SET last_seq = $2 WHERE id = $1").await?;
    tx.execute(&update, &[&id, &next]).await?;
    usage::charge(tx, me, stored).await?;
    account.add_to_office(stored);
    Ok(Appended { number: u64::try_from(next).unwrap_or(0), duplicate: false })
}

pub(super) async fn share(
    tx: &Transaction<'_>,
    caller: &Agent,
    key: &TranscriptKey,
    with: &AgentName,
    access: Option<Access>,
) -> Result<(), Trouble> {
    let me = caller.key.0;
    let Some((id, _)) = find(tx, me, key, me).await? else { return Err(words::no_transcript(None, key).into()) };
    let Some(peer) = agents::by_name(tx, with).await? else { return Err(words::no_agent(with).into()) };
    let peer = peer.key.0;
    // A revocation takes both locks too: it comes before, and is found, or after, and takes this back.
    Heads::lock(tx, &[me, peer]).await?;
    if access.is_some() {
        consent::between(tx, me, peer).await?.check(with)?;
    }
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

/// Takes back what an agent and those it may not write to any more shared with each other.
pub(super) async fn unshare_without_consent(tx: &Transaction<'_>, agent: i64) -> Result<(), Trouble> {
    let select = tx
        .prepare_cached(
            "SELECT t.owner_id FROM transcript_access x JOIN transcripts t ON t.id = x.transcript_id
             WHERE x.agent_id = $1
             UNION SELECT x.agent_id FROM transcripts t JOIN transcript_access x ON x.transcript_id = t.id
             WHERE t.owner_id = $1",
        )
        .await?;
    for row in tx.query(&select, &[&agent]).await? {
        let other = row.try_get(0)?;
        if !consent::between(tx, agent, other).await?.is_given() {
            unshare(tx, agent, other).await?;
        }
    }
    Ok(())
}

/// Takes back what two agents shared with each other.
pub(super) async fn unshare(tx: &Transaction<'_>, a: i64, b: i64) -> Result<(), Trouble> {
    let delete = tx
        .prepare_cached(
            "DELETE FROM transcript_access x USING transcripts t
             WHERE t.id = x.transcript_id AND t.owner_id = $1 AND x.agent_id = $2",
        )
        .await?;
    tx.execute(&delete, &[&a, &b]).await?;
    tx.execute(&delete, &[&b, &a]).await?;
    Ok(())
}

async fn lines<C: GenericClient>(
    client: &C,
    caller: &Agent,
    owner: Option<&AgentName>,
    key: &TranscriptKey,
    sql: &str,
    after: i64,
    limit: usize,
) -> Result<Vec<NumberedLine>, Trouble> {
    let found = match owner_row(client, caller, owner).await? {
        Some(of) => find(client, of, key, caller.key.0).await?,
        None => None,
    };
    let Some((id, Some(_))) = found else { return Err(words::no_transcript(owner, key).into()) };
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let select = client.prepare_cached(sql).await?;
    let (rows, _) = rows_of_page(client, &select, &[&id, &after, &limit], &[]).await?;
    rows.iter()
        .map(|row| {
            let number = u64::try_from(row.try_get::<_, i64>(0)?).unwrap_or(0);
            Ok(numbered_line(number, row.try_get(1)?, row.try_get(2)?)?)
        })
        .collect()
}

/// Lines after a place, with their authors, in the order of `$order`.
macro_rules! select_lines {
    ($order:literal) => {
        concat!(
            "SELECT l.seq, l.line, a.name FROM transcript_lines l JOIN agents a ON a.id = l.author_id
             WHERE l.transcript_id = $1 AND l.seq > $2 ORDER BY l.seq ",
            $order,
            " LIMIT $3"
        )
    };
}

/// The last lines, oldest first.
pub(super) async fn recent<C: GenericClient>(
    client: &C,
    caller: &Agent,
    owner: Option<&AgentName>,
    key: &TranscriptKey,
    limit: usize,
) -> Result<Vec<NumberedLine>, Trouble> {
    let mut found = lines(client, caller, owner, key, select_lines!("DESC"), 0, limit).await?;
    found.reverse();
    Ok(found)
}

/// The lines after a place, oldest first.
pub(super) async fn after<C: GenericClient>(
    client: &C,
    caller: &Agent,
    owner: Option<&AgentName>,
    key: &TranscriptKey,
    after: u64,
    limit: usize,
) -> Result<Vec<NumberedLine>, Trouble> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    lines(client, caller, owner, key, select_lines!("ASC"), after, limit).await
}
