//! The directory of agents, and the caller's own profile.

use amb_core::doc::{AgentEntry, Profile, ProfilePatch};
use amb_core::limits::HEARTBEAT_TIMEOUT;
use amb_core::{AgentName, Card, Presence, Status, TaskId, Timestamp};
use async_trait::async_trait;
use futures_util::FutureExt;
use uuid::Uuid;

use super::household;
use crate::StoreError;
use crate::engine::{
    Cached, Changes, Db, Engine, FromRow, Query, ReadLength, Row, Tried, Tx, from_row, read, values, write_unlogged,
};
use crate::error::Result;
use crate::outgoing::json;
use crate::query::AgentsPage;
use crate::quota::Stored;
use crate::refusals;
use crate::types::Agent;

/// Names compared to suggest the nearest one.
const CANDIDATES: i64 = 1_000;

/// The directory of agents. An agent sees itself, those it is connected with, and those that are discoverable (the
/// default) and have not blocked it.
#[async_trait]
pub trait DirectoryVerbs: Engine {
    /// Returns the agents that the caller may see, by name.
    async fn agents(&self, caller: &Agent, page: AgentsPage, now: Timestamp) -> Result<Vec<AgentEntry>> {
        let asked = (caller.clone(), page, now);
        read(self, ReadLength::Long, asked, |db, (caller, page, now)| list(db, caller, page, *now).boxed()).await
    }

    /// Returns an agent that the caller may see; else `not_found` with the nearest name that it may see.
    async fn agent(&self, caller: &Agent, name: &AgentName, now: Timestamp) -> Result<AgentEntry> {
        let asked = (caller.clone(), name.clone(), now);
        read(self, ReadLength::Short, asked, |db, (caller, name, now)| seen_by(db, caller, name, *now).boxed()).await
    }

    /// Returns the caller's own profile.
    async fn profile(&self, caller: &Agent, now: Timestamp) -> Result<Profile> {
        let (own, stored) = read(self, ReadLength::Short, caller.clone(), |db, caller| own(db, caller).boxed()).await?;
        Ok(own.profile(stored, self.account().quotas(), now))
    }

    /// Changes the caller's profile.
    async fn update_profile(&self, caller: &Agent, patch: ProfilePatch, now: Timestamp) -> Result<Profile> {
        let asked = (caller.clone(), patch);
        let updated =
            write_unlogged(self, Changes::All, asked, |tx, (caller, patch)| update(tx, caller, patch.clone()).boxed());
        let (own, stored) = updated.await?;
        Ok(own.profile(stored, self.account().quotas(), now))
    }
}

impl<E: Engine> DirectoryVerbs for E {}

/// An agent and its presence.
#[derive(Debug, Clone)]
struct AgentRow {
    id: Uuid,
    name: AgentName,
    card: Card,
    created_at: Timestamp,
    seen: LastSeen,
    /// Its accepted and working tasks.
    current: Vec<TaskId>,
    /// Whether it is in the viewer's household.
    household: bool,
    person: bool,
    paused: bool,
}

/// When an agent was last seen, and whether it has not gone offline since.
pub(super) type LastSeen = (Option<Timestamp>, Option<bool>);

/// Returns the presence of an agent with these current tasks.
pub(super) fn presence((last_seen, here): LastSeen, current: Vec<TaskId>, now: Timestamp) -> Presence {
    let claimed = if here.unwrap_or(false) { Status::Idle } else { Status::Offline };
    Presence::at(now, claimed, last_seen, current, HEARTBEAT_TIMEOUT)
}

/// Parses a comma-separated list of task ids.
pub(super) fn task_ids(text: Option<String>) -> Vec<TaskId> {
    let ids = text.iter().flat_map(|ids| ids.split(',')).filter_map(|id| Uuid::parse_str(id).ok());
    ids.map(Into::into).collect()
}

/// Returns the columns of [`AgentRow`], as the agent `$1` sees the agent `a`.
fn agent_columns(db: &dyn Db) -> String {
    let task_id = db.dialect().task_id;
    format!(
        "a.public_id, a.name, a.description, a.capabilities, a.allow_from, a.max_concurrent_tasks, a.created_at,
         p.last_seen, p.here,
         (SELECT string_agg({task_id}, ',' ORDER BY t.id) FROM tasks t
          WHERE t.assignee_id = a.id AND t.state IN ('accepted', 'working')),
         coalesce(a.household_id = (SELECT m.household_id FROM agents m WHERE m.id = $1), FALSE), a.person, a.paused_by IS NOT NULL"
    )
}

impl FromRow for AgentRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self> {
        Ok(Self {
            id: row.take()?,
            name: row.take()?,
            card: Card::from_row(row)?,
            created_at: row.take()?,
            seen: LastSeen::from_row(row)?,
            current: task_ids(row.take()?),
            household: row.take()?,
            person: row.take()?,
            paused: row.take()?,
        })
    }
}

impl AgentRow {
    /// Returns the agent as others see it.
    fn entry(self, now: Timestamp) -> AgentEntry {
        AgentEntry {
            name: self.name,
            card: self.card,
            presence: presence(self.seen, self.current, now),
            registered_at: Some(self.created_at),
            household: self.household,
            person: self.person,
            paused: self.paused,
        }
    }
}

/// Whether the agent `$1` may see the agent `a`: itself, those it is connected with, and those of its household or
/// discoverable that have not blocked it. A person is not discoverable.
const VISIBLE: &str = "a.deleted_at IS NULL AND (a.id = $1
    OR EXISTS (SELECT 1 FROM connections c WHERE c.low_id = CASE WHEN a.id < $1 THEN a.id ELSE $1 END
               AND c.high_id = CASE WHEN a.id < $1 THEN $1 ELSE a.id END AND c.status = 'ACTIVE')
    OR (((a.discoverable AND NOT a.person)
         OR a.household_id = (SELECT m.household_id FROM agents m WHERE m.id = $1))
        AND NOT EXISTS (SELECT 1 FROM connections c WHERE c.requester_id = a.id
                        AND c.target_id = $1 AND c.status = 'BLOCKED')))";

/// Lists the caller's household by name, then the others by name.
async fn list(db: &mut dyn Db, caller: &Agent, page: &AgentsPage, now: Timestamp) -> Tried<Vec<AgentEntry>> {
    let columns = agent_columns(db);
    let select = |which: &str| {
        format!(
            "SELECT {columns} FROM agents a LEFT JOIN presence p ON p.agent_id = a.id
             WHERE {which} AND a.name > $2 AND {VISIBLE} ORDER BY a.name LIMIT $3"
        )
    };
    let (me, mut left) = (caller.key.0, i64::from(page.limit));
    let mut after = page.after.as_ref().map_or("", AgentName::as_str);
    let mut found: Vec<AgentRow> = Vec::new();
    let household = household::household_of(db, me).await?;
    let is_member = "SELECT 1 FROM agents WHERE name = $1 AND household_id = $2";
    if household.is_some() && (after.is_empty() || db.exists(is_member, values![after, household]).await?) {
        found = db.rows(&select("a.household_id = $4"), values![me, after, left, household]).await?;
        left -= i64::try_from(found.len()).unwrap_or(left);
        after = "";
    }
    let others = select("(CAST($4 AS bigint) IS NULL OR a.household_id IS DISTINCT FROM $4)");
    found.extend(db.rows::<AgentRow>(&others, values![me, after, left, household]).await?);
    Ok(found.into_iter().map(|agent| agent.entry(now)).collect())
}

/// Returns an agent that the caller may see.
async fn seen_by(db: &mut dyn Db, caller: &Agent, name: &AgentName, now: Timestamp) -> Tried<AgentEntry> {
    let sql = format!(
        "SELECT {} FROM agents a LEFT JOIN presence p ON p.agent_id = a.id WHERE lower(a.name) = $2 AND {VISIBLE}",
        agent_columns(db)
    );
    let found: Vec<AgentRow> = db.rows(&sql, values![caller.key.0, &name.folded()]).await?;
    if let Some(agent) = name.best_match(found, |agent| agent.name.as_str()) {
        return Ok(agent.entry(now));
    }
    let names = known_names(db, caller).await?;
    let names = names.iter().map(String::as_str);
    Err(StoreError::not_found(amb_core::suggest::unknown_agent(name.as_str(), names)).into())
}

/// Returns names that the caller may see: first those it is connected with.
async fn known_names(db: &mut dyn Db, caller: &Agent) -> Tried<Vec<String>> {
    let connected = "SELECT a.name FROM connections c JOIN agents a ON a.id = c.target_id
         WHERE c.requester_id = $1 AND c.status = 'ACTIVE'
         UNION SELECT a.name FROM connections c JOIN agents a ON a.id = c.requester_id
         WHERE c.target_id = $1 AND c.status = 'ACTIVE' LIMIT $2";
    let others = format!("SELECT a.name FROM agents a WHERE {VISIBLE} AND a.id <> $1 ORDER BY a.name LIMIT $2");
    let mut names = Vec::new();
    for sql in [connected, &others] {
        names.extend(db.rows::<String>(sql, values![caller.key.0, CANDIDATES]).await?);
    }
    Ok(names)
}

/// The columns that only the agent itself sees.
#[derive(Debug, Clone)]
struct OwnRow {
    agent: AgentRow,
    owner_contact: Option<String>,
    discoverable: bool,
    api_key_prefix: String,
    previous_key_until: Option<Timestamp>,
}

from_row!(OwnRow: agent owner_contact discoverable api_key_prefix previous_key_until);

impl OwnRow {
    fn profile(self, stored: Stored, quotas: amb_core::Quotas, now: Timestamp) -> Profile {
        let usage = stored.usage();
        Profile {
            id: self.agent.id,
            entry: self.agent.entry(now),
            owner_contact: self.owner_contact,
            discoverable: self.discoverable,
            api_key_prefix: self.api_key_prefix,
            previous_key_until: self.previous_key_until.filter(|until| now < *until),
            usage: amb_core::doc::OwnUsage {
                messages: usage.messages,
                bytes: usage.bytes,
                max_messages: quotas.agent_messages,
                max_bytes: quotas.agent_bytes,
            },
            // The server sets it.
            operators_read_mail: false,
        }
    }
}

/// Returns the caller's own row and its usage.
async fn own(db: &mut dyn Db, caller: &Agent) -> Tried<(OwnRow, Stored)> {
    let sql = format!(
        "SELECT {}, a.owner_contact, a.discoverable, a.api_key_prefix, a.previous_key_until
         FROM agents a LEFT JOIN presence p ON p.agent_id = a.id WHERE a.id = $1",
        agent_columns(db)
    );
    let own = db.one(&sql, values![caller.key.0]).await?;
    Ok((own, stored_by(db, caller.key.0).await?))
}

/// Returns how much an agent stores.
pub(crate) async fn stored_by(db: &mut dyn Db, agent: i64) -> Tried<Stored> {
    let sql = "SELECT messages, bytes FROM usage WHERE agent_id = $1";
    Ok(db.find(sql, values![agent]).await?.unwrap_or_default())
}

async fn update(tx: &mut dyn Tx, caller: &Agent, patch: ProfilePatch) -> Tried<(OwnRow, Stored)> {
    // Sends and accepted tasks are decided under this lock.
    tx.lock(&[caller.key.0]).await?;
    let (before, _) = own(tx, caller).await?;
    let discoverable = patch.discoverable.unwrap_or(before.discoverable);
    let card = patch.card(before.agent.card);
    card.check()?;
    refusals::check_text("description", Some(&card.description))?;
    let (capabilities, allow_from) = (json(&card.capabilities)?, json(&card.allow_from)?);
    tx.execute(
        "UPDATE agents SET description = $2, capabilities = $3, allow_from = $4, max_concurrent_tasks = $5,
                           discoverable = $6 WHERE id = $1",
        values![caller.key.0, &card.description, &capabilities, &allow_from, card.max_concurrent_tasks, discoverable],
    )
    .await?;
    tx.invalidate(Cached::Card(&caller.name));
    own(tx, caller).await
}
