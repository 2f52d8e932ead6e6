//! Search with PostgreSQL's own full text. Indexing happens behind the send path, from the logs.

use amb_core::doc::SearchHit;
use amb_core::mailbox::SearchQuery;
use deadpool_postgres::{GenericClient, Transaction};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::engine::Reading;
use super::messages::shown_in_pair;
use crate::engine::Failed;
use crate::error::Result;
use crate::row;
use crate::search::{limit, snippet, terms};
use crate::types::{Agent, AgentKey};
use crate::unindexed::Indexed;
use crate::verbs::row_of;

/// Agents whose logs are looked at in one transaction.
pub(super) const AGENTS: usize = 1_000;
/// Entries looked at in one transaction, shared among its agents.
const ENTRIES: usize = 2_000;
/// Entries of each that are looked at all the same.
const LEAST: usize = 2;

/// Makes the next of these agents' logs findable, all of them in one transaction.
pub(super) async fn index(tx: &Transaction<'_>, agents: &[AgentKey]) -> Result<Indexed, Failed> {
    let mut wanted: Vec<i64> = agents.iter().map(|agent| agent.0).collect();
    wanted.sort_unstable();
    // What a crash of the database loses is indexed again, so nobody waits for its disk. And a few entries of many logs are
    // found by their keys, whatever the planner thinks of such a list.
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
    // One process at a time indexes one log; what another has in hand is looked at later.
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
    let each = (ENTRIES / agents.len().max(1)).max(LEAST) as i64;
    let some = tx
        .prepare_cached(
            "SELECT c.agent_id, c.done, count(*), max(e.number)
             FROM unnest($1::bigint[], $2::bigint[]) AS c (agent_id, done)
             CROSS JOIN LATERAL (SELECT number FROM entries WHERE agent_id = c.agent_id AND number > c.done
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
    // A text can have more words than one entry of the index holds: what comes after the first 100,000 characters of a
    // message is not found. In the order of the key, so that two processes which index one group's mail do not wait for
    // each other.
    let add = tx
        .prepare_cached(
            "INSERT INTO search_words (session_id, seq, created_at, words, subject)
             SELECT m.session_id, m.seq, m.created_at,
                    to_tsvector('simple', left(m.content, 100000)) || to_tsvector('simple', s.subject)
                    || array_to_tsvector(
                        ARRAY['@m' || m.sender_id, '@f' || m.sender_id, '@m' || e.agent_id]
                        || ARRAY (SELECT '@m' || c.agent_id FROM copies c WHERE c.message_public_id = m.public_id)),
                    to_tsvector('simple', s.subject)
             FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS g (agent_id, above, up_to)
             JOIN entries e ON e.agent_id = g.agent_id AND e.number > g.above AND e.number <= g.up_to
             JOIN messages m ON m.session_id = e.session_id AND m.seq = e.seq
             JOIN sessions s ON s.id = m.session_id
             ORDER BY m.session_id, m.seq
             ON CONFLICT DO NOTHING",
        )
        .await?;
    // A task that the office rejected at once is in no log; the update that says so is in its sender's, who alone finds it.
    let add_rejected = tx
        .prepare_cached(
            "INSERT INTO search_words (session_id, seq, created_at, words, subject)
             SELECT n.session_id, n.seq, n.created_at,
                    to_tsvector('simple', left(n.content, 100000)) || to_tsvector('simple', s.subject)
                    || array_to_tsvector(ARRAY['@m' || n.sender_id, '@f' || n.sender_id]),
                    to_tsvector('simple', s.subject)
             FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS g (agent_id, above, up_to)
             JOIN entries e ON e.agent_id = g.agent_id AND e.number > g.above AND e.number <= g.up_to
             JOIN messages m ON m.session_id = e.session_id AND m.seq = e.seq AND m.kind = 'task_update'
             JOIN messages n ON n.public_id = m.reply_to AND n.sender_id = e.agent_id AND n.recipient_id IS NOT NULL
                            AND n.delivery_number IS NULL
             JOIN sessions s ON s.id = n.session_id
             ORDER BY n.session_id, n.seq
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

/// Every agent with something that is not indexed. Looks at every mailbox, once. A head that was put forward is not enough.
pub(super) async fn behind<C: GenericClient>(client: &C) -> Result<Vec<AgentKey>, Failed> {
    let select = client
        .prepare_cached(
            "SELECT m.agent_id FROM mailboxes m LEFT JOIN search_cursors c ON c.agent_id = m.agent_id
             WHERE m.head > coalesce(c.number, 0)
             AND EXISTS (SELECT FROM entries e WHERE e.agent_id = m.agent_id AND e.number > coalesce(c.number, 0))",
        )
        .await?;
    Ok(client.query(&select, &[]).await?.iter().map(|row| AgentKey(row.get(0))).collect())
}

/// Looks through the caller's own mail.
pub(super) async fn search<C: GenericClient>(
    client: &C,
    caller: &Agent,
    query: &SearchQuery,
) -> Result<Vec<SearchHit>, Failed> {
    let words = terms(&query.text);
    if (!query.text.trim().is_empty() && words.is_empty()) || query.text.contains('\0') {
        return Ok(Vec::new());
    }
    let mut who = vec![format!("@m{}", caller.key.0)];
    if let Some(from) = &query.from {
        let Some(sender) = row_of(&mut Reading(client), from).await? else { return Ok(Vec::new()) };
        who.push(format!("@f{sender}"));
    }
    let subject = query.subject.as_deref().map(terms).unwrap_or_default();
    // Each name of `who` is one lexeme, whatever the parser would make of it; each term is a phrase of its words.
    let select = client
        .prepare_cached(concat!(
            "WITH wanted AS (
                 SELECT (string_agg(quote_literal(name), ' & '))::tsquery AS who FROM unnest($1::text[]) AS name
             ), phrases AS (
                 SELECT coalesce(string_agg('(' || phraseto_tsquery('simple', term)::text || ')', ' & ')
                                 FILTER (WHERE numnode(phraseto_tsquery('simple', term)) > 0), '')::tsquery AS words
                 FROM unnest($2::text[]) AS term
             ), subjects AS (
                 SELECT coalesce(string_agg('(' || phraseto_tsquery('simple', term)::text || ')', ' & ')
                                 FILTER (WHERE numnode(phraseto_tsquery('simple', term)) > 0), '')::tsquery AS words
                 FROM unnest($3::text[]) AS term
             ), query AS (
                 SELECT wanted.who && phrases.words AS words, subjects.words AS subject
                 FROM wanted, phrases, subjects
             ), hits AS (
                 SELECT w.session_id, w.seq, w.created_at FROM search_words w
                 WHERE w.words @@ (SELECT words FROM query)
                 AND (numnode((SELECT subject FROM query)) = 0 OR w.subject @@ (SELECT subject FROM query))
                 AND w.created_at >= $4 AND w.created_at < $5
                 ORDER BY w.created_at DESC, w.session_id DESC, w.seq DESC LIMIT $6
             )
             SELECT m.public_id, s.public_id, s.subject, f.name, m.created_at, m.content
             FROM hits h
             JOIN messages m ON m.session_id = h.session_id AND m.seq = h.seq
             JOIN sessions s ON s.id = m.session_id
             JOIN agents f ON f.id = m.sender_id
             WHERE s.group_id IS NOT NULL OR ",
            shown_in_pair!("m", "$7"),
            " ORDER BY h.created_at DESC, h.session_id DESC, h.seq DESC",
        ))
        .await?;
    let after = query.after.unwrap_or_default();
    let before = query.before.unwrap_or(super::open::THE_END);
    let most = i64::from(limit(query));
    let rows = client.query(&select, &[&who, &words, &subject, &after, &before, &most, &caller.key.0]).await?;
    rows.iter()
        .map(|row| {
            let (message, session): (Uuid, Uuid) = (row.try_get(0)?, row.try_get(1)?);
            Ok(SearchHit {
                message_id: message.into(),
                session_id: session.into(),
                subject: row.try_get(2)?,
                sender_name: row::name(row.try_get(3)?)?,
                created_at: row.try_get(4)?,
                snippet: snippet(row.try_get(5)?, &words),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::{Desk, at};
    use crate::{DatabaseUrl, ListenerState, PostgresStore, advance_cursors};
    use amb_testing::PostgresDatabase;
    use std::sync::Arc;

    #[tokio::test]
    async fn numbers_that_were_put_forward_leave_nobody_behind() {
        let database = PostgresDatabase::fresh().await;
        let store = Arc::new(PostgresStore::open(&database.url()).await.unwrap());
        let desk = Desk(store.clone());
        let (alice, bob) = desk.pair().await;
        desk.say(&alice, &bob, "Plan", "x").await;
        while desk.index_mail().await.unwrap() > 0 {}
        let mailbox = ListenerState { agent: bob.key, at: desk.event_head(bob.key).await.unwrap(), key: None };
        advance_cursors(&DatabaseUrl::parse(&database.url()).unwrap()).await.unwrap();
        let client = store.client().await.unwrap();
        assert_eq!(behind(&client).await.unwrap(), []);
        assert_eq!(desk.stale_listeners(&[mailbox], at(2)).await.unwrap(), []);
        desk.say(&alice, &bob, "Plan", "y").await;
        assert_eq!(behind(&client).await.unwrap(), [bob.key]);
        assert_eq!(desk.stale_listeners(&[mailbox], at(2)).await.unwrap().len(), 1);
        drop(client);
        desk.close().await;
    }
}
