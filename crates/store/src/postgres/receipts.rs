//! Messages with their receipts.

use amb_core::Timestamp;
use amb_core::doc::{MessagePage, MessageWithReceipts};
use amb_core::receipt::Receipt;
use deadpool_postgres::GenericClient;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::agents;
use super::messages::{AFTER, Found, PLAIN, find, message_columns, message_row};
use super::page::rows_of_page;
use crate::engine::Failed;
use crate::error::Result;
use crate::outgoing::{no_message, session_uuid};
use crate::query::MessageQuery;
use crate::row;
use crate::types::Agent;

/// One message that the caller sent or received.
pub(super) async fn message<C: GenericClient>(
    client: &C,
    caller: &Agent,
    id: Uuid,
) -> Result<MessageWithReceipts, Failed> {
    let Some(found) = find(client, id).await? else { return Err(no_message(&id.into()).into()) };
    if !found.is_shown_to(client, caller.key.0).await? {
        return Err(no_message(&id.into()).into());
    }
    with_receipts(client, caller, found).await
}

/// A message with the receipts that the caller may see: all of what it sent, its own of what it got.
pub(super) async fn with_receipts<C: GenericClient>(
    client: &C,
    caller: &Agent,
    found: Found,
) -> Result<MessageWithReceipts, Failed> {
    let sent = found.sender == caller.key.0;
    let mut row = found.row;
    let receipts = if found.recipient.is_some() {
        if found.deliveries.is_empty() { Vec::new() } else { vec![row.receipt()?] }
    } else {
        group_receipts(client, row.id, row.at, (!sent).then_some(caller.key.0)).await?
    };
    if row.to.is_empty() {
        // A group's message is to whoever looks at it.
        row.to = caller.name.to_string();
    }
    Ok(MessageWithReceipts { message: row.message(&caller.name)?, receipts })
}

async fn group_receipts<C: GenericClient>(
    client: &C,
    message: Uuid,
    at: Timestamp,
    only: Option<i64>,
) -> Result<Vec<Receipt>, Failed> {
    let select = client
        .prepare_cached(
            "SELECT a.name, e.delivered_at, e.read_at FROM copies c
             JOIN entries e ON e.agent_id = c.agent_id AND e.number = c.number JOIN agents a ON a.id = c.agent_id
             WHERE c.message_public_id = $1 AND ($2::bigint IS NULL OR c.agent_id = $2) ORDER BY a.name",
        )
        .await?;
    let rows = client.query(&select, &[&message, &only]).await?;
    rows.iter().map(|row| Ok(Receipt::of(row::name(row.try_get(0)?)?, at, row.try_get(1)?, row.try_get(2)?))).collect()
}

/// Messages that came to the caller, newest first.
pub(super) async fn messages<C: GenericClient>(
    client: &C,
    caller: &Agent,
    query: &MessageQuery,
) -> Result<MessagePage, Failed> {
    let before = query.before.map_or(i64::MAX, |before| i64::try_from(before).unwrap_or(i64::MAX));
    let limit = i64::from(query.limit);
    let session = query.session.as_ref().map(session_uuid).transpose()?;
    let from = match &query.from {
        None => None,
        Some(from) => match agents::row_of(client, from).await? {
            Some(from) => Some(from),
            None => return Ok(MessagePage { messages: Vec::new(), next: None }),
        },
    };
    let kind = query.kind.as_ref().map(ToString::to_string);
    let correlation = query.correlation_id.as_ref().map(ToString::to_string);
    let mut sql = String::from(concat!(
        "SELECT ",
        message_columns!(),
        ", e.number FROM entries e
         JOIN messages m ON m.session_id = e.session_id AND m.seq = e.seq
         JOIN sessions s ON s.id = m.session_id
         JOIN agents f ON f.id = m.sender_id
         JOIN agents t ON t.id = e.agent_id
         WHERE e.agent_id = $1 AND e.number < $2 AND e.session_id IS NOT NULL"
    ));
    let mut values: Vec<&(dyn ToSql + Sync)> = vec![&caller.key.0, &before, &limit];
    if query.unread {
        sql.push_str(" AND e.read_at IS NULL");
    }
    if let Some(now) = &query.claimed_at {
        values.push(now);
        sql.push_str(&format!(" AND e.read_at IS NULL AND e.lease_until > ${}", values.len()));
    }
    let push = |sql: &mut String, column: &str, place: usize| sql.push_str(&format!(" AND {column} = ${place}"));
    if let Some(session) = &session {
        values.push(session);
        push(&mut sql, "s.public_id", values.len());
    }
    if let Some(from) = &from {
        values.push(from);
        push(&mut sql, "m.sender_id", values.len());
    }
    if let Some(kind) = &kind {
        values.push(kind);
        push(&mut sql, "coalesce(m.kind, 'message')", values.len());
    }
    if let Some(correlation) = &correlation {
        values.push(correlation);
        push(&mut sql, "m.correlation_id", values.len());
    }
    sql.push_str(" ORDER BY e.number DESC LIMIT $3");
    let select = client.prepare_cached(&sql).await?;
    let (rows, cut) = rows_of_page(client, &select, &values, PLAIN).await?;
    let mut messages = Vec::with_capacity(rows.len());
    for row in &rows {
        let message = message_row(row)?;
        let receipts = vec![message.receipt()?];
        messages.push(MessageWithReceipts { message: message.message(&caller.name)?, receipts });
    }
    let full = cut || messages.len() as u64 == u64::from(query.limit);
    let last = rows.last().map(|row| row.try_get::<_, i64>(AFTER)).transpose()?;
    let next = last.filter(|_| full).map(|number| u64::try_from(number).unwrap_or(0));
    Ok(MessagePage { messages, next })
}
