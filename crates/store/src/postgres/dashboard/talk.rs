//! What is said in a household, and with others.

use amb_core::doc::MessageWithReceipts;
use amb_core::receipt::Receipt;
use amb_core::{AgentName, Timestamp};
use deadpool_postgres::Transaction;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::work;
use crate::dashboard::{
    Conversation, ConversationLine, ConversationQuery, GIST, HouseholdKey, MAX_COUNTED, MAX_HITS, SaidLine, SaidRow,
};
use crate::engine::Failed;
use crate::error::Result;
use crate::outgoing::{no_message, no_session};
use crate::postgres::engine::Reading;
use crate::postgres::messages::{AFTER, PLAIN, message_columns, message_row};
use crate::postgres::page::rows_of_page;
use crate::row::{self, MessageRow};
use crate::search::terms;
use crate::types::fold_subject;
use crate::verbs::agent_named;

/// Whether the household $1 sees the message `m`: one of its agents got it, or sent it. The rejection that the office wrote in
/// an agent's name, of a task that went to nobody, is for the sender of that task alone.
macro_rules! seen_by_household {
    () => {
        "(EXISTS (SELECT FROM agents h WHERE h.id = m.recipient_id AND m.delivery_number IS NOT NULL
                  AND h.household_id = $1)
          OR (m.recipient_id IS NULL AND EXISTS (
                  SELECT FROM copies d JOIN agents h ON h.id = d.agent_id
                  WHERE d.message_public_id = m.public_id AND h.household_id = $1))
          OR (EXISTS (SELECT FROM agents h WHERE h.id = m.sender_id AND h.household_id = $1)
              AND (m.kind IS DISTINCT FROM 'task_update' OR NOT EXISTS (
                  SELECT FROM messages n WHERE n.public_id = m.reply_to AND n.recipient_id IS NOT NULL
                  AND n.delivery_number IS NULL))))"
    };
}

macro_rules! said_columns {
    () => {
        "m.public_id, s.public_id, s.subject, f.name, coalesce(g.name, t.name), m.created_at, m.kind,
         left(m.content, $2::bigint::int)"
    };
}

macro_rules! said_joins {
    () => {
        "JOIN agents f ON f.id = m.sender_id
         LEFT JOIN groups g ON g.id = s.group_id
         LEFT JOIN agents t ON t.id = s.low_id + s.high_id - m.sender_id "
    };
}

fn said_row(row: &Row) -> Result<SaidRow, tokio_postgres::Error> {
    Ok(SaidRow {
        id: row.try_get(0)?,
        session: row.try_get(1)?,
        subject: row.try_get(2)?,
        from: row.try_get(3)?,
        to: row.try_get(4)?,
        at: row.try_get(5)?,
        kind: row.try_get(6)?,
        gist: row.try_get(7)?,
    })
}

/// The sessions of the household whose newest messages came last, newest first.
async fn recent(tx: &Transaction<'_>, household: HouseholdKey, query: &ConversationQuery) -> Result<Vec<i64>, Failed> {
    let id = async |name: &Option<AgentName>| -> Result<Option<Option<i64>>, Failed> {
        match name {
            None => Ok(None),
            Some(name) => Ok(Some(agent_named(&mut Reading(tx), name).await?.map(|agent| agent.key.0))),
        }
    };
    let (agent, with) = (id(&query.agent).await?, id(&query.with).await?);
    if matches!(agent, Some(None)) || matches!(with, Some(None)) {
        return Ok(Vec::new());
    }
    let (agent, with) = (agent.flatten(), with.flatten());
    let mut place: Option<(Timestamp, i64)> = None;
    if let Some(before) = &query.before {
        let select = tx.prepare_cached("SELECT created_at, session_id FROM messages WHERE public_id = $1").await?;
        let row = tx.query_opt(&select, &[&before.as_uuid().unwrap_or_default()]).await?;
        let row = row.ok_or_else(|| no_message(before))?;
        place = Some((row.try_get(0)?, row.try_get(1)?));
    }
    // One agent's own sessions are few; a household's are those of all its agents. A stranger's are those with the household.
    let whose = match agent {
        Some(_) => {
            "SELECT b.session_id FROM session_members b WHERE b.agent_id = $2 AND EXISTS (
                 SELECT FROM session_members c JOIN agents h ON h.id = c.agent_id
                 WHERE c.session_id = b.session_id AND h.household_id = $1 AND (NOT $4 OR c.unread > 0))"
        }
        None => {
            "SELECT DISTINCT b.session_id FROM agents n JOIN session_members b ON b.agent_id = n.id
             WHERE n.household_id = $1 AND (NOT $4 OR b.unread > 0) AND $2::bigint IS NULL"
        }
    };
    let sql = format!(
        "SELECT s.id FROM ({whose}) w JOIN sessions s ON s.id = w.session_id
         WHERE s.last_seq > 0
         AND ($3::bigint IS NULL OR EXISTS (
             SELECT FROM session_members c WHERE c.session_id = s.id AND c.agent_id = $3))
         AND ($5::text IS NULL OR strpos(s.subject_key, $5) > 0)
         AND ($6::timestamptz IS NULL OR (coalesce(s.last_at, s.created_at), s.id) < ($6, $7::bigint))
         ORDER BY coalesce(s.last_at, s.created_at) DESC, s.id DESC LIMIT $8"
    );
    let select = tx.prepare_cached(&sql).await?;
    let subject = query.subject.as_deref().map(fold_subject);
    let (at, session) = (place.map(|(at, _)| at), place.map(|(_, session)| session));
    let limit = i64::from(query.limit);
    let values: [&(dyn ToSql + Sync); 8] =
        [&household.0, &agent, &with, &query.unread, &subject, &at, &session, &limit];
    Ok(tx.query(&select, &values).await?.iter().map(|row| row.get(0)).collect())
}

pub(super) async fn said(tx: &Transaction<'_>, household: HouseholdKey, limit: u32) -> Result<Vec<SaidLine>, Failed> {
    // The newest messages are in the sessions whose newest messages are the newest: of each as many as are wanted at most.
    let sessions = recent(tx, household, &ConversationQuery { limit, ..ConversationQuery::default() }).await?;
    let select = tx
        .prepare_cached(concat!(
            "SELECT ",
            said_columns!(),
            " FROM unnest($3::bigint[]) AS w (id) JOIN sessions s ON s.id = w.id
             CROSS JOIN LATERAL (SELECT * FROM messages m WHERE m.session_id = s.id AND ",
            seen_by_household!(),
            " ORDER BY m.seq DESC LIMIT $4) m ",
            said_joins!(),
            "ORDER BY m.created_at DESC, m.session_id DESC, m.seq DESC LIMIT $4"
        ))
        .await?;
    let rows = tx.query(&select, &[&household.0, &GIST, &sessions, &i64::from(limit)]).await?;
    rows.iter().map(|row| Ok(said_row(row)?.line()?)).collect()
}

pub(super) async fn conversations(
    tx: &Transaction<'_>,
    household: HouseholdKey,
    query: &ConversationQuery,
) -> Result<Vec<ConversationLine>, Failed> {
    let sessions = recent(tx, household, query).await?;
    let select = tx
        .prepare_cached(concat!(
            "SELECT ",
            said_columns!(),
            ", i.name, p.name, g.name, least(s.last_seq, $4::bigint),
               (SELECT coalesce(sum(b.unread), 0)::bigint FROM session_members b JOIN agents h ON h.id = b.agent_id
                WHERE b.session_id = s.id AND h.household_id = $1)
             FROM unnest($3::bigint[]) WITH ORDINALITY AS w (id, place) JOIN sessions s ON s.id = w.id
             CROSS JOIN LATERAL (SELECT * FROM messages m WHERE m.session_id = s.id AND ",
            seen_by_household!(),
            " ORDER BY m.seq DESC LIMIT 1) m ",
            said_joins!(),
            "JOIN agents i ON i.id = s.initiator_id LEFT JOIN agents p ON p.id = s.participant_id ORDER BY w.place"
        ))
        .await?;
    let rows = tx.query(&select, &[&household.0, &GIST, &sessions, &i64::from(MAX_COUNTED)]).await?;
    let line = |found: &Row| {
        let last = said_row(found)?.line()?;
        let (initiator, other): (String, Option<String>) = (found.try_get(8)?, found.try_get(9)?);
        let between = std::iter::once(initiator).chain(other).map(|name| row::name(&name)).collect::<Result<_>>()?;
        let count = |column: usize| u64::try_from(found.get::<_, i64>(column)).unwrap_or(0);
        Ok(ConversationLine {
            id: last.session.clone(),
            subject: last.subject.clone(),
            between,
            group: found.try_get(10)?,
            messages: count(11),
            unread: count(12),
            last,
        })
    };
    rows.iter().map(line).collect()
}

pub(super) async fn find(
    tx: &Transaction<'_>,
    household: HouseholdKey,
    text: &str,
    limit: u32,
) -> Result<Vec<SaidLine>, Failed> {
    let words = terms(text);
    if words.is_empty() || text.contains('\0') {
        return Ok(Vec::new());
    }
    let select = tx
        .prepare_cached(concat!(
            "WITH query AS (
                 SELECT coalesce(string_agg('(' || phraseto_tsquery('simple', term)::text || ')', ' & ')
                                 FILTER (WHERE numnode(phraseto_tsquery('simple', term)) > 0), '')::tsquery AS words
                 FROM unnest($3::text[]) AS term
             ), hits AS (
                 SELECT w.session_id, w.seq, w.created_at FROM search_words w
                 WHERE w.words @@ (SELECT words FROM query)
                 ORDER BY w.created_at DESC LIMIT $4
             )
             SELECT ",
            said_columns!(),
            " FROM hits w JOIN messages m ON m.session_id = w.session_id AND m.seq = w.seq
             JOIN sessions s ON s.id = m.session_id ",
            said_joins!(),
            "WHERE ",
            seen_by_household!(),
            " ORDER BY w.created_at DESC, m.session_id DESC, m.seq DESC LIMIT $5"
        ))
        .await?;
    let rows = tx.query(&select, &[&household.0, &GIST, &words, &MAX_HITS, &i64::from(limit)]).await?;
    rows.iter().map(|row| Ok(said_row(row)?.line()?)).collect()
}

macro_rules! select_mail {
    ($rest:expr) => {
        concat!(
            "SELECT ",
            message_columns!(),
            ", m.recipient_id, m.delivery_number FROM messages m
             JOIN sessions s ON s.id = m.session_id
             JOIN agents f ON f.id = m.sender_id
             LEFT JOIN agents t ON t.id = m.recipient_id
             LEFT JOIN entries e ON e.agent_id = m.recipient_id AND e.number = m.delivery_number WHERE ",
            seen_by_household!(),
            $rest
        )
    };
}

pub(super) async fn conversation(
    tx: &Transaction<'_>,
    household: HouseholdKey,
    session: Uuid,
    before: Option<Uuid>,
    limit: u32,
) -> Result<Conversation, Failed> {
    let select = tx
        .prepare_cached(
            "SELECT s.id, s.subject, g.name FROM sessions s LEFT JOIN groups g ON g.id = s.group_id
             WHERE s.public_id = $2 AND EXISTS (SELECT FROM session_members b JOIN agents h ON h.id = b.agent_id
                                                WHERE b.session_id = s.id AND h.household_id = $1)",
        )
        .await?;
    let Some(found) = tx.query_opt(&select, &[&household.0, &session]).await? else { return Err(no_session().into()) };
    let (id, subject, group): (i64, String, Option<String>) = (found.try_get(0)?, found.try_get(1)?, found.try_get(2)?);
    let place = match before {
        None => i64::MAX,
        Some(message) => {
            let select = tx.prepare_cached("SELECT seq FROM messages WHERE public_id = $1 AND session_id = $2").await?;
            let row = tx.query_opt(&select, &[&message, &id]).await?;
            row.ok_or_else(|| no_message(&message.into()))?.try_get(0)?
        }
    };
    let select =
        tx.prepare_cached(select_mail!(" AND m.session_id = $2 AND m.seq < $3 ORDER BY m.seq DESC LIMIT $4")).await?;
    let values: [&(dyn ToSql + Sync); 4] = [&household.0, &id, &place, &(i64::from(limit) + 1)];
    let (rows, cut) = rows_of_page(tx, &select, &values, PLAIN).await?;
    // One in which all was delivered to nobody is the other's alone, its subject too.
    if rows.is_empty() && before.is_none() {
        return Err(no_session().into());
    }
    let older = cut || rows.len() > limit as usize;
    let mut messages = Vec::with_capacity(rows.len());
    for row in rows.iter().take(limit as usize) {
        messages.push(with_receipts(tx, row).await?);
    }
    messages.reverse();
    let members = tx
        .prepare_cached(
            "SELECT a.name FROM session_members b JOIN sessions s ON s.id = b.session_id JOIN agents a ON a.id = b.agent_id
             WHERE b.session_id = $1 ORDER BY a.id <> s.initiator_id, a.name LIMIT 100",
        )
        .await?;
    let members = tx.query(&members, &[&id]).await?;
    let members = members.iter().map(|row| row::name(row.get(0))).collect::<Result<_>>()?;
    let tasks = work::in_session(tx, household, session).await?;
    Ok(Conversation { id: session.into(), subject, members, group, messages, older, tasks })
}

/// A message as its sender sees it, with all its receipts.
async fn with_receipts(tx: &Transaction<'_>, found: &Row) -> Result<MessageWithReceipts, Failed> {
    let mut message: MessageRow = message_row(found)?;
    let (recipient, delivery): (Option<i64>, Option<i64>) = (found.try_get(AFTER)?, found.try_get(AFTER + 1)?);
    let receipts = match (recipient, delivery) {
        (Some(_), Some(_)) => vec![message.receipt()?],
        (Some(_), None) => Vec::new(),
        (None, _) => {
            let select = tx
                .prepare_cached(
                    "SELECT a.name, e.delivered_at, e.read_at FROM copies c
                     JOIN entries e ON e.agent_id = c.agent_id AND e.number = c.number
                     JOIN agents a ON a.id = c.agent_id WHERE c.message_public_id = $1 ORDER BY a.name",
                )
                .await?;
            let rows = tx.query(&select, &[&message.id]).await?;
            let receipt =
                |row: &Row| Ok(Receipt::of(row::name(row.try_get(0)?)?, message.at, row.try_get(1)?, row.try_get(2)?));
            rows.iter().map(receipt).collect::<Result<_, Failed>>()?
        }
    };
    let sender = row::name(&message.from)?;
    if message.to.is_empty() {
        // A group's message is to no one agent.
        message.to = message.from.clone();
    }
    Ok(MessageWithReceipts { message: message.message(&sender)?, receipts })
}

pub(super) async fn mail(
    tx: &Transaction<'_>,
    household: HouseholdKey,
    id: Uuid,
) -> Result<MessageWithReceipts, Failed> {
    let select = tx.prepare_cached(select_mail!(" AND m.public_id = $2")).await?;
    let Some(found) = tx.query_opt(&select, &[&household.0, &id]).await? else {
        return Err(no_message(&id.into()).into());
    };
    with_receipts(tx, &found).await
}
