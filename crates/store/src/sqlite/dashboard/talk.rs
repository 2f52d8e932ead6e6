//! What is said in a household, and with others.

use amb_core::doc::MessageWithReceipts;
use amb_core::receipt::Receipt;
use amb_core::{AgentName, Timestamp};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};
use uuid::Uuid;

use super::work;
use crate::budget::Budget;
use crate::dashboard::{
    Conversation, ConversationLine, ConversationQuery, GIST, HouseholdKey, MAX_COUNTED, MAX_HITS, SaidLine, SaidRow,
};
use crate::error::Result;
use crate::outgoing::{no_message, no_session};
use crate::row::{self, MessageRow};
use crate::search::terms;
use crate::sqlite::agents;
use crate::sqlite::error::failed;
use crate::sqlite::keys::{instant_at, maybe_instant_at, uuid_at};
use crate::sqlite::messages::{DELIVERED, message_columns, message_row, undelivered};
use crate::sqlite::plans::Prepared;
use crate::types::fold_subject;

/// Whether the household ?1 sees the message `m`: one of its agents got it, or sent it. The rejection that the office wrote in
/// an agent's name, of a task that went to nobody, is for the sender of that task alone.
macro_rules! seen_by_household {
    () => {
        concat!(
            "(EXISTS (SELECT 1 FROM deliveries d JOIN agents h ON h.id = d.agent_id
                      WHERE d.message_id = m.id AND h.household_id = ?1)
              OR (EXISTS (SELECT 1 FROM agents h WHERE h.id = m.sender_id AND h.household_id = ?1)
                  AND (m.kind IS NOT 'task_update' OR NOT EXISTS (
                      SELECT 1 FROM messages n WHERE n.public_id = m.reply_to AND ",
            undelivered!("n"),
            "))))"
        )
    };
}

macro_rules! said_columns {
    () => {
        "m.public_id, s.public_id, s.subject, f.name, coalesce(g.name, t.name), m.created_at, m.kind, substr(m.content, 1, ?2)"
    };
}

macro_rules! said_joins {
    () => {
        "JOIN agents f ON f.id = m.sender_id
         LEFT JOIN groups g ON g.id = s.group_id
         LEFT JOIN agents t ON t.id = s.low_id + s.high_id - m.sender_id "
    };
}

fn said_row(row: &Row<'_>) -> rusqlite::Result<SaidRow> {
    Ok(SaidRow {
        id: uuid_at(row, 0)?,
        session: uuid_at(row, 1)?,
        subject: row.get(2)?,
        from: row.get(3)?,
        to: row.get(4)?,
        at: instant_at(row, 5)?,
        kind: row.get(6)?,
        gist: row.get(7)?,
    })
}

/// The sessions of the household whose newest messages came last, and that message's row, newest first.
fn recent(db: &Connection, household: HouseholdKey, query: &ConversationQuery) -> Result<Vec<(i64, i64)>> {
    let mut values = vec![Value::from(household.0)];
    let mut add = |value: Value| {
        values.push(value);
        format!("?{}", values.len())
    };
    let mut conditions = String::new();
    // One agent's own sessions are few; a household's are those of all its agents.
    let whose = match &query.agent {
        Some(name) => {
            let Some(agent) = agents::by_name(db, name)? else { return Ok(Vec::new()) };
            let agent = add(agent.key.0.into());
            // A stranger's sessions are those with the household.
            format!(
                "SELECT b.session_id FROM session_members b WHERE b.agent_id = {agent} AND EXISTS (
                     SELECT 1 FROM session_members c JOIN agents h ON h.id = c.agent_id
                     WHERE c.session_id = b.session_id AND h.household_id = ?1)"
            )
        }
        None => {
            let unread = if query.unread { " AND b.unread > 0" } else { "" };
            format!(
                "SELECT DISTINCT b.session_id FROM agents n CROSS JOIN session_members b ON b.agent_id = n.id
                 WHERE n.household_id = ?1{unread}"
            )
        }
    };
    if let Some(with) = &query.with {
        let Some(with) = agents::by_name(db, with)? else { return Ok(Vec::new()) };
        let with = add(with.key.0.into());
        conditions += &format!(
            " AND EXISTS (SELECT 1 FROM session_members c WHERE c.session_id = w.session_id AND c.agent_id = {with})"
        );
    }
    if query.unread && query.agent.is_some() {
        conditions += " AND EXISTS (SELECT 1 FROM session_members c JOIN agents h ON h.id = c.agent_id
                        WHERE c.session_id = w.session_id AND c.unread > 0 AND h.household_id = ?1)";
    }
    if let Some(subject) = &query.subject {
        let subject = add(fold_subject(subject).into());
        conditions += &format!(
            " AND EXISTS (SELECT 1 FROM sessions s WHERE s.id = w.session_id AND instr(s.subject_key, {subject}) > 0)"
        );
    }
    if let Some(before) = &query.before {
        let id = before.as_uuid().unwrap_or_default();
        let row: Option<i64> = db
            .prepared("SELECT id FROM messages WHERE public_id = ?1")
            .and_then(|mut select| select.query_row([id.as_bytes()], |row| row.get(0)).optional())
            .map_err(failed)?;
        let before = add(row.ok_or_else(|| no_message(before))?.into());
        conditions += &format!(" AND last < {before}");
    }
    let limit = add(i64::from(query.limit).into());
    let sql = format!(
        "SELECT w.session_id, (SELECT max(m.id) FROM messages m WHERE m.session_id = w.session_id) AS last
         FROM ({whose}) w WHERE last IS NOT NULL{conditions} ORDER BY last DESC LIMIT {limit}"
    );
    db.prepared(&sql)
        .and_then(|mut select| {
            select.query_map(params_from_iter(values), |row| Ok((row.get(0)?, row.get(1)?))).and_then(Iterator::collect)
        })
        .map_err(failed)
}

pub(super) fn said(db: &Connection, household: HouseholdKey, limit: u32) -> Result<Vec<SaidLine>> {
    // The newest messages are in the sessions whose newest messages are the newest: of each as many as are wanted at most.
    let sessions = recent(db, household, &ConversationQuery { limit, ..ConversationQuery::default() })?;
    let mut select = db
        .prepared(concat!(
            "SELECT ",
            said_columns!(),
            ", m.id FROM messages m JOIN sessions s ON s.id = m.session_id ",
            said_joins!(),
            "WHERE m.session_id = ?3 AND m.id > ?4 AND ",
            seen_by_household!(),
            " ORDER BY m.id DESC LIMIT ?5"
        ))
        .map_err(failed)?;
    let most = limit as usize;
    let mut found: Vec<(i64, SaidRow)> = Vec::new();
    for (session, _) in sessions {
        // What is older than all that there is already is not looked at.
        let floor = if found.len() < most { 0 } else { found.last().map_or(0, |(id, _)| *id) };
        let values = params![household.0, GIST, session, floor, i64::from(limit)];
        let rows: Vec<(i64, SaidRow)> = select
            .query_map(values, |row| Ok((row.get(8)?, said_row(row)?)))
            .and_then(Iterator::collect)
            .map_err(failed)?;
        if rows.is_empty() && found.len() >= most {
            continue;
        }
        found.extend(rows);
        found.sort_by_key(|(id, _)| std::cmp::Reverse(*id));
        found.truncate(most);
    }
    found.into_iter().map(|(_, row)| row.line()).collect()
}

pub(super) fn conversations(
    db: &Connection,
    household: HouseholdKey,
    query: &ConversationQuery,
) -> Result<Vec<ConversationLine>> {
    let mut last = db
        .prepared(concat!(
            "SELECT ",
            said_columns!(),
            " FROM messages m JOIN sessions s ON s.id = m.session_id ",
            said_joins!(),
            "WHERE m.session_id = ?3 AND ",
            seen_by_household!(),
            " ORDER BY m.id DESC LIMIT 1"
        ))
        .map_err(failed)?;
    let mut about = db
        .prepared(
            "SELECT i.name, p.name, g.name, (SELECT count(*) FROM (SELECT 1 FROM messages m WHERE m.session_id = s.id LIMIT ?3)),
                    (SELECT coalesce(sum(b.unread), 0) FROM session_members b JOIN agents h ON h.id = b.agent_id
                     WHERE b.session_id = s.id AND h.household_id = ?1)
             FROM sessions s JOIN agents i ON i.id = s.initiator_id
             LEFT JOIN agents p ON p.id = s.participant_id LEFT JOIN groups g ON g.id = s.group_id WHERE s.id = ?2",
        )
        .map_err(failed)?;
    let mut lines = Vec::new();
    for (session, _) in recent(db, household, query)? {
        let newest = last.query_row(params![household.0, GIST, session], said_row).optional().map_err(failed)?;
        // All in it is the other side's alone.
        let Some(newest) = newest else { continue };
        let newest = newest.line()?;
        let (initiator, other, group, messages, unread): (String, Option<String>, Option<String>, i64, i64) = about
            .query_row([household.0, session, MAX_COUNTED.into()], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
            })
            .map_err(failed)?;
        let between = std::iter::once(initiator).chain(other).map(|name| row::name(&name)).collect::<Result<_>>()?;
        lines.push(ConversationLine {
            id: newest.session.clone(),
            subject: newest.subject.clone(),
            between,
            group,
            messages: u64::try_from(messages).unwrap_or(0),
            unread: u64::try_from(unread).unwrap_or(0),
            last: newest,
        });
    }
    Ok(lines)
}

pub(super) fn find(db: &Connection, household: HouseholdKey, text: &str, limit: u32) -> Result<Vec<SaidLine>> {
    let words = terms(text);
    if words.is_empty() {
        return Ok(Vec::new());
    }
    let quoted = |term: &String| format!("{{content subject}} : \"{}\"", term.replace('"', " "));
    let wanted: Vec<String> = words.iter().map(quoted).collect();
    let sql = concat!(
        "SELECT ",
        said_columns!(),
        " FROM (SELECT rowid AS doc FROM search.words WHERE words MATCH ?3 ORDER BY rowid DESC LIMIT ?4) w
         JOIN search.docs o ON o.doc = w.doc
         JOIN messages m ON m.id = o.message_id
         JOIN sessions s ON s.id = m.session_id ",
        said_joins!(),
        "WHERE ",
        seen_by_household!(),
        " ORDER BY w.doc DESC LIMIT ?5"
    );
    let values = params![household.0, GIST, wanted.join(" AND "), MAX_HITS, i64::from(limit)];
    let rows: Vec<SaidRow> = db
        .prepared(sql)
        .and_then(|mut select| select.query_map(values, said_row).and_then(Iterator::collect))
        .map_err(failed)?;
    rows.into_iter().map(SaidRow::line).collect()
}

pub(super) fn conversation(
    db: &Connection,
    household: HouseholdKey,
    session: Uuid,
    before: Option<Uuid>,
    limit: u32,
) -> Result<Conversation> {
    let found: Option<(i64, String, Option<String>)> = db
        .prepared(
            "SELECT s.id, s.subject, g.name FROM sessions s LEFT JOIN groups g ON g.id = s.group_id
             WHERE s.public_id = ?2 AND EXISTS (SELECT 1 FROM session_members b JOIN agents h ON h.id = b.agent_id
                                                WHERE b.session_id = s.id AND h.household_id = ?1)",
        )
        .and_then(|mut select| {
            let values = params![household.0, session.as_bytes()];
            select.query_row(values, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()
        })
        .map_err(failed)?;
    let Some((id, subject, group)) = found else { return Err(no_session()) };
    let before = match before {
        None => i64::MAX,
        Some(message) => db
            .prepared("SELECT id FROM messages WHERE public_id = ?1 AND session_id = ?2")
            .and_then(|mut select| select.query_row(params![message.as_bytes(), id], |row| row.get(0)).optional())
            .map_err(failed)?
            .ok_or_else(|| no_message(&message.into()))?,
    };
    let mut select = db
        .prepared(concat!(
            "SELECT ",
            message_columns!(),
            ", m.id FROM messages m
             JOIN sessions s ON s.id = m.session_id
             JOIN agents f ON f.id = m.sender_id
             LEFT JOIN agents t ON t.id = s.low_id + s.high_id - m.sender_id
             LEFT JOIN deliveries e ON e.message_id = m.id AND e.agent_id = t.id
             WHERE m.session_id = ?2 AND m.id < ?3 AND ",
            seen_by_household!(),
            " ORDER BY m.id DESC LIMIT ?4"
        ))
        .map_err(failed)?;
    let mut rows = select.query([household.0, id, before, i64::from(limit) + 1]).map_err(failed)?;
    let (mut messages, mut budget, mut older) = (Vec::new(), Budget::page(), false);
    while let Some(found) = rows.next().map_err(failed)? {
        let message = message_row(found).map_err(failed)?;
        if messages.len() >= limit as usize || !budget.takes(message.bytes()) {
            older = true;
            break;
        }
        messages.push(with_receipts(db, message, found.get(DELIVERED).map_err(failed)?)?);
    }
    // One in which all was delivered to nobody is the other's alone, its subject too.
    if messages.is_empty() && before == i64::MAX {
        return Err(no_session());
    }
    messages.reverse();
    let members = members(db, id)?;
    let tasks = work::in_session(db, household, session)?;
    Ok(Conversation { id: session.into(), subject, members, group, messages, older, tasks })
}

fn members(db: &Connection, session: i64) -> Result<Vec<AgentName>> {
    let names: Vec<String> = db
        .prepared(
            "SELECT a.name FROM session_members b JOIN sessions s ON s.id = b.session_id JOIN agents a ON a.id = b.agent_id
             WHERE b.session_id = ?1 ORDER BY a.id <> s.initiator_id, a.name LIMIT 100",
        )
        .and_then(|mut select| select.query_map([session], |row| row.get(0)).and_then(Iterator::collect))
        .map_err(failed)?;
    names.iter().map(|name| row::name(name)).collect()
}

/// A message as its sender sees it, with all its receipts.
fn with_receipts(db: &Connection, mut message: MessageRow, id: i64) -> Result<MessageWithReceipts> {
    let found: Vec<(String, Option<Timestamp>, Option<Timestamp>)> = db
        .prepared(
            "SELECT a.name, d.delivered_at, d.read_at FROM deliveries d JOIN agents a ON a.id = d.agent_id
             WHERE d.message_id = ?1 ORDER BY a.name",
        )
        .and_then(|mut select| {
            let read = |row: &Row<'_>| Ok((row.get(0)?, maybe_instant_at(row, 1)?, maybe_instant_at(row, 2)?));
            select.query_map([id], read).and_then(Iterator::collect)
        })
        .map_err(failed)?;
    let receipt =
        |(name, delivered, read): (String, _, _)| Ok(Receipt::of(row::name(&name)?, message.at, delivered, read));
    let receipts = found.into_iter().map(receipt).collect::<Result<_>>()?;
    let sender = row::name(&message.from)?;
    if message.to.is_empty() {
        // A group's message is to no one agent.
        message.to = message.from.clone();
    }
    Ok(MessageWithReceipts { message: message.message(&sender)?, receipts })
}

pub(super) fn mail(db: &Connection, household: HouseholdKey, id: Uuid) -> Result<MessageWithReceipts> {
    let sql = concat!(
        "SELECT ",
        message_columns!(),
        ", m.id FROM messages m
         JOIN sessions s ON s.id = m.session_id
         JOIN agents f ON f.id = m.sender_id
         LEFT JOIN agents t ON t.id = s.low_id + s.high_id - m.sender_id
         LEFT JOIN deliveries e ON e.message_id = m.id AND e.agent_id = t.id
         WHERE m.public_id = ?2 AND ",
        seen_by_household!()
    );
    let found = db
        .prepared(sql)
        .and_then(|mut select| {
            let values = params![household.0, id.as_bytes()];
            select.query_row(values, |row| Ok((message_row(row)?, row.get(DELIVERED)?))).optional()
        })
        .map_err(failed)?;
    let (message, row) = found.ok_or_else(|| no_message(&id.into()))?;
    with_receipts(db, message, row)
}
