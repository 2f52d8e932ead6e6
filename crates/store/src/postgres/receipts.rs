//! One message, many messages, and how far they have come.

use std::time::Duration;

use amb_core::doc::{MessagePage, MessageWithReceipts};
use amb_core::mailbox::ClaimRequest;
use amb_core::receipt::Receipt;
use amb_core::{Event, Message, MessageId, Timestamp};
use deadpool_postgres::{GenericClient, Transaction};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::agents;
use super::error::Trouble;
use super::inbox::{Unread, mark_read};
use super::messages::{AFTER, Found, PLAIN, find, find_all, message_bytes, message_columns, message_row, takes};
use super::page::rows_of_page;
use super::write::{Heads, Pages};
use crate::budget::Budget;
use crate::error::Result;
use crate::outgoing::{message_uuid, no_message, session_uuid};
use crate::query::{Handed, MAX_HANDED, MessageQuery};
use crate::row;
use crate::types::{Agent, News, Written};

/// Tells the advisory locks of claims from others.
const CLAIMS: i32 = 7_461_628;

/// One message that the caller sent or received.
pub(super) async fn message<C: GenericClient>(
    client: &C,
    caller: &Agent,
    id: Uuid,
) -> Result<MessageWithReceipts, Trouble> {
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
) -> Result<MessageWithReceipts, Trouble> {
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
) -> Result<Vec<Receipt>, Trouble> {
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
) -> Result<MessagePage, Trouble> {
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

/// The places of these messages in the caller's log, and who sent them.
async fn deliveries(tx: &Transaction<'_>, caller: &Agent, ids: &[MessageId]) -> Result<Vec<Unread>, Trouble> {
    let uuids = ids.iter().map(message_uuid).collect::<Result<Vec<_>>>()?;
    let found = find_all(tx, &uuids).await?;
    let mut deliveries = Vec::with_capacity(ids.len());
    for (id, uuid) in ids.iter().zip(uuids) {
        let one = found.get(&uuid).and_then(|found| Some((found, found.delivery_to(caller.key.0)?)));
        let Some((found, number)) = one else { return Err(no_message(id).into()) };
        deliveries.push(Unread { number, sender: found.sender });
    }
    Ok(deliveries)
}

/// Marks messages as read; all of them came to the caller, or none is marked.
pub(super) async fn ack(
    tx: &Transaction<'_>,
    caller: &Agent,
    ids: &[MessageId],
    now: Timestamp,
) -> Result<Written<u64>, Trouble> {
    let unread = deliveries(tx, caller, ids).await?;
    let news = mark_read(tx, caller, &unread, now).await?;
    Ok(Written { answer: news.len() as u64, news })
}

/// Notes that entries were handed over.
pub(super) async fn delivered(
    tx: &Transaction<'_>,
    caller: &Agent,
    after: u64,
    up_to: u64,
    now: Timestamp,
) -> Result<Written<Handed>, Trouble> {
    let (from, to) = (i64::try_from(after).unwrap_or(i64::MAX), i64::try_from(up_to).unwrap_or(i64::MAX));
    let select = tx
        .prepare_cached(
            "SELECT e.number, m.sender_id FROM entries e
             JOIN messages m ON m.session_id = e.session_id AND m.seq = e.seq
             WHERE e.agent_id = $1 AND e.number > $2 AND e.number <= $3 AND e.session_id IS NOT NULL
             AND e.delivered_at IS NULL ORDER BY e.number LIMIT $4",
        )
        .await?;
    let most = i64::try_from(MAX_HANDED).unwrap_or(i64::MAX);
    let rows = tx.query(&select, &[&caller.key.0, &from, &to, &most]).await?;
    if rows.is_empty() {
        return Ok(Written::quiet(Handed { messages: 0, reached: up_to }));
    }
    let new: Vec<Unread> = rows.iter().map(|row| Unread { number: row.get(0), sender: row.get(1) }).collect();
    let mut heads = lock_for_receipts(tx, caller, &new).await?;
    let numbers: Vec<i64> = new.iter().map(|new| new.number).collect();
    let news = mark_delivered(tx, caller, &numbers, &mut heads, now).await?;
    let numbers = numbers.into_iter().map(|number| u64::try_from(number).unwrap_or(0));
    Ok(Written { answer: Handed::after(news.len() as u64, numbers, up_to), news })
}

/// Locks the mailbox of the caller and those of the senders who get receipts.
async fn lock_for_receipts(tx: &Transaction<'_>, caller: &Agent, mail: &[Unread]) -> Result<Heads, Trouble> {
    let mut agents: Vec<i64> = mail.iter().map(|one| one.sender).collect();
    agents.push(caller.key.0);
    Heads::lock(tx, &agents).await
}

/// Marks deliveries as handed over, and tells the senders, whose mailboxes are locked.
async fn mark_delivered(
    tx: &Transaction<'_>,
    caller: &Agent,
    numbers: &[i64],
    heads: &mut Heads,
    now: Timestamp,
) -> Result<Vec<News>, Trouble> {
    if numbers.is_empty() {
        return Ok(Vec::new());
    }
    let update = tx
        .prepare_cached(
            "WITH marked AS (
                 UPDATE entries SET delivered_at = $3
                 WHERE agent_id = $1 AND number = ANY($2) AND delivered_at IS NULL
                 RETURNING number, session_id, seq, read_at
             )
             SELECT m.public_id, m.sender_id, m.created_at, k.read_at
             FROM marked k JOIN messages m ON m.session_id = k.session_id AND m.seq = k.seq ORDER BY k.number",
        )
        .await?;
    let (mut pages, mut news) = (Pages::default(), Vec::new());
    for row in tx.query(&update, &[&caller.key.0, &numbers, &now]).await? {
        let id: Uuid = row.try_get(0)?;
        let receipt = Receipt::of(caller.name.clone(), row.try_get(2)?, Some(now), row.try_get(3)?);
        let event = Event::Receipt { message_id: id.into(), receipt };
        news.extend(pages.tell(heads, row.try_get(1)?, event, now)?);
    }
    pages.write(tx).await?;
    Ok(news)
}

/// Takes unread messages that no other consumer holds.
pub(super) async fn claim(
    tx: &Transaction<'_>,
    caller: &Agent,
    request: &ClaimRequest,
    now: Timestamp,
) -> Result<Written<Vec<Message>>, Trouble> {
    // Whose mailboxes to lock is known only when the mail is chosen, and mailboxes come before their entries. So those
    // who claim from one mailbox take turns first, under a lock that nobody else takes.
    let turn = tx.prepare_cached("SELECT pg_advisory_xact_lock($1, ($2::bigint % 2147483647)::int)").await?;
    tx.execute(&turn, &[&CLAIMS, &caller.key.0]).await?;
    let limit = i64::try_from(request.limit).unwrap_or(i64::MAX);
    let by_time = concat!(
        "SELECT e.number, m.sender_id, ",
        message_bytes!(),
        " FROM entries e JOIN messages m ON m.session_id = e.session_id AND m.seq = e.seq
         WHERE e.agent_id = $1 AND e.session_id IS NOT NULL AND e.read_at IS NULL
         AND (e.lease_until IS NULL OR e.lease_until <= $2) ORDER BY e.number LIMIT $3"
    );
    let by_priority = concat!(
        "SELECT e.number, m.sender_id, ",
        message_bytes!(),
        " FROM entries e JOIN messages m ON m.session_id = e.session_id AND m.seq = e.seq
         WHERE e.agent_id = $1 AND e.session_id IS NOT NULL AND e.read_at IS NULL
         AND (e.lease_until IS NULL OR e.lease_until <= $2) ORDER BY e.priority DESC, e.number LIMIT $3"
    );
    let select = tx.prepare_cached(if request.urgent_first { by_priority } else { by_time }).await?;
    let mut budget = Budget::page();
    let free: Vec<Unread> = tx
        .query(&select, &[&caller.key.0, &now, &limit])
        .await?
        .iter()
        .take_while(|row| takes(&mut budget, row.get(2)))
        .map(|row| Unread { number: row.get(0), sender: row.get(1) })
        .collect();
    if free.is_empty() {
        return Ok(Written::quiet(Vec::new()));
    }
    let mut heads = lock_for_receipts(tx, caller, &free).await?;
    let numbers: Vec<i64> = free.iter().map(|free| free.number).collect();
    let until = lease_end(request.lease, now);
    // Some may have been read since they were chosen; those are not handed out.
    let hold = tx
        .prepare_cached(
            "UPDATE entries SET lease_until = $3 WHERE agent_id = $1 AND number = ANY($2) AND read_at IS NULL
             RETURNING number",
        )
        .await?;
    let held = tx.query(&hold, &[&caller.key.0, &numbers, &until]).await?;
    let held: Vec<i64> = held.iter().map(|row| row.get(0)).collect();
    let sql = concat!(
        "SELECT ",
        message_columns!(),
        ", e.number FROM entries e
         JOIN messages m ON m.session_id = e.session_id AND m.seq = e.seq
         JOIN sessions s ON s.id = m.session_id
         JOIN agents f ON f.id = m.sender_id
         JOIN agents t ON t.id = e.agent_id
         WHERE e.agent_id = $1 AND e.number = ANY($2)"
    );
    let select = tx.prepare_cached(sql).await?;
    let mut found = Vec::with_capacity(held.len());
    let mut new = Vec::new();
    for row in tx.query(&select, &[&caller.key.0, &held]).await? {
        let number: i64 = row.try_get(AFTER)?;
        let message = message_row(&row)?;
        if message.delivered_at.is_none() {
            new.push(number);
        }
        found.push((number, message.message(&caller.name)?));
    }
    found.sort_by_key(|(number, _)| numbers.iter().position(|place| place == number));
    let messages = found.into_iter().map(|(_, message)| message).collect();
    let news = mark_delivered(tx, caller, &new, &mut heads, now).await?;
    Ok(Written { answer: messages, news })
}

/// Gives those of these messages that are still held a lease of this length from now on.
pub(super) async fn renew(
    tx: &Transaction<'_>,
    caller: &Agent,
    ids: &[MessageId],
    lease: Duration,
    now: Timestamp,
) -> Result<(), Trouble> {
    let held = deliveries(tx, caller, ids).await?;
    Heads::lock(tx, &[caller.key.0]).await?;
    let numbers: Vec<i64> = held.iter().map(|held| held.number).collect();
    let update = tx
        .prepare_cached(
            "UPDATE entries SET lease_until = $3 WHERE agent_id = $1 AND number = ANY($2) AND read_at IS NULL
             AND lease_until > $4",
        )
        .await?;
    tx.execute(&update, &[&caller.key.0, &numbers, &lease_end(lease, now), &now]).await?;
    Ok(())
}

/// Until when a lease holds that is given now.
fn lease_end(lease: Duration, now: Timestamp) -> Timestamp {
    now.saturating_add(lease.min(Duration::from_secs(365 * 86_400))).unwrap_or(now)
}

/// Gives claimed messages back.
pub(super) async fn release(tx: &Transaction<'_>, caller: &Agent, ids: &[MessageId]) -> Result<(), Trouble> {
    let held = deliveries(tx, caller, ids).await?;
    Heads::lock(tx, &[caller.key.0]).await?;
    let numbers: Vec<i64> = held.iter().map(|held| held.number).collect();
    let update = tx
        .prepare_cached(
            "UPDATE entries SET lease_until = NULL WHERE agent_id = $1 AND number = ANY($2) AND read_at IS NULL",
        )
        .await?;
    tx.execute(&update, &[&caller.key.0, &numbers]).await?;
    Ok(())
}
