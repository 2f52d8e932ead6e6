//! Search with PostgreSQL's own full text. Indexing happens behind the send path, from the logs.

use amb_core::doc::SearchHit;
use amb_core::office::SearchQuery;
use deadpool_postgres::{GenericClient, Transaction};
use uuid::Uuid;

use super::error::Trouble;
use crate::error::Result;
use crate::row;
use crate::search::{limit, snippet, terms};
use crate::types::{Agent, AgentKey};

/// Entries looked at in one go.
const SOME: i64 = 200;

/// Makes the next of an agent's log findable. Answers how many entries were looked at.
pub(super) async fn index(tx: &Transaction<'_>, agent: AgentKey) -> Result<u64, Trouble> {
    let begin = tx
        .prepare_cached("INSERT INTO search_cursors (agent_id, number) VALUES ($1, 0) ON CONFLICT DO NOTHING")
        .await?;
    tx.execute(&begin, &[&agent.0]).await?;
    // One process at a time indexes one log.
    let lock = tx.prepare_cached("SELECT number FROM search_cursors WHERE agent_id = $1 FOR UPDATE").await?;
    let done: i64 = tx.query_one(&lock, &[&agent.0]).await?.try_get(0)?;
    let some = tx
        .prepare_cached(
            "SELECT count(*), max(number) FROM
             (SELECT number FROM entries WHERE agent_id = $1 AND number > $2 ORDER BY number LIMIT $3) e",
        )
        .await?;
    let row = tx.query_one(&some, &[&agent.0, &done, &SOME]).await?;
    let (count, Some(last)): (i64, Option<i64>) = (row.try_get(0)?, row.try_get(1)?) else { return Ok(0) };
    // A text can have more words than one entry of the index holds: what comes after the first 100,000 characters of a
    // message is not found.
    let add = tx
        .prepare_cached(
            "INSERT INTO search_words (session_id, seq, created_at, words, subject)
             SELECT m.session_id, m.seq, m.created_at,
                    to_tsvector('simple', left(m.content, 100000)) || to_tsvector('simple', s.subject)
                    || array_to_tsvector(
                        ARRAY['@m' || m.sender_id, '@f' || m.sender_id, '@m' || e.agent_id]
                        || ARRAY (SELECT '@m' || c.agent_id FROM copies c WHERE c.message_public_id = m.public_id)),
                    to_tsvector('simple', s.subject)
             FROM entries e
             JOIN messages m ON m.session_id = e.session_id AND m.seq = e.seq
             JOIN sessions s ON s.id = m.session_id
             WHERE e.agent_id = $1 AND e.number > $2 AND e.number <= $3
             ON CONFLICT DO NOTHING",
        )
        .await?;
    tx.execute(&add, &[&agent.0, &done, &last]).await?;
    let update = tx.prepare_cached("UPDATE search_cursors SET number = $2 WHERE agent_id = $1").await?;
    tx.execute(&update, &[&agent.0, &last]).await?;
    Ok(u64::try_from(count).unwrap_or(0))
}

/// Every agent with something that is not indexed. Looks at every mailbox, once.
pub(super) async fn behind<C: GenericClient>(client: &C) -> Result<Vec<AgentKey>, Trouble> {
    let select = client
        .prepare_cached(
            "SELECT m.agent_id FROM mailboxes m LEFT JOIN search_cursors c ON c.agent_id = m.agent_id
             WHERE m.head > coalesce(c.number, 0)",
        )
        .await?;
    Ok(client.query(&select, &[]).await?.iter().map(|row| AgentKey(row.get(0))).collect())
}

/// Looks through the caller's own mail.
pub(super) async fn search<C: GenericClient>(
    client: &C,
    caller: &Agent,
    query: &SearchQuery,
) -> Result<Vec<SearchHit>, Trouble> {
    let words = terms(&query.text);
    if (!query.text.trim().is_empty() && words.is_empty()) || query.text.contains('\0') {
        return Ok(Vec::new());
    }
    let mut who = vec![format!("@m{}", caller.key.0)];
    if let Some(from) = &query.from {
        let select = client.prepare_cached("SELECT id FROM agents WHERE name = $1").await?;
        let Some(sender) = client.query_opt(&select, &[&from.as_str()]).await? else { return Ok(Vec::new()) };
        who.push(format!("@f{}", sender.try_get::<_, i64>(0)?));
    }
    let subject = query.subject.as_deref().map(terms).unwrap_or_default();
    // Each name of `who` is one lexeme, whatever the parser would make of it; each term is a phrase of its words.
    let select = client
        .prepare_cached(
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
             ORDER BY h.created_at DESC, h.session_id DESC, h.seq DESC",
        )
        .await?;
    let after = query.after.unwrap_or_default();
    let before = query.before.unwrap_or(super::open::THE_END);
    let most = i64::from(limit(query));
    let rows = client.query(&select, &[&who, &words, &subject, &after, &before, &most]).await?;
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
