//! Agents: registration, keys, presence, deletion.

use amb_core::id::fresh_uuid;
use amb_core::{AgentName, Timestamp};
use async_trait::async_trait;
use futures_util::FutureExt;

use super::{connections, groups, household, stepping_in, tasks, wake};
use crate::engine::{
    Cached, Changes, Db, Engine, Exclusive, Failed, FromRow, Query, ReadLength, Row, Tried, Tx, read, values, write,
    write_unlogged,
};
use crate::error::Result;
use crate::outgoing::json;
use crate::refusals;
use crate::types::{Agent, AgentKey, KeyHash, NewAgent, NewKey, Written, to_micros};

/// Registered agents and their keys.
#[async_trait]
pub trait AgentVerbs: Engine {
    /// Registers a new agent. `conflict` where the name is taken, also by an agent that was deleted.
    ///
    /// With a household to join: `unauthorized` where the token is unknown or revoked, `forbidden` where the person
    /// registers with a machine's token, `conflict` where the household has a person already, or is full.
    async fn register_agent(&self, new: NewAgent, now: Timestamp) -> Result<Written<Agent>> {
        refusals::check_text("owner_contact", new.owner_contact.as_deref())?;
        refusals::check_text("description", Some(&new.card.description))?;
        write(self, Changes::All, (new, to_micros(now)), |tx, (new, now)| register(tx, new, *now).boxed()).await
    }

    /// Returns the agent that has this key. Cheap enough for every request: cached, for at most a second after the key
    /// was revoked.
    async fn agent_by_key_hash(&self, hash: KeyHash, now: Timestamp) -> Result<Option<Agent>> {
        let generation = match self.key_cache().get(&hash, now) {
            Ok(agent) => return Ok(Some(agent)),
            Err(generation) => generation,
        };
        let found =
            read(self, ReadLength::Short, (hash, now), |db, (hash, now)| by_key(db, *hash, *now).boxed()).await?;
        Ok(found.map(|(agent, until)| {
            self.key_cache().insert(generation, hash, &agent, until, now);
            agent
        }))
    }

    /// Returns the agent of this name.
    async fn agent_by_name(&self, name: &AgentName) -> Result<Option<Agent>> {
        read(self, ReadLength::Short, name.clone(), |db, name| agent_named(db, name).boxed()).await
    }

    /// Records when agents were seen, in one write. Collect them: one call every few seconds is enough.
    async fn seen(&self, agents: &[AgentKey], now: Timestamp) -> Result<()> {
        let asked = (agents.to_vec(), to_micros(now));
        write_unlogged(self, Changes::Logs, asked, |tx, (agents, now)| seen(tx, agents, true, *now).boxed()).await
    }

    /// Marks the caller as offline until it is seen again.
    async fn leave(&self, caller: &Agent, now: Timestamp) -> Result<()> {
        let asked = (caller.key, to_micros(now));
        write_unlogged(self, Changes::Logs, asked, |tx, (caller, now)| {
            seen(tx, std::slice::from_ref(caller), false, *now).boxed()
        })
        .await
    }

    /// Replaces the caller's key, if `shown` is its current key. The old one works until `old_until`, if that is given.
    ///
    /// `old_key` where `shown` was replaced and is in its grace period, `unauthorized` where it is no longer valid.
    async fn rotate_key(
        &self,
        caller: &Agent,
        shown: KeyHash,
        new: NewKey,
        old_until: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<()> {
        let asked = (caller.key, shown, new, old_until.map(to_micros), now);
        let _clear = self.key_cache().clear_on_drop();
        write_unlogged(self, Changes::Logs, asked, |tx, (caller, shown, new, until, now)| {
            rotate(tx, *caller, *shown, new, *until, *now).boxed()
        })
        .await
    }

    /// Gives an agent a new key and revokes all others; for the operator. `not_found` where no agent has this name.
    async fn issue_key(&self, name: &AgentName, new: NewKey) -> Result<Agent> {
        let asked = (name.clone(), new);
        let _clear = self.key_cache().clear_on_drop();
        write_unlogged(self, Changes::Logs, asked, |tx, (name, new)| issue(tx, name, new).boxed()).await
    }

    /// Deletes the caller: its key, its connections, its open tasks. Others keep the mail they exchanged with it, and
    /// its name stays taken. The agents that a person paused are resumed. `shown` must be its current key, as in
    /// [`AgentVerbs::rotate_key`].
    async fn delete_agent(&self, caller: &Agent, shown: KeyHash, now: Timestamp) -> Result<Written<()>> {
        let asked = (caller.clone(), shown, to_micros(now));
        let _clear = self.key_cache().clear_on_drop();
        write(self, Changes::All, asked, |tx, (caller, shown, now)| delete(tx, caller, *shown, *now).boxed()).await
    }
}

impl<E: Engine> AgentVerbs for E {}

impl FromRow for Agent {
    fn from_row(row: &mut Row<'_>) -> Result<Self> {
        let (key, id, name, person) = FromRow::from_row(row)?;
        Ok(Agent { key: AgentKey(key), id, name, person, once: None })
    }
}

/// Returns the agent that has this key, and until when the key is valid, where that is limited.
pub(crate) async fn by_key(
    db: &mut dyn Db,
    hash: KeyHash,
    now: Timestamp,
) -> Tried<Option<(Agent, Option<Timestamp>)>> {
    let sql =
        "SELECT id, public_id, name, person, CASE WHEN FALSE THEN previous_key_until END FROM agents WHERE api_key_hash = $1
               UNION ALL SELECT id, public_id, name, person, previous_key_until FROM agents
               WHERE previous_key_hash = $1 AND previous_key_until > $2";
    db.find(sql, values![&hash.to_hex(), now]).await
}

/// Returns the agent that this name resolves to, unless it was deleted.
pub(crate) async fn agent_named(db: &mut dyn Db, name: &AgentName) -> Tried<Option<Agent>> {
    let sql = "SELECT id, public_id, name, person FROM agents WHERE lower(name) = $1 AND deleted_at IS NULL";
    let found: Vec<Agent> = db.rows(sql, values![&name.folded()]).await?;
    Ok(name.best_match(found, |agent| agent.name.as_str()))
}

/// Returns the row id of the agent that this name resolves to, even if it was deleted: its mail still exists.
pub(crate) async fn row_of(db: &mut dyn Db, name: &AgentName) -> Tried<Option<i64>> {
    let sql = "SELECT id, name FROM agents WHERE lower(name) = $1";
    let found: Vec<(i64, String)> = db.rows(sql, values![&name.folded()]).await?;
    Ok(name.best_match(found, |(_, name)| name).map(|(id, _)| id))
}

/// Returns the row id of the agent of exactly this name, deleted or not; else of the agent that the name resolves to.
pub(super) async fn agent_or_deleted(db: &mut dyn Db, name: &AgentName) -> Tried<Option<i64>> {
    match db.find("SELECT id FROM agents WHERE name = $1", values![name.as_str()]).await? {
        Some(id) => Ok(Some(id)),
        None => Ok(agent_named(db, name).await?.map(|agent| agent.key.0)),
    }
}

/// Returns whether this agent exists and was not deleted.
pub(super) async fn is_registered(db: &mut dyn Db, agent: i64) -> Tried<bool> {
    db.exists("SELECT 1 FROM agents WHERE id = $1 AND deleted_at IS NULL", values![agent]).await
}

/// Returns whether an agent or a group has this name, in any case.
pub(super) async fn is_taken(db: &mut dyn Db, name: &AgentName) -> Tried<bool> {
    let folded = name.folded();
    let groups = format!("SELECT 1 FROM groups WHERE {} = $1 LIMIT 1", db.dialect().group_key);
    Ok(db.exists("SELECT 1 FROM agents WHERE lower(name) = $1 LIMIT 1", values![&folded]).await?
        || db.exists(&groups, values![&folded]).await?)
}

async fn register(tx: &mut dyn Tx, new: &NewAgent, now: Timestamp) -> Tried<Agent> {
    tx.lock_exclusive(Exclusive::Names).await?;
    let place = match new.join {
        Some(join) => Some(household::place_for(tx, join).await?),
        None => None,
    };
    if is_taken(tx, &new.name).await? {
        return Err(refusals::name_taken(&new.name).into());
    }
    let (id, card) = (fresh_uuid(now), &new.card);
    let person = place.as_ref().is_some_and(|place| place.as_person);
    let (key_hash, capabilities, allow_from) =
        (new.key_hash.to_hex(), json(&card.capabilities)?, json(&card.allow_from)?);
    let inserted = tx
        .insert(
            "INSERT INTO agents (public_id, name, api_key_hash, api_key_prefix, owner_contact, description, capabilities,
                                 allow_from, max_concurrent_tasks, created_at, household_id, household_token_id, person)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
            values![
                id,
                new.name.as_str(),
                &key_hash,
                &new.key_prefix,
                new.owner_contact.as_deref(),
                &card.description,
                &capabilities,
                &allow_from,
                card.max_concurrent_tasks,
                now,
                place.as_ref().map(|place| place.household),
                place.as_ref().map(|place| place.token),
                person,
            ],
        )
        .await;
    let key = match inserted {
        Err(Failed::Taken(_)) => return Err(refusals::name_taken(&new.name).into()),
        inserted => inserted?,
    };
    tx.open_mailbox(key).await?;
    if let Some(place) = &place {
        household::log_joined(tx, place, &new.name, now).await?;
    }
    Ok(Agent { key: AgentKey(key), id, name: new.name.clone(), person, once: None })
}

/// Records when agents were seen, or that they went offline.
async fn seen(tx: &mut dyn Tx, agents: &[AgentKey], here: bool, now: Timestamp) -> Tried<()> {
    // Sorted, so that two processes do not deadlock.
    let mut agents: Vec<i64> = agents.iter().map(|agent| agent.0).collect();
    agents.sort_unstable();
    agents.dedup();
    let sql = format!(
        "INSERT INTO presence (agent_id, last_seen, here) {}
         ON CONFLICT (agent_id) DO UPDATE SET here = excluded.here, last_seen =
             CASE WHEN presence.last_seen > excluded.last_seen THEN presence.last_seen ELSE excluded.last_seen END",
        (tx.dialect().each_of_list)("$2, $3")
    );
    tx.execute(&sql, values![&agents, now, here]).await.map(drop)
}

async fn rotate(
    tx: &mut dyn Tx,
    caller: AgentKey,
    shown: KeyHash,
    new: &NewKey,
    old_until: Option<Timestamp>,
    now: Timestamp,
) -> Tried<()> {
    let sql = "UPDATE agents SET previous_key_hash = CASE WHEN CAST($5 AS timestamptz) IS NULL THEN NULL ELSE api_key_hash END,
                                 previous_key_until = $5, api_key_hash = $3, api_key_prefix = $4
               WHERE id = $1 AND api_key_hash = $2 AND deleted_at IS NULL";
    let hashes = (shown.to_hex(), new.hash.to_hex());
    if tx.execute(sql, values![caller.0, &hashes.0, &hashes.1, &new.prefix, old_until]).await? == 0 {
        return Err(refusals::not_the_current_key(by_key(tx, shown, now).await?.is_some()).into());
    }
    tx.key_ended(caller).await
}

/// Gives an agent a new key and revokes all others.
pub(super) async fn issue(tx: &mut dyn Tx, name: &AgentName, new: &NewKey) -> Tried<Agent> {
    let agent = agent_named(tx, name).await?.ok_or_else(|| refusals::no_agent(name))?;
    let sql = "UPDATE agents SET api_key_hash = $2, api_key_prefix = $3, previous_key_hash = NULL,
                                 previous_key_until = NULL WHERE id = $1 AND deleted_at IS NULL";
    if tx.execute(sql, values![agent.key.0, &new.hash.to_hex(), &new.prefix]).await? == 0 {
        return Err(refusals::no_agent(name).into());
    }
    tx.key_ended(agent.key).await?;
    Ok(agent)
}

async fn delete(tx: &mut dyn Tx, caller: &Agent, shown: KeyHash, now: Timestamp) -> Tried<()> {
    let me = caller.key.0;
    let mut affected = affected_by(tx, me).await?;
    affected.push(me);
    tx.lock(&affected).await?;
    if affected_by(tx, me).await?.iter().any(|agent| !tx.holds(*agent)) {
        return Err(Failed::changed());
    }
    tasks::end_all_of(tx, caller, now).await?;
    connections::end_all_of(tx, caller, now).await?;
    if caller.person {
        stepping_in::resume_all(tx, caller, now).await?;
    }
    household::log_deleted(tx, caller, now).await?;
    tx.flush().await?;
    // Where the key was rotated or the agent deleted meanwhile, this fails and rolls everything back.
    let sql = "UPDATE agents SET api_key_hash = NULL, previous_key_hash = NULL, previous_key_until = NULL,
                                 owner_contact = NULL, description = '', capabilities = '[]', deleted_at = $2,
                                 household_id = NULL, household_token_id = NULL, paused_at = NULL,
                                 paused_by = NULL, paused_from = NULL
               WHERE id = $1 AND api_key_hash = $3 AND deleted_at IS NULL";
    if tx.execute(sql, values![me, now, &shown.to_hex()]).await? == 0 {
        return Err(refusals::not_the_current_key(by_key(tx, shown, now).await?.is_some()).into());
    }
    tx.key_ended(caller.key).await?;
    tx.invalidate(Cached::Card(&caller.name));
    wake::delete_reports(tx, me).await?;
    groups::leave_all(tx, me).await
}

/// Returns the agents that get an event when this agent is deleted.
async fn affected_by(db: &mut dyn Db, agent: i64) -> Tried<Vec<i64>> {
    let mut agents = connections::peers_of(db, agent).await?;
    agents.extend(connections::requesters_of(db, agent).await?);
    agents.extend(tasks::sides_of_open(db, agent).await?);
    agents.extend(household::housemates(db, agent).await?);
    Ok(agents)
}
