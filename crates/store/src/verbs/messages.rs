//! Messages with their receipts: one, those delivered to an agent, and the export.

use amb_core::doc::{MessagePage, MessageWithReceipts};
use amb_core::receipt::Receipt;
use amb_core::send::no_message;
use amb_core::{AgentName, Kind, MessageId, Timestamp};
use async_trait::async_trait;
use futures_util::FutureExt;
use uuid::Uuid;

use super::agents::row_of;
use crate::engine::{Db, Engine, Query, ReadLength, Tried, Value, from_row, read, values};
use crate::error::Result;
use crate::outgoing::{message_uuid, session_uuid};
use crate::query::{ExportQuery, MessageQuery};
use crate::row::{MessageRow, message_columns};
use crate::types::{Agent, to_micros};

/// Reading mail without marking it as read.
#[async_trait]
pub trait MessageVerbs: Engine {
    /// Returns a message that the caller sent or received, with its receipts.
    async fn message(&self, caller: &Agent, id: &MessageId) -> Result<MessageWithReceipts> {
        let asked = (caller.clone(), message_uuid(id)?);
        read(self, ReadLength::Short, asked, |db, (caller, id)| message(db, caller, *id).boxed()).await
    }

    /// Returns messages delivered to the caller, newest first.
    async fn messages(&self, caller: &Agent, query: MessageQuery) -> Result<MessagePage> {
        let asked = (caller.clone(), query);
        read(self, ReadLength::Long, asked, |db, (caller, query)| messages(db, caller, query).boxed()).await
    }

    /// Returns a page of the caller's mail, sent and received, session by session; empty at the end.
    async fn export(&self, caller: &Agent, query: ExportQuery) -> Result<Vec<MessageWithReceipts>> {
        let asked = (caller.clone(), query);
        read(self, ReadLength::Long, asked, |db, (caller, query)| export(db, caller, query).boxed()).await
    }
}

impl<E: Engine> MessageVerbs for E {}

/// A message, its sender and its recipient.
pub(crate) struct MessageLookup {
    pub(crate) row: MessageRow,
    /// Its row id, which orders the messages of a session.
    pub(crate) id: i64,
    pub(crate) sender: i64,
    /// Whether it was delivered to its one recipient; `false` in a group.
    pub(crate) delivered: bool,
}

from_row!(MessageLookup: row id sender delivered);

/// Returns a statement for [`MessageLookup`]s, with this rest.
pub(super) fn select(rest: &str) -> String {
    select_from("messages m", rest)
}

fn select_from(from: &str, rest: &str) -> String {
    format!(
        "SELECT {}, m.id, m.sender_id, e.agent_id IS NOT NULL
         FROM {from}
         JOIN sessions s ON s.id = m.session_id
         JOIN agents f ON f.id = m.sender_id
         LEFT JOIN agents t ON t.id = s.low_id + s.high_id - m.sender_id
         LEFT JOIN deliveries e ON e.message_id = m.id AND e.agent_id = t.id {rest}",
        message_columns("e")
    )
}

/// Returns a statement for the [`MessageRow`]s delivered to the agent `$1`, with one more column.
pub(super) fn delivered(column: &str, condition: &str) -> String {
    format!(
        "SELECT {}, {column} FROM deliveries e JOIN messages m ON m.id = e.message_id
         JOIN sessions s ON s.id = m.session_id
         JOIN agents f ON f.id = m.sender_id
         JOIN agents t ON t.id = e.agent_id
         WHERE e.agent_id = $1 AND {condition}",
        message_columns("e")
    )
}

/// Whether the message of this alias was delivered to nobody. A scalar subquery: for `EXISTS` PostgreSQL may hash all
/// deliveries.
pub(super) fn undelivered(message: &str) -> String {
    format!("(SELECT 1 FROM deliveries d WHERE d.message_id = {message}.id LIMIT 1) IS NULL")
}

/// Whether the agent of this parameter sees the message `m`: what it sent and what was delivered to it. Where the
/// office rejected a task, it wrote an update in the assignee's name, which only the sender of the task sees.
pub(super) fn shown_to(me: &str) -> String {
    shown_where(
        me,
        &format!("(SELECT 1 FROM deliveries d WHERE d.message_id = m.id AND d.agent_id = {me}) IS NOT NULL"),
    )
}

/// The same, where the message's delivery to this agent is joined as `e`.
pub(super) fn shown_as_delivered(me: &str) -> String {
    shown_where(me, "e.message_id IS NOT NULL")
}

fn shown_where(me: &str, delivered: &str) -> String {
    // No `OR`: SQLite evaluates both sides of it here.
    format!(
        "CASE WHEN m.sender_id <> {me} THEN {delivered}
              WHEN m.kind = 'task_update'
              THEN (SELECT 1 FROM messages n WHERE n.public_id = m.reply_to AND {}) IS NULL ELSE TRUE END",
        undelivered("n")
    )
}

async fn message(db: &mut dyn Db, caller: &Agent, id: Uuid) -> Tried<MessageWithReceipts> {
    let sql = select(&format!("WHERE m.public_id = $2 AND {}", shown_to("$1")));
    let found: Option<MessageLookup> = db.find(&sql, values![caller.key.0, id]).await?;
    found.ok_or_else(|| no_message(&id.into()))?.seen_by(db, caller).await
}

impl MessageLookup {
    /// Returns the message with the receipts that this agent may see: all of its own message, else its own receipt.
    async fn seen_by(self, db: &mut dyn Db, agent: &Agent) -> Tried<MessageWithReceipts> {
        let only = (self.sender != agent.key.0).then_some(agent.key.0);
        self.with_receipts(db, &agent.name, only).await
    }

    /// Returns the message with its receipts, or only with that of one agent.
    pub(crate) async fn with_receipts(
        self,
        db: &mut dyn Db,
        viewer: &AgentName,
        only: Option<i64>,
    ) -> Tried<MessageWithReceipts> {
        let mut row = self.row;
        let receipts = match row.to {
            Some(_) if self.delivered => row.receipt().into_iter().collect(),
            Some(_) => Vec::new(),
            None => {
                let copies = group_copies(db, self.id, row.at, only).await?;
                row.from_person = only.is_some() && copies.iter().any(|(_, from_person)| *from_person);
                copies.into_iter().map(|(receipt, _)| receipt).collect()
            }
        };
        Ok(MessageWithReceipts { message: row.message(viewer)?, receipts })
    }
}

/// A recipient, `delivered_at`, `read_at`, `rung_at` and `from_person` of a delivery.
type CopyRow = (AgentName, Option<Timestamp>, Option<Timestamp>, Option<Timestamp>, Option<bool>);

/// Returns the receipts of a group's message, or only that of one agent, each with the person's mark of that copy.
async fn group_copies(
    db: &mut dyn Db,
    message: i64,
    sent_at: Timestamp,
    only: Option<i64>,
) -> Tried<Vec<(Receipt, bool)>> {
    let sql = "SELECT a.name, e.delivered_at, e.read_at, e.rung_at, e.from_person
               FROM deliveries e JOIN agents a ON a.id = e.agent_id
               WHERE e.message_id = $1 AND (CAST($2 AS bigint) IS NULL OR e.agent_id = $2) ORDER BY a.name";
    let found: Vec<CopyRow> = db.rows(sql, values![message, only]).await?;
    let copy = |(name, delivered, read, rung, from_person): CopyRow| {
        (Receipt::of(name, sent_at, delivered, read).rung(rung), from_person.unwrap_or_default())
    };
    Ok(found.into_iter().map(copy).collect())
}

async fn messages(db: &mut dyn Db, caller: &Agent, query: &MessageQuery) -> Tried<MessagePage> {
    let (kind, correlation) =
        (query.kind.as_ref().map(Kind::to_string), query.correlation_id.as_ref().map(|id| id.to_string()));
    let mut values: Vec<Value<'_>> = values![caller.key.0, query.before.unwrap_or(u64::MAX), query.limit].to_vec();
    let mut condition = String::from("e.number < $2");
    if query.unread {
        condition += " AND e.read_at IS NULL";
    }
    let mut add = |sql: &str, value| {
        values.push(value);
        condition += &format!(" AND {sql} ${}", values.len());
    };
    if let Some(now) = query.claimed_at {
        // With the priority, so that the index of unread mail is used.
        add("e.read_at IS NULL AND e.priority IN (0, 1, 2, 3) AND e.lease_until >", now.into());
    }
    if let Some(session) = &query.session {
        add("s.public_id =", session_uuid(session)?.into());
    }
    if let Some(from) = &query.from {
        let Some(from) = row_of(db, from).await? else { return Ok(MessagePage { messages: Vec::new(), next: None }) };
        add("m.sender_id =", from.into());
    }
    if let Some(kind) = &kind {
        add("coalesce(m.kind, 'message') =", kind.into());
    }
    if let Some(correlation) = &correlation {
        add("m.correlation_id =", correlation.into());
    }
    let sql = delivered("e.number", &format!("{condition} ORDER BY e.number DESC LIMIT $3"));
    let (found, cut) = db.page(&sql, &values, |(row, _): &(MessageRow, u64)| row.bytes()).await?;
    let full = cut || found.len() as u64 == u64::from(query.limit);
    let next = found.last().filter(|_| full).map(|(_, number)| *number);
    let shown = |(row, _): (MessageRow, u64)| {
        let receipts = row.receipt().into_iter().collect();
        Ok(MessageWithReceipts { message: row.message(&caller.name)?, receipts })
    };
    Ok(MessagePage { messages: found.into_iter().map(shown).collect::<Result<_>>()?, next })
}

/// Returns the caller's mail after a message, session by session.
async fn export(db: &mut dyn Db, caller: &Agent, query: &ExportQuery) -> Tried<Vec<MessageWithReceipts>> {
    let (session, message): (i64, i64) = match &query.after {
        Some(id) => {
            let sql = "SELECT session_id, id FROM messages WHERE public_id = $1";
            db.find(sql, values![message_uuid(id)?]).await?.ok_or_else(|| no_message(id))?
        }
        None => (0, 0),
    };
    let from = format!("session_members b {} messages m ON m.session_id = b.session_id", db.dialect().then_join);
    let rest = format!(
        "WHERE b.agent_id = $1 AND b.session_id >= $2 AND (m.session_id, m.id) > ($2, $3) AND m.created_at >= $5
         AND {} ORDER BY b.session_id, m.id LIMIT $4",
        shown_to("$1")
    );
    let sql = select_from(&from, &rest);
    let since = query.since.map_or(Timestamp::UNIX_EPOCH, to_micros);
    let values = values![caller.key.0, session, message, query.limit, since];
    let (found, _) = db.page(&sql, values, |found: &MessageLookup| found.row.bytes()).await?;
    let mut mail = Vec::with_capacity(found.len());
    for one in found {
        mail.push(one.seen_by(db, caller).await?);
    }
    Ok(mail)
}
