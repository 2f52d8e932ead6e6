//! How far mail has come: handed over, read, claimed.

use std::time::Duration;

use amb_core::mailbox::ClaimRequest;
use amb_core::receipt::Receipt;
use amb_core::send::no_message;
use amb_core::{Event, Message, MessageId, Timestamp};
use async_trait::async_trait;
use futures_util::FutureExt;
use uuid::Uuid;

use crate::budget::Budget;
use crate::engine::{Changes, Delivery, Engine, Mark, Tried, Tx, write};
use crate::error::Result;
use crate::outgoing::message_uuid;
use crate::query::{Handed, MAX_HANDED};
use crate::types::{Agent, Written, to_micros};

/// Receipts of mail, and who holds it.
#[async_trait]
pub trait Receipts: Engine {
    /// Marks messages that came to the caller as read. Returns how many were not yet; `not_found` where one did not come
    /// to the caller, and then none is marked.
    async fn ack(&self, caller: &Agent, ids: &[MessageId], now: Timestamp) -> Result<Written<u64>> {
        let asked = (caller.clone(), ids.to_vec(), to_micros(now));
        write(self, Changes::Logs, asked, |tx, (caller, ids, now)| ack(tx, caller, ids, *now).boxed()).await
    }

    /// Records that the entries after `after`, up to `up_to`, were handed to the caller's process, in one transaction: of a
    /// long stretch only the first thousand messages for which that is new. Go on after the number that the answer says was
    /// reached. Numbers that no entry has cost nothing.
    async fn delivered(&self, caller: &Agent, after: u64, up_to: u64, now: Timestamp) -> Result<Written<Handed>> {
        let asked = (caller.clone(), after, up_to, to_micros(now));
        write(self, Changes::Logs, asked, |tx, (caller, after, up_to, now)| {
            delivered(tx, caller, *after, *up_to, *now).boxed()
        })
        .await
    }

    /// Takes unread messages that no other consumer holds, for the time of the lease.
    async fn claim(&self, caller: &Agent, request: ClaimRequest, now: Timestamp) -> Result<Written<Vec<Message>>> {
        let asked = (caller.clone(), request, to_micros(now));
        write(self, Changes::Logs, asked, |tx, (caller, request, now)| claim(tx, caller, request, *now).boxed()).await
    }

    /// Gives claimed messages back.
    async fn release(&self, caller: &Agent, ids: &[MessageId]) -> Result<()> {
        let asked = (caller.clone(), ids.to_vec());
        let released = write(self, Changes::Logs, asked, |tx, (caller, ids)| release(tx, caller, ids).boxed());
        released.await.map(|done| done.answer)
    }

    /// Gives those of these messages that are still held a lease of this length from now on.
    async fn renew(&self, caller: &Agent, ids: &[MessageId], lease: Duration, now: Timestamp) -> Result<()> {
        let asked = (caller.clone(), ids.to_vec(), lease, to_micros(now));
        let renewed = write(self, Changes::Logs, asked, |tx, (caller, ids, lease, now)| {
            renew(tx, caller, ids, *lease, *now).boxed()
        });
        renewed.await.map(|done| done.answer)
    }
}

impl<E: Engine> Receipts for E {}

/// The deliveries of these messages to the caller; `not_found` where one did not come to it.
async fn deliveries(tx: &mut dyn Tx, caller: &Agent, ids: &[MessageId]) -> Tried<Vec<Delivery>> {
    let uuids = ids.iter().map(message_uuid).collect::<Result<Vec<_>>>()?;
    let found = tx.deliveries(caller.key.0, &uuids).await?;
    let delivery = |(id, uuid): (&MessageId, &Uuid)| found.get(uuid).copied().ok_or_else(|| no_message(id).into());
    ids.iter().zip(&uuids).map(delivery).collect()
}

/// Locks the mailbox of the caller and those of the senders who get receipts, and marks. Returns how many were new.
pub(crate) async fn mark(tx: &mut dyn Tx, caller: &Agent, mail: &[Delivery], mark: Mark, now: Timestamp) -> Tried<u64> {
    if mail.is_empty() {
        return Ok(0);
    }
    let mut agents: Vec<i64> = mail.iter().map(|one| one.sender).collect();
    agents.push(caller.key.0);
    tx.lock(&agents).await?;
    let places: Vec<i64> = mail.iter().map(|one| one.place).collect();
    let marked = tx.mark(caller.key.0, &places, mark, now).await?;
    let count = marked.len() as u64;
    for one in marked {
        let receipt = Receipt::of(caller.name.clone(), one.created_at, one.delivered_at, one.read_at);
        tx.tell(one.sender, Event::Receipt { message_id: one.message.into(), receipt }, now).await?;
    }
    Ok(count)
}

async fn ack(tx: &mut dyn Tx, caller: &Agent, ids: &[MessageId], now: Timestamp) -> Tried<u64> {
    let mail = deliveries(tx, caller, ids).await?;
    mark(tx, caller, &mail, Mark::Read, now).await
}

async fn delivered(tx: &mut dyn Tx, caller: &Agent, after: u64, up_to: u64, now: Timestamp) -> Tried<Handed> {
    let new = tx.undelivered(caller.key.0, after, up_to, MAX_HANDED).await?;
    let mail: Vec<Delivery> = new.iter().map(|(_, delivery)| *delivery).collect();
    let messages = mark(tx, caller, &mail, Mark::Delivered, now).await?;
    Ok(Handed::after(messages, new.into_iter().map(|(number, _)| number), up_to))
}

async fn claim(tx: &mut dyn Tx, caller: &Agent, request: &ClaimRequest, now: Timestamp) -> Tried<Vec<Message>> {
    let me = caller.key.0;
    // Whose mailboxes to lock is known only when the mail is chosen, and mailboxes come before their entries. So those
    // who claim from one mailbox take turns first, under a lock that nobody else takes.
    tx.lock_claims(me).await?;
    let mut budget = Budget::page();
    let mut free = tx.unclaimed(me, now, request.limit, request.urgent_first).await?;
    let fits = free.iter().take_while(|(_, bytes)| budget.takes(*bytes)).count();
    free.truncate(fits);
    if free.is_empty() {
        return Ok(Vec::new());
    }
    let mut agents: Vec<i64> = free.iter().map(|(one, _)| one.sender).collect();
    agents.push(me);
    tx.lock(&agents).await?;
    let until = lease_end(request.lease, now);
    // Some may have been read since they were chosen; those are not handed out.
    let places: Vec<i64> = free.iter().map(|(one, _)| one.place).collect();
    let held = tx.hold(me, &places, Some(until), None).await?;
    free.retain(|(one, _)| held.contains(&one.place));
    let (mut messages, mut new) = (Vec::with_capacity(free.len()), Vec::new());
    let mut rows = tx.delivered_messages(me, &held).await?;
    for (one, _) in free {
        let Some(row) = rows.remove(&one.place) else { continue };
        if row.delivered_at.is_none() {
            new.push(one);
        }
        messages.push(row.message(&caller.name)?);
    }
    mark(tx, caller, &new, Mark::Delivered, now).await?;
    Ok(messages)
}

async fn release(tx: &mut dyn Tx, caller: &Agent, ids: &[MessageId]) -> Tried<()> {
    let held = deliveries(tx, caller, ids).await?;
    tx.lock(&[caller.key.0]).await?;
    let places: Vec<i64> = held.iter().map(|held| held.place).collect();
    tx.hold(caller.key.0, &places, None, None).await.map(drop)
}

async fn renew(tx: &mut dyn Tx, caller: &Agent, ids: &[MessageId], lease: Duration, now: Timestamp) -> Tried<()> {
    let held = deliveries(tx, caller, ids).await?;
    tx.lock(&[caller.key.0]).await?;
    let places: Vec<i64> = held.iter().map(|held| held.place).collect();
    tx.hold(caller.key.0, &places, Some(lease_end(lease, now)), Some(now)).await.map(drop)
}

/// Until when a lease holds that is given now.
fn lease_end(lease: Duration, now: Timestamp) -> Timestamp {
    now.saturating_add(lease.min(Duration::from_secs(365 * 86_400))).unwrap_or(now)
}
