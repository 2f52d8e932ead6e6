//! One message, many messages, and how far they have come.

use amb_core::doc::{MessagePage, MessageWithReceipts};
use amb_core::receipt::Receipt;
use amb_core::{MessageId, Timestamp};
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use uuid::Uuid;

use super::agents;
use super::error::failed;
use super::keys::{maybe_instant_at, number_of};
use super::messages::{DELIVERED, Found, find, message_columns, message_row};
use super::plans::Prepared;
use super::writer::WriteTx;
use crate::budget::Budget;
use crate::error::Result;
use crate::outgoing::{message_uuid, no_message, session_uuid};
use crate::query::{Handed, MAX_HANDED, MessageQuery};
use crate::row as rows;
use crate::types::{Agent, News, Written};

/// One message that the caller sent or received.
pub(super) fn message(db: &Connection, caller: &Agent, id: Uuid) -> Result<MessageWithReceipts> {
    let found = find(db, id)?.ok_or_else(|| no_message(&id.into()))?;
    if !found.is_shown_to(db, caller.key.0)? {
        return Err(no_message(&id.into()));
    }
    with_receipts(db, caller, found)
}

/// A message with the receipts that the caller may see: all of what it sent, its own of what it got.
pub(super) fn with_receipts(db: &Connection, caller: &Agent, found: Found) -> Result<MessageWithReceipts> {
    let sent = found.sender == caller.key.0;
    let mut row = found.row;
    let receipts = match found.delivered_in_pair {
        true => vec![row.receipt()?],
        false => group_receipts(db, found.row_id, row.at, (!sent).then_some(caller.key.0))?,
    };
    if row.to.is_empty() {
        // A group's message is to whoever looks at it.
        row.to = caller.name.to_string();
    }
    Ok(MessageWithReceipts { message: row.message(&caller.name)?, receipts })
}

fn group_receipts(db: &Connection, message: i64, at: Timestamp, only: Option<i64>) -> Result<Vec<Receipt>> {
    let mut select = db
        .prepared(
            "SELECT a.name, e.delivered_at, e.read_at FROM deliveries e JOIN agents a ON a.id = e.agent_id
             WHERE e.message_id = ?1 AND (?2 IS NULL OR e.agent_id = ?2) ORDER BY a.name",
        )
        .map_err(failed)?;
    let found = select
        .query_map((message, only), |row| {
            Ok((row.get::<_, String>(0)?, maybe_instant_at(row, 1)?, maybe_instant_at(row, 2)?))
        })
        .map_err(failed)?;
    found
        .map(|receipt| {
            let (name, delivered_at, read_at) = receipt.map_err(failed)?;
            Ok(Receipt::of(rows::name(&name)?, at, delivered_at, read_at))
        })
        .collect()
}

/// Messages that came to the caller, newest first.
pub(super) fn messages(db: &Connection, caller: &Agent, query: &MessageQuery) -> Result<MessagePage> {
    let before = query.before.and_then(|before| i64::try_from(before).ok()).unwrap_or(i64::MAX);
    let mut sql = String::from(concat!(
        "SELECT ",
        message_columns!(),
        ", e.number FROM deliveries e
         JOIN messages m ON m.id = e.message_id
         JOIN sessions s ON s.id = m.session_id
         JOIN agents f ON f.id = m.sender_id
         JOIN agents t ON t.id = e.agent_id
         WHERE e.agent_id = ? AND e.number < ?"
    ));
    let mut values: Vec<Value> = vec![caller.key.0.into(), before.into()];
    if query.unread {
        sql.push_str(" AND e.read_at IS NULL");
    }
    if let Some(now) = query.claimed_at {
        // With the priority, so that the index of unread mail serves.
        sql.push_str(" AND e.read_at IS NULL AND e.priority IN (0, 1, 2, 3) AND e.lease_until > ?");
        values.push(now.as_microsecond().into());
    }
    if let Some(session) = &query.session {
        sql.push_str(" AND s.public_id = ?");
        values.push(session_uuid(session)?.as_bytes().to_vec().into());
    }
    if let Some(from) = &query.from {
        let Some(from) = agents::row_of(db, from)? else { return Ok(MessagePage { messages: Vec::new(), next: None }) };
        sql.push_str(" AND m.sender_id = ?");
        values.push(from.into());
    }
    if let Some(kind) = &query.kind {
        sql.push_str(" AND coalesce(m.kind, 'message') = ?");
        values.push(kind.to_string().into());
    }
    if let Some(correlation) = &query.correlation_id {
        sql.push_str(" AND m.correlation_id = ?");
        values.push(correlation.to_string().into());
    }
    sql.push_str(" ORDER BY e.number DESC LIMIT ?");
    values.push(i64::from(query.limit).into());
    let mut select = db.prepared(&sql).map_err(failed)?;
    let mut found = select.query(params_from_iter(values)).map_err(failed)?;
    let (mut messages, mut last, mut budget) = (Vec::new(), None, Budget::page());
    while let Some(row) = found.next().map_err(failed)? {
        let message = message_row(row).map_err(failed)?;
        if !budget.takes(message.bytes()) {
            break;
        }
        last = Some(number_of(row.get(DELIVERED).map_err(failed)?));
        let receipts = vec![message.receipt()?];
        messages.push(MessageWithReceipts { message: message.message(&caller.name)?, receipts });
    }
    let full = budget.is_full() || messages.len() as u64 == u64::from(query.limit);
    Ok(MessagePage { messages, next: last.filter(|_| full) })
}

impl WriteTx {
    /// Marks messages as read; all of them came to the caller, or none is marked.
    pub(super) fn ack(&mut self, caller: &Agent, ids: &[MessageId], now: Timestamp) -> Result<Written<u64>> {
        let messages = self.delivered_to(caller, ids)?;
        let news = self.mark_read(caller, &messages, now)?;
        Ok(Written { answer: news.len() as u64, news })
    }

    /// The rows of these messages, all of which came to the caller.
    pub(super) fn delivered_to(&self, caller: &Agent, ids: &[MessageId]) -> Result<Vec<i64>> {
        ids.iter()
            .map(|id| {
                let found = find(&self.db, message_uuid(id)?)?.ok_or_else(|| no_message(id))?;
                let came = found.came_to(&self.db, caller.key.0)?;
                came.then_some(found.row_id).ok_or_else(|| no_message(id))
            })
            .collect()
    }

    /// Notes that entries were handed over.
    pub(super) fn delivered(
        &mut self,
        caller: &Agent,
        after: u64,
        up_to: u64,
        now: Timestamp,
    ) -> Result<Written<Handed>> {
        let limit = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let most = i64::try_from(MAX_HANDED).unwrap_or(i64::MAX);
        let (new, numbers): (Vec<i64>, Vec<u64>) = self
            .db
            .prepared(
                "SELECT message_id, number FROM deliveries
                 WHERE agent_id = ?1 AND number > ?2 AND number <= ?3 AND delivered_at IS NULL ORDER BY number LIMIT ?4",
            )
            .and_then(|mut select| {
                let rows = select.query_map([caller.key.0, limit(after), limit(up_to), most], |row| {
                    Ok((row.get::<_, i64>(0)?, number_of(row.get(1)?)))
                })?;
                rows.collect()
            })
            .map_err(failed)?;
        let news = self.mark_delivered(caller, &new, now)?;
        Ok(Written { answer: Handed::after(news.len() as u64, numbers.into_iter(), up_to), news })
    }

    /// Marks messages as handed over to the caller, and tells the senders.
    pub(super) fn mark_delivered(&mut self, caller: &Agent, new: &[i64], now: Timestamp) -> Result<Vec<News>> {
        let mut news = Vec::with_capacity(new.len());
        for message in new {
            self.db
                .prepared("UPDATE deliveries SET delivered_at = ?3 WHERE message_id = ?1 AND agent_id = ?2")
                .and_then(|mut update| update.execute([*message, caller.key.0, now.as_microsecond()]))
                .map_err(failed)?;
            news.push(self.tell_receipt(*message, caller, now)?);
        }
        Ok(news)
    }
}
