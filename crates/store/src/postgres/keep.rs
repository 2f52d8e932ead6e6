//! Keeping mail: removing old mail, and taking one's own along.

use amb_core::Timestamp;
use amb_core::doc::MessageWithReceipts;
use deadpool_postgres::{GenericClient, Transaction};
use uuid::Uuid;

use super::error::Trouble;
use super::messages::{find, find_all};
use super::receipts::with_receipts;
use crate::error::Result;
use crate::letter::no_message;
use crate::types::Agent;

/// Messages removed in one transaction.
const SOME: i64 = 200;

/// Removes messages that everybody they went to read before a moment. Answers how many.
pub(super) async fn remove_read_mail(tx: &Transaction<'_>, before: Timestamp) -> Result<u64, Trouble> {
    let select = tx
        .prepare_cached(
            "SELECT m.public_id FROM entries e JOIN messages m ON m.session_id = e.session_id AND m.seq = e.seq
             WHERE e.read_at < $1 AND e.session_id IS NOT NULL
             AND m.seq < (SELECT s.last_seq FROM sessions s WHERE s.id = m.session_id)
             AND NOT EXISTS (SELECT FROM copies c
                             JOIN entries o ON o.agent_id = c.agent_id AND o.number = c.number
                             WHERE c.message_public_id = m.public_id AND (o.read_at IS NULL OR o.read_at >= $1))
             AND NOT EXISTS (SELECT FROM tasks t WHERE t.message_public_id = m.public_id
                             AND t.state IN ('pending', 'accepted', 'working'))
             ORDER BY e.read_at LIMIT $2",
        )
        .await?;
    let mut old: Vec<Uuid> = tx.query(&select, &[&before, &SOME]).await?.iter().map(|row| row.get(0)).collect();
    old.sort_unstable();
    old.dedup();
    let delete = tx
        .prepare_cached(
            "WITH gone AS (
                 DELETE FROM messages WHERE public_id = ANY($1)
                 RETURNING public_id, session_id, seq, recipient_id, delivery_number
             ), copied AS (
                 DELETE FROM copies c USING gone g WHERE c.message_public_id = g.public_id
                 RETURNING c.agent_id, c.number
             ), words AS (
                 DELETE FROM search_words w USING gone g WHERE w.session_id = g.session_id AND w.seq = g.seq
             ), delivered AS (
                 DELETE FROM entries e
                 USING (SELECT recipient_id AS agent_id, delivery_number AS number FROM gone
                        UNION ALL SELECT agent_id, number FROM copied) d
                 WHERE e.agent_id = d.agent_id AND e.number = d.number
             )
             SELECT count(*) FROM gone",
        )
        .await?;
    let gone: i64 = tx.query_one(&delete, &[&old]).await?.try_get(0)?;
    Ok(u64::try_from(gone).unwrap_or(0))
}

/// The caller's mail after a message, session by session.
pub(super) async fn export<C: GenericClient>(
    client: &C,
    caller: &Agent,
    after: Option<Uuid>,
    limit: u32,
) -> Result<Vec<MessageWithReceipts>, Trouble> {
    let (session, seq) = match after {
        Some(id) => {
            let found = find(client, id).await?.ok_or_else(|| no_message(&id.into()))?;
            (found.session, found.seq)
        }
        None => (0, 0),
    };
    // Of a group's session, what the agent sent and what came to it.
    let select = client
        .prepare_cached(
            "SELECT m.public_id FROM session_members b
             JOIN sessions s ON s.id = b.session_id
             JOIN messages m ON m.session_id = b.session_id
             WHERE b.agent_id = $1 AND b.session_id >= $2 AND (m.session_id, m.seq) > ($2, $3)
             AND (s.group_id IS NULL OR m.sender_id = $1
                  OR EXISTS (SELECT FROM copies c WHERE c.message_public_id = m.public_id AND c.agent_id = $1))
             ORDER BY m.session_id, m.seq LIMIT $4",
        )
        .await?;
    let rows = client.query(&select, &[&caller.key.0, &session, &seq, &i64::from(limit)]).await?;
    let ids: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
    let mut found = find_all(client, &ids).await?;
    let mut mail = Vec::with_capacity(ids.len());
    for id in ids {
        if let Some(one) = found.remove(&id) {
            mail.push(with_receipts(client, caller, one).await?);
        }
    }
    Ok(mail)
}
