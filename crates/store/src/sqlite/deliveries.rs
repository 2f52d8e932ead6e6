//! What recipients did with their mail.

use std::collections::HashMap;

use amb_core::{Priority, Timestamp};
use rusqlite::{OptionalExtension, params};
use uuid::Uuid;

use super::keys::{instant_at, maybe_instant_at, number_of, uuid_at};
use super::plans::Prepared;
use super::writer::WriteTx;
use crate::engine::{Delivery, Mark, Marked, Tried};
use crate::row::{self, rank};

/// Unread mail of one priority that nobody holds. The index of unread mail is by priority, then number.
const FREE: &str = "SELECT d.number, d.message_id, m.sender_id,
           octet_length(json_quote(m.content)) + ifnull(octet_length(m.parts), 0) + ifnull(octet_length(m.metadata), 0)
           + ifnull(octet_length(m.callback), 0)
    FROM deliveries d JOIN messages m ON m.id = d.message_id
    WHERE d.agent_id = ?1 AND d.read_at IS NULL AND d.priority = ?2
    AND (d.lease_until IS NULL OR d.lease_until <= ?3) ORDER BY d.number LIMIT ?4";

impl WriteTx {
    /// Those of these messages that came to an agent.
    pub(super) fn deliveries(&self, agent: i64, ids: &[Uuid]) -> Tried<HashMap<Uuid, Delivery>> {
        let sql = "SELECT m.id, m.sender_id FROM messages m JOIN deliveries d ON d.message_id = m.id
                   WHERE m.public_id = ?1 AND d.agent_id = ?2";
        let (mut select, mut found) = (self.db.prepared(sql)?, HashMap::with_capacity(ids.len()));
        for id in ids {
            let delivery = |row: &rusqlite::Row<'_>| Ok(Delivery { place: row.get(0)?, sender: row.get(1)? });
            let delivery = select.query_row(params![id.as_bytes(), agent], delivery).optional()?;
            found.extend(delivery.map(|delivery| (*id, delivery)));
        }
        Ok(found)
    }

    /// Messages in a stretch of an agent's log that were not handed over yet.
    pub(super) fn undelivered(&self, agent: i64, after: u64, up_to: u64, limit: usize) -> Tried<Vec<(u64, Delivery)>> {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let sql = "SELECT d.number, d.message_id, m.sender_id FROM deliveries d JOIN messages m ON m.id = d.message_id
                   WHERE d.agent_id = ?1 AND d.number > ?2 AND d.number <= ?3 AND d.delivered_at IS NULL
                   ORDER BY d.number LIMIT ?4";
        let mut select = self.db.prepared(sql)?;
        let rows = select.query_map([agent, number(after), number(up_to), limit as i64], |row| {
            Ok((number_of(row.get(0)?), Delivery { place: row.get(1)?, sender: row.get(2)? }))
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Marks what is not marked so yet.
    pub(super) fn mark(&mut self, agent: i64, places: &[i64], mark: Mark, now: Timestamp) -> Tried<Vec<Marked>> {
        let sql = match mark {
            Mark::Read => {
                "UPDATE deliveries SET read_at = ?3, delivered_at = coalesce(delivered_at, ?3), lease_until = NULL
                 WHERE message_id = ?1 AND agent_id = ?2 AND read_at IS NULL"
            }
            Mark::Delivered => {
                "UPDATE deliveries SET delivered_at = ?3 WHERE message_id = ?1 AND agent_id = ?2 AND delivered_at IS NULL"
            }
        };
        let mut marked = Vec::with_capacity(places.len());
        for place in places {
            if self.db.prepared(sql)?.execute([*place, agent, now.as_microsecond()])? == 0 {
                continue;
            }
            if mark == Mark::Read {
                let sql = "UPDATE session_members SET unread = unread - 1
                           WHERE agent_id = ?1 AND session_id = (SELECT session_id FROM messages WHERE id = ?2)";
                self.db.prepared(sql)?.execute([agent, *place])?;
                self.changed.agent(agent);
            }
            let sql = "SELECT m.public_id, m.sender_id, m.created_at, d.delivered_at, d.read_at
                       FROM messages m JOIN deliveries d ON d.message_id = m.id WHERE m.id = ?1 AND d.agent_id = ?2";
            marked.push(self.db.prepared(sql)?.query_row([*place, agent], |row| {
                Ok(Marked {
                    message: uuid_at(row, 0)?,
                    sender: row.get(1)?,
                    created_at: instant_at(row, 2)?,
                    delivered_at: maybe_instant_at(row, 3)?,
                    read_at: maybe_instant_at(row, 4)?,
                })
            })?);
        }
        Ok(marked)
    }

    /// Unread mail that nobody holds, with the bytes of each.
    pub(super) fn unclaimed(
        &self,
        agent: i64,
        now: Timestamp,
        limit: usize,
        urgent_first: bool,
    ) -> Tried<Vec<(Delivery, usize)>> {
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut free: Vec<(i64, Delivery, usize)> = Vec::new();
        let mut select = self.db.prepared(FREE)?;
        for priority in Priority::ALL.into_iter().rev() {
            let rows = select.query_map(params![agent, rank(priority), now.as_microsecond(), most], |row| {
                let bytes = usize::try_from(row.get::<_, i64>(3)?).unwrap_or(0) + row::OVERHEAD;
                Ok((row.get(0)?, Delivery { place: row.get(1)?, sender: row.get(2)? }, bytes))
            })?;
            for one in rows {
                free.push(one?);
            }
        }
        if !urgent_first {
            free.sort_unstable_by_key(|(number, ..)| *number);
        }
        free.truncate(limit);
        Ok(free.into_iter().map(|(_, delivery, bytes)| (delivery, bytes)).collect())
    }

    /// Holds unread mail until a moment, or gives it back; with `held_at` only what is held then.
    pub(super) fn hold(
        &self,
        agent: i64,
        places: &[i64],
        until: Option<Timestamp>,
        held_at: Option<Timestamp>,
    ) -> Tried<Vec<i64>> {
        let micros = |at: Option<Timestamp>| at.map(|at| at.as_microsecond());
        let mut held = Vec::with_capacity(places.len());
        let sql = "UPDATE deliveries SET lease_until = ?3 WHERE message_id = ?1 AND agent_id = ?2 AND read_at IS NULL
                   AND (?4 IS NULL OR lease_until > ?4)";
        for place in places {
            if self.db.prepared(sql)?.execute(params![place, agent, micros(until), micros(held_at)])? == 1 {
                held.push(*place);
            }
        }
        Ok(held)
    }
}
