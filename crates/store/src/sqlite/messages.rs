//! The message that another one answers or passes on.

use amb_core::Message;
use rusqlite::Connection;
use uuid::Uuid;

use super::engine::each;
use super::error::failed;
use super::plans::Prepared;
use crate::engine::{FromRow, Row, SQLITE, SqlOf, from_row, values};
use crate::error::Result;
use crate::row::{MessageRow, message_columns};

/// Whether the message of this alias was delivered to nobody.
macro_rules! undelivered {
    ($message:literal) => {
        concat!("NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.message_id = ", $message, ".id)")
    };
}
pub(super) use undelivered;

/// A message, and who it went from and to.
pub(super) struct Found {
    pub(super) row: MessageRow,
    row_id: i64,
    pub(super) session: i64,
    pub(super) sender: i64,
    /// The group whose session it is in.
    pub(super) group: Option<i64>,
}

from_row!(Found: row row_id session sender group);

impl Found {
    /// Whether it came to this agent.
    pub(super) fn came_to(&self, db: &Connection, agent: i64) -> Result<bool> {
        db.prepared("SELECT 1 FROM deliveries WHERE message_id = ?1 AND agent_id = ?2")
            .and_then(|mut select| select.exists([self.row_id, agent]))
            .map_err(failed)
    }

    /// The message as the office itself sees it.
    pub(super) fn message(self) -> Result<Message> {
        self.row.for_office()
    }
}

static FIND: SqlOf = SqlOf::new();

/// The message of this id.
pub(super) fn find(db: &Connection, id: Uuid) -> Result<Option<Found>> {
    let sql = FIND.get(&SQLITE, |_| {
        format!(
            "SELECT {}, m.id, m.session_id, m.sender_id, s.group_id
             FROM messages m
             JOIN sessions s ON s.id = m.session_id
             JOIN agents f ON f.id = m.sender_id
             LEFT JOIN agents t ON t.id = s.low_id + s.high_id - m.sender_id
             LEFT JOIN deliveries e ON e.message_id = m.id AND e.agent_id = t.id
             WHERE m.public_id = $1",
            message_columns("e")
        )
    });
    let mut found = None;
    let mut keep = |mut row: Row<'_>| {
        found = Some(Found::from_row(&mut row)?);
        Ok(false)
    };
    each(db, sql, values![id], &mut keep)?;
    Ok(found)
}
