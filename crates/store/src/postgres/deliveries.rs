//! Marking what recipients did with their mail. A delivery is an entry of the recipient's log; its place is its number there.

/// Sets columns of entries under a condition, does more with those that it `marked`, and selects what [`Marked`] has, in this order.
///
/// [`Marked`]: crate::engine::Marked
macro_rules! mark {
    ($set:literal, $condition:literal, $more:literal, $order:literal) => {
        concat!(
            "WITH marked AS (UPDATE entries SET ",
            $set,
            " WHERE agent_id = $1 AND number = ANY($2) AND session_id IS NOT NULL AND ",
            $condition,
            " RETURNING number, session_id, seq, delivered_at, read_at, rung_at)",
            $more,
            " SELECT m.public_id, m.sender_id, m.created_at, k.delivered_at, k.read_at, k.rung_at
              FROM marked k JOIN messages m ON m.session_id = k.session_id AND m.seq = k.seq ORDER BY k.number",
            $order
        )
    };
}

pub(super) const READ: &str = mark!(
    "read_at = $3, delivered_at = coalesce(delivered_at, $3), lease_until = NULL",
    "read_at IS NULL",
    ", counted AS (
         UPDATE session_members b SET unread = b.unread - c.n
         FROM (SELECT session_id, count(*) AS n FROM marked GROUP BY session_id) c
         WHERE b.agent_id = $1 AND b.session_id = c.session_id
     )",
    " DESC"
);

pub(super) const DELIVERED: &str = mark!("delivered_at = $3", "delivered_at IS NULL", "", "");

pub(super) const RUNG: &str = mark!("rung_at = $3", "rung_at IS NULL AND read_at IS NULL", "", "");
