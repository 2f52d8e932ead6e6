//! Receipts (delivered, rung, read) and claims.

use std::collections::HashMap;
use std::time::Duration;

use amb_core::mailbox::ClaimRequest;
use amb_core::receipt::Receipt;
use amb_core::send::not_delivered;
use amb_core::{Event, Message, MessageId, Priority, Timestamp};
use async_trait::async_trait;
use futures_util::FutureExt;
use uuid::Uuid;

use super::messages::delivered;
use super::stepping_in::is_paused;
use crate::engine::{
    Cached, Changes, Db, Engine, Exclusive, Query, Tried, Tx, from_row, values, write, write_unlogged,
};
use crate::error::Result;
use crate::page_budget::PageBudget;
use crate::query::{Handed, MAX_HANDED};
use crate::row::{self, MessageRow};
use crate::types::{Agent, Written, to_micros};

/// Receipts and claims.
#[async_trait]
pub trait ReceiptVerbs: Engine {
    /// Marks messages of the caller as read. Returns how many were unread. `not_found`, and none is marked, where one
    /// was not delivered to the caller.
    async fn ack(&self, caller: &Agent, ids: &[MessageId], now: Timestamp) -> Result<Written<u64>> {
        let asked = (caller.clone(), ids.to_vec(), to_micros(now));
        write(self, Changes::Logs, asked, |tx, (caller, ids, now)| ack(tx, caller, ids, *now).boxed()).await
    }

    /// Marks the messages of the log after `after`, up to `up_to`, as delivered: at most the first thousand that are
    /// not yet. Continue after [`Handed::reached`]. Numbers without an entry cost nothing.
    async fn delivered(&self, caller: &Agent, after: u64, up_to: u64, now: Timestamp) -> Result<Written<Handed>> {
        let asked = (caller.clone(), after, up_to, to_micros(now));
        write(self, Changes::Logs, asked, |tx, (caller, after, up_to, now)| {
            mark_delivered(tx, caller, *after, *up_to, *now).boxed()
        })
        .await
    }

    /// Records that a client of the caller was rung for messages, where they are unread and were not rung for before.
    /// `not_found`, and none is marked, where one was not delivered to the caller.
    async fn rung(&self, caller: &Agent, ids: &[MessageId], now: Timestamp) -> Result<Written<u64>> {
        let asked = (caller.clone(), ids.to_vec(), to_micros(now));
        write(self, Changes::Logs, asked, |tx, (caller, ids, now)| rung(tx, caller, ids, *now).boxed()).await
    }

    /// Claims unread messages that no other consumer holds, for the time of the lease. A paused agent gets none.
    async fn claim(&self, caller: &Agent, request: ClaimRequest, now: Timestamp) -> Result<Written<Vec<Message>>> {
        let asked = (caller.clone(), request, to_micros(now));
        write(self, Changes::Logs, asked, |tx, (caller, request, now)| claim(tx, caller, request, *now).boxed()).await
    }

    /// Releases claimed messages.
    async fn release(&self, caller: &Agent, ids: &[MessageId]) -> Result<()> {
        let asked = (caller.clone(), ids.to_vec());
        write_unlogged(self, Changes::Logs, asked, |tx, (caller, ids)| release(tx, caller, ids).boxed()).await
    }

    /// Renews the leases of those of these messages that are still held.
    async fn renew(&self, caller: &Agent, ids: &[MessageId], lease: Duration, now: Timestamp) -> Result<()> {
        let asked = (caller.clone(), ids.to_vec(), lease, to_micros(now));
        write_unlogged(self, Changes::Logs, asked, |tx, (caller, ids, lease, now)| {
            renew(tx, caller, ids, *lease, *now).boxed()
        })
        .await
    }
}

impl<E: Engine> ReceiptVerbs for E {}

/// The delivery of a message to the caller.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delivery {
    pub(super) message: i64,
    pub(super) sender: i64,
}

from_row!(Delivery: message sender);

/// Whether a delivery is unread, in statements that find deliveries by their key. With a plain `read_at IS NULL` and
/// without fresh statistics PostgreSQL would scan all unread deliveries of the agent instead.
const UNREAD: &str = "CASE WHEN read_at IS NULL THEN TRUE ELSE FALSE END";

/// A mark of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeliveryMark {
    /// It was delivered to a process of the recipient.
    Delivered,
    /// A client of the recipient was rung for it while it was unread.
    Rung,
    /// It was read, which ends a claim.
    Read,
}

/// A delivery that was marked.
struct Marked {
    message: i64,
    delivered_at: Option<Timestamp>,
    read_at: Option<Timestamp>,
    rung_at: Option<Timestamp>,
    public_id: Uuid,
    sender: i64,
    created_at: Timestamp,
}

from_row!(Marked: message delivered_at read_at rung_at public_id sender created_at);

/// Returns the deliveries of these messages to the caller; `not_found` where one was not delivered to it.
async fn deliveries(tx: &mut dyn Tx, caller: &Agent, ids: &[MessageId]) -> Tried<Vec<Delivery>> {
    let uuid = |id: &MessageId| id.as_uuid().ok_or_else(|| not_delivered(id));
    let uuids = ids.iter().map(uuid).collect::<Result<Vec<_>>>()?;
    let sql = format!(
        "SELECT m.public_id, m.id, m.sender_id FROM messages m JOIN deliveries e ON e.message_id = m.id AND e.agent_id = $1
         WHERE m.public_id {}",
        (tx.dialect().in_ids)("$2")
    );
    let found: Vec<(Uuid, Delivery)> = tx.rows(&sql, values![caller.key.0, &uuids]).await?;
    let found: HashMap<Uuid, Delivery> = found.into_iter().collect();
    let delivery = |(id, uuid): (&MessageId, &Uuid)| found.get(uuid).copied().ok_or_else(|| not_delivered(id).into());
    ids.iter().zip(&uuids).map(delivery).collect()
}

/// Returns the undelivered messages in a range of an agent's log, with their numbers, in order.
async fn undelivered(db: &mut dyn Db, agent: i64, after: u64, up_to: u64) -> Tried<Vec<(u64, Delivery)>> {
    let sql = format!(
        "SELECT e.number, m.id, m.sender_id FROM deliveries e JOIN messages m ON m.id = e.message_id
         WHERE e.agent_id = $1 AND e.number > $2 AND e.number <= $3 AND e.delivered_at IS NULL
         ORDER BY e.number LIMIT {MAX_HANDED}"
    );
    db.rows(&sql, values![agent, after, up_to]).await
}

/// Returns unread mail that nobody holds, with its size: urgent mail first, or in the order of the log.
async fn unclaimed(
    db: &mut dyn Db,
    agent: i64,
    now: Timestamp,
    limit: usize,
    urgent_first: bool,
) -> Tried<Vec<(Delivery, usize)>> {
    let bytes = (db.dialect().as_json)("m.content");
    // The index of unread mail is by priority, then number, so there is one subquery for each priority.
    let of_priority = |rank: i16| {
        format!(
            "SELECT {rank}, n.* FROM (
                 SELECT e.number, m.id, m.sender_id, octet_length({bytes}) + coalesce(octet_length(m.parts), 0)
                        + coalesce(octet_length(m.metadata), 0) + coalesce(octet_length(m.callback), 0)
                 FROM deliveries e JOIN messages m ON m.id = e.message_id
                 WHERE e.agent_id = $1 AND e.read_at IS NULL AND e.priority = {rank}
                 AND (e.lease_until IS NULL OR e.lease_until <= $2) ORDER BY e.number LIMIT $3) n"
        )
    };
    let sql = Priority::ALL.map(|priority| of_priority(row::rank(priority))).join(" UNION ALL ");
    let mut free: Vec<(i64, i64, Delivery, u64)> = db.rows(&sql, values![agent, now, limit]).await?;
    free.sort_unstable_by_key(|(rank, number, ..)| (if urgent_first { -rank } else { 0 }, *number));
    free.truncate(limit);
    Ok(free.into_iter().map(|(_, _, delivery, bytes)| (delivery, bytes as usize + row::OVERHEAD)).collect())
}

/// Sets or clears the lease of unread mail; with `held_at` only of mail that is held at that time. Returns the changed
/// messages.
async fn hold(
    tx: &mut dyn Tx,
    agent: i64,
    mail: &[Delivery],
    until: Option<Timestamp>,
    held_at: Option<Timestamp>,
) -> Tried<Vec<i64>> {
    let sql = format!(
        "UPDATE deliveries SET lease_until = $3 WHERE agent_id = $1 AND message_id {} AND {UNREAD}
         AND (CAST($4 AS timestamptz) IS NULL OR lease_until > $4) RETURNING message_id",
        (tx.dialect().in_list)("$2")
    );
    tx.rows(&sql, values![agent, &ids_of(mail), until, held_at]).await
}

fn ids_of(mail: &[Delivery]) -> Vec<i64> {
    mail.iter().map(|one| one.message).collect()
}

/// Returns messages delivered to an agent, by row id.
async fn messages_of(db: &mut dyn Db, agent: i64, ids: &[i64]) -> Tried<HashMap<i64, MessageRow>> {
    let sql = delivered("e.message_id", &format!("e.message_id {}", (db.dialect().in_list)("$2")));
    let found: Vec<(MessageRow, i64)> = db.rows(&sql, values![agent, ids]).await?;
    Ok(found.into_iter().map(|(row, id)| (id, row)).collect())
}

/// Locks the mailboxes of the caller and of the senders, who get receipts, and marks deliveries. Returns how many were
/// marked.
pub(super) async fn mark(
    tx: &mut dyn Tx,
    caller: &Agent,
    mail: &[Delivery],
    mark: DeliveryMark,
    now: Timestamp,
) -> Tried<u64> {
    if mail.is_empty() {
        return Ok(0);
    }
    let mut agents: Vec<i64> = mail.iter().map(|one| one.sender).collect();
    agents.push(caller.key.0);
    tx.lock(&agents).await?;
    let mut marked: HashMap<i64, Marked> = HashMap::new();
    for one in set_mark(tx, caller.key.0, &ids_of(mail), mark, now).await? {
        marked.insert(one.message, one);
    }
    let count = marked.len() as u64;
    // Receipts are in the order of the request.
    for one in mail.iter().filter_map(|one| marked.remove(&one.message)) {
        let receipt = Receipt::of(caller.name.clone(), one.created_at, one.delivered_at, one.read_at).rung(one.rung_at);
        tx.log_event(one.sender, Event::Receipt { message_id: one.public_id.into(), receipt }, now).await?;
    }
    Ok(count)
}

/// Marks those of an agent's deliveries that do not have the mark yet, and returns them.
async fn set_mark(
    tx: &mut dyn Tx,
    agent: i64,
    messages: &[i64],
    mark: DeliveryMark,
    now: Timestamp,
) -> Tried<Vec<Marked>> {
    let (set, condition) = match mark {
        DeliveryMark::Read => ("read_at = $3, delivered_at = coalesce(delivered_at, $3), lease_until = NULL", "TRUE"),
        DeliveryMark::Rung => ("rung_at = $3", "rung_at IS NULL"),
        DeliveryMark::Delivered => ("delivered_at = $3", "delivered_at IS NULL"),
    };
    let in_list = tx.dialect().in_list;
    let sql = format!(
        "UPDATE deliveries SET {set} WHERE agent_id = $1 AND message_id {} AND {UNREAD} AND {condition}
         RETURNING message_id, delivered_at, read_at, rung_at,
                   (SELECT m.public_id FROM messages m WHERE m.id = message_id),
                   (SELECT m.sender_id FROM messages m WHERE m.id = message_id),
                   (SELECT m.created_at FROM messages m WHERE m.id = message_id)",
        in_list("$2")
    );
    let marked: Vec<Marked> = tx.rows(&sql, values![agent, messages, now]).await?;
    if mark == DeliveryMark::Read && !marked.is_empty() {
        let read: Vec<i64> = marked.iter().map(|one| one.message).collect();
        let sql = format!(
            "UPDATE session_members SET unread = unread - c.n
             FROM (SELECT session_id, count(*) AS n FROM messages WHERE id {} GROUP BY session_id) c
             WHERE session_members.agent_id = $1 AND session_members.session_id = c.session_id",
            in_list("$2")
        );
        tx.execute(&sql, values![agent, &read]).await?;
        tx.invalidate(Cached::View(agent));
    }
    Ok(marked)
}

async fn ack(tx: &mut dyn Tx, caller: &Agent, ids: &[MessageId], now: Timestamp) -> Tried<u64> {
    let mail = deliveries(tx, caller, ids).await?;
    mark(tx, caller, &mail, DeliveryMark::Read, now).await
}

async fn rung(tx: &mut dyn Tx, caller: &Agent, ids: &[MessageId], now: Timestamp) -> Tried<u64> {
    let mail = deliveries(tx, caller, ids).await?;
    mark(tx, caller, &mail, DeliveryMark::Rung, now).await
}

async fn mark_delivered(tx: &mut dyn Tx, caller: &Agent, after: u64, up_to: u64, now: Timestamp) -> Tried<Handed> {
    let new = undelivered(tx, caller.key.0, after, up_to).await?;
    let mail: Vec<Delivery> = new.iter().map(|(_, delivery)| *delivery).collect();
    let messages = mark(tx, caller, &mail, DeliveryMark::Delivered, now).await?;
    Ok(Handed::after(messages, new.into_iter().map(|(number, _)| number), up_to))
}

async fn claim(tx: &mut dyn Tx, caller: &Agent, request: &ClaimRequest, now: Timestamp) -> Tried<Vec<Message>> {
    let me = caller.key.0;
    // The mailboxes to lock are known only when the mail is chosen, and mailboxes are locked before their entries. So
    // claims from one mailbox are serialized by a lock of their own.
    tx.lock_exclusive(Exclusive::Claims(me)).await?;
    let mut budget = PageBudget::new();
    let mut free = unclaimed(tx, me, now, request.limit, request.urgent_first).await?;
    let fits = free.iter().take_while(|(_, bytes)| budget.takes(*bytes)).count();
    free.truncate(fits);
    if free.is_empty() {
        return Ok(Vec::new());
    }
    let mut agents: Vec<i64> = free.iter().map(|(one, _)| one.sender).collect();
    agents.push(me);
    tx.lock(&agents).await?;
    // Checked under the lock that pausing takes, so that nothing is claimed after that has returned.
    if is_paused(tx, me).await? {
        return Ok(Vec::new());
    }
    let until = lease_end(request.lease, now);
    // Leaves out mail that was read since it was chosen.
    let chosen: Vec<Delivery> = free.iter().map(|(one, _)| *one).collect();
    let held = hold(tx, me, &chosen, Some(until), None).await?;
    free.retain(|(one, _)| held.contains(&one.message));
    let (mut messages, mut new) = (Vec::with_capacity(free.len()), Vec::new());
    let mut rows = messages_of(tx, me, &held).await?;
    for (one, _) in free {
        let Some(row) = rows.remove(&one.message) else { continue };
        if row.delivered_at.is_none() {
            new.push(one);
        }
        messages.push(row.message(&caller.name)?);
    }
    mark(tx, caller, &new, DeliveryMark::Delivered, now).await?;
    Ok(messages)
}

async fn release(tx: &mut dyn Tx, caller: &Agent, ids: &[MessageId]) -> Tried<()> {
    let held = deliveries(tx, caller, ids).await?;
    tx.lock(&[caller.key.0]).await?;
    hold(tx, caller.key.0, &held, None, None).await.map(drop)
}

async fn renew(tx: &mut dyn Tx, caller: &Agent, ids: &[MessageId], lease: Duration, now: Timestamp) -> Tried<()> {
    let held = deliveries(tx, caller, ids).await?;
    tx.lock(&[caller.key.0]).await?;
    hold(tx, caller.key.0, &held, Some(lease_end(lease, now)), Some(now)).await.map(drop)
}

/// Returns the end of a lease that begins now.
fn lease_end(lease: Duration, now: Timestamp) -> Timestamp {
    now.saturating_add(lease.min(Duration::from_secs(365 * 86_400))).unwrap_or(now)
}
