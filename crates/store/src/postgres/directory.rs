//! The directory: who is here, who may see whom, and what one says about oneself.

use amb_core::doc::{AgentEntry, Profile};
use amb_core::{AgentName, Timestamp};
use deadpool_postgres::{GenericClient, Transaction};
use tokio_postgres::Row;

use super::error::Trouble;
use super::write::{Heads, Pages};
use super::{agents, consent, groups, household, replicas, tasks, usage};
use crate::error::Result;
use crate::outgoing::json;
use crate::profile::{AgentRow, OwnRow, patched, unknown};
use crate::query::{AgentsPage, ProfilePatch};
use crate::quota::Account;
use crate::types::{Agent, AgentKey, KeyHash, NewKey, Written};
use crate::{StoreError, words};

/// Names looked through for the nearest one.
const CANDIDATES: i64 = 1_000;

macro_rules! agent_columns {
    () => {
        "a.public_id, a.name, a.description, a.capabilities, a.allow_from, a.max_concurrent_tasks, a.created_at,
         p.last_seen, p.here,
         ARRAY (SELECT t.public_id FROM tasks t
                WHERE t.assignee_id = a.id AND t.state IN ('accepted', 'working') ORDER BY t.id),
         coalesce(a.household_id = (SELECT m.household_id FROM agents m WHERE m.id = $1), FALSE), a.person"
    };
}

/// Whom $1 may see: itself, those it is connected with, and of its household and the discoverable those that did not block it.
/// A person is found by no stranger.
macro_rules! visible {
    () => {
        "a.deleted_at IS NULL AND (a.id = $1
         OR EXISTS (SELECT FROM connections c WHERE c.low_id = least(a.id, $1) AND c.high_id = greatest(a.id, $1)
                    AND c.status = 'ACTIVE')
         OR (((a.discoverable AND NOT a.person)
              OR a.household_id = (SELECT m.household_id FROM agents m WHERE m.id = $1))
             AND NOT EXISTS (SELECT FROM connections c WHERE c.requester_id = a.id
                                            AND c.target_id = $1 AND c.status = 'BLOCKED')))"
    };
}

fn agent_row(row: &Row) -> Result<AgentRow, tokio_postgres::Error> {
    Ok(AgentRow {
        id: row.try_get(0)?,
        name: row.try_get(1)?,
        description: row.try_get(2)?,
        capabilities: row.try_get(3)?,
        allow_from: row.try_get(4)?,
        max_concurrent_tasks: row.try_get(5)?,
        created_at: row.try_get(6)?,
        last_seen: row.try_get(7)?,
        here: row.try_get(8)?,
        current: row.try_get(9)?,
        household: row.try_get(10)?,
        person: row.try_get(11)?,
    })
}

/// The agents that the caller may see: its household by name, then the others by name.
pub(super) async fn agents<C: GenericClient>(
    client: &C,
    caller: &Agent,
    page: &AgentsPage,
    now: Timestamp,
) -> Result<Vec<AgentEntry>, Trouble> {
    let members = concat!(
        "SELECT ",
        agent_columns!(),
        " FROM agents a LEFT JOIN presence p ON p.agent_id = a.id WHERE a.household_id = $4 AND a.name > $2 AND ",
        visible!(),
        " ORDER BY a.name LIMIT $3"
    );
    let others = concat!(
        "SELECT ",
        agent_columns!(),
        " FROM agents a LEFT JOIN presence p ON p.agent_id = a.id
          WHERE a.name > $2 AND ($4::bigint IS NULL OR a.household_id IS DISTINCT FROM $4) AND ",
        visible!(),
        " ORDER BY a.name LIMIT $3"
    );
    let mut after = page.after.as_ref().map_or("", AgentName::as_str);
    let (mut left, mut rows) = (i64::from(page.limit), Vec::new());
    let household = household::household_of(client, caller.key.0).await?;
    if household.is_some() && (after.is_empty() || is_member(client, after, household).await?) {
        let select = client.prepare_cached(members).await?;
        rows = client.query(&select, &[&caller.key.0, &after, &left, &household]).await?;
        left -= i64::try_from(rows.len()).unwrap_or(left);
        after = "";
    }
    let select = client.prepare_cached(others).await?;
    rows.extend(client.query(&select, &[&caller.key.0, &after, &left, &household]).await?);
    rows.iter().map(|row| Ok(agent_row(row)?.entry(now)?)).collect()
}

/// Whether the agent of exactly this name is in the household.
async fn is_member<C: GenericClient>(client: &C, name: &str, household: Option<i64>) -> Result<bool, Trouble> {
    let select = client.prepare_cached("SELECT FROM agents WHERE name = $1 AND household_id = $2").await?;
    Ok(client.query_opt(&select, &[&name, &household]).await?.is_some())
}

/// One agent that the caller may see.
pub(super) async fn agent<C: GenericClient>(
    client: &C,
    caller: &Agent,
    name: &AgentName,
    now: Timestamp,
) -> Result<AgentEntry, Trouble> {
    let sql = concat!(
        "SELECT ",
        agent_columns!(),
        " FROM agents a LEFT JOIN presence p ON p.agent_id = a.id WHERE lower(a.name) = $2 AND ",
        visible!()
    );
    let select = client.prepare_cached(sql).await?;
    let rows = client.query(&select, &[&caller.key.0, &name.folded()]).await?;
    let found = rows.iter().map(agent_row).collect::<Result<Vec<_>, _>>()?;
    match name.meant(found, |agent| &agent.name) {
        Some(agent) => Ok(agent.entry(now)?),
        None => Err(unknown(name, &known_names(client, caller).await?).into()),
    }
}

/// Names that the caller may know: those it is connected with, then others it may see, so many at most.
pub(super) async fn known_names<C: GenericClient>(client: &C, caller: &Agent) -> Result<Vec<String>, Trouble> {
    let connected = "SELECT a.name FROM connections c JOIN agents a ON a.id = c.target_id
         WHERE c.requester_id = $1 AND c.status = 'ACTIVE'
         UNION SELECT a.name FROM connections c JOIN agents a ON a.id = c.requester_id
         WHERE c.target_id = $1 AND c.status = 'ACTIVE' LIMIT $2";
    let others = concat!("SELECT a.name FROM agents a WHERE ", visible!(), " AND a.id <> $1 ORDER BY a.name LIMIT $2");
    let mut names = Vec::new();
    for sql in [connected, others] {
        let select = client.prepare_cached(sql).await?;
        let rows = client.query(&select, &[&caller.key.0, &CANDIDATES]).await?;
        names.extend(rows.iter().map(|row| row.get::<_, String>(0)));
    }
    Ok(names)
}

async fn own<C: GenericClient>(client: &C, caller: &Agent) -> Result<OwnRow, Trouble> {
    let sql = concat!(
        "SELECT ",
        agent_columns!(),
        ", a.owner_contact, a.discoverable, a.api_key_prefix, a.previous_key_until
         FROM agents a LEFT JOIN presence p ON p.agent_id = a.id WHERE a.id = $1"
    );
    let select = client.prepare_cached(sql).await?;
    let row = client.query_one(&select, &[&caller.key.0]).await?;
    Ok(OwnRow {
        agent: agent_row(&row)?,
        owner_contact: row.try_get(12)?,
        discoverable: row.try_get(13)?,
        api_key_prefix: row.try_get(14)?,
        previous_key_until: row.try_get(15)?,
    })
}

/// The caller as it sees itself.
pub(super) async fn profile<C: GenericClient>(
    client: &C,
    account: &Account,
    caller: &Agent,
    now: Timestamp,
) -> Result<Profile, Trouble> {
    let stored = usage::stored_by(client, caller.key.0).await?;
    Ok(own(client, caller).await?.profile(stored.usage(), account.quotas(), now)?)
}

pub(super) async fn update_profile(
    tx: &Transaction<'_>,
    account: &Account,
    caller: &Agent,
    patch: ProfilePatch,
    now: Timestamp,
) -> Result<Profile, Trouble> {
    // The agent's own lock: who is heard and how many tasks are taken on is decided under it.
    Heads::lock(tx, &[caller.key.0]).await?;
    let (card, discoverable) = patched(&own(tx, caller).await?, patch)?;
    let update = tx
        .prepare_cached(
            "UPDATE agents SET description = $2, capabilities = $3, allow_from = $4, max_concurrent_tasks = $5,
                               discoverable = $6 WHERE id = $1",
        )
        .await?;
    let (capabilities, allow_from) = (json(&card.capabilities)?, json(&card.allow_from)?);
    let most = i64::from(card.max_concurrent_tasks);
    tx.execute(&update, &[&caller.key.0, &card.description, &capabilities, &allow_from, &most, &discoverable]).await?;
    profile(tx, account, caller, now).await
}

pub(super) async fn seen(tx: &Transaction<'_>, agents: &[AgentKey], here: bool, now: Timestamp) -> Result<(), Trouble> {
    // In one order, so that two processes that say so at once do not wait for each other.
    let mut agents: Vec<i64> = agents.iter().map(|agent| agent.0).collect();
    agents.sort_unstable();
    agents.dedup();
    let insert = tx
        .prepare_cached(
            "INSERT INTO presence (agent_id, last_seen, here) SELECT unnest($1::bigint[]), $2, $3
             ON CONFLICT (agent_id) DO UPDATE SET last_seen = greatest(presence.last_seen, excluded.last_seen),
                                                  here = excluded.here",
        )
        .await?;
    tx.execute(&insert, &[&agents, &now, &here]).await?;
    Ok(())
}

pub(super) async fn rotate_key(
    tx: &Transaction<'_>,
    caller: &Agent,
    shown: KeyHash,
    new: &NewKey,
    old_until: Option<Timestamp>,
    now: Timestamp,
) -> Result<(), Trouble> {
    let update = tx
        .prepare_cached(
            "UPDATE agents SET previous_key_hash = CASE WHEN $5::timestamptz IS NULL THEN NULL ELSE api_key_hash END,
                               previous_key_until = $5, api_key_hash = $3, api_key_prefix = $4
             WHERE id = $1 AND api_key_hash = $2 AND deleted_at IS NULL",
        )
        .await?;
    let (shown_hex, hash) = (shown.to_hex(), new.hash.to_hex());
    let changed = tx.execute(&update, &[&caller.key.0, &shown_hex, &hash, &new.prefix, &old_until]).await?;
    if changed == 0 {
        return Err(not_the_current_key(tx, shown, now).await?.into());
    }
    replicas::keys_end(tx, caller.key).await
}

/// What to say to a key that is not its agent's current one.
async fn not_the_current_key(tx: &Transaction<'_>, shown: KeyHash, now: Timestamp) -> Result<StoreError, Trouble> {
    Ok(words::not_the_current_key(agents::by_key(tx, shown, now).await?.is_some()))
}

pub(super) async fn issue_key(tx: &Transaction<'_>, name: &AgentName, new: &NewKey) -> Result<Agent, Trouble> {
    let Some(agent) = agents::by_name(tx, name).await? else { return Err(words::no_agent(name).into()) };
    let update = tx
        .prepare_cached(
            "UPDATE agents SET api_key_hash = $2, api_key_prefix = $3, previous_key_hash = NULL,
                               previous_key_until = NULL WHERE id = $1 AND deleted_at IS NULL",
        )
        .await?;
    if tx.execute(&update, &[&agent.key.0, &new.hash.to_hex(), &new.prefix]).await? == 0 {
        return Err(words::no_agent(name).into());
    }
    replicas::keys_end(tx, agent.key).await?;
    Ok(agent)
}

pub(super) async fn delete_agent(
    tx: &Transaction<'_>,
    caller: &Agent,
    shown: KeyHash,
    now: Timestamp,
) -> Result<Written<()>, Trouble> {
    let mut told = consent::peers_of(tx, caller.key.0).await?;
    told.extend(tasks::sides_of_open(tx, caller.key.0).await?);
    told.extend(household::housemates(tx, caller.key.0).await?);
    told.push(caller.key.0);
    let mut heads = Heads::lock(tx, &told).await?;
    let mut told = consent::peers_of(tx, caller.key.0).await?;
    told.extend(tasks::sides_of_open(tx, caller.key.0).await?);
    told.extend(household::housemates(tx, caller.key.0).await?);
    if told.iter().any(|agent| !heads.holds(*agent)) {
        return Err(Trouble::Changed);
    }
    let mut pages = Pages::default();
    let mut news = tasks::end_tasks_of(tx, &mut pages, &mut heads, caller, now).await?;
    news.extend(consent::end_connections_of(tx, &mut pages, &mut heads, caller, now).await?);
    news.extend(household::tell_deleted(tx, &mut pages, &mut heads, caller, now).await?);
    pages.write(tx).await?.correct(&mut news);
    let update = tx
        .prepare_cached(
            "UPDATE agents SET api_key_hash = NULL, previous_key_hash = NULL, previous_key_until = NULL,
                               owner_contact = NULL, description = '', capabilities = '[]', deleted_at = $2,
                               household_id = NULL, household_token_id = NULL
             WHERE id = $1 AND api_key_hash = $3 AND deleted_at IS NULL",
        )
        .await?;
    // Decides: where a rotation or another removal was first, nothing of this transaction stays.
    if tx.execute(&update, &[&caller.key.0, &now, &shown.to_hex()]).await? == 0 {
        return Err(not_the_current_key(tx, shown, now).await?.into());
    }
    replicas::keys_end(tx, caller.key).await?;
    groups::leave_all(tx, caller.key.0).await?;
    Ok(Written { answer: (), news })
}
