//! Messages and conversations of a household.

use amb_core::doc::MessageWithReceipts;
use amb_core::{AgentName, Timestamp};
use uuid::Uuid;

use super::types::{Conversation, ConversationLine, ConversationQuery, HouseholdKey, MAX_COUNTED, SaidLine};
use super::work;
use crate::engine::{Db, Query, Tried, Value, Wanted, from_row, values};
use crate::outgoing::{no_message, no_session};
use crate::types::fold_subject;
use crate::verbs::agents::agent_named;
use crate::verbs::messages::{MessageLookup, select, undelivered};
use crate::verbs::search::{THE_END, terms};

/// Hits of a search that are filtered for those of the household.
const MAX_HITS: i64 = 400;
/// Most members of a conversation that are named.
const MAX_NAMED: i64 = 100;

/// Whether the household `$1` sees the message `m`: one of its agents got it, or sent it. Where the office rejected a
/// task, it wrote an update in the assignee's name, which only the sender of the task sees.
fn seen() -> String {
    format!(
        "((SELECT 1 FROM deliveries d JOIN agents h ON h.id = d.agent_id
           WHERE d.message_id = m.id AND h.household_id = $1 LIMIT 1) IS NOT NULL
          OR (EXISTS (SELECT 1 FROM agents h WHERE h.id = m.sender_id AND h.household_id = $1)
                 AND (m.kind IS DISTINCT FROM 'task_update' OR NOT EXISTS (
                     SELECT 1 FROM messages n WHERE n.public_id = m.reply_to AND {}))))",
        undelivered("n")
    )
}

/// Returns the FROM items for the newest messages of each session of the list `$2` that the household `$1` sees.
fn newest_of_each(db: &dyn Db, limit: &str) -> String {
    let dialect = db.dialect();
    format!("{} {} {}", dialect.listed_sessions, dialect.then_join, (dialect.newest)(&seen(), limit))
}

/// The columns of [`SaidLine`] without the last, which is [`GIST`] or more of the text.
const SAID: &str = "m.public_id, s.public_id, s.subject, f.name, coalesce(g.name, t.name, ''), m.created_at, m.kind";
const GIST: &str = "substr(m.content, 1, 200)";
/// The part of a text that an operator sees.
const OFFICE_TEXT: &str = "substr(m.content, 1, 1000)";

const SAID_JOINS: &str = "JOIN agents f ON f.id = m.sender_id LEFT JOIN groups g ON g.id = s.group_id
                          LEFT JOIN agents t ON t.id = s.low_id + s.high_id - m.sender_id";

from_row!(SaidLine: id session subject from to at kind gist);

/// Returns the sessions of the household, the one with the newest message first.
async fn recent(db: &mut dyn Db, household: HouseholdKey, query: &ConversationQuery) -> Tried<Vec<i64>> {
    let dialect = db.dialect();
    let (join, newest) = (dialect.then_join, dialect.newest_of_session);
    let subject = query.subject.as_deref().map(fold_subject);
    let (mut values, mut conditions): (Vec<Value<'_>>, _) = (vec![household.0.into()], String::new());
    let mut add = |value| {
        values.push(value);
        values.len()
    };
    // Sessions of one agent with the household, or those of all agents of the household.
    let whose = match &query.agent {
        Some(name) => {
            let Some(agent) = agent_named(db, name).await? else { return Ok(Vec::new()) };
            let unread = if query.unread { " AND c.unread > 0" } else { "" };
            format!(
                "SELECT b.session_id FROM session_members b WHERE b.agent_id = ${} AND EXISTS (
                     SELECT 1 FROM session_members c JOIN agents h ON h.id = c.agent_id
                     WHERE c.session_id = b.session_id AND h.household_id = $1{unread})",
                add(agent.key.0.into())
            )
        }
        None => {
            let unread = if query.unread { " AND b.unread > 0" } else { "" };
            format!(
                "SELECT DISTINCT b.session_id FROM agents n {join} session_members b ON b.agent_id = n.id
                 WHERE n.household_id = $1{unread}"
            )
        }
    };
    if let Some(with) = &query.with {
        let Some(with) = agent_named(db, with).await? else { return Ok(Vec::new()) };
        conditions += &format!(
            " AND EXISTS (SELECT 1 FROM session_members c WHERE c.session_id = s.id AND c.agent_id = ${})",
            add(with.key.0.into())
        );
    }
    if let Some(subject) = &subject {
        conditions += &format!(" AND {}(s.subject_key, ${}) > 0", dialect.position, add(subject.into()));
    }
    if let Some(before) = &query.before {
        let id = before.as_uuid().unwrap_or_default();
        if !db.exists("SELECT 1 FROM messages WHERE public_id = $1", values![id]).await? {
            return Err(no_message(before).into());
        }
        conditions += &format!(
            " AND ({newest}, s.id) < (SELECT {}, m.session_id FROM messages m WHERE m.public_id = ${})",
            dialect.newest_is,
            add(id.into())
        );
    }
    let limit = add(query.limit.into());
    let sql = format!(
        "SELECT s.id FROM ({whose}) w {join} sessions s ON s.id = w.session_id
         WHERE {newest} IS NOT NULL{conditions} ORDER BY {newest} DESC, s.id DESC LIMIT ${limit}"
    );
    db.rows(&sql, &values).await
}

pub(super) async fn office_mail(db: &mut dyn Db, before: Option<Uuid>, limit: u32) -> Tried<Vec<SaidLine>> {
    let (mut values, mut condition): (Vec<Value<'_>>, _) = (vec![limit.into()], "");
    if let Some(before) = before {
        if !db.exists("SELECT 1 FROM messages WHERE public_id = $1", values![before]).await? {
            return Err(no_message(&before.into()).into());
        }
        condition = "WHERE m.id < (SELECT n.id FROM messages n WHERE n.public_id = $2)";
        values.push(before.into());
    }
    let sql = format!(
        "SELECT {SAID}, {OFFICE_TEXT} FROM messages m JOIN sessions s ON s.id = m.session_id {SAID_JOINS}
         {condition} ORDER BY m.id DESC LIMIT $1"
    );
    db.rows(&sql, &values).await
}

pub(super) async fn said(db: &mut dyn Db, household: HouseholdKey, limit: u32) -> Tried<Vec<SaidLine>> {
    // The newest messages are in the sessions with the newest messages: `limit` sessions with up to `limit` messages
    // each.
    let sessions = recent(db, household, &ConversationQuery { limit, ..ConversationQuery::default() }).await?;
    let sql =
        format!("SELECT {SAID}, {GIST} FROM {} {SAID_JOINS} ORDER BY m.id DESC LIMIT $3", newest_of_each(db, "$3"));
    db.rows(&sql, values![household.0, &sessions, limit]).await
}

/// Initiator, other agent, group, number of messages, number of unread messages, and the person who ended it.
type ConversationFacts = (AgentName, Option<AgentName>, Option<String>, u64, u64, Option<AgentName>);

pub(super) async fn conversations(
    db: &mut dyn Db,
    household: HouseholdKey,
    query: &ConversationQuery,
) -> Tried<Vec<ConversationLine>> {
    let sessions = recent(db, household, query).await?;
    let sql = format!(
        "SELECT {SAID}, {GIST}, i.name, p.name, g.name,
                (SELECT count(*) FROM (SELECT 1 FROM messages c WHERE c.session_id = s.id LIMIT {MAX_COUNTED}) c),
                (SELECT CAST(coalesce(sum(b.unread), 0) AS bigint) FROM session_members b
                 JOIN agents h ON h.id = b.agent_id WHERE b.session_id = s.id AND h.household_id = $1), s.ended_by
         FROM {} {SAID_JOINS}
         JOIN agents i ON i.id = s.initiator_id LEFT JOIN agents p ON p.id = s.participant_id ORDER BY w.place",
        newest_of_each(db, "1")
    );
    let found: Vec<(SaidLine, ConversationFacts)> = db.rows(&sql, values![household.0, &sessions]).await?;
    let line = |(last, (initiator, other, group, messages, unread, ended_by)): (SaidLine, ConversationFacts)| {
        ConversationLine {
            id: last.session.clone(),
            subject: last.subject.clone(),
            between: std::iter::once(initiator).chain(other).collect(),
            group,
            messages,
            unread,
            ended_by,
            last,
        }
    };
    Ok(found.into_iter().map(line).collect())
}

pub(super) async fn find(db: &mut dyn Db, household: HouseholdKey, text: &str, limit: u32) -> Tried<Vec<SaidLine>> {
    let words = terms(text);
    if words.is_empty() || text.contains('\0') {
        return Ok(Vec::new());
    }
    let dialect = db.dialect();
    let sql = format!(
        "SELECT {SAID}, {GIST} FROM {} JOIN sessions s ON s.id = m.session_id {SAID_JOINS}
         WHERE {} ORDER BY w.place DESC, m.id DESC LIMIT $8",
        dialect.hits,
        seen()
    );
    let [who, words, subject] = (dialect.words)(&Wanted { reader: None, from: None, text: &words, subject: &[] });
    let (after, before) = (Timestamp::default(), THE_END);
    db.rows(&sql, values![household.0, &who, &words, &subject, after, before, MAX_HITS, limit]).await
}

pub(super) async fn conversation(
    db: &mut dyn Db,
    household: HouseholdKey,
    session: Uuid,
    before: Option<Uuid>,
    limit: u32,
) -> Tried<Conversation> {
    let sql = "SELECT s.id, s.subject, g.name, s.ended_by FROM sessions s LEFT JOIN groups g ON g.id = s.group_id
               WHERE s.public_id = $2 AND EXISTS (SELECT 1 FROM session_members b JOIN agents h ON h.id = b.agent_id
                                                  WHERE b.session_id = s.id AND h.household_id = $1)";
    let found: Option<(i64, String, Option<String>, Option<AgentName>)> =
        db.find(sql, values![household.0, session]).await?;
    let (id, subject, group, ended_by) = found.ok_or_else(no_session)?;
    let end = match before {
        None => i64::MAX,
        Some(message) => {
            let sql = "SELECT id FROM messages WHERE public_id = $1 AND session_id = $2";
            db.find(sql, values![message, id]).await?.ok_or_else(|| no_message(&message.into()))?
        }
    };
    let sql = select(&format!("WHERE m.session_id = $2 AND m.id < $3 AND {} ORDER BY m.id DESC LIMIT $4", seen()));
    let values = values![household.0, id, end, i64::from(limit) + 1];
    let (mut found, cut) = db.page(&sql, values, |found: &MessageLookup| found.row.bytes()).await?;
    // Where the household sees no message of a session, it does not see the session either.
    if found.is_empty() && before.is_none() {
        return Err(no_session().into());
    }
    let older = cut || found.len() > limit as usize;
    found.truncate(limit as usize);
    let mut messages = Vec::with_capacity(found.len());
    for one in found.into_iter().rev() {
        messages.push(as_sent(db, one).await?);
    }
    Ok(Conversation {
        id: session.into(),
        subject,
        members: members(db, id).await?,
        group,
        messages,
        older,
        tasks: work::in_session(db, household, session).await?,
        ended_by,
    })
}

async fn members(db: &mut dyn Db, session: i64) -> Tried<Vec<AgentName>> {
    let sql = "SELECT a.name FROM session_members b JOIN sessions s ON s.id = b.session_id
               JOIN agents a ON a.id = b.agent_id
               WHERE b.session_id = $1 ORDER BY a.id <> s.initiator_id, a.name LIMIT $2";
    db.rows(sql, values![session, MAX_NAMED]).await
}

/// Returns a message as its sender sees it, with all its receipts.
async fn as_sent(db: &mut dyn Db, found: MessageLookup) -> Tried<MessageWithReceipts> {
    let sender = found.row.from.clone();
    found.with_receipts(db, &sender, None).await
}

pub(super) async fn mail(db: &mut dyn Db, household: HouseholdKey, id: Uuid) -> Tried<MessageWithReceipts> {
    let sql = select(&format!("WHERE m.public_id = $2 AND {}", seen()));
    let found: Option<MessageLookup> = db.find(&sql, values![household.0, id]).await?;
    as_sent(db, found.ok_or_else(|| no_message(&id.into()))?).await
}
