//! What recipients did with their mail. A delivery is an entry of the recipient's log; its place is its number there.

use std::collections::HashMap;

use amb_core::Timestamp;
use deadpool_postgres::Transaction;
use uuid::Uuid;

use super::messages::{AFTER, find_all, message_bytes, message_columns, message_row};
use crate::engine::{Delivery, Mark, Marked, Tried};
use crate::row::{MessageRow, OVERHEAD};

/// Tells the advisory locks of claims from others.
const CLAIMS: i32 = 7_461_628;

/// Those of these messages that came to an agent.
pub(super) async fn deliveries(tx: &Transaction<'_>, agent: i64, ids: &[Uuid]) -> Tried<HashMap<Uuid, Delivery>> {
    let found = find_all(tx, ids).await?;
    let delivery = |(id, found): (&Uuid, &super::messages::Found)| {
        Some((*id, Delivery { place: found.delivery_to(agent)?, sender: found.sender }))
    };
    Ok(found.iter().filter_map(delivery).collect())
}

/// Messages in a stretch of an agent's log that were not handed over yet.
pub(super) async fn undelivered(
    tx: &Transaction<'_>,
    agent: i64,
    after: u64,
    up_to: u64,
    limit: usize,
) -> Tried<Vec<(u64, Delivery)>> {
    let (after, up_to) = (i64::try_from(after).unwrap_or(i64::MAX), i64::try_from(up_to).unwrap_or(i64::MAX));
    let select = tx
        .prepare_cached(
            "SELECT e.number, m.sender_id FROM entries e
             JOIN messages m ON m.session_id = e.session_id AND m.seq = e.seq
             WHERE e.agent_id = $1 AND e.number > $2 AND e.number <= $3 AND e.session_id IS NOT NULL
             AND e.delivered_at IS NULL ORDER BY e.number LIMIT $4",
        )
        .await?;
    let rows = tx.query(&select, &[&agent, &after, &up_to, &(limit as i64)]).await?;
    let delivery = |row: &tokio_postgres::Row| {
        let place: i64 = row.try_get(0)?;
        Ok((u64::try_from(place).unwrap_or(0), Delivery { place, sender: row.try_get(1)? }))
    };
    rows.iter().map(delivery).collect()
}

const READ: &str = "
WITH marked AS (
    UPDATE entries SET read_at = $3, delivered_at = coalesce(delivered_at, $3), lease_until = NULL
    WHERE agent_id = $1 AND number = ANY($2) AND session_id IS NOT NULL AND read_at IS NULL
    RETURNING number, session_id, seq, delivered_at, read_at
), counted AS (
    UPDATE session_members b SET unread = b.unread - c.n
    FROM (SELECT session_id, count(*) AS n FROM marked GROUP BY session_id) c
    WHERE b.agent_id = $1 AND b.session_id = c.session_id
)
SELECT m.public_id, m.sender_id, m.created_at, k.delivered_at, k.read_at
FROM marked k JOIN messages m ON m.session_id = k.session_id AND m.seq = k.seq ORDER BY k.number DESC";

const DELIVERED: &str = "
WITH marked AS (
    UPDATE entries SET delivered_at = $3 WHERE agent_id = $1 AND number = ANY($2) AND delivered_at IS NULL
    RETURNING number, session_id, seq, delivered_at, read_at
)
SELECT m.public_id, m.sender_id, m.created_at, k.delivered_at, k.read_at
FROM marked k JOIN messages m ON m.session_id = k.session_id AND m.seq = k.seq ORDER BY k.number";

/// Marks what is not marked so yet.
pub(super) async fn mark(
    tx: &Transaction<'_>,
    agent: i64,
    places: &[i64],
    mark: Mark,
    now: Timestamp,
) -> Tried<Vec<Marked>> {
    let update = tx.prepare_cached(if mark == Mark::Read { READ } else { DELIVERED }).await?;
    let rows = tx.query(&update, &[&agent, &places, &now]).await?;
    let marked = |row: &tokio_postgres::Row| {
        Ok(Marked {
            message: row.try_get(0)?,
            sender: row.try_get(1)?,
            created_at: row.try_get(2)?,
            delivered_at: row.try_get(3)?,
            read_at: row.try_get(4)?,
        })
    };
    rows.iter().map(marked).collect()
}

/// Held to the end of the transaction by whoever claims from this mailbox.
pub(super) async fn lock_claims(tx: &Transaction<'_>, agent: i64) -> Tried<()> {
    let turn = tx.prepare_cached("SELECT pg_advisory_xact_lock($1, ($2::bigint % 2147483647)::int)").await?;
    tx.execute(&turn, &[&CLAIMS, &agent]).await?;
    Ok(())
}

/// Unread mail that nobody holds, with the bytes of each.
pub(super) async fn unclaimed(
    tx: &Transaction<'_>,
    agent: i64,
    now: Timestamp,
    limit: usize,
    urgent_first: bool,
) -> Tried<Vec<(Delivery, usize)>> {
    let order = if urgent_first { "e.priority DESC, e.number" } else { "e.number" };
    let sql = format!(
        "SELECT e.number, m.sender_id, {}
         FROM entries e JOIN messages m ON m.session_id = e.session_id AND m.seq = e.seq
         WHERE e.agent_id = $1 AND e.session_id IS NOT NULL AND e.read_at IS NULL
         AND (e.lease_until IS NULL OR e.lease_until <= $2) ORDER BY {order} LIMIT $3",
        message_bytes!()
    );
    let (select, limit) = (tx.prepare_cached(&sql).await?, i64::try_from(limit).unwrap_or(i64::MAX));
    let rows = tx.query(&select, &[&agent, &now, &limit]).await?;
    let free = |row: &tokio_postgres::Row| {
        let bytes = usize::try_from(row.try_get::<_, i32>(2)?).unwrap_or(0) + OVERHEAD;
        Ok((Delivery { place: row.try_get(0)?, sender: row.try_get(1)? }, bytes))
    };
    rows.iter().map(free).collect()
}

/// Holds unread mail until a moment, or gives it back; with `held_at` only what is held then.
pub(super) async fn hold(
    tx: &Transaction<'_>,
    agent: i64,
    places: &[i64],
    until: Option<Timestamp>,
    held_at: Option<Timestamp>,
) -> Tried<Vec<i64>> {
    let hold = tx
        .prepare_cached(
            "UPDATE entries SET lease_until = $3 WHERE agent_id = $1 AND number = ANY($2) AND read_at IS NULL
             AND ($4::timestamptz IS NULL OR lease_until > $4) RETURNING number",
        )
        .await?;
    let held = tx.query(&hold, &[&agent, &places, &until, &held_at]).await?;
    held.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Messages as they came to an agent, by place.
pub(super) async fn messages(tx: &Transaction<'_>, agent: i64, places: &[i64]) -> Tried<HashMap<i64, MessageRow>> {
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
    let rows = tx.query(&select, &[&agent, &places]).await?;
    rows.iter().map(|row| Ok((row.try_get(AFTER)?, message_row(row)?))).collect()
}
