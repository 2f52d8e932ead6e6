//! Agents: registering, keys, presence, leaving.

use amb_core::id::fresh_uuid;
use amb_core::{AgentName, Timestamp};
use async_trait::async_trait;
use futures_util::FutureExt;
use uuid::Uuid;

use super::{connections, groups, household, tasks, wake};
use crate::engine::{
    Cached, Changes, Db, Engine, Exclusive, Failed, FromRow, Query, ReadLength, Row, Tried, Tx, read, values, write,
};
use crate::error::Result;
use crate::outgoing::json;
use crate::types::{Agent, AgentKey, KeyHash, NewAgent, NewKey, Written, to_micros};
use crate::{refusals, row};

/// Who is here, by which key.
#[async_trait]
pub trait AgentVerbs: Engine {
    /// Registers a new agent. `conflict` where the name is taken, also by an agent that was deleted.
    ///
    /// With a household to join: `unauthorized` where its token is none or was revoked, `forbidden` where a machine's token
    /// would make the person, `conflict` where the household has its person already, or as many members as it may.
    async fn register_agent(&self, new: NewAgent, now: Timestamp) -> Result<Written<Agent>> {
        refusals::check_text("owner_contact", new.owner_contact.as_deref())?;
        refusals::check_text("description", Some(&new.card.description))?;
        write(self, Changes::All, (new, to_micros(now)), |tx, (new, now)| register(tx, new, *now).boxed()).await
    }

    /// Whose key this is; `None` where nobody's. Cheap enough to be asked at every request: answered from memory where
    /// it was asked before, and never longer than a second after a key stopped being one.
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

    /// The agent of this name; `None` where there is none.
    async fn agent_by_name(&self, name: &AgentName) -> Result<Option<Agent>> {
        read(self, ReadLength::Short, name.clone(), |db, name| agent_named(db, name).boxed()).await
    }

    /// Notes when any number of agents were seen, in one write. Gather them: once in some seconds is enough.
    async fn seen(&self, agents: &[AgentKey], now: Timestamp) -> Result<()> {
        let asked = (agents.to_vec(), to_micros(now));
        let noted = write(self, Changes::Logs, asked, |tx, (agents, now)| seen(tx, agents, true, *now).boxed());
        noted.await.map(|done| done.answer)
    }

    /// The caller is offline until it is seen again.
    async fn leave(&self, caller: &Agent, now: Timestamp) -> Result<()> {
        let asked = (caller.key, to_micros(now));
        let left = write(self, Changes::Logs, asked, |tx, (caller, now)| {
            async move { seen(tx, &[*caller], false, *now).await }.boxed()
        });
        left.await.map(|done| done.answer)
    }

    /// Replaces the caller's key, if `shown` is its current key. The old one works until `old_until`, if that is given.
    ///
    /// `old_key` where `shown` was replaced and is in its grace period, `unauthorized` where it is no key any more.
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
        let rotated = write(self, Changes::Logs, asked, |tx, (caller, shown, new, until, now)| {
            rotate(tx, *caller, *shown, new, *until, *now).boxed()
        });
        rotated.await.map(|done| done.answer)
    }

    /// Gives an agent a new key and ends all it had, without asking for one: for the office's operator. `not_found` where
    /// no agent has this name.
    async fn issue_key(&self, name: &AgentName, new: NewKey) -> Result<Agent> {
        let asked = (name.clone(), new);
        let _clear = self.key_cache().clear_on_drop();
        Ok(write(self, Changes::Logs, asked, |tx, (name, new)| issue(tx, name, new).boxed()).await?.answer)
    }

    /// Removes the caller: its key, its connections, its open tasks. Others keep the mail they had with it; nobody can
    /// take its name. `shown` must be its current key, as in [`AgentVerbs::rotate_key`].
    async fn delete_agent(&self, caller: &Agent, shown: KeyHash, now: Timestamp) -> Result<Written<()>> {
        let asked = (caller.clone(), shown, to_micros(now));
        let _clear = self.key_cache().clear_on_drop();
        write(self, Changes::All, asked, |tx, (caller, shown, now)| delete(tx, caller, *shown, *now).boxed()).await
    }
}

impl<E: Engine> AgentVerbs for E {}

impl FromRow for Agent {
    fn from_row(row: &mut Row<'_>) -> Result<Self> {
        let (key, id, name): (i64, Uuid, String) = (row.take()?, row.take()?, row.take()?);
        Ok(Agent { key: AgentKey(key), id, name: row::name(&name)?, person: row.take()?, once: None })
    }
}

/// Whose key this is, and until when, where that is limited.
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

/// The agent that this name means, unless it was deleted.
pub(crate) async fn agent_named(db: &mut dyn Db, name: &AgentName) -> Tried<Option<Agent>> {
    let sql = "SELECT id, public_id, name, person FROM agents WHERE lower(name) = $1 AND deleted_at IS NULL";
    let found: Vec<Agent> = db.rows(sql, values![&name.folded()]).await?;
    Ok(name.meant(found, |agent| agent.name.as_str()))
}

/// The row of the agent that this name means, even if it was deleted: its mail is still there.
pub(crate) async fn row_of(db: &mut dyn Db, name: &AgentName) -> Tried<Option<i64>> {
    let sql = "SELECT id, name FROM agents WHERE lower(name) = $1";
    let found: Vec<(i64, String)> = db.rows(sql, values![&name.folded()]).await?;
    Ok(name.meant(found, |(_, name)| name).map(|(id, _)| id))
}

/// The row of the agent of exactly this name, deleted or not; else of the agent that this name means.
pub(super) async fn agent_or_deleted(db: &mut dyn Db, name: &AgentName) -> Tried<Option<i64>> {
    match db.find("SELECT id FROM agents WHERE name = $1", values![name.as_str()]).await? {
        Some(id) => Ok(Some(id)),
        None => Ok(agent_named(db, name).await?.map(|agent| agent.key.0)),
    }
}

/// Whether this agent is there and was not deleted.
pub(super) async fn is_registered(db: &mut dyn Db, agent: i64) -> Tried<bool> {
    db.exists("SELECT 1 FROM agents WHERE id = $1 AND deleted_at IS NULL", values![agent]).await
}

/// Whether an agent or a group has this name, or one like it.
pub(super) async fn is_taken(db: &mut dyn Db, name: &AgentName) -> Tried<bool> {
    let folded = name.folded();
    let groups = format!("SELECT 1 FROM groups WHERE {} = $1 LIMIT 1", db.dialect().group_key);
    Ok(db.exists("SELECT 1 FROM agents WHERE lower(name) = $1 LIMIT 1", values![&folded]).await?
        || db.exists(&groups, values![&folded]).await?)
}

async fn register(tx: &mut dyn Tx, new: &NewAgent, now: Timestamp) -> Tried<Agent> {
    tx.lock_exclusive(Exclusive::Names).await?;
    let seat = match new.join {
        Some(join) => Some(household::seat(tx, join).await?),
        None => None,
    };
    if is_taken(tx, &new.name).await? {
        return Err(refusals::name_taken(&new.name).into());
    }
    let (id, card) = (fresh_uuid(now), &new.card);
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
                seat.as_ref().map(|seat| seat.household),
                seat.as_ref().map(|seat| seat.token),
                seat.as_ref().is_some_and(|seat| seat.as_person),
            ],
        )
        .await;
    let key = match inserted {
        Err(Failed::Taken(_)) => return Err(refusals::name_taken(&new.name).into()),
        inserted => inserted?,
    };
    tx.open_mailbox(key).await?;
    if let Some(seat) = &seat {
        household::tell_joined(tx, seat, &new.name, now).await?;
    }
    let person = seat.as_ref().is_some_and(|seat| seat.as_person);
    Ok(Agent { key: AgentKey(key), id, name: new.name.clone(), person, once: None })
}

/// Notes when agents were seen, or that they left.
async fn seen(tx: &mut dyn Tx, agents: &[AgentKey], here: bool, now: Timestamp) -> Tried<()> {
    // In one order, so that two processes that say so at once do not wait for each other.
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

/// Gives an agent a new key and ends all it had.
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
    let mut concerned = concerned_by(tx, me).await?;
    concerned.push(me);
    tx.lock(&concerned).await?;
    if concerned_by(tx, me).await?.iter().any(|agent| !tx.holds(*agent)) {
        return Err(Failed::changed());
    }
    tasks::end_all_of(tx, caller, now).await?;
    connections::end_all_of(tx, caller, now).await?;
    household::tell_deleted(tx, caller, now).await?;
    tx.flush().await?;
    // Decides: where a rotation or another removal was first, nothing of this transaction stays.
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
    wake::forget(tx, me).await?;
    groups::leave_all(tx, me).await
}

/// Whose logs tell of it when this agent leaves.
async fn concerned_by(db: &mut dyn Db, agent: i64) -> Tried<Vec<i64>> {
    let mut agents = connections::peers_of(db, agent).await?;
    agents.extend(tasks::sides_of_open(db, agent).await?);
    agents.extend(household::housemates(db, agent).await?);
    Ok(agents)
}
