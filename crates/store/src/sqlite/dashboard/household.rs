//! The agents of a household, and what needs its person.

use amb_core::{AgentName, Timestamp, Usage};
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use super::work;
use crate::dashboard::{
    ENDED_LATELY, HouseholdKey, MAX_MEMBERS, MAX_NEEDS, MAX_UNREAD, Member, MemberDetails, MemberRow, Needs,
    OfficeSize, UNREAD_FOR_LONG, WaitingRequest,
};
use crate::error::Result;
use crate::refusals;
use crate::row;
use crate::sqlite::agents;
use crate::sqlite::error::failed;
use crate::sqlite::keys::{instant, instant_at, maybe_instant_at, maybe_uuid_at};
use crate::sqlite::plans::Prepared;
use crate::types::Agent;

macro_rules! select_members {
    ($rest:literal) => {
        concat!(
            "SELECT a.id, a.name, a.description, a.capabilities, a.allow_from, a.max_concurrent_tasks, a.created_at,
                    p.last_seen, p.here, a.person,
                    (SELECT coalesce(sum(b.unread), 0) FROM session_members b WHERE b.agent_id = a.id),
                    t.public_id, t.subject, a.api_key_prefix, a.previous_key_until, a.discoverable
             FROM agents a LEFT JOIN presence p ON p.agent_id = a.id
             LEFT JOIN tasks t ON t.id = (SELECT max(c.id) FROM tasks c WHERE c.assignee_id = a.id
                                          AND c.state IN ('accepted', 'working')) ",
            $rest
        )
    };
}

fn member_row(row: &Row<'_>) -> rusqlite::Result<MemberRow> {
    let task: Option<Uuid> = maybe_uuid_at(row, 11)?;
    let subject: Option<String> = row.get(12)?;
    Ok(MemberRow {
        key: row.get(0)?,
        name: row.get(1)?,
        description: row.get(2)?,
        capabilities: row.get(3)?,
        allow_from: row.get(4)?,
        max_concurrent_tasks: row.get(5)?,
        created_at: instant_at(row, 6)?,
        last_seen: maybe_instant_at(row, 7)?,
        here: row.get(8)?,
        person: row.get(9)?,
        unread: row.get(10)?,
        task: task.map(|id| (id, subject)),
    })
}

pub(super) fn members(db: &Connection, household: HouseholdKey, now: Timestamp) -> Result<Vec<Member>> {
    let sql = select_members!("WHERE a.household_id = ?1 AND a.deleted_at IS NULL ORDER BY a.name LIMIT ?2");
    let most = i64::try_from(MAX_MEMBERS).unwrap_or(i64::MAX);
    let rows: Vec<MemberRow> = db
        .prepared(sql)
        .and_then(|mut select| select.query_map([household.0, most], member_row).and_then(Iterator::collect))
        .map_err(failed)?;
    rows.into_iter().map(|row| row.member(now)).collect()
}

pub(super) fn member(
    db: &Connection,
    household: HouseholdKey,
    name: &AgentName,
    now: Timestamp,
) -> Result<(Agent, MemberDetails)> {
    let Some(agent) = agents::by_name(db, name)? else { return Err(refusals::no_agent(name)) };
    let sql = select_members!("WHERE a.id = ?1 AND a.household_id = ?2 AND a.deleted_at IS NULL");
    let found = db
        .prepared(sql)
        .and_then(|mut select| {
            let read = |row: &Row<'_>| Ok((member_row(row)?, row.get(13)?, maybe_instant_at(row, 14)?, row.get(15)?));
            select.query_row([agent.key.0, household.0], read).optional()
        })
        .map_err(failed)?;
    let Some((row, key_prefix, until, discoverable)) = found else { return Err(refusals::no_agent(name)) };
    let usage: Option<(i64, i64)> = db
        .prepared("SELECT messages, bytes FROM usage WHERE agent_id = ?1")
        .and_then(|mut select| select.query_row([agent.key.0], |row| Ok((row.get(0)?, row.get(1)?))).optional())
        .map_err(failed)?;
    let (messages, bytes) = usage.unwrap_or_default();
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    let details = MemberDetails {
        member: row.member(now)?,
        key_prefix,
        previous_key_until: until.filter(|until| now < *until),
        discoverable,
        usage: Usage { messages: count(messages), bytes: count(bytes) },
    };
    Ok((agent, details))
}

pub(super) fn needs(db: &Connection, household: HouseholdKey, now: Timestamp) -> Result<Needs> {
    let before = |span: std::time::Duration| now.saturating_sub(span).unwrap_or(now);
    Ok(Needs {
        requests: requests(db, household, now)?,
        tasks: work::troubled(db, household, before(ENDED_LATELY))?,
        unread: unread_since(db, household, before(UNREAD_FOR_LONG))?,
    })
}

fn requests(db: &Connection, household: HouseholdKey, now: Timestamp) -> Result<Vec<WaitingRequest>> {
    let mut select = db
        .prepared(
            "SELECT a.name, f.name, c.message, c.created_at, c.expires_at
             FROM agents a CROSS JOIN connections c ON c.target_id = a.id AND c.status = 'PENDING'
             JOIN agents f ON f.id = c.requester_id
             WHERE a.household_id = ?1 AND (c.expires_at IS NULL OR c.expires_at > ?2) ORDER BY c.id LIMIT ?3",
        )
        .map_err(failed)?;
    let mut rows = select.query([household.0, now.as_microsecond(), MAX_NEEDS]).map_err(failed)?;
    let mut requests = Vec::new();
    while let Some(found) = rows.next().map_err(failed)? {
        requests.push(WaitingRequest {
            agent: row::name(&found.get::<_, String>(0).map_err(failed)?)?,
            from: row::name(&found.get::<_, String>(1).map_err(failed)?)?,
            intro: found.get(2).map_err(failed)?,
            created_at: instant_at(found, 3).map_err(failed)?,
            expires_at: maybe_instant_at(found, 4).map_err(failed)?,
        });
    }
    Ok(requests)
}

/// Agents with mail from before this moment that they have not read. Of each priority the first in the log is the oldest.
fn unread_since(db: &Connection, household: HouseholdKey, before: Timestamp) -> Result<Vec<(AgentName, Timestamp)>> {
    let mut select = db
        .prepared(
            "SELECT name, min(at) FROM (
                 SELECT a.name, (SELECT m.created_at FROM deliveries e JOIN messages m ON m.id = e.message_id
                                 WHERE e.agent_id = a.id AND e.read_at IS NULL AND e.priority = r.rank
                                 ORDER BY e.number LIMIT 1) AS at
                 FROM agents a CROSS JOIN (SELECT 0 AS rank UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3) r
                 WHERE a.household_id = ?1 AND a.person = 0 AND a.deleted_at IS NULL) n
             WHERE at < ?2 GROUP BY name ORDER BY min(at) LIMIT ?3",
        )
        .map_err(failed)?;
    let found: Vec<(String, i64)> = select
        .query_map([household.0, before.as_microsecond(), MAX_NEEDS], |row| Ok((row.get(0)?, row.get(1)?)))
        .and_then(Iterator::collect)
        .map_err(failed)?;
    found.into_iter().map(|(name, at)| Ok((row::name(&name)?, instant(at)))).collect()
}

pub(super) fn size(db: &Connection) -> Result<OfficeSize> {
    let one = |sql: &str, values: &[&dyn rusqlite::ToSql]| {
        db.prepared(sql)
            .and_then(|mut select| select.query_row(values, |row| row.get::<_, i64>(0)))
            .map(|number| u64::try_from(number).unwrap_or(0))
            .map_err(failed)
    };
    Ok(OfficeSize {
        database_bytes: one("SELECT p.page_count * s.page_size FROM pragma_page_count() p, pragma_page_size() s", &[])?,
        unread: one(
            "SELECT count(*) FROM (SELECT 1 FROM deliveries INDEXED BY deliveries_unread WHERE read_at IS NULL LIMIT ?1)",
            params![MAX_UNREAD],
        )?,
        agents: one(
            "SELECT count(*) FROM (SELECT 1 FROM agents INDEXED BY agents_folded_name LIMIT ?1)",
            params![MAX_UNREAD],
        )?,
    })
}
