//! Looking into the inbox and into a session.

use std::cmp::Reverse;

use amb_core::doc::{History, Inbox, MessageView, PendingConnection, SessionSummary};
use amb_core::limits::INBOX_PREVIEW;
use amb_core::office::HistoryPage;
use amb_core::receipt::Receipt;
use amb_core::{Event, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use super::error::failed;
use super::keys::{instant_at, owner_of, range, uuid_at};
use super::messages::{DELIVERED, message_columns, message_row};
use super::plans::Prepared;
use super::writer::Desk;
use crate::error::Result;
use crate::letter::{message_uuid, no_message, no_session};
use crate::row;
use crate::types::{Agent, News};
use crate::words;

/// The newest messages of a session before a row, with the viewer's own copy of each. Of a group's session an agent sees
/// what it sent and what came to it, not what was said before it joined or after it left.
const PAGE: &str = concat!(
    "SELECT ",
    message_columns!(),
    ", e.id, s.group_id IS NOT NULL AND m.sender_id = ?4 AND NOT EXISTS (
         SELECT 1 FROM copies o JOIN entries r ON r.id = o.entry_id WHERE o.message_id = m.id AND r.read_at IS NULL)
     FROM messages m
     JOIN sessions s ON s.id = m.id >> 32
     JOIN agents f ON f.id = m.sender_id
     LEFT JOIN copies c ON m.delivery_id IS NULL AND c.message_id = m.id AND c.agent_id = ?4
     LEFT JOIN entries e ON e.id = coalesce(m.delivery_id, c.entry_id)
     LEFT JOIN agents t ON t.id = s.low_id + s.high_id - m.sender_id
     WHERE m.id > ?1 AND m.id < ?2 AND (s.group_id IS NULL OR m.sender_id = ?4 OR c.entry_id IS NOT NULL)
     ORDER BY m.id DESC LIMIT ?3"
);

/// One page, and what of it the viewer has not read: the entries that deliver it.
struct Page {
    views: Vec<MessageView>,
    unread: Vec<i64>,
}

fn page(db: &Connection, caller: &Agent, session: i64, before: i64, limit: i64) -> Result<Page> {
    let (first, _) = range(session);
    let mut select = db.prepared(PAGE).map_err(failed)?;
    let mut rows = select.query([first, before, limit, caller.key.0]).map_err(failed)?;
    let mut page = Page { views: Vec::new(), unread: Vec::new() };
    while let Some(row) = rows.next().map_err(failed)? {
        let message = message_row(row).map_err(failed)?;
        let delivery: Option<i64> = row.get(DELIVERED).map_err(failed)?;
        if let Some(delivery) = delivery
            && message.read_at.is_none()
            && owner_of(delivery) == caller.key.0
        {
            page.unread.push(delivery);
        }
        let mut view = message.view(&caller.name)?;
        view.is_read |= row.get::<_, bool>(DELIVERED + 1).map_err(failed)?;
        page.views.push(view);
    }
    Ok(page)
}

/// The caller's sessions and the requests that wait for it.
pub(super) fn inbox(db: &Connection, caller: &Agent, unread_only: bool, now: Timestamp) -> Result<Inbox> {
    let mut select = db
        .prepared(
            "SELECT b.session_id, b.unread, s.public_id, s.subject, a.name, s.created_at, g.name
             FROM session_members b
             JOIN sessions s ON s.id = b.session_id
             LEFT JOIN groups g ON g.id = s.group_id
             JOIN agents a ON a.id = coalesce(s.low_id + s.high_id - b.agent_id, g.owner_id)
             WHERE b.agent_id = ?1 AND b.unread >= ?2",
        )
        .map_err(failed)?;
    let mut rows = select.query([caller.key.0, i64::from(unread_only)]).map_err(failed)?;
    let mut sessions = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let other: String = row.get(4).map_err(failed)?;
        let id: i64 = row.get(0).map_err(failed)?;
        let (_, last) = range(id);
        let recent = page(db, caller, id, last, INBOX_PREVIEW as i64)?.views;
        let created_at = instant_at(row, 5).map_err(failed)?;
        sessions.push(SessionSummary {
            session_id: uuid_at(row, 2).map_err(failed)?.into(),
            subject: row.get(3).map_err(failed)?,
            other_agent_name: row::name(&other)?,
            unread_count: row.get::<_, u32>(1).map_err(failed)?.into(),
            last_message_at: recent.first().map_or(created_at, |message| message.created_at),
            recent_messages: recent,
            group: row.get(6).map_err(failed)?,
        });
    }
    sessions.sort_by_key(|session| Reverse(session.last_message_at));
    Ok(Inbox { sessions, pending_connections: pending(db, caller, now)? })
}

/// The requests that wait for the caller.
pub(super) fn pending(db: &Connection, caller: &Agent, now: Timestamp) -> Result<Vec<PendingConnection>> {
    let mut select = db
        .prepared(
            "SELECT c.public_id, a.name, c.message, iif(c.code_private, NULL, c.verification_code), c.created_at
             FROM connections c JOIN agents a ON a.id = c.requester_id
             WHERE c.target_id = ?1 AND c.status = 'PENDING' AND (c.expires_at IS NULL OR c.expires_at > ?2)
             ORDER BY c.id",
        )
        .map_err(failed)?;
    let found = select
        .query_map([caller.key.0, now.as_microsecond()], |row| {
            let id: Uuid = uuid_at(row, 0)?;
            Ok((id, row.get::<_, String>(1)?, row.get(2)?, row.get(3)?, instant_at(row, 4)?))
        })
        .map_err(failed)?;
    found
        .map(|found| {
            let (id, from, message, verification_code, created_at) = found.map_err(failed)?;
            Ok(PendingConnection {
                connection_id: id.into(),
                from_agent_name: row::name(&from)?,
                message,
                verification_code,
                created_at,
            })
        })
        .collect()
}

/// A page of a session as it is before it is marked, and the deliveries to mark.
pub(super) fn history(
    db: &Connection,
    caller: &Agent,
    session: Uuid,
    wanted: &HistoryPage,
) -> Result<(History, Vec<i64>)> {
    let found: Option<(i64, String, bool)> = db
        .prepared(
            "SELECT s.id, s.subject,
                    EXISTS (SELECT 1 FROM session_members b WHERE b.agent_id = ?2 AND b.session_id = s.id)
             FROM sessions s WHERE s.public_id = ?1",
        )
        .and_then(|mut select| {
            select
                .query_row(params![session.as_bytes(), caller.key.0], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
                .optional()
        })
        .map_err(failed)?;
    let Some((id, subject, member)) = found else { return Err(no_session()) };
    if !member {
        return Err(words::not_a_member());
    }
    let before = match &wanted.before {
        None => range(id).1,
        Some(before) => {
            let wanted = message_uuid(before)?;
            let row: Option<i64> = db
                .prepared("SELECT id FROM messages WHERE public_id = ?1")
                .and_then(|mut select| select.query_row([wanted.as_bytes()], |row| row.get(0)).optional())
                .map_err(failed)?;
            row.filter(|row| owner_of(*row) == id).ok_or_else(|| no_message(before))?
        }
    };
    let mut page = page(db, caller, id, before, wanted.limit.into())?;
    // What is answered is read by the time it is answered.
    for view in &mut page.views {
        view.is_read |= view.sender_name != caller.name;
    }
    let history = History { session_id: session.into(), subject, messages: page.views };
    Ok((history, page.unread))
}

impl Desk {
    /// Marks deliveries as read, and tells the senders.
    pub(super) fn mark_read(&mut self, caller: &Agent, deliveries: &[i64], now: Timestamp) -> Result<Vec<News>> {
        let mut news = Vec::new();
        for delivery in deliveries {
            let marked: Option<i64> = self
                .db
                .prepared(
                    "UPDATE entries SET read_at = ?2, delivered_at = coalesce(delivered_at, ?2), lease_until = NULL
                     WHERE id = ?1 AND read_at IS NULL RETURNING message_id",
                )
                .and_then(|mut update| update.query_row([*delivery, now.as_microsecond()], |row| row.get(0)).optional())
                .map_err(failed)?;
            let Some(message) = marked else { continue };
            self.db
                .prepared("UPDATE session_members SET unread = unread - 1 WHERE agent_id = ?1 AND session_id = ?2")
                .and_then(|mut update| update.execute([caller.key.0, owner_of(message)]))
                .map_err(failed)?;
            news.push(self.tell_receipt(*delivery, message, caller, now)?);
        }
        Ok(news)
    }

    /// Tells the sender of a message how far it has come on its way to the caller.
    pub(super) fn tell_receipt(&mut self, delivery: i64, message: i64, caller: &Agent, now: Timestamp) -> Result<News> {
        let (public_id, sender, created_at, delivered_at, read_at) = self
            .db
            .prepared(
                "SELECT m.public_id, m.sender_id, m.created_at, e.delivered_at, e.read_at
                 FROM messages m, entries e WHERE m.id = ?1 AND e.id = ?2",
            )
            .and_then(|mut select| {
                select.query_row([message, delivery], |row| {
                    let at = super::keys::maybe_instant_at;
                    Ok((uuid_at(row, 0)?, row.get(1)?, instant_at(row, 2)?, at(row, 3)?, at(row, 4)?))
                })
            })
            .map_err(failed)?;
        let receipt = Receipt::of(caller.name.clone(), created_at, delivered_at, read_at);
        self.tell(sender, Event::Receipt { message_id: public_id.into(), receipt }, now)
    }
}
