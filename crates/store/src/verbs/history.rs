//! A session as its members see it.

use amb_core::doc::{History, MessageView};
use amb_core::mailbox::HistoryPage;
use amb_core::{AgentName, SessionId, Timestamp};
use async_trait::async_trait;
use futures_util::FutureExt;
use uuid::Uuid;

use super::messages::shown_to;
use super::receipts::mark;
use crate::budget::Budget;
use crate::engine::{
    Changes, Db, Delivery, Dialect, Engine, Look, Mark, Query, Row, SqlOf, Tried, read, values, write,
};
use crate::error::Result;
use crate::outgoing::{message_uuid, no_session, not_in_session, session_uuid};
use crate::refusals;
use crate::row::{self, Shape, ViewRow, callback_is_senders};
use crate::types::{Agent, Written, to_micros};

/// Reading sessions.
#[async_trait]
pub trait Sessions: Engine {
    /// A page of a session, newest first; what it shows is marked as read, and the senders' logs get the receipts.
    /// `not_found` where there is no such session, `forbidden` where the caller is not in it. A `before` that is not in
    /// the session is `not_found`.
    async fn history(
        &self,
        caller: &Agent,
        session: &SessionId,
        page: HistoryPage,
        now: Timestamp,
    ) -> Result<Written<History>> {
        let asked = (caller.clone(), session_uuid(session)?, page);
        let (history, unread) =
            read(self, Look::Short, asked, |db, (caller, session, page)| history(db, caller, *session, page).boxed())
                .await?;
        if unread.is_empty() {
            return Ok(Written::quiet(history));
        }
        let asked = (caller.clone(), unread, to_micros(now));
        let marked = write(self, Changes::Logs, asked, |tx, (caller, unread, now)| {
            mark(tx, caller, unread, Mark::Read, *now).boxed()
        });
        Ok(Written { answer: history, entries: marked.await?.entries })
    }
}

impl<E: Engine> Sessions for E {}

/// The columns of [`Line`]; `texts` are callback, content, parts and metadata. Of a message `m` in its session `s`, and its delivery
/// `e`: to the agent `$1` in a group, else to the one it went to.
pub(super) fn line_columns(dialect: &Dialect, texts: &str) -> String {
    let (place, delivery, group) = (dialect.place, dialect.delivery, dialect.group_deliveries);
    // What an agent sent to a group is read when everybody has read it. `CASE`, because SQLite evaluates both sides of `AND`.
    format!(
        "m.public_id, {place}, m.sender_id,
         CASE WHEN s.group_id IS NOT NULL THEN (SELECT f.name FROM agents f WHERE f.id = m.sender_id) END,
         e.agent_id, {delivery}, e.read_at,
         CASE WHEN s.group_id IS NULL OR m.sender_id <> $1 THEN FALSE
              ELSE coalesce((SELECT min(CASE WHEN e.read_at IS NULL THEN 0 ELSE 1 END) FROM {group}
                             WHERE e.message = m.public_id), 0) = 1 END,
         m.created_at, m.kind, m.priority, m.reply_to, m.correlation_id, m.task, {texts}"
    )
}

/// A message as a member of its session sees it.
pub(super) struct Line {
    pub(super) place: i64,
    row: ViewRow,
    /// Where it came to the viewer, who has not read it.
    unread: Option<Delivery>,
}

impl Line {
    /// A message from the next columns of a row, if there is one. `other` is the other agent of a session between two.
    pub(super) fn take(row: &mut Row, viewer: &Agent, other: &AgentName) -> Result<Option<Self>> {
        let Some(id) = row.take()? else { return Ok(None) };
        let (place, sender, name): (_, i64, Option<String>) = (row.take()?, row.take()?, row.take()?);
        let (recipient, delivery): (Option<i64>, Option<i64>) = (row.take()?, row.take()?);
        let (read_at, all_read): (Option<Timestamp>, bool) = (row.take()?, row.take()?);
        let mine = sender == viewer.key.0;
        let unread = delivery.filter(|_| read_at.is_none() && recipient == Some(viewer.key.0));
        let mut view = ViewRow {
            id,
            sender: match name {
                _ if mine => viewer.name.clone(),
                Some(name) => row::name(&name)?,
                None => other.clone(),
            },
            is_read: read_at.is_some() || all_read,
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
        if mine != callback_is_senders(view.kind.as_deref()) {
            view.callback = None;
        }
        Ok(Some(Self { place, row: view, unread: unread.map(|place| Delivery { place, sender }) }))
    }

    pub(super) fn view(self, shape: Shape) -> Result<MessageView> {
        self.row.view(shape)
    }
}

/// A session: its row, its subject, the other agent where there is one, whether the caller is in it, and the place of a message.
type Found = (i64, String, Option<String>, bool, Option<i64>);

static SESSION: SqlOf = SqlOf::new();
static PAGE: SqlOf = SqlOf::new();

/// A page of a session as it is before it is marked, and what to mark.
async fn history(
    db: &mut dyn Db,
    caller: &Agent,
    session: Uuid,
    page: &HistoryPage,
) -> Tried<(History, Vec<Delivery>)> {
    let me = caller.key.0;
    let before = page.before.as_ref().map(message_uuid).transpose()?;
    let sql = SESSION.get(db.dialect(), |dialect| {
        format!(
            "SELECT s.id, s.subject, a.name,
                    EXISTS (SELECT 1 FROM session_members b WHERE b.agent_id = $2 AND b.session_id = s.id),
                    (SELECT {} FROM messages m WHERE m.public_id = $3 AND m.session_id = s.id)
             FROM sessions s LEFT JOIN agents a ON a.id = s.low_id + s.high_id - $2 WHERE s.public_id = $1",
            dialect.place
        )
    });
    let found: Option<Found> = db.find(sql, values![session, me, before]).await?;
    let (id, subject, other, is_member, place) = found.ok_or_else(no_session)?;
    if !is_member {
        return Err(refusals::not_a_member().into());
    }
    let end = match (&page.before, place) {
        (Some(before), None) => return Err(not_in_session(before).into()),
        (_, place) => place.unwrap_or(i64::MAX),
    };
    let sql = PAGE.get(db.dialect(), |dialect| {
        format!(
            "SELECT {} FROM sessions s {} messages m ON m.session_id = s.id {}
             WHERE s.id = $2 AND {place} < $3 AND {} ORDER BY {place} DESC LIMIT $4",
            line_columns(dialect, "m.callback, m.content, m.parts, m.metadata"),
            dialect.then_join,
            dialect.own_delivery,
            shown_to(dialect, "$1"),
            place = dialect.place
        )
    });
    // In a group each message has the name of its sender.
    let other = other.as_deref().map_or_else(|| Ok(caller.name.clone()), row::name)?;
    let (mut messages, mut unread, mut budget) = (Vec::new(), Vec::new(), Budget::page());
    let mut add = |mut row: Row| {
        let Some(line) = Line::take(&mut row, caller, &other)? else { return Ok(false) };
        if !budget.takes(line.row.bytes()) {
            return Ok(false);
        }
        unread.extend(line.unread);
        let mut view = line.view(Shape::Whole)?;
        // What is answered is read by the time it is answered.
        view.is_read |= view.sender_name != caller.name;
        messages.push(view);
        Ok(true)
    };
    db.each(sql, values![me, id, end, page.limit], &mut add).await?;
    if messages.is_empty() && page.before.is_none() {
        return Err(no_session().into());
    }
    Ok((History { session_id: session.into(), subject, messages }, unread))
}
