//! Transcripts over the network: lines by many agents under one key.

use amb_core::transcript::{Line, TranscriptKey};
use amb_core::{AgentName, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use super::error::failed;
use super::keys::{number_of, place_of, range, row};
use super::plans::Prepared;
use super::writer::Desk;
use crate::StoreError;
use crate::budget::Budget;
use crate::error::Result;
use crate::letter::json;
use crate::query::{Access, Appended, NumberedLine};
use crate::types::Agent;
use crate::words;

/// A transcript, and what the agent may do with it.
fn find(db: &Connection, key: &TranscriptKey, agent: i64) -> Result<Option<(i64, bool, Option<Access>)>> {
    let found: Option<(i64, i64, Option<bool>)> = db
        .prepared(
            "SELECT t.id, t.owner_id, x.may_write FROM transcripts t
             LEFT JOIN transcript_access x ON x.transcript_id = t.id AND x.agent_id = ?2 WHERE t.key = ?1",
        )
        .and_then(|mut select| {
            select.query_row(params![key.as_str(), agent], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()
        })
        .map_err(failed)?;
    Ok(found.map(|(id, owner, may_write)| {
        let owned = owner == agent;
        let access = match may_write {
            _ if owned => Some(Access::Write),
            Some(true) => Some(Access::Write),
            Some(false) => Some(Access::Read),
            None => None,
        };
        (id, owned, access)
    }))
}

impl Desk {
    pub(super) fn transcript_append(
        &mut self,
        caller: &Agent,
        key: &TranscriptKey,
        mut line: Line,
        now: Timestamp,
    ) -> Result<Appended> {
        let me = caller.key.0;
        let id = match find(&self.db, key, me)? {
            Some((id, _, Some(Access::Write))) => id,
            Some(_) => return Err(words::not_your_transcript(key)),
            None => self
                .db
                .prepared("INSERT INTO transcripts (key, owner_id, created_at) VALUES (?1, ?2, ?3)")
                .and_then(|mut insert| insert.insert(params![key.as_str(), me, now.as_microsecond()]))
                .map_err(failed)?,
        };
        if let Some(message_id) = &line.message_id {
            let known: Option<i64> = self
                .db
                .prepared("SELECT id FROM transcript_lines WHERE transcript_id = ?1 AND message_id = ?2")
                .and_then(|mut select| select.query_row(params![id, message_id], |row| row.get(0)).optional())
                .map_err(failed)?;
            if let Some(known) = known {
                return Ok(Appended { number: number_of(known), duplicate: true });
            }
        }
        line.ts = line.ts.or_else(|| Some(now.as_millisecond() as f64));
        let (first, last) = range(id);
        let newest: Option<i64> = self
            .db
            .prepared("SELECT max(id) FROM transcript_lines WHERE id BETWEEN ?1 AND ?2")
            .and_then(|mut select| select.query_row([first, last], |row| row.get(0)))
            .map_err(failed)?;
        let place = newest.map_or(0, place_of) + 1;
        let text = json(&line)?;
        self.db
            .prepared(
                "INSERT INTO transcript_lines (id, transcript_id, author_id, message_id, line, created_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )
            .and_then(|mut insert| {
                insert.execute(params![row(id, place), id, me, line.message_id, text, now.as_microsecond()])
            })
            .map_err(failed)?;
        Ok(Appended { number: number_of(place), duplicate: false })
    }

    pub(super) fn transcript_share(
        &mut self,
        caller: &Agent,
        key: &TranscriptKey,
        with: &AgentName,
        access: Option<Access>,
    ) -> Result<()> {
        let Some((id, owned, _)) = find(&self.db, key, caller.key.0)? else { return Err(words::no_transcript(key)) };
        if !owned {
            return Err(words::not_your_transcript(key));
        }
        let Some(peer) = self.peer(with)?.filter(|peer| !peer.deleted) else { return Err(words::no_agent(with)) };
        match access {
            Some(access) => self
                .db
                .prepared(
                    "INSERT INTO transcript_access (transcript_id, agent_id, may_write) VALUES (?1, ?2, ?3)
                     ON CONFLICT (transcript_id, agent_id) DO UPDATE SET may_write = excluded.may_write",
                )
                .and_then(|mut insert| insert.execute(params![id, peer.id, access == Access::Write])),
            None => self
                .db
                .prepared("DELETE FROM transcript_access WHERE transcript_id = ?1 AND agent_id = ?2")
                .and_then(|mut delete| delete.execute([id, peer.id])),
        }
        .map_err(failed)
        .map(drop)
    }
}

fn readable(db: &Connection, caller: &Agent, key: &TranscriptKey) -> Result<i64> {
    match find(db, key, caller.key.0)? {
        Some((id, _, Some(_))) => Ok(id),
        _ => Err(words::no_transcript(key)),
    }
}

fn lines(db: &Connection, sql: &str, id: i64, after: i64, limit: usize) -> Result<Vec<NumberedLine>> {
    let (_, last) = range(id);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut select = db.prepared(sql).map_err(failed)?;
    let mut rows = select.query([row(id, after), last, limit]).map_err(failed)?;
    let (mut found, mut budget) = (Vec::new(), Budget::page());
    while let Some(row) = rows.next().map_err(failed)? {
        let line: String = row.get(1).map_err(failed)?;
        if !budget.takes(line.len()) {
            break;
        }
        let line = serde_json::from_str(&line).map_err(StoreError::internal)?;
        found.push(NumberedLine { number: number_of(row.get(0).map_err(failed)?), line });
    }
    Ok(found)
}

/// The last lines, oldest first.
pub(super) fn recent(db: &Connection, caller: &Agent, key: &TranscriptKey, limit: usize) -> Result<Vec<NumberedLine>> {
    let id = readable(db, caller, key)?;
    let sql = "SELECT id, line FROM transcript_lines WHERE id > ?1 AND id <= ?2 ORDER BY id DESC LIMIT ?3";
    let mut found = lines(db, sql, id, 0, limit)?;
    found.reverse();
    Ok(found)
}

/// The lines after a place, oldest first.
pub(super) fn after(
    db: &Connection,
    caller: &Agent,
    key: &TranscriptKey,
    after: u64,
    limit: usize,
) -> Result<Vec<NumberedLine>> {
    let id = readable(db, caller, key)?;
    let Ok(after) = u32::try_from(after) else { return Ok(Vec::new()) };
    let sql = "SELECT id, line FROM transcript_lines WHERE id > ?1 AND id <= ?2 ORDER BY id LIMIT ?3";
    lines(db, sql, id, after.into(), limit)
}
