//! Removing old rows.

use std::collections::BTreeMap;

use amb_core::Timestamp;
use async_trait::async_trait;
use futures_util::FutureExt;

use super::messages::undelivered;
use crate::engine::{
    Changes, Db, Engine, Exclusive, Query, ReadLength, Tried, Tx, from_row, read, values, write_unlogged,
};
use crate::error::Result;
use crate::query::{ReadPlace, Removed};
use crate::quota::{Charges, Stored};
use crate::types::to_micros;

/// Most rows of each kind in one transaction, so that sends do not wait long.
const BATCH: i64 = 500;

/// Retention.
#[async_trait]
pub trait PruneVerbs: Engine {
    /// Removes some of the events other than mail, and of the answers to idempotent requests, from before this time.
    /// Returns the number of rows removed; 0 when done.
    async fn prune(&self, before: Timestamp) -> Result<u64> {
        write_unlogged(self, Changes::Logs, to_micros(before), |tx, before| prune(tx, *before).boxed()).await
    }

    /// Removes some of the messages that all recipients read before this time, but never the newest of a session or
    /// that of an open task. Checks a few hundred after `from`; continue with `next` of the result until that is
    /// `None`.
    async fn remove_read_mail(&self, before: Timestamp, from: Option<ReadPlace>) -> Result<Removed> {
        let asked = (to_micros(before), from);
        // What was found stays removable: no message becomes unread, the newest of its session, or that of an open task
        // again.
        let (old, next) =
            read(self, ReadLength::Long, asked, |db, (before, from)| old_mail(db, *before, *from).boxed()).await?;
        if old.is_empty() {
            return Ok(Removed { messages: 0, next });
        }
        let messages = write_unlogged(self, Changes::All, old.clone(), |tx, old| remove(tx, old).boxed()).await?;
        self.unindex(old).await?;
        Ok(Removed { messages, next })
    }
}

impl<E: Engine> PruneVerbs for E {}

async fn prune(tx: &mut dyn Tx, before: Timestamp) -> Tried<u64> {
    let skip_locked = tx.dialect().skip_locked;
    let sql = format!(
        "DELETE FROM events WHERE (agent_id, number) IN (
             SELECT agent_id, number FROM events WHERE at < $1 ORDER BY at LIMIT $2{skip_locked})
         RETURNING agent_id, number"
    );
    let events: Vec<(i64, i64)> = tx.rows(&sql, values![before, BATCH]).await?;
    let count = events.len() as u64;
    raise_log_floors(tx, events).await?;
    let sql = format!(
        "DELETE FROM idempotency WHERE (agent_id, key) IN
         (SELECT agent_id, key FROM idempotency WHERE created_at < $1 ORDER BY created_at LIMIT $2{skip_locked})"
    );
    Ok(count + tx.execute(&sql, values![before, BATCH]).await?)
}

/// Records that these entries (agent and number) were removed, so that their numbers are not used again.
async fn raise_log_floors(tx: &mut dyn Tx, removed: Vec<(i64, i64)>) -> Tried<()> {
    let mut highest = BTreeMap::new();
    for (agent, number) in removed {
        let known = highest.entry(agent).or_insert(number);
        *known = number.max(*known);
    }
    for (agent, number) in highest {
        tx.raise_log_floor(agent, number).await?;
    }
    Ok(())
}

/// A delivery that was read, and whether its message can be removed.
struct ReadDelivery {
    at: Timestamp,
    agent: i64,
    number: i64,
    message: i64,
    old: bool,
}

from_row!(ReadDelivery: at agent number message old);

/// Returns the messages that all recipients read before a time, among some deliveries after a place; and where to
/// continue.
async fn old_mail(db: &mut dyn Db, before: Timestamp, from: Option<ReadPlace>) -> Tried<(Vec<i64>, Option<ReadPlace>)> {
    let from = from.unwrap_or(ReadPlace { at: Timestamp::UNIX_EPOCH, agent: 0, number: 0 });
    // Scalar subqueries: for `EXISTS` PostgreSQL may hash all deliveries.
    let sql = "SELECT e.read_at, e.agent_id, e.number, e.message_id,
                      (SELECT 1 FROM messages n WHERE n.session_id = m.session_id AND n.id > m.id LIMIT 1) IS NOT NULL
                      AND (SELECT 1 FROM deliveries o WHERE o.message_id = m.id
                           AND (o.read_at IS NULL OR o.read_at >= $1) LIMIT 1) IS NULL
                      AND (SELECT 1 FROM tasks t WHERE t.message_public_id = m.public_id
                           AND t.state IN ('pending', 'accepted', 'working') LIMIT 1) IS NULL
               FROM deliveries e JOIN messages m ON m.id = e.message_id
               WHERE e.read_at IS NOT NULL AND e.read_at < $1 AND (e.read_at, e.agent_id, e.number) > ($2, $3, $4)
               ORDER BY e.read_at, e.agent_id, e.number LIMIT $5";
    let rows: Vec<ReadDelivery> = db.rows(sql, values![before, from.at, from.agent, from.number, BATCH]).await?;
    let place = |one: &ReadDelivery| ReadPlace { at: one.at, agent: one.agent, number: one.number };
    let next = rows.last().filter(|_| rows.len() == BATCH as usize).map(place);
    let mut old: Vec<i64> = rows.iter().filter(|one| one.old).map(|one| one.message).collect();
    // A group's message is found once for each recipient.
    old.sort_unstable();
    old.dedup();
    Ok((old, next))
}

/// Removes messages and their deliveries, and credits the agents that were charged for them.
async fn remove(tx: &mut dyn Tx, old: &[i64]) -> Tried<u64> {
    tx.lock_exclusive(Exclusive::Removing).await?;
    let listed = (tx.dialect().in_list)("$1");
    // The update of a task that the office rejected was charged to the task's sender.
    let sql = format!(
        "DELETE FROM messages WHERE id {listed}
         RETURNING CASE WHEN kind = 'task_update' AND EXISTS (
                            SELECT 1 FROM messages n WHERE n.public_id = messages.reply_to AND {})
                        THEN (SELECT d.agent_id FROM deliveries d WHERE d.message_id = messages.id)
                        ELSE sender_id END,
                   (SELECT count(*) FROM deliveries d WHERE d.message_id = messages.id),
                   octet_length(content) + coalesce(octet_length(parts), 0) + coalesce(octet_length(metadata), 0)
                   + coalesce(octet_length(callback), 0)",
        undelivered("n")
    );
    let gone: Vec<(i64, i64, i64)> = tx.rows(&sql, values![old]).await?;
    let sql = format!("DELETE FROM deliveries WHERE message_id {listed} RETURNING agent_id, number");
    let deliveries = tx.rows(&sql, values![old]).await?;
    raise_log_floors(tx, deliveries).await?;
    tx.unindex(old).await?;
    let mut freed = Charges::new();
    for (payer, copies, bytes) in &gone {
        *freed.entry(*payer).or_default() += -Stored { messages: (*copies).max(1), bytes: *bytes };
    }
    for (payer, less) in freed {
        tx.charge(payer, less).await?;
    }
    Ok(gone.len() as u64)
}
