//! Messages with their receipts.

use amb_core::Timestamp;
use amb_core::doc::{MessagePage, MessageWithReceipts};
use amb_core::receipt::Receipt;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use uuid::Uuid;

use super::agents;
use super::error::failed;
use super::keys::{maybe_instant_at, number_of};
use super::messages::{DELIVERED, Found, find, message_columns, message_row};
use super::plans::Prepared;
use crate::budget::Budget;
use crate::error::Result;
use crate::outgoing::{no_message, session_uuid};
use crate::query::MessageQuery;
use crate::row as rows;
use crate::types::Agent;

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
