//! Transcripts over the network: lines by many agents under one key.

use amb_core::doc::{Access, Appended, NumberedLine};
use amb_core::transcript::{Line, TranscriptKey};
use amb_core::{AgentName, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use super::agents::by_name;
use super::error::failed;
use super::keys::{number_of, place_of, range, row};
use super::plans::Prepared;
use super::writer::WriteTx;
use crate::budget::Budget;
use crate::error::Result;
use crate::outgoing::json;
use crate::query::numbered_line;
use crate::quota::Stored;
use crate::types::Agent;
use crate::words;

/// The transcript of this owner and key, and what the agent may do with it.
fn find(db: &Connection, owner: i64, key: &TranscriptKey, agent: i64) -> Result<Option<(i64, Option<Access>)>> {
    let found: Option<(i64, Option<bool>)> = db
        .prepared(
            "SELECT t.id, x.may_write FROM transcripts t
             LEFT JOIN transcript_access x ON x.transcript_id = t.id AND x.agent_id = ?3
             WHERE t.owner_id = ?1 AND t.key = ?2",
        )
        .and_then(|mut select| {
            select.query_row(params![owner, key.as_str(), agent], |row| Ok((row.get(0)?, row.get(1)?))).optional()
        })
        .map_err(failed)?;
    Ok(found.map(|(id, may_write)| {
        let access = match may_write {
            _ if owner == agent => Some(Access::Write),
            Some(true) => Some(Access::Write),
            Some(false) => Some(Access::Read),
            None => None,
        };
        (id, access)
    }))
}

/// The row of the owner that is meant.
fn owner_row(db: &Connection, caller: &Agent, owner: Option<&AgentName>) -> Result<Option<i64>> {
    match owner {
        None => Ok(Some(caller.key.0)),
        Some(name) => Ok(by_name(db, name)?.map(|owner| owner.key.0)),
    }
}

impl WriteTx {
    pub(super) fn transcript_append(
        &mut self,
        caller: &Agent,
        owner: Option<&AgentName>,
        key: &TranscriptKey,
        mut line: Line,
        now: Timestamp,
    ) -> Result<Appended> {
        let me = caller.key.0;
        let of = owner_row(&self.db, caller, owner)?.ok_or_else(|| words::no_transcript(owner, key))?;
        let id = match find(&self.db, of, key, me)? {
            Some((id, Some(Access::Write))) => id,
            Some((_, Some(Access::Read))) => return Err(words::read_only_transcript(key)),
            None if of == me => self
                .db
                .prepared("INSERT INTO transcripts (key, owner_id, created_at) VALUES (?1, ?2, ?3)")
                .and_then(|mut insert| insert.insert(params![key.as_str(), me, now.as_microsecond()]))
                .map_err(failed)?,
            _ => return Err(words::no_transcript(owner, key)),
        };
        // The office knows who writes; what the line says of it is not kept.
        line.author = None;
        if let Some(message_id) = &line.message_id {
            let known: Option<i64> = self
                .db
                .prepared("SELECT id FROM transcript_lines WHERE transcript_id = ?1 AND message_id = ?2")
                .and_then(|mut select| select.query_row(params![id, message_id], |row| row.get(0)).optional())
                .map_err(failed)?;
            if let Some(known) = known {
                return Ok(Appended { number: number_of(place_of(known)), duplicate: true });
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
        let stored = Stored::message(1, text.len());
        self.check_quota(me, stored)?;
        self.charge(me, stored)?;
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
        let me = caller.key.0;
        let Some((id, _)) = find(&self.db, me, key, me)? else { return Err(words::no_transcript(None, key)) };
        let Some(peer) = self.peer(with)?.filter(|peer| !peer.deleted) else { return Err(words::no_agent(with)) };
        if access.is_some() {
            self.consent(me, peer.id)?.check(with)?;
        }
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

    /// Takes back what an agent and those it may not write to any more shared with each other.
    pub(super) fn unshare_without_consent(&mut self, agent: i64) -> Result<()> {
        let sharing: Vec<i64> = self
            .db
            .prepared(
                "SELECT t.owner_id FROM transcript_access x JOIN transcripts t ON t.id = x.transcript_id
                 WHERE x.agent_id = ?1
                 UNION SELECT x.agent_id FROM transcripts t JOIN transcript_access x ON x.transcript_id = t.id
                 WHERE t.owner_id = ?1",
            )
            .and_then(|mut select| select.query_map([agent], |row| row.get(0)).and_then(Iterator::collect))
            .map_err(failed)?;
        for other in sharing {
            if !self.consent(agent, other)?.is_given() {
                self.unshare_transcripts(agent, other)?;
            }
        }
        Ok(())
    }

    /// Takes back what two agents shared with each other.
    pub(super) fn unshare_transcripts(&mut self, a: i64, b: i64) -> Result<()> {
        for (owner, agent) in [(a, b), (b, a)] {
            self.db
                .prepared(
                    "DELETE FROM transcript_access WHERE agent_id = ?2
                     AND transcript_id IN (SELECT id FROM transcripts WHERE owner_id = ?1)",
                )
                .and_then(|mut delete| delete.execute([owner, agent]))
                .map_err(failed)?;
        }
        Ok(())
    }
}

fn readable(db: &Connection, caller: &Agent, owner: Option<&AgentName>, key: &TranscriptKey) -> Result<i64> {
    let found = match owner_row(db, caller, owner)? {
        Some(of) => find(db, of, key, caller.key.0)?,
        None => None,
    };
    match found {
        Some((id, Some(_))) => Ok(id),
        _ => Err(words::no_transcript(owner, key)),
    }
}

/// Lines between two places, with their authors, in the order of `$order`.
macro_rules! select_lines {
    ($order:literal) => {
        concat!(
            "SELECT l.id, l.line, a.name FROM transcript_lines l JOIN agents a ON a.id = l.author_id
             WHERE l.id > ?1 AND l.id <= ?2 ORDER BY l.id ",
            $order,
            " LIMIT ?3"
        )
    };
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
        let (id, author): (i64, String) = (row.get(0).map_err(failed)?, row.get(2).map_err(failed)?);
        found.push(numbered_line(number_of(place_of(id)), &line, &author)?);
    }
    Ok(found)
}

/// The last lines, oldest first.
pub(super) fn recent(
    db: &Connection,
    caller: &Agent,
    owner: Option<&AgentName>,
    key: &TranscriptKey,
    limit: usize,
) -> Result<Vec<NumberedLine>> {
    let id = readable(db, caller, owner, key)?;
    let mut found = lines(db, select_lines!("DESC"), id, 0, limit)?;
    found.reverse();
    Ok(found)
}

/// The lines after a place, oldest first.
pub(super) fn after(
    db: &Connection,
    caller: &Agent,
    owner: Option<&AgentName>,
    key: &TranscriptKey,
    after: u64,
    limit: usize,
) -> Result<Vec<NumberedLine>> {
    let id = readable(db, caller, owner, key)?;
    let Ok(after) = u32::try_from(after) else { return Ok(Vec::new()) };
    lines(db, select_lines!("ASC"), id, after.into(), limit)
}
