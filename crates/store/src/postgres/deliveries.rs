//! Marking what recipients did with their mail. A delivery is an entry of the recipient's log; its place is its number there.

use amb_core::Timestamp;
use deadpool_postgres::Transaction;

use crate::engine::{Mark, Marked, Tried};

const READ: &str = "
WITH marked AS (
    UPDATE entries SET read_at = $3, delivered_at = coalesce(delivered_at, $3), lease_until = NULL
    WHERE agent_id = $1 AND number = ANY($2) AND session_id IS NOT NULL AND read_at IS NULL
    RETURNING number, session_id, seq, delivered_at, read_at, rung_at
), counted AS (
    UPDATE session_members b SET unread = b.unread - c.n
    FROM (SELECT session_id, count(*) AS n FROM marked GROUP BY session_id) c
    WHERE b.agent_id = $1 AND b.session_id = c.session_id
)
SELECT m.public_id, m.sender_id, m.created_at, k.delivered_at, k.read_at, k.rung_at
FROM marked k JOIN messages m ON m.session_id = k.session_id AND m.seq = k.seq ORDER BY k.number DESC";

const DELIVERED: &str = "
WITH marked AS (
    UPDATE entries SET delivered_at = $3 WHERE agent_id = $1 AND number = ANY($2) AND delivered_at IS NULL
    RETURNING number, session_id, seq, delivered_at, read_at, rung_at
)
SELECT m.public_id, m.sender_id, m.created_at, k.delivered_at, k.read_at, k.rung_at
FROM marked k JOIN messages m ON m.session_id = k.session_id AND m.seq = k.seq ORDER BY k.number";

const RUNG: &str = "
WITH marked AS (
    UPDATE entries SET rung_at = $3
    WHERE agent_id = $1 AND number = ANY($2) AND session_id IS NOT NULL AND rung_at IS NULL AND read_at IS NULL
    RETURNING number, session_id, seq, delivered_at, read_at, rung_at
)
SELECT m.public_id, m.sender_id, m.created_at, k.delivered_at, k.read_at, k.rung_at
FROM marked k JOIN messages m ON m.session_id = k.session_id AND m.seq = k.seq ORDER BY k.number";

/// Marks what is not marked so yet.
pub(super) async fn mark(
    tx: &Transaction<'_>,
    agent: i64,
    places: &[i64],
    mark: Mark,
    now: Timestamp,
) -> Tried<Vec<Marked>> {
    let update = match mark {
        Mark::Delivered => DELIVERED,
        Mark::Rung => RUNG,
        Mark::Read => READ,
    };
    let update = tx.prepare_cached(update).await?;
    let rows = tx.query(&update, &[&agent, &places, &now]).await?;
    let marked = |row: &tokio_postgres::Row| {
        Ok(Marked {
            message: row.try_get(0)?,
            sender: row.try_get(1)?,
            created_at: row.try_get(2)?,
            delivered_at: row.try_get(3)?,
            read_at: row.try_get(4)?,
            rung_at: row.try_get(5)?,
        })
    };
    rows.iter().map(marked).collect()
}
