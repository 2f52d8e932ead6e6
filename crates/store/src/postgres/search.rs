//! The search index: full text search of PostgreSQL, written from the logs in the background.

use deadpool_postgres::{GenericClient, Transaction};
use tokio_postgres::types::ToSql;

use crate::engine::Failed;
use crate::error::Result;
use crate::index_queue::{Indexed, entries_of_each};
use crate::types::AgentKey;

/// Indexes the next entries of these agents' logs, all of them in one transaction.
pub(super) async fn index(tx: &Transaction<'_>, agents: &[AgentKey]) -> Result<Indexed, Failed> {
    let mut wanted: Vec<i64> = agents.iter().map(|agent| agent.0).collect();
    wanted.sort_unstable();
    // Entries that a crash of the database loses are indexed again, so the commit does not wait for the disk. And a few
    // entries of many logs are read by index, whatever the planner estimates for such a list.
    let settings = tx
        .prepare_cached(
            "SELECT set_config('synchronous_commit', 'off', TRUE), set_config('enable_seqscan', 'off', TRUE),
                    set_config('enable_hashjoin', 'off', TRUE), set_config('enable_mergejoin', 'off', TRUE)",
        )
        .await?;
    let begin = tx
        .prepare_cached(
            "INSERT INTO search_cursors (agent_id, number) SELECT unnest($1::bigint[]), 0 ON CONFLICT DO NOTHING",
        )
        .await?;
    // One process at a time indexes a log; a log that another process indexes is retried later.
    let lock = tx
        .prepare_cached(
            "SELECT agent_id, number FROM search_cursors WHERE agent_id = ANY($1) ORDER BY agent_id
             FOR UPDATE SKIP LOCKED",
        )
        .await?;
    let locking: [&(dyn ToSql + Sync); 1] = [&wanted];
    let (_, _, cursors) =
        tokio::try_join!(tx.query(&settings, &[]), tx.query(&begin, &locking), tx.query(&lock, &locking))?;
    let (mine, done): (Vec<i64>, Vec<i64>) =
        cursors.iter().map(|row| (row.get::<_, i64>(0), row.get::<_, i64>(1))).unzip();
    let each = entries_of_each(agents.len()) as i64;
    let some = tx
        .prepare_cached(
            "SELECT c.agent_id, c.done, count(*), max(e.number)
             FROM unnest($1::bigint[], $2::bigint[]) AS c (agent_id, done)
             CROSS JOIN LATERAL (SELECT number FROM deliveries WHERE agent_id = c.agent_id AND number > c.done
                                 ORDER BY number LIMIT $3) e
             GROUP BY c.agent_id, c.done ORDER BY c.agent_id",
        )
        .await?;
    let rows = tx.query(&some, &[&mine, &done, &each]).await?;
    let mut indexed = Indexed::default();
    indexed.again.extend(wanted.iter().filter(|agent| mine.binary_search(agent).is_err()).copied().map(AgentKey));
    let (mut grown, mut from, mut to) = (Vec::new(), Vec::new(), Vec::new());
    for row in &rows {
        let (agent, count): (i64, i64) = (row.try_get(0)?, row.try_get(2)?);
        grown.push(agent);
        from.push(row.try_get::<_, i64>(1)?);
        to.push(row.try_get::<_, i64>(3)?);
        indexed.entries += u64::try_from(count).unwrap_or(0);
        if count >= each {
            indexed.again.push(AgentKey(agent));
        }
    }
    if grown.is_empty() {
        return Ok(indexed);
    }
    // A tsvector has a maximum size, so only the first 100,000 characters of a message are indexed. Ordered by the key,
    // so that two processes that index the mail of one group do not deadlock.
    let add = tx
        .prepare_cached(
            "INSERT INTO search_words (message_id, created_at, words, subject)
             SELECT m.id, m.created_at,
                    to_tsvector('simple', left(m.content, 100000)) || to_tsvector('simple', s.subject)
                    || array_to_tsvector(
                        ARRAY['@m' || m.sender_id, '@f' || m.sender_id]
                        || ARRAY (SELECT '@m' || d.agent_id FROM deliveries d WHERE d.message_id = m.id)),
                    to_tsvector('simple', s.subject)
             FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS g (agent_id, above, up_to)
             JOIN deliveries e ON e.agent_id = g.agent_id AND e.number > g.above AND e.number <= g.up_to
             JOIN messages m ON m.id = e.message_id
             JOIN sessions s ON s.id = m.session_id
             ORDER BY m.id
             ON CONFLICT DO NOTHING",
        )
        .await?;
    // A task that the office rejected is in no log, but the update that says so is in its sender's. Only the sender
    // finds it.
    let add_rejected = tx
        .prepare_cached(
            "INSERT INTO search_words (message_id, created_at, words, subject)
             SELECT n.id, n.created_at,
                    to_tsvector('simple', left(n.content, 100000)) || to_tsvector('simple', s.subject)
                    || array_to_tsvector(ARRAY['@m' || n.sender_id, '@f' || n.sender_id]),
                    to_tsvector('simple', s.subject)
             FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS g (agent_id, above, up_to)
             JOIN deliveries e ON e.agent_id = g.agent_id AND e.number > g.above AND e.number <= g.up_to
             JOIN messages m ON m.id = e.message_id AND m.kind = 'task_update'
             JOIN messages n ON n.public_id = m.reply_to AND n.sender_id = e.agent_id
             JOIN sessions s ON s.id = n.session_id AND s.group_id IS NULL
             WHERE (SELECT 1 FROM deliveries d WHERE d.message_id = n.id LIMIT 1) IS NULL
             ORDER BY n.id
             ON CONFLICT DO NOTHING",
        )
        .await?;
    let update = tx
        .prepare_cached(
            "UPDATE search_cursors c SET number = g.up_to
             FROM unnest($1::bigint[], $2::bigint[]) AS g (agent_id, up_to) WHERE c.agent_id = g.agent_id",
        )
        .await?;
    let adding: [&(dyn ToSql + Sync); 3] = [&grown, &from, &to];
    let updating: [&(dyn ToSql + Sync); 2] = [&grown, &to];
    tokio::try_join!(tx.execute(&add, &adding), tx.execute(&add_rejected, &adding), tx.execute(&update, &updating))?;
    Ok(indexed)
}

/// Returns every agent whose log has entries that are not indexed. Scans all mailboxes. The head alone does not decide:
/// it may have been advanced.
pub(super) async fn behind<C: GenericClient>(client: &C) -> Result<Vec<AgentKey>, Failed> {
    let select = client
        .prepare_cached(
            "SELECT m.agent_id FROM mailboxes m LEFT JOIN search_cursors c ON c.agent_id = m.agent_id
             WHERE m.head > coalesce(c.number, 0)
             AND EXISTS (SELECT FROM deliveries e WHERE e.agent_id = m.agent_id AND e.number > coalesce(c.number, 0))",
        )
        .await?;
    Ok(client.query(&select, &[]).await?.iter().map(|row| AgentKey(row.get(0))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestStore, at};
    use crate::{DatabaseUrl, ListenerState, PostgresStore, advance_cursors};
    use amb_testing::PostgresDatabase;
    use std::sync::Arc;

    #[tokio::test]
    async fn advancing_a_log_makes_no_listener_stale_and_nothing_to_index() {
        let database = PostgresDatabase::fresh().await;
        let store = Arc::new(PostgresStore::open(&database.url()).await.unwrap());
        let office = TestStore(store.clone());
        let (alice, bob) = office.pair().await;
        office.say(&alice, &bob, "Plan", "x").await;
        while office.index_mail().await.unwrap() > 0 {}
        let listener = ListenerState { agent: bob.key, at: office.event_head(bob.key).await.unwrap(), key: None };
        advance_cursors(&DatabaseUrl::parse(&database.url()).unwrap()).await.unwrap();
        let client = store.client().await.unwrap();
        assert_eq!(behind(&client).await.unwrap(), []);
        assert_eq!(office.stale_listeners(&[listener], at(2)).await.unwrap(), []);
        office.say(&alice, &bob, "Plan", "y").await;
        assert_eq!(behind(&client).await.unwrap(), [bob.key]);
        assert_eq!(office.stale_listeners(&[listener], at(2)).await.unwrap().len(), 1);
        drop(client);
        office.close().await;
    }
}
