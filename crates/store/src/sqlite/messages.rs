//! Reading messages.

use amb_core::Message;
use rusqlite::{Connection, OptionalExtension, Row};
use uuid::Uuid;

use super::error::failed;
use super::keys::{instant_at, maybe_instant_at, maybe_uuid_at, uuid_at};
use super::plans::Prepared;
use crate::error::Result;
use crate::row::{self, MessageRow};

/// The columns of [`message_row`], of `m` (messages), `s` (sessions), `f` and `t` (the agents it is from and to), and `e`
/// (its delivery).
macro_rules! message_columns {
    () => {
        "m.public_id, s.public_id, s.subject, f.name, t.name, m.created_at, m.priority, m.ttl, m.kind, m.trace,
         m.reply_to, m.correlation_id, m.task, m.callback, m.content, m.parts, m.metadata, e.delivered_at, e.read_at,
         e.rung_at"
    };
}
pub(super) use message_columns;

/// Whether the message of this alias was delivered to nobody.
macro_rules! undelivered {
    ($message:literal) => {
        concat!("NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.message_id = ", $message, ".id)")
    };
}
pub(super) use undelivered;

/// The first column after those of [`message_row`].
pub(super) const DELIVERED: usize = 20;

/// A message from a row that begins with [`message_columns`].
pub(super) fn message_row(row: &Row<'_>) -> rusqlite::Result<MessageRow> {
    Ok(MessageRow {
        id: uuid_at(row, 0)?,
        session: uuid_at(row, 1)?,
        subject: row.get(2)?,
        from: row.get(3)?,
        to: row.get::<_, Option<String>>(4)?.unwrap_or_default(),
        at: instant_at(row, 5)?,
        priority: row.get(6)?,
        ttl: row.get(7)?,
        kind: row.get(8)?,
        trace: row.get(9)?,
        reply_to: maybe_uuid_at(row, 10)?,
        correlation_id: row.get(11)?,
        task: row.get(12)?,
        callback: row.get(13)?,
        content: row.get(14)?,
        parts: row.get(15)?,
        metadata: row.get(16)?,
        delivered_at: maybe_instant_at(row, 17)?,
        read_at: maybe_instant_at(row, 18)?,
        rung_at: maybe_instant_at(row, 19)?,
    })
}

/// A message, and who it went from and to.
pub(super) struct Found {
    pub(super) row_id: i64,
    pub(super) session: i64,
    pub(super) sender: i64,
    /// The group whose session it is in.
    pub(super) group: Option<i64>,
    pub(super) row: MessageRow,
}

impl Found {
    /// Whether it came to this agent.
    pub(super) fn came_to(&self, db: &Connection, agent: i64) -> Result<bool> {
        db.prepared("SELECT 1 FROM deliveries WHERE message_id = ?1 AND agent_id = ?2")
            .and_then(|mut select| select.exists([self.row_id, agent]))
            .map_err(failed)
    }

    /// The message as the office itself sees it, which is how its sender does.
    pub(super) fn message(mut self) -> Result<Message> {
        if self.row.to.is_empty() {
            // A group's message is to no one agent.
            self.row.to = self.row.from.clone();
        }
        let sender = row::name(&self.row.from)?;
        self.row.message(&sender)
    }
}

/// The message of this id.
pub(super) fn find(db: &Connection, id: Uuid) -> Result<Option<Found>> {
    let sql = concat!(
        "SELECT ",
        message_columns!(),
        ", m.id, m.session_id, m.sender_id, s.group_id FROM messages m
         JOIN sessions s ON s.id = m.session_id
         JOIN agents f ON f.id = m.sender_id
         LEFT JOIN agents t ON t.id = s.low_id + s.high_id - m.sender_id
         LEFT JOIN deliveries e ON e.message_id = m.id AND e.agent_id = t.id
         WHERE m.public_id = ?1"
    );
    db.prepared(sql)
        .and_then(|mut select| {
            select
                .query_row([id.as_bytes()], |row| {
                    Ok(Found {
                        row: message_row(row)?,
                        row_id: row.get(DELIVERED)?,
                        session: row.get(DELIVERED + 1)?,
                        sender: row.get(DELIVERED + 2)?,
                        group: row.get(DELIVERED + 3)?,
                    })
                })
                .optional()
        })
        .map_err(failed)
}
