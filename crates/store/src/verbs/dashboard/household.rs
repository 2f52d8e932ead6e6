//! The agents of a household, and what needs its person's attention.

use std::time::Duration;

use amb_core::{AgentName, Card, TaskId, Timestamp};

use super::types::{HouseholdKey, MAX_MEMBERS, Member, MemberDetails, Needs, OfficeSize, WaitingRequest};
use super::work;
use crate::engine::{Db, Query, Tried, from_row, values};
use crate::refusals;
use crate::types::{Agent, AgentKey};
use crate::verbs::agents::agent_named;
use crate::verbs::directory::{LastSeen, presence, stored_by};
use crate::verbs::wake;

/// Mail that is unread for this long needs a person.
const UNREAD_FOR_LONG: Duration = Duration::from_secs(60 * 60);
/// Rejected and failed tasks need a person for this long.
const ENDED_LATELY: Duration = Duration::from_secs(24 * 60 * 60);
/// Most items of each kind in [`Needs`].
pub(super) const MAX_NEEDS: i64 = 20;
/// Most unread messages and agents of the office that are counted.
const MAX_COUNT: i64 = 100_000;

/// The columns of [`MemberOverviewRow`] and [`OwnersColumns`].
const MEMBERS: &str =
    "SELECT a.id, a.name, a.description, a.capabilities, a.allow_from, a.max_concurrent_tasks, a.created_at,
           p.last_seen, p.here, a.person,
           (SELECT CAST(coalesce(sum(b.unread), 0) AS bigint) FROM session_members b WHERE b.agent_id = a.id),
           (SELECT c.public_id FROM tasks c WHERE c.assignee_id = a.id AND c.state IN ('accepted', 'working')
            ORDER BY c.id DESC LIMIT 1),
           (SELECT c.subject FROM tasks c WHERE c.assignee_id = a.id AND c.state IN ('accepted', 'working')
            ORDER BY c.id DESC LIMIT 1),
           a.paused_by, a.api_key_prefix, a.previous_key_until, a.discoverable
    FROM agents a LEFT JOIN presence p ON p.agent_id = a.id WHERE a.household_id = $1 AND a.deleted_at IS NULL";

struct MemberOverviewRow {
    key: i64,
    name: AgentName,
    card: Card,
    created_at: Timestamp,
    seen: LastSeen,
    person: bool,
    unread: u64,
    task: Option<TaskId>,
    task_subject: Option<String>,
    paused_by: Option<AgentName>,
}

from_row!(MemberOverviewRow: key name card created_at seen person unread task task_subject paused_by);

impl MemberOverviewRow {
    fn member(self, now: Timestamp) -> Member {
        let current = self.task;
        let presence = presence(self.seen, current.iter().cloned().collect(), now);
        Member {
            key: AgentKey(self.key),
            name: self.name,
            card: self.card,
            presence,
            registered_at: self.created_at,
            person: self.person,
            unread: self.unread,
            paused_by: self.paused_by,
            working_on: current.map(|id| (id, self.task_subject.unwrap_or_else(|| "a task".to_owned()))),
        }
    }
}

pub(super) async fn members(db: &mut dyn Db, household: HouseholdKey, now: Timestamp) -> Tried<Vec<Member>> {
    let sql = format!("{MEMBERS} ORDER BY a.name LIMIT {MAX_MEMBERS}");
    let rows: Vec<MemberOverviewRow> = db.rows(&sql, values![household.0]).await?;
    Ok(rows.into_iter().map(|row| row.member(now)).collect())
}

/// The key prefix of an agent, until when its previous key is valid, and whether it is discoverable.
type OwnersColumns = (String, Option<Timestamp>, bool);

pub(super) async fn member(
    db: &mut dyn Db,
    household: HouseholdKey,
    name: &AgentName,
    now: Timestamp,
) -> Tried<(Agent, MemberDetails)> {
    let agent = agent_named(db, name).await?.ok_or_else(|| refusals::no_agent(name))?;
    let sql = format!("{MEMBERS} AND a.id = $2");
    let found = db.find::<(MemberOverviewRow, OwnersColumns)>(&sql, values![household.0, agent.key.0]).await?;
    let (row, (key_prefix, until, discoverable)) = found.ok_or_else(|| refusals::no_agent(name))?;
    let member = row.member(now);
    let details = MemberDetails {
        wake: wake::sessions(db, agent.key.0, member.presence.status, now).await?,
        member,
        key_prefix,
        previous_key_until: until.filter(|until| now < *until),
        discoverable,
        usage: stored_by(db, agent.key.0).await?.usage(),
    };
    Ok((agent, details))
}

pub(super) async fn needs(db: &mut dyn Db, household: HouseholdKey, now: Timestamp) -> Tried<Needs> {
    let before = |span: Duration| now.saturating_sub(span).unwrap_or(now);
    Ok(Needs {
        requests: requests(db, household, now).await?,
        tasks: work::troubled(db, household, before(ENDED_LATELY)).await?,
        unread: unread_since(db, household, before(UNREAD_FOR_LONG)).await?,
        unwoken: {
            let mut unwoken = wake::unwoken(db, household, now).await?;
            unwoken.truncate(usize::try_from(MAX_NEEDS).unwrap_or(0));
            unwoken
        },
    })
}

from_row!(WaitingRequest: agent from intro created_at expires_at);

async fn requests(db: &mut dyn Db, household: HouseholdKey, now: Timestamp) -> Tried<Vec<WaitingRequest>> {
    let sql = format!(
        "SELECT a.name, f.name, c.message, c.created_at, c.expires_at
         FROM agents a {} connections c ON c.target_id = a.id AND c.status = 'PENDING'
         JOIN agents f ON f.id = c.requester_id
         WHERE a.household_id = $1 AND (c.expires_at IS NULL OR c.expires_at > $2) ORDER BY c.id LIMIT $3",
        db.dialect().then_join
    );
    db.rows(&sql, values![household.0, now, MAX_NEEDS]).await
}

/// Returns agents with unread mail from before this time. The oldest of each priority is the first in the log.
async fn unread_since(
    db: &mut dyn Db,
    household: HouseholdKey,
    before: Timestamp,
) -> Tried<Vec<(AgentName, Timestamp)>> {
    let sql = "SELECT name, min(since) FROM (
                   SELECT a.name, (SELECT m.created_at FROM deliveries e JOIN messages m ON m.id = e.message_id
                                   WHERE e.agent_id = a.id AND e.read_at IS NULL AND e.priority = w.rank
                                   ORDER BY e.number LIMIT 1) AS since
                   FROM agents a CROSS JOIN (SELECT 0 AS rank UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3) w
                   WHERE a.household_id = $1 AND NOT a.person AND a.deleted_at IS NULL) n
               WHERE since < $2 GROUP BY name ORDER BY min(since) LIMIT $3";
    db.rows(sql, values![household.0, before, MAX_NEEDS]).await
}

pub(super) async fn size(db: &mut dyn Db) -> Tried<OfficeSize> {
    let sql = db.dialect().office_size;
    db.one(sql, values![MAX_COUNT]).await
}

from_row!(OfficeSize: database_bytes unread agents);
