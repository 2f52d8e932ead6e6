//! The history of a session, as its members see it.

use std::collections::HashMap;

use amb_core::doc::{History, MessageView};
use amb_core::mailbox::HistoryPage;
use amb_core::{AgentName, SessionId, Timestamp};
use async_trait::async_trait;
use futures_util::FutureExt;
use uuid::Uuid;

use super::messages::shown_as_delivered;
use super::receipts::{Delivery, DeliveryMark, mark};
use crate::engine::{Changes, Db, Engine, Query, ReadLength, Row, SqlOf, Tried, read, values, write};
use crate::error::Result;
use crate::outgoing::{message_uuid, no_session, not_in_session, session_uuid};
use crate::page_budget::PageBudget;
use crate::refusals;
use crate::row::{Shape, ViewRow, callback_is_senders};
use crate::types::{Agent, Written, to_micros};

/// Histories of sessions.
#[async_trait]
pub trait HistoryVerbs: Engine {
    /// Returns a page of a session, newest first, and marks its messages as read, with receipts to the senders.
    /// `not_found` where there is no such session or `before` is not in it, `forbidden` where the caller is not a
    /// member.
    async fn history(
        &self,
        caller: &Agent,
        session: &SessionId,
        page: HistoryPage,
        now: Timestamp,
    ) -> Result<Written<History>> {
        let asked = (caller.clone(), session_uuid(session)?, page);
        let (history, unread) = read(self, ReadLength::Short, asked, |db, (caller, session, page)| {
            history(db, caller, *session, page).boxed()
        })
        .await?;
        if unread.is_empty() {
            return Ok(Written::quiet(history));
        }
        let asked = (caller.clone(), unread, to_micros(now));
        let marked = write(self, Changes::Logs, asked, |tx, (caller, unread, now)| {
            mark(tx, caller, unread, DeliveryMark::Read, *now).boxed()
        });
        Ok(Written { answer: history, entries: marked.await?.entries })
    }
}

impl<E: Engine> HistoryVerbs for E {}

/// Returns the columns of [`MessageLine`], of a message `m` and its `delivery`, see [`OWN_DELIVERY`]. `name` is the
/// sender's name in a group, `texts` are callback, content, parts and metadata.
pub(super) fn line_columns(delivery: &str, name: &str, texts: &str) -> String {
    format!(
        "m.public_id, m.id, m.sender_id, {name}, {delivery}.message_id, {delivery}.read_at, {delivery}.from_person,
         m.created_at, m.kind, m.priority, m.reply_to, m.correlation_id, m.task, {texts}"
    )
}

/// Joins the delivery of the message `m` of the session `s`: to the agent `$1` in a group, else to the recipient.
pub(super) const OWN_DELIVERY: &str = "LEFT JOIN deliveries e ON e.message_id = m.id AND e.agent_id =
    CASE WHEN s.group_id IS NULL THEN s.low_id + s.high_id - m.sender_id ELSE $1 END";

/// A message as a member of its session sees it.
pub(super) struct MessageLine {
    /// Its row id, which orders the messages of a session.
    pub(super) id: i64,
    pub(super) row: ViewRow,
    /// Its delivery to the viewer, if that is unread.
    unread: Option<Delivery>,
}

impl MessageLine {
    /// Takes a message from the next columns of a row, if there is one. `other` is the other agent of a session of two.
    pub(super) fn take(row: &mut Row<'_>, viewer: &Agent, other: &AgentName) -> Result<Option<Self>> {
        let Some(public_id) = row.take()? else { return Ok(None) };
        let (id, sender, name): (_, i64, Option<AgentName>) = (row.take()?, row.take()?, row.take()?);
        let (delivery, read_at): (Option<i64>, Option<Timestamp>) = (row.take()?, row.take()?);
        let from_person: Option<bool> = row.take()?;
        let mine = sender == viewer.key.0;
        let unread = delivery.filter(|_| read_at.is_none() && !mine);
        let mut view = ViewRow {
            id: public_id,
            sender: match name {
                _ if mine => viewer.name.clone(),
                name => name.unwrap_or_else(|| other.clone()),
            },
            from_person: !mine && from_person.unwrap_or_default(),
            is_read: read_at.is_some(),
            at: row.take()?,
            kind: row.take()?,
            priority: row.take()?,
            reply_to: row.take()?,
            correlation_id: row.take()?,
            task: row.take()?,
            callback: row.take()?,
            content: row.take()?,
            parts: row.take()?,
            metadata: row.take()?,
        };
        if mine != callback_is_senders(&view.kind) {
            view.callback = None;
        }
        Ok(Some(Self { id, row: view, unread: unread.map(|message| Delivery { message, sender }) }))
    }
}

/// Row id and subject of a session, id and name of the other agent of a pair, whether the caller is a member, and the
/// row id of a message.
type FoundSession = (i64, String, Option<i64>, Option<AgentName>, bool, Option<i64>);

static PAGE_OF_PAIR: SqlOf = SqlOf::new();
static PAGE_OF_GROUP: SqlOf = SqlOf::new();

/// Returns a statement for the newest messages of the session `$2` before the message `$3`, at most `$4`, that the
/// agent `$1` sees.
fn page_of(name: &str, joins: &str) -> String {
    format!(
        "SELECT {} FROM messages m {joins} WHERE m.session_id = $2 AND m.id < $3 AND {} ORDER BY m.id DESC LIMIT $4",
        line_columns("e", name, "m.callback, m.content, m.parts, m.metadata"),
        shown_as_delivered("$1")
    )
}

/// Marks those of the viewer's own messages to groups as read that all recipients have read.
pub(super) async fn mark_read_by_all(db: &mut dyn Db, viewer: &Agent, messages: Vec<&mut MessageView>) -> Tried<()> {
    let mut own: HashMap<Uuid, &mut MessageView> = HashMap::new();
    for view in messages {
        if let Some(id) = view.id.as_uuid().filter(|_| view.sender_name == viewer.name) {
            own.insert(id, view);
        }
    }
    if own.is_empty() {
        return Ok(());
    }
    let sql = format!(
        "SELECT m.public_id FROM messages m JOIN deliveries e ON e.message_id = m.id
         WHERE m.public_id {} GROUP BY m.public_id HAVING count(*) = count(e.read_at)",
        (db.dialect().in_ids)("$1")
    );
    let ids: Vec<Uuid> = own.keys().copied().collect();
    for id in db.rows::<Uuid>(&sql, values![&ids]).await? {
        if let Some(view) = own.get_mut(&id) {
            view.is_read = true;
        }
    }
    Ok(())
}

/// Returns the newest messages of a session before one, the unread deliveries of them to the caller, and whether the
/// page was full before `limit`. `other` is the other agent of a session of two and its name, `None` in a group.
pub(super) async fn page(
    db: &mut dyn Db,
    caller: &Agent,
    (session, other): (i64, Option<(i64, &AgentName)>),
    before: i64,
    limit: u32,
    shape: Shape,
) -> Tried<(Vec<MessageView>, Vec<Delivery>, bool)> {
    let me = caller.key.0;
    let mut values = values![me, session, before, limit].to_vec();
    let sql = match other {
        Some((other, _)) => {
            values.push((me + other).into());
            // Joined by the whole key: without statistics PostgreSQL expects many rows for a part of it, and scans the
            // table.
            let join = "LEFT JOIN deliveries e ON e.message_id = m.id AND e.agent_id = $5 - m.sender_id";
            PAGE_OF_PAIR.get(db.dialect(), |_| page_of("NULL", join))
        }
        None => PAGE_OF_GROUP.get(db.dialect(), |_| {
            let joins = "JOIN sessions s ON s.id = m.session_id JOIN agents f ON f.id = m.sender_id";
            page_of("f.name", &format!("{joins} {OWN_DELIVERY}"))
        }),
    };
    let (mut messages, mut unread, mut budget) = (Vec::new(), Vec::new(), PageBudget::new());
    let mut add = |mut row: Row<'_>| {
        // In a group each row has the name of its sender.
        let Some(line) = MessageLine::take(&mut row, caller, other.map_or(&caller.name, |(_, name)| name))? else {
            return Ok(false);
        };
        if shape == Shape::Whole && !budget.takes(line.row.bytes()) {
            return Ok(false);
        }
        unread.extend(line.unread);
        messages.push(line.row.view(shape)?);
        Ok(true)
    };
    db.each(sql, &values, &mut add).await?;
    if other.is_none() {
        mark_read_by_all(db, caller, messages.iter_mut().collect()).await?;
    }
    Ok((messages, unread, budget.is_full()))
}

/// Returns a page of a session before it is marked as read, and the deliveries to mark.
async fn history(
    db: &mut dyn Db,
    caller: &Agent,
    session: Uuid,
    wanted: &HistoryPage,
) -> Tried<(History, Vec<Delivery>)> {
    let me = caller.key.0;
    let before = wanted.before.as_ref().map(message_uuid).transpose()?;
    let sql = "SELECT s.id, s.subject, a.id, a.name,
                      EXISTS (SELECT 1 FROM session_members b WHERE b.agent_id = $2 AND b.session_id = s.id),
                      (SELECT m.id FROM messages m WHERE m.public_id = $3 AND m.session_id = s.id)
               FROM sessions s LEFT JOIN agents a ON a.id = s.low_id + s.high_id - $2 WHERE s.public_id = $1";
    let found: Option<FoundSession> = db.find(sql, values![session, me, before]).await?;
    let (id, subject, other, name, is_member, end) = found.ok_or_else(no_session)?;
    if !is_member {
        return Err(refusals::not_a_member().into());
    }
    let end = match (&wanted.before, end) {
        (Some(before), None) => return Err(not_in_session(before).into()),
        (_, end) => end.unwrap_or(i64::MAX),
    };
    let other = other.zip(name.as_ref());
    let (mut messages, unread, truncated) = page(db, caller, (id, other), end, wanted.limit, Shape::Whole).await?;
    // The messages are marked as read before they are returned.
    for view in &mut messages {
        view.is_read |= view.sender_name != caller.name;
    }
    if messages.is_empty() && wanted.before.is_none() {
        return Err(no_session().into());
    }
    Ok((History { session_id: session.into(), subject, messages, truncated }, unread))
}
