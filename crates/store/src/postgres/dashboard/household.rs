//! The agents of a household, and what needs its person.

use amb_core::{AgentName, Timestamp, Usage};
use deadpool_postgres::Transaction;
use tokio_postgres::Row;
use uuid::Uuid;

use super::work;
use crate::dashboard::{
    ENDED_LATELY, HouseholdKey, MAX_MEMBERS, MAX_NEEDS, MAX_UNREAD, Member, MemberDetails, MemberRow, Needs,
    OfficeSize, UNREAD_FOR_LONG, WaitingRequest,
};
use crate::engine::Failed;
use crate::error::Result;
use crate::postgres::engine::Reading;
use crate::refusals;
use crate::row;
use crate::types::Agent;
use crate::verbs::agent_named;

macro_rules! select_members {
    ($rest:literal) => {
        concat!(
            "SELECT a.id, a.name, a.description, a.capabilities, a.allow_from, a.max_concurrent_tasks, a.created_at,
                    p.last_seen, p.here, a.person, b.unread, t.public_id, t.subject, a.api_key_prefix,
                    a.previous_key_until, a.discoverable
             FROM agents a LEFT JOIN presence p ON p.agent_id = a.id
             CROSS JOIN LATERAL (SELECT coalesce(sum(b.unread), 0)::bigint AS unread FROM session_members b
                                 WHERE b.agent_id = a.id) b
             LEFT JOIN LATERAL (SELECT c.public_id, c.subject FROM tasks c WHERE c.assignee_id = a.id
                                AND c.state IN ('accepted', 'working') ORDER BY c.id DESC LIMIT 1) t ON TRUE ",
            $rest
        )
    };
}

fn member_row(row: &Row) -> Result<MemberRow, tokio_postgres::Error> {
    let task: Option<Uuid> = row.try_get(11)?;
    let subject: Option<String> = row.try_get(12)?;
    Ok(MemberRow {
        key: row.try_get(0)?,
        name: row.try_get(1)?,
        description: row.try_get(2)?,
        capabilities: row.try_get(3)?,
        allow_from: row.try_get(4)?,
        max_concurrent_tasks: row.try_get(5)?,
        created_at: row.try_get(6)?,
        last_seen: row.try_get(7)?,
        here: row.try_get(8)?,
        person: row.try_get(9)?,
        unread: row.try_get(10)?,
        task: task.map(|id| (id, subject)),
    })
}

pub(super) async fn members(
    tx: &Transaction<'_>,
    household: HouseholdKey,
    now: Timestamp,
) -> Result<Vec<Member>, Failed> {
    let sql = select_members!("WHERE a.household_id = $1 AND a.deleted_at IS NULL ORDER BY a.name LIMIT $2");
    let select = tx.prepare_cached(sql).await?;
    let most = i64::try_from(MAX_MEMBERS).unwrap_or(i64::MAX);
    let rows = tx.query(&select, &[&household.0, &most]).await?;
    rows.iter().map(|row| Ok(member_row(row)?.member(now)?)).collect()
}

pub(super) async fn member(
    tx: &Transaction<'_>,
    household: HouseholdKey,
    name: &AgentName,
    now: Timestamp,
) -> Result<(Agent, MemberDetails), Failed> {
    let Some(agent) = agent_named(&mut Reading(tx), name).await? else { return Err(refusals::no_agent(name).into()) };
    let sql = select_members!("WHERE a.id = $1 AND a.household_id = $2 AND a.deleted_at IS NULL");
    let select = tx.prepare_cached(sql).await?;
    let Some(found) = tx.query_opt(&select, &[&agent.key.0, &household.0]).await? else {
        return Err(refusals::no_agent(name).into());
    };
    let select = tx.prepare_cached("SELECT messages, bytes FROM usage WHERE agent_id = $1").await?;
    let usage = tx.query_opt(&select, &[&agent.key.0]).await?;
    let count = |column: usize| {
        let number: i64 = usage.as_ref().map_or(0, |row| row.get(column));
        u64::try_from(number).unwrap_or(0)
    };
    let until: Option<Timestamp> = found.try_get(14)?;
    let details = MemberDetails {
        member: member_row(&found)?.member(now)?,
        key_prefix: found.try_get(13)?,
        previous_key_until: until.filter(|until| now < *until),
        discoverable: found.try_get(15)?,
        usage: Usage { messages: count(0), bytes: count(1) },
    };
    Ok((agent, details))
}

pub(super) async fn needs(tx: &Transaction<'_>, household: HouseholdKey, now: Timestamp) -> Result<Needs, Failed> {
    let before = |span: std::time::Duration| now.saturating_sub(span).unwrap_or(now);
    Ok(Needs {
        requests: requests(tx, household, now).await?,
        tasks: work::troubled(tx, household, before(ENDED_LATELY)).await?,
        unread: unread_since(tx, household, before(UNREAD_FOR_LONG)).await?,
    })
}

async fn requests(
    tx: &Transaction<'_>,
    household: HouseholdKey,
    now: Timestamp,
) -> Result<Vec<WaitingRequest>, Failed> {
    let select = tx
        .prepare_cached(
            "SELECT a.name, f.name, c.message, c.created_at, c.expires_at
             FROM agents a JOIN connections c ON c.target_id = a.id AND c.status = 'PENDING'
             JOIN agents f ON f.id = c.requester_id
             WHERE a.household_id = $1 AND (c.expires_at IS NULL OR c.expires_at > $2) ORDER BY c.id LIMIT $3",
        )
        .await?;
    let rows = tx.query(&select, &[&household.0, &now, &MAX_NEEDS]).await?;
    let request = |found: &Row| {
        Ok(WaitingRequest {
            agent: row::name(found.try_get(0)?)?,
            from: row::name(found.try_get(1)?)?,
            intro: found.try_get(2)?,
            created_at: found.try_get(3)?,
            expires_at: found.try_get(4)?,
        })
    };
    rows.iter().map(request).collect()
}

/// Agents with mail from before this moment that they have not read. Of each priority the first in the log is the oldest.
async fn unread_since(
    tx: &Transaction<'_>,
    household: HouseholdKey,
    before: Timestamp,
) -> Result<Vec<(AgentName, Timestamp)>, Failed> {
    let select = tx
        .prepare_cached(
            "SELECT a.name, min(m.created_at) FROM agents a CROSS JOIN generate_series(0, 3) AS r (rank)
             CROSS JOIN LATERAL (SELECT e.session_id, e.seq FROM entries e WHERE e.agent_id = a.id
                                 AND e.session_id IS NOT NULL AND e.read_at IS NULL AND e.priority = r.rank::smallint
                                 ORDER BY e.number LIMIT 1) e
             JOIN messages m ON m.session_id = e.session_id AND m.seq = e.seq
             WHERE a.household_id = $1 AND NOT a.person AND a.deleted_at IS NULL AND m.created_at < $2
             GROUP BY a.name ORDER BY 2 LIMIT $3",
        )
        .await?;
    let rows = tx.query(&select, &[&household.0, &before, &MAX_NEEDS]).await?;
    rows.iter().map(|found| Ok((row::name(found.try_get(0)?)?, found.try_get(1)?))).collect()
}

pub(super) async fn size(tx: &Transaction<'_>) -> Result<OfficeSize, Failed> {
    let select = tx
        .prepare_cached(
            "SELECT pg_database_size(current_database()),
                    (SELECT count(*) FROM (SELECT FROM entries WHERE session_id IS NOT NULL AND read_at IS NULL LIMIT $1) u),
                    (SELECT count(*) FROM (SELECT FROM agents LIMIT $1) a)",
        )
        .await?;
    let row = tx.query_one(&select, &[&MAX_UNREAD]).await?;
    let number = |column: usize| u64::try_from(row.get::<_, i64>(column)).unwrap_or(0);
    Ok(OfficeSize { database_bytes: number(0), unread: number(1), agents: number(2) })
}
