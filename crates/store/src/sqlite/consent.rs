//! Consent taken back: rejecting, revoking, blocking; and time running out.

use amb_core::doc::{Connection as Link, ConnectionChange, ConnectionStatus};
use amb_core::id::fresh_uuid;
use amb_core::{AgentName, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use super::cache::Peer;
use super::connect::pair;
use super::error::failed;
use super::keys::{instant_at, uuid_at};
use super::plans::Prepared;
use super::writer::WriteTx;
use crate::error::Result;
use crate::row;
use crate::types::{Agent, News, Written};
use crate::words;

/// Requests that expire in one transaction.
const SOME: i64 = 200;

impl WriteTx {
    pub(super) fn change_connection(
        &mut self,
        caller: &Agent,
        peer: &AgentName,
        change: ConnectionChange,
        now: Timestamp,
    ) -> Result<Written<Link>> {
        let Some(other) = self.peer(peer)? else { return Err(words::no_agent(peer)) };
        if other.id == caller.key.0 {
            return Err(words::connect_to_oneself());
        }
        let me = caller.key.0;
        let mut news = Vec::new();
        let id = match change {
            ConnectionChange::Reject => {
                let id = self.settle(
                    "requester_id = ?1 AND target_id = ?2 AND status = 'PENDING'",
                    other.id,
                    me,
                    "REJECTED",
                    now,
                )?;
                let id = id.ok_or_else(|| words::no_pending(peer))?;
                news.extend(self.tell_change(&other, id, caller, ConnectionStatus::Rejected, now)?);
                id
            }
            ConnectionChange::Revoke => {
                let (low, high) = pair(me, other.id);
                let id =
                    self.settle("low_id = ?1 AND high_id = ?2 AND status = 'ACTIVE'", low, high, "REVOKED", now)?;
                let id = id.ok_or_else(|| words::no_connection(peer))?;
                news.extend(self.end_between(caller, &other, id, now)?);
                id
            }
            ConnectionChange::Block => self.block(caller, &other, &mut news, now)?,
            ConnectionChange::Unblock => {
                let id = self.settle(
                    "requester_id = ?1 AND target_id = ?2 AND status = 'BLOCKED'",
                    me,
                    other.id,
                    "REVOKED",
                    now,
                )?;
                self.caches.consent.remove(&pair(me, other.id));
                id.ok_or_else(|| words::not_blocked(peer))?
            }
        };
        let answer = one(&self.db, me, id)?;
        Ok(Written { answer, news })
    }

    /// Ends all that an active connection allowed, after it was revoked, and tells the other side.
    fn end_between(&mut self, caller: &Agent, other: &Peer, id: Uuid, now: Timestamp) -> Result<Vec<News>> {
        self.caches.consent.remove(&pair(caller.key.0, other.id));
        let mut news = self.end_tasks_between(caller, other.id, now)?;
        self.unshare_transcripts(caller.key.0, other.id)?;
        news.extend(self.tell_change(other, id, caller, ConnectionStatus::Revoked, now)?);
        Ok(news)
    }

    /// Gives the one connection that the condition finds a new status.
    fn settle(&self, condition: &str, first: i64, second: i64, status: &str, now: Timestamp) -> Result<Option<Uuid>> {
        let sql = format!("UPDATE connections SET status = ?3, updated_at = ?4 WHERE {condition} RETURNING public_id");
        self.db
            .prepared(&sql)
            .and_then(|mut update| {
                update.query_row(params![first, second, status, now.as_microsecond()], |row| uuid_at(row, 0)).optional()
            })
            .map_err(failed)
    }

    /// Ends what is between the two, and puts a block there. The other side learns that a connection ended, not that it is
    /// blocked.
    fn block(&mut self, caller: &Agent, other: &Peer, news: &mut Vec<News>, now: Timestamp) -> Result<Uuid> {
        let me = caller.key.0;
        let (low, high) = pair(me, other.id);
        let given = self.consent(me, other.id)?.is_given();
        if let Some(id) =
            self.settle("low_id = ?1 AND high_id = ?2 AND status = 'ACTIVE'", low, high, "REVOKED", now)?
        {
            news.extend(self.end_between(caller, other, id, now)?);
        } else if given {
            // By their household, which has no connection to tell of.
            news.extend(self.end_tasks_between(caller, other.id, now)?);
            self.unshare_transcripts(me, other.id)?;
        }
        self.caches.consent.remove(&(low, high));
        let theirs = "requester_id = ?1 AND target_id = ?2 AND status = 'PENDING'";
        if let Some(id) = self.settle(theirs, other.id, me, "REJECTED", now)? {
            news.extend(self.tell_change(other, id, caller, ConnectionStatus::Rejected, now)?);
        }
        self.settle(theirs, me, other.id, "EXPIRED", now)?;
        let blocked = "requester_id = ?1 AND target_id = ?2 AND status = 'BLOCKED'";
        if let Some(id) = self.settle(blocked, me, other.id, "BLOCKED", now)? {
            return Ok(id);
        }
        let id = fresh_uuid(now);
        self.db
            .prepared(
                "INSERT INTO connections (public_id, requester_id, target_id, low_id, high_id, status, created_at,
                                          updated_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, 'BLOCKED', ?6, ?6)",
            )
            .and_then(|mut insert| {
                insert.execute(params![id.as_bytes(), me, other.id, low, high, now.as_microsecond()])
            })
            .map_err(failed)?;
        Ok(id)
    }

    fn tell_change(
        &mut self,
        other: &Peer,
        id: Uuid,
        caller: &Agent,
        status: ConnectionStatus,
        now: Timestamp,
    ) -> Result<Option<News>> {
        if other.deleted {
            return Ok(None);
        }
        self.tell(other.id, words::changed(id, &caller.name, status), now).map(Some)
    }

    pub(super) fn expire_connections(&mut self, now: Timestamp) -> Result<Written<u64>> {
        let due: Vec<(i64, Uuid, i64, String)> = self
            .db
            .prepared(
                "SELECT c.id, c.public_id, c.requester_id, a.name FROM connections c JOIN agents a ON a.id = c.target_id
                 WHERE c.status = 'PENDING' AND c.expires_at <= ?1 ORDER BY c.expires_at LIMIT ?2",
            )
            .and_then(|mut select| {
                let rows = select.query_map([now.as_microsecond(), SOME], |row| {
                    Ok((row.get(0)?, uuid_at(row, 1)?, row.get(2)?, row.get(3)?))
                })?;
                rows.collect()
            })
            .map_err(failed)?;
        let mut news = Vec::with_capacity(due.len());
        for (id, public_id, requester, target) in &due {
            self.db
                .prepared("UPDATE connections SET status = 'EXPIRED', updated_at = ?2 WHERE id = ?1")
                .and_then(|mut update| update.execute([*id, now.as_microsecond()]))
                .map_err(failed)?;
            let event = words::changed(*public_id, &row::name(target)?, ConnectionStatus::Expired);
            news.push(self.tell(*requester, event, now)?);
        }
        Ok(Written { answer: due.len() as u64, news })
    }

    /// Ends every connection and request of an agent that goes, and tells those it was connected with.
    pub(super) fn end_connections_of(&mut self, caller: &Agent, now: Timestamp) -> Result<Vec<News>> {
        let mut news = Vec::new();
        for link in connections(&self.db, caller)? {
            let Some(other) = self.peer(&link.agent_name)? else { continue };
            let (low, high) = pair(caller.key.0, other.id);
            if link.status == ConnectionStatus::Active {
                let id =
                    self.settle("low_id = ?1 AND high_id = ?2 AND status = 'ACTIVE'", low, high, "REVOKED", now)?;
                if let Some(id) = id {
                    news.extend(self.tell_change(&other, id, caller, ConnectionStatus::Revoked, now)?);
                }
            }
            let open = "requester_id = ?1 AND target_id = ?2 AND status = 'PENDING'";
            self.settle(open, caller.key.0, other.id, "EXPIRED", now)?;
            self.settle(open, other.id, caller.key.0, "EXPIRED", now)?;
            self.caches.consent.remove(&(low, high));
        }
        Ok(news)
    }
}

/// A connection as both sides may see it.
const LINKS: &str = "SELECT c.public_id, a.name, c.status, c.requester_id = ?1, c.message, c.created_at, c.updated_at
    FROM connections c JOIN agents a ON a.id = iif(c.requester_id = ?1, c.target_id, c.requester_id) ";

fn link(row: &rusqlite::Row<'_>) -> rusqlite::Result<words::LinkRow> {
    Ok((uuid_at(row, 0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, instant_at(row, 5)?, instant_at(row, 6)?))
}

fn one(db: &Connection, me: i64, id: Uuid) -> Result<Link> {
    let found = db
        .prepared(&format!("{LINKS} WHERE c.public_id = ?2"))
        .and_then(|mut select| select.query_row(params![me, id.as_bytes()], link))
        .map_err(failed)?;
    words::link(found)
}

/// With each peer the present state: what is active, waits or is blocked, or else what was last.
pub(super) fn connections(db: &Connection, caller: &Agent) -> Result<Vec<Link>> {
    let sql = format!(
        "{LINKS} WHERE c.id IN (SELECT id FROM connections WHERE requester_id = ?1
                                UNION SELECT id FROM connections WHERE target_id = ?1 AND status <> 'BLOCKED')
         ORDER BY c.updated_at DESC, c.id DESC"
    );
    let found = db
        .prepared(&sql)
        .and_then(|mut select| select.query_map([caller.key.0], link).and_then(Iterator::collect))
        .map_err(failed)?;
    words::present_links(found)
}
