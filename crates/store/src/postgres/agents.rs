//! Agents and their keys.

use amb_core::{AgentName, Timestamp};
use deadpool_postgres::{GenericClient, Transaction};
use tokio_postgres::Row;

use super::error::{Trouble, failed, is_taken};
use super::{groups, household};
use crate::error::Result;
use crate::outgoing::json;
use crate::row;
use crate::types::{Agent, AgentKey, KeyHash, NewAgent, Written};
use crate::words;

pub(super) async fn register(tx: &Transaction<'_>, new: &NewAgent, now: Timestamp) -> Result<Written<Agent>, Trouble> {
    // Names of agents and of groups are one space.
    groups::lock_names(tx).await?;
    let seat = match new.join {
        Some(join) => Some(household::seat(tx, join).await?),
        None => None,
    };
    if groups::is_group(tx, &new.name).await? || is_agent(tx, &new.name).await? {
        return Err(words::name_taken(&new.name).into());
    }
    let id = amb_core::id::fresh_uuid(now);
    let insert = tx
        .prepare_cached(
            "WITH made AS (
                 INSERT INTO agents (public_id, name, api_key_hash, api_key_prefix, owner_contact, description,
                                     capabilities, allow_from, max_concurrent_tasks, created_at, household_id,
                                     household_token_id, person)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) RETURNING id
             )
             INSERT INTO mailboxes (agent_id) SELECT id FROM made RETURNING agent_id",
        )
        .await?;
    let card = &new.card;
    let inserted = tx
        .query_one(
            &insert,
            &[
                &id,
                &new.name.as_str(),
                &new.key_hash.to_hex(),
                &new.key_prefix,
                &new.owner_contact,
                &card.description,
                &json(&card.capabilities)?,
                &json(&card.allow_from)?,
                &i64::from(card.max_concurrent_tasks),
                &now,
                &seat.as_ref().map(|seat| seat.token.household),
                &seat.as_ref().map(|seat| seat.token.id),
                &seat.as_ref().is_some_and(|seat| seat.as_person),
            ],
        )
        .await;
    let agent = match inserted {
        Ok(row) => Agent { key: AgentKey(row.try_get(0)?), id, name: new.name.clone(), once: None },
        Err(error) if is_taken(&error) => return Err(words::name_taken(&new.name).into()),
        Err(error) => return Err(error.into()),
    };
    let news = match &seat {
        Some(seat) => household::tell_joined(tx, seat, &agent.name, now).await?,
        None => Vec::new(),
    };
    Ok(Written { answer: agent, news })
}

/// Whose key this is, and until when, where that is limited.
pub(super) async fn by_key<C: GenericClient>(
    client: &C,
    hash: KeyHash,
    now: Timestamp,
) -> Result<Option<(Agent, Option<Timestamp>)>> {
    let select = client
        .prepare_cached(
            "SELECT id, public_id, name, NULL::timestamptz FROM agents WHERE api_key_hash = $1
             UNION ALL
             SELECT id, public_id, name, previous_key_until FROM agents
             WHERE previous_key_hash = $1 AND previous_key_until > $2",
        )
        .await
        .map_err(failed)?;
    let row = client.query_opt(&select, &[&hash.to_hex(), &now]).await.map_err(failed)?;
    row.map(|row| Ok((agent(&row)?, row.try_get(3).map_err(failed)?))).transpose()
}

/// Whether an agent has this name or one like it.
pub(super) async fn is_agent(tx: &Transaction<'_>, name: &AgentName) -> Result<bool, Trouble> {
    let select = tx.prepare_cached("SELECT 1 FROM agents WHERE lower(name) = $1 LIMIT 1").await?;
    Ok(tx.query_opt(&select, &[&name.folded()]).await?.is_some())
}

/// The agent that this name means, unless it was deleted.
pub(super) async fn by_name<C: GenericClient>(client: &C, name: &AgentName) -> Result<Option<Agent>> {
    let select = client
        .prepare_cached("SELECT id, public_id, name FROM agents WHERE lower(name) = $1 AND deleted_at IS NULL")
        .await
        .map_err(failed)?;
    let rows = client.query(&select, &[&name.folded()]).await.map_err(failed)?;
    let found = rows.iter().map(agent).collect::<Result<Vec<_>>>()?;
    Ok(name.meant(found, |agent| agent.name.as_str()))
}

/// The row of the agent that this name means, even if it was deleted: its mail is still there.
pub(super) async fn row_of<C: GenericClient>(client: &C, name: &AgentName) -> Result<Option<i64>, Trouble> {
    let select = client.prepare_cached("SELECT id, name FROM agents WHERE lower(name) = $1").await?;
    let rows = client.query(&select, &[&name.folded()]).await?;
    let found: Vec<(i64, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    Ok(name.meant(found, |(_, name)| name).map(|(id, _)| id))
}

fn agent(row: &Row) -> Result<Agent> {
    Ok(Agent {
        key: AgentKey(row.try_get(0).map_err(failed)?),
        id: row.try_get(1).map_err(failed)?,
        name: row::name(row.try_get(2).map_err(failed)?)?,
        once: None,
    })
}
