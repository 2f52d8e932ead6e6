//! Removing old mail.

use amb_core::Timestamp;
use deadpool_postgres::Transaction;
use uuid::Uuid;

use crate::engine::Failed;
use crate::error::Result;
use crate::query::{ReadPlace, Removed};

/// Entries looked at in one go.
const SOME: i64 = 500;

/// Held by the process that removes old mail. Any fixed number will do.
const REMOVING: i64 = 7_461_629;

/// Removes, among some entries after a place, messages that everybody they went to read before a moment.
pub(super) async fn remove_read_mail(
    tx: &Transaction<'_>,
    before: Timestamp,
    from: Option<ReadPlace>,
) -> Result<Removed, Failed> {
    // One process at a time: two that remove the same mail would wait for each other.
    let turn = tx.prepare_cached("SELECT pg_try_advisory_xact_lock($1)").await?;
    if !tx.query_one(&turn, &[&REMOVING]).await?.get::<_, bool>(0) {
        return Ok(Removed { messages: 0, next: None });
    }
    let select = tx
        .prepare_cached(
            "SELECT e.read_at, e.agent_id, e.number, m.public_id,
                    m.seq < (SELECT s.last_seq FROM sessions s WHERE s.id = m.session_id)
                    AND NOT EXISTS (SELECT FROM copies c
                                    JOIN entries o ON o.agent_id = c.agent_id AND o.number = c.number
                                    WHERE c.message_public_id = m.public_id AND (o.read_at IS NULL OR o.read_at >= $1))
                    AND NOT EXISTS (SELECT FROM tasks t WHERE t.message_public_id = m.public_id
                                    AND t.state IN ('pending', 'accepted', 'working'))
             FROM (SELECT read_at, agent_id, number, session_id, seq FROM entries
                   WHERE read_at IS NOT NULL AND read_at < $1 AND read_at >= $2
                   AND (read_at, agent_id, number) > ($2, $3, $4)
                   ORDER BY read_at, agent_id, number LIMIT $5) e
             LEFT JOIN messages m ON m.session_id = e.session_id AND m.seq = e.seq
             ORDER BY e.read_at, e.agent_id, e.number",
        )
        .await?;
    let from = from.unwrap_or(ReadPlace { at: Timestamp::UNIX_EPOCH, agent: 0, number: 0 });
    let rows = tx.query(&select, &[&before, &from.at, &from.agent, &from.number, &SOME]).await?;
    let next = match rows.last().filter(|_| rows.len() == SOME as usize) {
        Some(last) => Some(ReadPlace { at: last.try_get(0)?, agent: last.try_get(1)?, number: last.try_get(2)? }),
        None => None,
    };
    let mut old: Vec<Uuid> = Vec::new();
    for row in &rows {
        if row.try_get::<_, Option<bool>>(4)? == Some(true) {
            old.push(row.try_get(3)?);
        }
    }
    if old.is_empty() {
        return Ok(Removed { messages: 0, next });
    }
    // A group's message is found once for each who got it.
    old.sort_unstable();
    old.dedup();
    // The rejection of a task that went to nobody was charged to the task's sender, whose own message is never removed: nobody
    // can read it.
    let delete = tx
        .prepare_cached(
            "WITH gone AS (
                 DELETE FROM messages m WHERE m.public_id = ANY($1)
                 RETURNING m.public_id, m.session_id, m.seq, m.recipient_id, m.delivery_number, m.sender_id, m.kind,
                           m.reply_to, octet_length(m.content) + coalesce(octet_length(m.parts), 0)
                           + coalesce(octet_length(m.metadata), 0) + coalesce(octet_length(m.callback), 0) AS bytes
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
             ), freed AS (
                 INSERT INTO usage AS u (agent_id, messages, bytes)
                 SELECT payer, -sum(copies), -sum(bytes) FROM (
                     SELECT CASE WHEN m.kind = 'task_update' AND EXISTS (
                                     SELECT FROM messages n WHERE n.public_id = m.reply_to
                                     AND n.recipient_id IS NOT NULL AND n.delivery_number IS NULL)
                                 THEN m.recipient_id ELSE m.sender_id END AS payer,
                            CASE WHEN m.recipient_id IS NULL
                                 THEN greatest(1, (SELECT count(*) FROM copies c WHERE c.message_public_id = m.public_id))
                                 ELSE 1 END AS copies, m.bytes
                     FROM gone m
                 ) c GROUP BY payer ORDER BY payer
                 ON CONFLICT (agent_id) DO UPDATE SET messages = u.messages + excluded.messages,
                                                      bytes = u.bytes + excluded.bytes
             )
             SELECT count(*) FROM gone",
        )
        .await?;
    let gone: i64 = tx.query_one(&delete, &[&old]).await?.try_get(0)?;
    Ok(Removed { messages: u64::try_from(gone).unwrap_or(0), next })
}
