//! Looking into the inbox and into a session.

use std::cmp::Reverse;

use amb_core::doc::{History, Inbox, MessageView, PendingConnection, SessionSummary};
use amb_core::limits::INBOX_PREVIEW;
use amb_core::mailbox::HistoryPage;
use amb_core::{AgentName, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use super::error::failed;
use super::keys::{instant_at, maybe_uuid_at, uuid_at};
use super::messages::{DELIVERED, message_columns, message_row, shown_in_pair};
use super::plans::Prepared;
use crate::budget::Budget;
use crate::engine::Delivery;
use crate::error::Result;
use crate::outgoing::{message_uuid, no_session, not_in_session, session_uuid};
use crate::query::InboxPage;
use crate::refusals;
use crate::row::{self, Shape, ViewRow, callback_is_senders};
use crate::types::Agent;

/// A session that the viewer is in.
struct Viewed<'a> {
    id: i64,
    /// The other agent; `None` in a group.
    other: Option<&'a AgentName>,
}

/// One page, newest first, and what the viewer has not read of it.
struct Page {
    views: Vec<MessageView>,
    unread: Vec<Delivery>,
}

/// The newest messages of a session before a row.
fn page(db: &Connection, caller: &Agent, session: &Viewed<'_>, before: i64, limit: i64, shape: Shape) -> Result<Page> {
    match session.other {
        Some(other) => page_of_pair(db, caller, other, session.id, before, limit, shape),
        None => page_of_group(db, caller, session.id, before, limit, shape),
    }
}

/// A page between two agents. Who they are is known, so nothing but the messages and their deliveries is looked at.
fn page_of_pair(
    db: &Connection,
    caller: &Agent,
    other: &AgentName,
    session: i64,
    before: i64,
    limit: i64,
    shape: Shape,
) -> Result<Page> {
    let mut select = db
        .prepared(concat!(
            "SELECT m.sender_id, m.id, e.read_at, m.kind, m.public_id, m.created_at, m.priority, m.reply_to,
                    m.correlation_id, m.task, m.callback, m.content, m.parts, m.metadata
             FROM messages m LEFT JOIN deliveries e ON e.message_id = m.id
             WHERE m.session_id = ?1 AND m.id < ?2 AND ",
            shown_in_pair!("?4"),
            " ORDER BY m.id DESC LIMIT ?3",
        ))
        .map_err(failed)?;
    let mut rows = select.query([session, before, limit, caller.key.0]).map_err(failed)?;
    let (mut page, mut budget) = (Page { views: Vec::new(), unread: Vec::new() }, Budget::page());
    while let Some(row) = rows.next().map_err(failed)? {
        let (message, id, sender) = pair_row(row, caller, other).map_err(failed)?;
        if shape == Shape::Whole && !budget.takes(message.bytes()) {
            break;
        }
        if !message.is_read && message.sender != caller.name {
            page.unread.push(Delivery { place: id, sender });
        }
        page.views.push(message.view(shape)?);
    }
    Ok(page)
}

fn pair_row(row: &Row<'_>, caller: &Agent, other: &AgentName) -> rusqlite::Result<(ViewRow, i64, i64)> {
    let sender: i64 = row.get(0)?;
    let mine = sender == caller.key.0;
    let kind: Option<String> = row.get(3)?;
    let message = ViewRow {
        id: uuid_at(row, 4)?,
        sender: if mine { caller.name.clone() } else { other.clone() },
        at: instant_at(row, 5)?,
        is_read: row.get::<_, Option<i64>>(2)?.is_some(),
        priority: row.get(6)?,
        reply_to: maybe_uuid_at(row, 7)?,
        correlation_id: row.get(8)?,
        task: row.get(9)?,
        callback: if mine == callback_is_senders(kind.as_deref()) { row.get(10)? } else { None },
        kind,
        content: row.get(11)?,
        parts: row.get(12)?,
        metadata: row.get(13)?,
    };
    Ok((message, row.get(1)?, sender))
}

/// A page of a group's session, with the viewer's own copy of each message: an agent sees what it sent and what came to
/// it, not what was said before it joined or after it left.
fn page_of_group(db: &Connection, caller: &Agent, session: i64, before: i64, limit: i64, shape: Shape) -> Result<Page> {
    let sql = concat!(
        "SELECT ",
        message_columns!(),
        ", e.message_id, m.sender_id, m.sender_id = ?4 AND EXISTS (SELECT 1 FROM deliveries o WHERE o.message_id = m.id)
             AND NOT EXISTS (SELECT 1 FROM deliveries o WHERE o.message_id = m.id AND o.read_at IS NULL)
         FROM messages m
         JOIN sessions s ON s.id = m.session_id
         JOIN agents f ON f.id = m.sender_id
         LEFT JOIN deliveries e ON e.message_id = m.id AND e.agent_id = ?4
         LEFT JOIN agents t ON t.id = s.low_id + s.high_id - m.sender_id
         WHERE m.session_id = ?1 AND m.id < ?2 AND (m.sender_id = ?4 OR e.message_id IS NOT NULL)
         ORDER BY m.id DESC LIMIT ?3"
    );
    let mut select = db.prepared(sql).map_err(failed)?;
    let mut rows = select.query([session, before, limit, caller.key.0]).map_err(failed)?;
    let (mut page, mut budget) = (Page { views: Vec::new(), unread: Vec::new() }, Budget::page());
    while let Some(row) = rows.next().map_err(failed)? {
        let message = message_row(row).map_err(failed)?;
        if shape == Shape::Whole && !budget.takes(message.bytes()) {
            break;
        }
        let delivered: Option<i64> = row.get(DELIVERED).map_err(failed)?;
        let sender = row.get(DELIVERED + 1).map_err(failed)?;
        let unread = delivered.filter(|_| message.read_at.is_none());
        page.unread.extend(unread.map(|place| Delivery { place, sender }));
        let mut view = message.view(&caller.name, shape)?;
        view.is_read |= row.get::<_, bool>(DELIVERED + 2).map_err(failed)?;
        page.views.push(view);
    }
    Ok(page)
}

/// One of the caller's sessions.
struct Member {
    id: i64,
    unread: u32,
    public_id: Uuid,
    subject: String,
    /// The other side; of a group its owner.
    other: AgentName,
    created_at: Timestamp,
    group: Option<String>,
}

impl Member {
    /// Its newest messages.
    fn recent(&self, db: &Connection, caller: &Agent, count: i64) -> Result<Vec<MessageView>> {
        let session = Viewed { id: self.id, other: self.group.is_none().then_some(&self.other) };
        Ok(page(db, caller, &session, i64::MAX, count, Shape::Preview)?.views)
    }

    /// By which sessions are in order, the newest first.
    fn order(&self, newest: Option<&MessageView>) -> Reverse<(Timestamp, i64)> {
        Reverse((newest.map_or(self.created_at, |message| message.created_at), self.id))
    }

    fn summary(self, recent: Vec<MessageView>) -> SessionSummary {
        SessionSummary {
            session_id: self.public_id.into(),
            subject: self.subject,
            other_agent_name: self.other,
            unread_count: self.unread.into(),
            last_message_at: recent.first().map_or(self.created_at, |message| message.created_at),
            recent_messages: recent,
            group: self.group,
        }
    }
}

/// A page of the caller's sessions with the requests that wait for it; nothing where it has more sessions than `at_most`.
pub(super) fn inbox(
    db: &Connection,
    caller: &Agent,
    wanted: &InboxPage,
    pending: Vec<PendingConnection>,
    at_most: Option<usize>,
) -> Result<Option<Inbox>> {
    let mut select = db
        .prepared(
            "SELECT b.session_id, b.unread, s.public_id, s.subject, a.name, s.created_at, g.name
             FROM session_members b
             JOIN sessions s ON s.id = b.session_id
             LEFT JOIN groups g ON g.id = s.group_id
             JOIN agents a ON a.id = coalesce(s.low_id + s.high_id - b.agent_id, g.owner_id)
             WHERE b.agent_id = ?1 AND (b.unread >= ?2 OR s.public_id = ?3)",
        )
        .map_err(failed)?;
    let before = wanted.before.as_ref().map(session_uuid).transpose()?;
    let mut rows = select
        .query(params![caller.key.0, i64::from(wanted.unread_only), before.as_ref().map(Uuid::as_bytes)])
        .map_err(failed)?;
    let mut members = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        if at_most == Some(members.len()) {
            return Ok(None);
        }
        members.push(Member {
            id: row.get(0).map_err(failed)?,
            unread: row.get(1).map_err(failed)?,
            public_id: uuid_at(row, 2).map_err(failed)?,
            subject: row.get(3).map_err(failed)?,
            other: row::name(&row.get::<_, String>(4).map_err(failed)?)?,
            created_at: instant_at(row, 5).map_err(failed)?,
            group: row.get(6).map_err(failed)?,
        });
    }
    let limit = usize::try_from(wanted.limit).unwrap_or(usize::MAX);
    let mut sessions = Vec::new();
    if before.is_none() && members.len() <= limit {
        for member in members {
            let recent = member.recent(db, caller, INBOX_PREVIEW as i64)?;
            // One in which all was delivered to nobody is the other's alone, its subject too.
            if !recent.is_empty() {
                sessions.push((member.order(recent.first()), member.summary(recent)));
            }
        }
    } else {
        // The order first, so that no more is read than is shown.
        let mut ordered = Vec::with_capacity(members.len());
        for member in members {
            let newest = member.recent(db, caller, 1)?;
            if !newest.is_empty() {
                ordered.push((member.order(newest.first()), member));
            }
        }
        let after = match before {
            None => None,
            Some(id) => {
                let at = ordered.iter().find(|(_, member)| member.public_id == id).map(|(order, _)| *order);
                Some(at.ok_or_else(no_session)?)
            }
        };
        ordered.retain(|(order, _)| after.is_none_or(|after| *order > after));
        ordered.sort_unstable_by_key(|(order, _)| *order);
        // One more than is shown says that there is more.
        for (order, member) in ordered.into_iter().take(limit.saturating_add(1)) {
            let recent = member.recent(db, caller, INBOX_PREVIEW as i64)?;
            sessions.push((order, member.summary(recent)));
        }
    }
    sessions.sort_by_key(|(order, _)| *order);
    let sessions = sessions.into_iter().map(|(_, session)| session).collect();
    Ok(Some(row::inbox_page(sessions, limit, pending)))
}

/// A page of a session as it is before it is marked, and what to mark.
pub(super) fn history(
    db: &Connection,
    caller: &Agent,
    session: Uuid,
    wanted: &HistoryPage,
) -> Result<(History, Vec<Delivery>)> {
    let found: Option<(i64, String, bool, Option<String>)> = db
        .prepared(
            "SELECT s.id, s.subject,
                    EXISTS (SELECT 1 FROM session_members b WHERE b.agent_id = ?2 AND b.session_id = s.id), a.name
             FROM sessions s LEFT JOIN agents a ON a.id = s.low_id + s.high_id - ?2
             WHERE s.public_id = ?1",
        )
        .and_then(|mut select| {
            select
                .query_row(params![session.as_bytes(), caller.key.0], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
                })
                .optional()
        })
        .map_err(failed)?;
    let Some((id, subject, member, other)) = found else { return Err(no_session()) };
    if !member {
        return Err(refusals::not_a_member());
    }
    let before = match &wanted.before {
        None => i64::MAX,
        Some(before) => {
            let wanted = message_uuid(before)?;
            let row: Option<i64> = db
                .prepared("SELECT id FROM messages WHERE public_id = ?1 AND session_id = ?2")
                .and_then(|mut select| select.query_row(params![wanted.as_bytes(), id], |row| row.get(0)).optional())
                .map_err(failed)?;
            row.ok_or_else(|| not_in_session(before))?
        }
    };
    let other = other.as_deref().map(row::name).transpose()?;
    let mut page = page(db, caller, &Viewed { id, other: other.as_ref() }, before, wanted.limit.into(), Shape::Whole)?;
    if page.views.is_empty() && wanted.before.is_none() {
        return Err(no_session());
    }
    // What is answered is read by the time it is answered.
    for view in &mut page.views {
        view.is_read |= view.sender_name != caller.name;
    }
    let history = History { session_id: session.into(), subject, messages: page.views };
    Ok((history, page.unread))
}
