//! The directory: who is here, who may see whom, and what one says about oneself.

use amb_core::doc::AgentEntry;
use amb_core::{AgentName, Timestamp};
use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use super::agents::{by_key, by_name};
use super::error::failed;
use super::household::household_of;
use super::keys::{instant_at, maybe_instant_at, uuid_at};
use super::plans::Prepared;
use super::writer::WriteTx;
use crate::error::Result;
use crate::outgoing::json;
use crate::profile::{AgentRow, OwnRow, patched, unknown};
use crate::query::{AgentsPage, ProfilePatch};
use crate::quota::Stored;
use crate::types::{Agent, AgentKey, KeyHash, NewKey, Written};
use crate::{StoreError, words};

/// Names looked through for the nearest one.
const CANDIDATES: u32 = 1_000;

macro_rules! agent_columns {
    () => {
        "a.public_id, a.name, a.description, a.capabilities, a.allow_from, a.max_concurrent_tasks, a.created_at,
         p.last_seen, p.here,
         (SELECT group_concat(hex(t.public_id)) FROM tasks t
          WHERE t.assignee_id = a.id AND t.state IN ('accepted', 'working')),
         ifnull(a.household_id = (SELECT m.household_id FROM agents m WHERE m.id = ?1), 0), a.person"
    };
}

/// Whom ?1 may see: itself, those it is connected with, and of its household and the discoverable those that did not block it.
/// A person is found by no stranger.
macro_rules! visible {
    () => {
        "a.deleted_at IS NULL AND (a.id = ?1
         OR EXISTS (SELECT 1 FROM connections c WHERE c.low_id = min(a.id, ?1) AND c.high_id = max(a.id, ?1)
                    AND c.status = 'ACTIVE')
         OR (((a.discoverable AND NOT a.person)
              OR a.household_id = (SELECT m.household_id FROM agents m WHERE m.id = ?1))
             AND NOT EXISTS (SELECT 1 FROM connections c WHERE c.requester_id = a.id
                                            AND c.target_id = ?1 AND c.status = 'BLOCKED')))"
    };
}

fn agent_row(row: &Row<'_>) -> rusqlite::Result<AgentRow> {
    let current: Option<String> = row.get(9)?;
    let ids = current.unwrap_or_default();
    Ok(AgentRow {
        id: uuid_at(row, 0)?,
        name: row.get(1)?,
        description: row.get(2)?,
        capabilities: row.get(3)?,
        allow_from: row.get(4)?,
        max_concurrent_tasks: row.get(5)?,
        created_at: instant_at(row, 6)?,
        last_seen: maybe_instant_at(row, 7)?,
        here: row.get(8)?,
        current: ids.split(',').filter_map(|id| Uuid::parse_str(id).ok()).collect(),
        household: row.get(10)?,
        person: row.get(11)?,
    })
}

/// The agents that the caller may see: its household by name, then the others by name.
pub(super) fn agents(db: &Connection, caller: &Agent, page: &AgentsPage, now: Timestamp) -> Result<Vec<AgentEntry>> {
    let members = concat!(
        "SELECT ",
        agent_columns!(),
        " FROM agents a LEFT JOIN presence p ON p.agent_id = a.id WHERE a.household_id = ?4 AND a.name > ?2 AND ",
        visible!(),
        " ORDER BY a.name LIMIT ?3"
    );
    let others = concat!(
        "SELECT ",
        agent_columns!(),
        " FROM agents a LEFT JOIN presence p ON p.agent_id = a.id WHERE a.name > ?2 AND (?4 IS NULL OR a.household_id IS NOT ?4) AND ",
        visible!(),
        " ORDER BY a.name LIMIT ?3"
    );
    let mut after = page.after.as_ref().map_or("", AgentName::as_str);
    let mut found: Vec<AgentRow> = Vec::new();
    let look = |sql: &str, after: &str, household: Option<i64>, found: &mut Vec<AgentRow>| {
        let left = page.limit.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
        let rows: Vec<AgentRow> = db
            .prepared(sql)
            .and_then(|mut select| {
                select.query_map(params![caller.key.0, after, left, household], agent_row).and_then(Iterator::collect)
            })
            .map_err(failed)?;
        found.extend(rows);
        Ok::<_, StoreError>(())
    };
    let household = household_of(db, caller.key.0)?;
    if household.is_some() && (after.is_empty() || is_member(db, after, household)?) {
        look(members, after, household, &mut found)?;
        after = "";
    }
    look(others, after, household, &mut found)?;
    found.into_iter().map(|agent| agent.entry(now)).collect()
}

/// Whether the agent of exactly this name is in the household.
fn is_member(db: &Connection, name: &str, household: Option<i64>) -> Result<bool> {
    db.prepared("SELECT 1 FROM agents WHERE name = ?1 AND household_id = ?2")
        .and_then(|mut select| select.exists(params![name, household]))
        .map_err(failed)
}

/// One agent that the caller may see.
pub(super) fn agent(db: &Connection, caller: &Agent, name: &AgentName, now: Timestamp) -> Result<AgentEntry> {
    let sql = concat!(
        "SELECT ",
        agent_columns!(),
        " FROM agents a LEFT JOIN presence p ON p.agent_id = a.id WHERE lower(a.name) = ?2 AND ",
        visible!()
    );
    let found: Vec<AgentRow> = db
        .prepared(sql)
        .and_then(|mut select| {
            select.query_map(params![caller.key.0, name.folded()], agent_row).and_then(Iterator::collect)
        })
        .map_err(failed)?;
    match name.meant(found, |agent| &agent.name) {
        Some(agent) => agent.entry(now),
        None => Err(unknown(name, &known_names(db, caller)?)),
    }
}

/// Names that the caller may know: those it is connected with, then others it may see, so many at most.
pub(super) fn known_names(db: &Connection, caller: &Agent) -> Result<Vec<String>> {
    let sql = concat!("SELECT a.name FROM agents a WHERE ", visible!(), " AND a.id <> ?1 ORDER BY a.name LIMIT ?2");
    let connected = "SELECT a.name FROM connections c JOIN agents a ON a.id = c.target_id
         WHERE c.requester_id = ?1 AND c.status = 'ACTIVE'
         UNION SELECT a.name FROM connections c JOIN agents a ON a.id = c.requester_id
         WHERE c.target_id = ?1 AND c.status = 'ACTIVE' LIMIT ?2";
    let mut names: Vec<String> = Vec::new();
    for sql in [connected, sql] {
        let found: Vec<String> = db
            .prepared(sql)
            .and_then(|mut select| {
                select.query_map(params![caller.key.0, CANDIDATES], |row| row.get(0)).and_then(Iterator::collect)
            })
            .map_err(failed)?;
        names.extend(found);
    }
    Ok(names)
}

pub(super) fn own(db: &Connection, caller: &Agent) -> Result<OwnRow> {
    let sql = concat!(
        "SELECT ",
        agent_columns!(),
        ", a.owner_contact, a.discoverable, a.api_key_prefix, a.previous_key_until
         FROM agents a LEFT JOIN presence p ON p.agent_id = a.id WHERE a.id = ?1"
    );
    db.prepared(sql)
        .and_then(|mut select| {
            select.query_row([caller.key.0], |row| {
                Ok(OwnRow {
                    agent: agent_row(row)?,
                    owner_contact: row.get(12)?,
                    discoverable: row.get(13)?,
                    api_key_prefix: row.get(14)?,
                    previous_key_until: maybe_instant_at(row, 15)?,
                })
            })
        })
        .map_err(failed)
}

impl WriteTx {
    /// Returns the profile as it is then, and what the agent has stored.
    pub(super) fn update_profile(&mut self, caller: &Agent, patch: ProfilePatch) -> Result<(OwnRow, Stored)> {
        let (card, discoverable) = patched(&own(&self.db, caller)?, patch)?;
        self.db
            .prepared(
                "UPDATE agents SET description = ?2, capabilities = ?3, allow_from = ?4, max_concurrent_tasks = ?5,
                                   discoverable = ?6 WHERE id = ?1",
            )
            .and_then(|mut update| {
                update.execute(params![
                    caller.key.0,
                    card.description,
                    json(&card.capabilities).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?,
                    json(&card.allow_from).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?,
                    card.max_concurrent_tasks,
                    discoverable,
                ])
            })
            .map_err(failed)?;
        self.caches.peers.remove(&caller.name);
        Ok((own(&self.db, caller)?, self.stored_by(caller.key.0)?))
    }

    pub(super) fn seen(&mut self, agents: &[AgentKey], here: bool, now: Timestamp) -> Result<()> {
        for agent in agents {
            self.db
                .prepared(
                    "INSERT INTO presence (agent_id, last_seen, here) VALUES (?1, ?2, ?3)
                     ON CONFLICT (agent_id) DO UPDATE SET last_seen = max(last_seen, excluded.last_seen),
                                                          here = excluded.here",
                )
                .and_then(|mut insert| insert.execute(params![agent.0, now.as_microsecond(), here]))
                .map_err(failed)?;
        }
        Ok(())
    }

    pub(super) fn rotate_key(
        &mut self,
        caller: &Agent,
        shown: KeyHash,
        new: &NewKey,
        old_until: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<()> {
        self.ended_key = true;
        let changed = self
            .db
            .prepared(
                "UPDATE agents SET previous_key_hash = iif(?5 IS NULL, NULL, api_key_hash), previous_key_until = ?5,
                                   api_key_hash = ?3, api_key_prefix = ?4
                 WHERE id = ?1 AND api_key_hash = ?2 AND deleted_at IS NULL",
            )
            .and_then(|mut update| {
                let until = old_until.map(|until| until.as_microsecond());
                update.execute(params![caller.key.0, shown.to_hex(), new.hash.to_hex(), new.prefix, until])
            })
            .map_err(failed)?;
        if changed == 0 { Err(self.not_the_current_key(shown, now)?) } else { Ok(()) }
    }

    /// What to say to a key that is not its agent's current one.
    fn not_the_current_key(&self, shown: KeyHash, now: Timestamp) -> Result<StoreError> {
        Ok(words::not_the_current_key(by_key(&self.db, shown, now)?.is_some()))
    }

    pub(super) fn issue_key(&mut self, name: &AgentName, new: &NewKey) -> Result<Agent> {
        let Some(agent) = by_name(&self.db, name)? else { return Err(words::no_agent(name)) };
        self.db
            .prepared(
                "UPDATE agents SET api_key_hash = ?2, api_key_prefix = ?3, previous_key_hash = NULL,
                                   previous_key_until = NULL WHERE id = ?1",
            )
            .and_then(|mut update| update.execute(params![agent.key.0, new.hash.to_hex(), new.prefix]))
            .map_err(failed)?;
        self.ended_key = true;
        Ok(agent)
    }

    pub(super) fn delete_agent(&mut self, caller: &Agent, shown: KeyHash, now: Timestamp) -> Result<Written<()>> {
        let current = self
            .db
            .prepared("SELECT 1 FROM agents WHERE id = ?1 AND api_key_hash = ?2 AND deleted_at IS NULL")
            .and_then(|mut select| select.exists(params![caller.key.0, shown.to_hex()]))
            .map_err(failed)?;
        if !current {
            return Err(self.not_the_current_key(shown, now)?);
        }
        let mut news = self.end_tasks_of(caller, now)?;
        news.extend(self.end_connections_of(caller, now)?);
        if let Some(household) = household_of(&self.db, caller.key.0)? {
            news.extend(self.tell_left(household, caller.key.0, &caller.name, caller, now)?);
        }
        self.db
            .prepared(
                "UPDATE agents SET api_key_hash = NULL, previous_key_hash = NULL, previous_key_until = NULL,
                                   owner_contact = NULL, description = '', capabilities = '[]', deleted_at = ?2,
                                   household_id = NULL, household_token_id = NULL
                 WHERE id = ?1",
            )
            .and_then(|mut update| update.execute([caller.key.0, now.as_microsecond()]))
            .map_err(failed)?;
        self.leave_all_groups(caller.key.0)?;
        self.caches.peers.remove(&caller.name);
        self.caches.consent.clear();
        self.ended_key = true;
        Ok(Written { answer: (), news })
    }
}
