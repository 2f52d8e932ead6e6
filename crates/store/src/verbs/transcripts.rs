//! Transcripts: lines of many agents under one key. Each agent has its own keys: two agents may have transcripts of the
//! same key. Without an owner the caller's own transcript is meant.

use amb_core::doc::{Access, Appended, NumberedLine};
use amb_core::transcript::{Line, TranscriptKey};
use amb_core::{AgentName, Timestamp};
use async_trait::async_trait;
use futures_util::FutureExt;

use super::agents::agent_named;
use super::connections::consent;
use super::once::once;
use crate::engine::{Changes, Db, Engine, Query, ReadLength, Tried, Tx, read, values, write_unlogged};
use crate::error::Result;
use crate::outgoing::json;
use crate::quota::Stored;
use crate::types::{Agent, to_micros};
use crate::{StoreError, refusals};

/// Shared records of group chats.
#[async_trait]
pub trait TranscriptVerbs: Engine {
    /// Appends a line of the caller. A line with a known message id changes nothing; an empty id counts as none. The
    /// caller's own transcript is created with its first line.
    async fn transcript_append(
        &self,
        caller: &Agent,
        owner: Option<&AgentName>,
        key: &TranscriptKey,
        line: Line,
        now: Timestamp,
    ) -> Result<Appended> {
        let line = Line { message_id: line.message_id.filter(|id| !id.is_empty()), ..line };
        refusals::check_text("message_id", line.message_id.as_deref())?;
        let asked = (caller.clone(), owner.cloned(), key.clone(), line, to_micros(now));
        write_unlogged(self, Changes::Logs, asked, |tx, (caller, owner, key, line, now)| {
            once!(tx, caller, *now, append(tx, caller, owner.as_ref(), key, line, *now))
        })
        .await
    }

    /// Returns the last lines, oldest first.
    async fn transcript_recent(
        &self,
        caller: &Agent,
        owner: Option<&AgentName>,
        key: &TranscriptKey,
        limit: usize,
    ) -> Result<Vec<NumberedLine>> {
        let asked = (caller.clone(), owner.cloned(), key.clone(), limit);
        let mut lines = read(self, ReadLength::Long, asked, |db, (caller, owner, key, limit)| {
            lines(db, caller, owner.as_ref(), key, None, *limit).boxed()
        })
        .await?;
        lines.reverse();
        Ok(lines)
    }

    /// Returns the lines after a number, oldest first.
    async fn transcript_after(
        &self,
        caller: &Agent,
        owner: Option<&AgentName>,
        key: &TranscriptKey,
        after: u64,
        limit: usize,
    ) -> Result<Vec<NumberedLine>> {
        let asked = (caller.clone(), owner.cloned(), key.clone(), after, limit);
        read(self, ReadLength::Long, asked, |db, (caller, owner, key, after, limit)| {
            lines(db, caller, owner.as_ref(), key, Some(*after), *limit).boxed()
        })
        .await
    }

    /// Lets another agent, which the caller may write to, read or write a transcript of the caller; `None` revokes
    /// that, and so does the end of the connection.
    async fn transcript_share(
        &self,
        caller: &Agent,
        key: &TranscriptKey,
        with: &AgentName,
        access: Option<Access>,
    ) -> Result<()> {
        let asked = (caller.clone(), key.clone(), with.clone(), access);
        write_unlogged(self, Changes::Logs, asked, |tx, (caller, key, with, access)| {
            share(tx, caller, key, with, *access).boxed()
        })
        .await
    }
}

impl<E: Engine> TranscriptVerbs for E {}

/// Returns the transcript of this owner and key, and the caller's access to it.
async fn find(
    db: &mut dyn Db,
    caller: &Agent,
    owner: Option<&AgentName>,
    key: &TranscriptKey,
) -> Tried<Option<(i64, Option<Access>)>> {
    let me = caller.key.0;
    let owner = match owner {
        None => me,
        Some(name) => match agent_named(db, name).await? {
            Some(owner) => owner.key.0,
            None => return Ok(None),
        },
    };
    let sql = "SELECT t.id, x.may_write FROM transcripts t
               LEFT JOIN transcript_access x ON x.transcript_id = t.id AND x.agent_id = $3
               WHERE t.owner_id = $1 AND t.key = $2";
    let found: Option<(i64, Option<bool>)> = db.find(sql, values![owner, key.as_str(), me]).await?;
    Ok(found.map(|(id, may_write)| {
        let access = match may_write {
            _ if owner == me => Some(Access::Write),
            Some(true) => Some(Access::Write),
            Some(false) => Some(Access::Read),
            None => None,
        };
        (id, access)
    }))
}

async fn append(
    tx: &mut dyn Tx,
    caller: &Agent,
    owner: Option<&AgentName>,
    key: &TranscriptKey,
    line: &Line,
    now: Timestamp,
) -> Tried<Appended> {
    let me = caller.key.0;
    let own = match owner {
        None => true,
        Some(name) => agent_named(tx, name).await?.is_some_and(|owner| owner.key == caller.key),
    };
    if own {
        let sql = "INSERT INTO transcripts (key, owner_id, created_at) VALUES ($1, $2, $3)
                   ON CONFLICT (owner_id, key) DO NOTHING";
        if find(tx, caller, owner, key).await?.is_none() {
            tx.execute(sql, values![key.as_str(), me, now]).await?;
        }
    } else {
        // Whoever ends the connection, or revokes the access, holds the caller's lock: this line is either written
        // before that returns, or refused.
        tx.lock(&[me]).await?;
    }
    let id = match find(tx, caller, owner, key).await? {
        Some((id, Some(Access::Write))) => id,
        Some((_, Some(Access::Read))) => return Err(refusals::read_only_transcript(key).into()),
        _ => return Err(refusals::no_transcript(owner, key).into()),
    };
    // The transcript's row is its lock: numbers are assigned and duplicates detected under it.
    let sql = format!("SELECT last_seq FROM transcripts WHERE id = $1{}", tx.dialect().for_update);
    let (last,): (u64,) = tx.one(&sql, values![id]).await?;
    let sql = "SELECT seq FROM transcript_lines WHERE transcript_id = $1 AND message_id = $2";
    if let Some(message_id) = &line.message_id
        && let Some(number) = tx.find(sql, values![id, message_id]).await?
    {
        return Ok(Appended { number, duplicate: true });
    }
    // The office knows the author; the author in the line is not stored.
    let ts = line.ts.or_else(|| Some(now.as_millisecond() as f64));
    let text = json(&Line { ts, author: None, ..line.clone() })?;
    let (number, stored) = (last + 1, Stored::message(1, text.len()));
    tx.check_quota(me, stored).await?;
    let message_id = line.message_id.as_deref();
    let sql = "INSERT INTO transcript_lines (transcript_id, seq, author_id, message_id, line, created_at)
               VALUES ($1, $2, $3, $4, $5, $6)";
    tx.execute(sql, values![id, number, me, message_id, &text, now]).await?;
    tx.execute("UPDATE transcripts SET last_seq = $2 WHERE id = $1", values![id, number]).await?;
    tx.charge(me, stored).await?;
    Ok(Appended { number, duplicate: false })
}

async fn share(
    tx: &mut dyn Tx,
    caller: &Agent,
    key: &TranscriptKey,
    with: &AgentName,
    access: Option<Access>,
) -> Tried<()> {
    let me = caller.key.0;
    let (id, _) = find(tx, caller, None, key).await?.ok_or_else(|| refusals::no_transcript(None, key))?;
    let peer = agent_named(tx, with).await?.ok_or_else(|| refusals::no_agent(with))?.key.0;
    // A revocation takes both locks too: it is seen here, or it revokes this access.
    tx.lock(&[me, peer]).await?;
    match access {
        Some(access) => {
            let consent = consent(tx, me, peer).await?;
            if peer == me && !consent.is_given() {
                return Err(refusals::share_with_oneself().into());
            }
            consent.check(with)?;
            let sql = "INSERT INTO transcript_access (transcript_id, agent_id, may_write) VALUES ($1, $2, $3)
                       ON CONFLICT (transcript_id, agent_id) DO UPDATE SET may_write = excluded.may_write";
            tx.execute(sql, values![id, peer, access == Access::Write]).await?;
        }
        None => {
            let sql = "DELETE FROM transcript_access WHERE transcript_id = $1 AND agent_id = $2";
            tx.execute(sql, values![id, peer]).await?;
        }
    }
    Ok(())
}

/// Ends the sharing between an agent and those it may no longer write to.
pub(super) async fn unshare_without_consent(tx: &mut dyn Tx, agent: i64) -> Tried<()> {
    let sql = "SELECT t.owner_id FROM transcript_access x JOIN transcripts t ON t.id = x.transcript_id
               WHERE x.agent_id = $1
               UNION SELECT x.agent_id FROM transcripts t JOIN transcript_access x ON x.transcript_id = t.id
               WHERE t.owner_id = $1";
    for other in tx.rows(sql, values![agent]).await? {
        if !consent(tx, agent, other).await?.is_given() {
            unshare(tx, agent, other).await?;
        }
    }
    Ok(())
}

/// Ends the sharing between two agents.
pub(super) async fn unshare(tx: &mut dyn Tx, a: i64, b: i64) -> Tried<()> {
    let sql = "DELETE FROM transcript_access WHERE agent_id = $2
               AND transcript_id IN (SELECT id FROM transcripts WHERE owner_id = $1)";
    for (owner, agent) in [(a, b), (b, a)] {
        tx.execute(sql, values![owner, agent]).await?;
    }
    Ok(())
}

/// Returns the lines after a number, or the last ones, newest first.
async fn lines(
    db: &mut dyn Db,
    caller: &Agent,
    owner: Option<&AgentName>,
    key: &TranscriptKey,
    after: Option<u64>,
    limit: usize,
) -> Tried<Vec<NumberedLine>> {
    let Some((id, Some(_))) = find(db, caller, owner, key).await? else {
        return Err(refusals::no_transcript(owner, key).into());
    };
    lines_between(db, id, after.unwrap_or(0), None, after.is_none(), limit).await
}

/// Returns the lines of a transcript between two numbers, up to the size of a page.
pub(super) async fn lines_between(
    db: &mut dyn Db,
    transcript: i64,
    after: u64,
    before: Option<u64>,
    newest_first: bool,
    limit: usize,
) -> Tried<Vec<NumberedLine>> {
    let order = if newest_first { "DESC" } else { "ASC" };
    let sql = format!(
        "SELECT l.seq, l.line, a.name FROM transcript_lines l JOIN agents a ON a.id = l.author_id
         WHERE l.transcript_id = $1 AND l.seq > $2 AND l.seq < $3 ORDER BY l.seq {order} LIMIT $4"
    );
    let values = values![transcript, after, before.unwrap_or(u64::MAX), limit];
    let (found, _) = db.page(&sql, values, |(_, line, _): &(u64, String, AgentName)| line.len()).await?;
    Ok(found.into_iter().map(numbered_line).collect::<Result<_>>()?)
}

/// Returns a line with its number and its author.
fn numbered_line((number, line, author): (u64, String, AgentName)) -> Result<NumberedLine> {
    let mut line: Line = serde_json::from_str(&line).map_err(StoreError::internal)?;
    line.author = Some(author);
    Ok(NumberedLine { number, line })
}
