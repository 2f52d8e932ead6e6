//! The log of a mailbox: appending to it, and reading it. Its numbers are shared by `deliveries` and `events`.

use amb_core::{Entry, Event, Timestamp};
use rusqlite::{Connection, params};
use uuid::Uuid;

use super::agents;
use super::error::failed;
use super::keys::number_of;
use super::messages::delivered_message;
use super::plans::Prepared;
use super::writer::WriteTx;
use crate::StoreError;
use crate::budget::Budget;
use crate::columns::Columns;
use crate::error::Result;
use crate::outgoing::json;
use crate::replicas::{Astray, Seated};
use crate::resume::{HandedOver, LOOKED_AT};
use crate::types::{AgentKey, News};

impl WriteTx {
    /// Takes the next number in an agent's log.
    pub(super) fn next_number(&mut self, agent: i64) -> Result<i64> {
        if let Some(head) = self.caches.heads.get_mut(&agent) {
            *head += 1;
            return Ok(*head);
        }
        let next = head(&self.db, agent)? + 1;
        self.caches.heads.put(agent, next);
        Ok(next)
    }

    /// Appends an event other than mail to an agent's log.
    pub(super) fn append_event(&mut self, agent: i64, event: Event, now: Timestamp) -> Result<News> {
        let number = self.next_number(agent)?;
        self.changed.agent(agent);
        self.db
            .prepared("INSERT INTO events (agent_id, number, event, at) VALUES (?1, ?2, ?3, ?4)")
            .map_err(failed)?
            .execute(params![agent, number, json(&event)?, now.as_microsecond()])
            .map_err(failed)?;
        Ok(News { agent: AgentKey(agent), entry: Entry { event, cursor: number_of(number).into() } })
    }

    /// Appends a message to its session and to the logs of its recipients, and counts it as unread there. Without
    /// recipients it stays in the session, and no log tells of it. Returns its row and its number in each log.
    pub(super) fn append_message(
        &mut self,
        session: i64,
        message: Columns<'_>,
        recipients: &[i64],
    ) -> Result<(i64, Vec<(AgentKey, u64)>)> {
        let stored = message.stored(recipients.len());
        let row = self
            .db
            .prepared(
                "INSERT INTO messages (public_id, session_id, sender_id, created_at, priority, ttl, kind, trace,
                                       reply_to, correlation_id, task, callback, content, parts, metadata)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
            )
            .and_then(|mut insert| {
                insert.insert(params![
                    message.id.as_bytes(),
                    session,
                    message.sender,
                    message.at.as_microsecond(),
                    message.priority,
                    message.ttl,
                    message.kind,
                    message.trace,
                    message.reply_to.as_ref().map(Uuid::as_bytes),
                    message.correlation_id,
                    message.task,
                    message.callback,
                    message.content,
                    message.parts,
                    message.metadata,
                ])
            })
            .map_err(failed)?;
        self.changed.agent(message.sender);
        let mut copies = Vec::with_capacity(recipients.len());
        for agent in recipients {
            copies.push((AgentKey(*agent), number_of(self.deliver(*agent, session, row, message.priority)?)));
        }
        self.charge(message.payer, stored)?;
        Ok((row, copies))
    }

    /// Appends a message to an agent's log. Returns its number there.
    fn deliver(&mut self, agent: i64, session: i64, message: i64, priority: i16) -> Result<i64> {
        let number = self.next_number(agent)?;
        self.db
            .prepared("INSERT INTO deliveries (message_id, agent_id, number, priority) VALUES (?1, ?2, ?3, ?4)")
            .and_then(|mut insert| insert.execute(params![message, agent, number, priority]))
            .map_err(failed)?;
        self.db
            .prepared("UPDATE session_members SET unread = unread + 1 WHERE agent_id = ?1 AND session_id = ?2")
            .and_then(|mut update| update.execute([agent, session]))
            .map_err(failed)?;
        self.changed.agent(agent);
        self.findable.push(AgentKey(agent));
        Ok(number)
    }
}

/// The number of the newest entry that an agent's log has; 0 where it has none.
fn newest(db: &Connection, agent: i64) -> Result<i64> {
    db.prepared(
        "SELECT max(coalesce((SELECT max(number) FROM deliveries WHERE agent_id = ?1), 0),
                    coalesce((SELECT max(number) FROM events WHERE agent_id = ?1), 0))",
    )
    .and_then(|mut select| select.query_row([agent], |row| row.get(0)))
    .map_err(failed)
}

/// The highest number that was ever given in an agent's log.
pub(super) fn head(db: &Connection, agent: i64) -> Result<i64> {
    let floor: i64 = db
        .prepared("SELECT coalesce((SELECT log_floor FROM agents WHERE id = ?1), 0)")
        .and_then(|mut select| select.query_row([agent], |row| row.get(0)))
        .map_err(failed)?;
    Ok(newest(db, agent)?.max(floor))
}

/// Where a listener goes on that names this cursor.
pub(super) fn resume(db: &Connection, agent: i64, since: u64) -> Result<u64> {
    let head = number_of(head(db, agent)?);
    if since <= head {
        return Ok(since);
    }
    let numbers: [Option<i64>; 3] = db
        .prepared(
            "SELECT min(number), min(iif(mail AND delivered_at IS NULL, number, NULL)),
                    max(iif(delivered_at IS NOT NULL, number, NULL))
             FROM (SELECT number, 1 AS mail, delivered_at FROM deliveries WHERE agent_id = ?1
                   UNION ALL SELECT number, 0, NULL FROM events WHERE agent_id = ?1
                   ORDER BY number DESC LIMIT ?2)",
        )
        .and_then(|mut select| select.query_row([agent, LOOKED_AT], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?])))
        .map_err(failed)?;
    let [oldest, first_undelivered, last_delivered] = numbers.map(|number| number.map(number_of));
    Ok(HandedOver { oldest, first_undelivered, last_delivered }.cursor(head))
}

/// Those listeners whose logs are longer than they know, or whose keys are none any more.
pub(super) fn astray(db: &Connection, seated: &[Seated], now: Timestamp) -> Result<Vec<Astray>> {
    let mut found = Vec::new();
    for (index, mailbox) in seated.iter().enumerate() {
        let head = number_of(head(db, mailbox.agent.0)?);
        // The head may have been put forward, and what was after a listener may have been removed.
        let behind = head > mailbox.at && number_of(newest(db, mailbox.agent.0)?) > mailbox.at;
        let key_ended = match mailbox.key {
            Some(key) => agents::by_key(db, key, now)?.is_none_or(|(agent, _)| agent.key != mailbox.agent),
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
    let Ok(since) = i64::try_from(since) else { return Ok(Vec::new()) };
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut select = db
        .prepared(
            "SELECT number, message_id, NULL AS event FROM deliveries WHERE agent_id = ?1 AND number > ?2
             UNION ALL SELECT number, NULL, event FROM events WHERE agent_id = ?1 AND number > ?2
             ORDER BY number LIMIT ?3",
        )
        .map_err(failed)?;
    let mut rows = select.query([agent, since, limit]).map_err(failed)?;
    let (mut found, mut budget) = (Vec::new(), Budget::page());
    while let Some(row) = rows.next().map_err(failed)? {
        let (number, message): (i64, Option<i64>) =
            row.get(0).and_then(|number| Ok((number, row.get(1)?))).map_err(failed)?;
        let event = match message {
            Some(message) => {
                let message = delivered_message(db, message, agent)?;
                if !budget.takes(message.bytes()) {
                    break;
                }
                Event::NewMessage(message.event()?)
            }
            None => {
                let event: String = row.get(2).map_err(failed)?;
                if !budget.takes(event.len()) {
                    break;
                }
                serde_json::from_str(&event).map_err(StoreError::internal)?
            }
        };
        found.push(Entry { event, cursor: number_of(number).into() });
    }
    Ok(found)
}
