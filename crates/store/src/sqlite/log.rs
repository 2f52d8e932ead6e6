//! The log of a mailbox: appending to it, and reading it.

use std::collections::HashMap;

use amb_core::{Entry, Event, Timestamp};
use rusqlite::{Connection, params};

use super::agents;
use super::error::failed;
use super::keys::{number_of, place_of, range, row};
use super::messages::{DELIVERED, message_row};
use super::plans::Prepared;
use super::writer::Desk;
use crate::StoreError;
use crate::budget::Budget;
use crate::error::Result;
use crate::letter::json;
use crate::replicas::{Astray, Seated};
use crate::resume::{HandedOver, LOOKED_AT};
use crate::types::{AgentKey, News};

impl Desk {
    /// Takes the next place in an agent's log.
    pub(super) fn next_place(&mut self, agent: i64) -> Result<i64> {
        if let Some(head) = self.caches.heads.get_mut(&agent) {
            *head += 1;
            return Ok(*head);
        }
        self.sort()?;
        let next = head(&self.db, agent)? + 1;
        self.caches.heads.put(agent, next);
        Ok(next)
    }

    /// Puts an event other than mail into an agent's log, which it sees.
    pub(super) fn tell(&mut self, agent: i64, event: Event, now: Timestamp) -> Result<News> {
        let place = self.next_place(agent)?;
        self.puts(agent);
        let mut insert = self.db.prepared("INSERT INTO entries (id, event, at) VALUES (?1, ?2, ?3)").map_err(failed)?;
        insert.execute(params![row(agent, place), json(&event)?, now.as_microsecond()]).map_err(failed)?;
        Ok(News { agent: AgentKey(agent), entry: Entry { event, cursor: number_of(place).into() } })
    }
}

/// The place of the newest entry in an agent's log.
pub(super) fn head(db: &Connection, agent: i64) -> Result<i64> {
    let (first, last) = range(agent);
    let (newest, floor): (Option<i64>, Option<i64>) = db
        .prepared(
            "SELECT (SELECT max(id) FROM entries WHERE id BETWEEN ?1 AND ?2),
                    (SELECT log_floor FROM agents WHERE id = ?3)",
        )
        .and_then(|mut select| select.query_row([first, last, agent], |row| Ok((row.get(0)?, row.get(1)?))))
        .map_err(failed)?;
    Ok(newest.map_or(0, place_of).max(floor.unwrap_or(0)))
}

/// The newest entry in an agent's log.
fn newest(db: &Connection, agent: i64) -> Result<Option<i64>> {
    let (first, last) = range(agent);
    db.prepared("SELECT max(id) FROM entries WHERE id BETWEEN ?1 AND ?2")
        .and_then(|mut select| select.query_row([first, last], |row| row.get(0)))
        .map_err(failed)
}

/// Where a listener goes on that names this cursor.
pub(super) fn resume(db: &Connection, agent: i64, since: u64) -> Result<u64> {
    let head = u64::try_from(head(db, agent)?).unwrap_or(0);
    if since <= head {
        return Ok(since);
    }
    let (first, last) = range(agent);
    let ids: [Option<i64>; 3] = db
        .prepared(
            "SELECT min(id), min(CASE WHEN message_id IS NOT NULL AND delivered_at IS NULL THEN id END),
                    max(CASE WHEN delivered_at IS NOT NULL THEN id END)
             FROM (SELECT id, message_id, delivered_at FROM entries WHERE id BETWEEN ?1 AND ?2
                   ORDER BY id DESC LIMIT ?3)",
        )
        .and_then(|mut select| {
            select.query_row([first, last, LOOKED_AT], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]))
        })
        .map_err(failed)?;
    let [oldest, first_undelivered, last_delivered] = ids.map(|id| id.map(number_of));
    Ok(HandedOver { oldest, first_undelivered, last_delivered }.cursor(head))
}

/// Those listeners whose logs are longer than they know, or whose keys are none any more.
pub(super) fn astray(db: &Connection, seated: &[Seated], now: Timestamp) -> Result<Vec<Astray>> {
    // What is in the tray is in the log, too.
    let laid: HashMap<i64, i64> = db
        .prepared("SELECT delivery_id >> 32, max(delivery_id) FROM tray GROUP BY 1")
        .and_then(|mut select| select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect())
        .map_err(failed)?;
    let mut found = Vec::new();
    for (index, seat) in seated.iter().enumerate() {
        let laid = laid.get(&seat.agent.0).copied().map_or(0, place_of);
        let head = u64::try_from(head(db, seat.agent.0)?.max(laid)).unwrap_or(0);
        // The head may have been put forward, and what was after a listener may have been removed.
        let behind = head > seat.at
            && (u64::try_from(laid).unwrap_or(0) > seat.at
                || newest(db, seat.agent.0)?.is_some_and(|newest| number_of(newest) > seat.at));
        let key_ended = match seat.key {
            Some(key) => agents::by_key(db, key, now)?.is_none_or(|(agent, _)| agent.key != seat.agent),
            None => false,
        };
        if behind || key_ended {
            found.push(Astray { index, head, key_ended });
        }
    }
    Ok(found)
}

/// The entries after `since`.
pub(super) fn entries(db: &Connection, agent: i64, since: u64, limit: usize) -> Result<Vec<Entry>> {
    let (_, last) = range(agent);
    let Ok(since) = u32::try_from(since) else { return Ok(Vec::new()) };
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let sql = const_format_entries();
    let mut select = db.prepared(sql).map_err(failed)?;
    let mut rows = select.query([row(agent, since.into()), last, limit]).map_err(failed)?;
    let (mut found, mut budget) = (Vec::new(), Budget::page());
    while let Some(row) = rows.next().map_err(failed)? {
        let (id, event): (i64, Option<String>) =
            row.get(DELIVERED).and_then(|id| Ok((id, row.get(DELIVERED + 1)?))).map_err(failed)?;
        let event = match event {
            Some(event) if !budget.takes(event.len()) => break,
            Some(event) => serde_json::from_str(&event).map_err(StoreError::internal)?,
            None => {
                let message = message_row(row).map_err(failed)?;
                if !budget.takes(message.bytes()) {
                    break;
                }
                Event::NewMessage(message.event()?)
            }
        };
        found.push(Entry { event, cursor: number_of(id).into() });
    }
    Ok(found)
}

/// Entries with the messages they deliver. A delivery whose message retention removed is no longer there either.
fn const_format_entries() -> &'static str {
    concat!(
        "SELECT ",
        super::messages::message_columns!(),
        ", e.id, e.event FROM entries e
         LEFT JOIN messages m ON m.id = e.message_id
         LEFT JOIN sessions s ON s.id = m.id >> 32
         LEFT JOIN agents f ON f.id = m.sender_id
         LEFT JOIN agents t ON t.id = e.id >> 32
         WHERE e.id > ?1 AND e.id <= ?2 ORDER BY e.id LIMIT ?3"
    )
}
