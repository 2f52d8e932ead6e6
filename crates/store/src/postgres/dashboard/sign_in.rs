//! Who is signed in, and as what.

use amb_core::{AgentName, Timestamp};
use deadpool_postgres::Transaction;

use crate::dashboard::{Browser, HouseholdKey, MAX_BROWSERS, MAX_LINKS, SignIn, Viewer, key_hash};
use crate::engine::Failed;
use crate::error::Result;
use crate::postgres::engine::Reading;
use crate::refusals;
use crate::types::{Agent, AgentKey, KeyHash};
use crate::verbs::agent_named;

pub(super) async fn open_link(
    tx: &Transaction<'_>,
    agent: i64,
    key: KeyHash,
    link: SignIn,
    now: Timestamp,
) -> Result<(), Failed> {
    let delete = tx.prepare_cached("DELETE FROM dashboard_links WHERE agent_id = $1 AND until <= $2").await?;
    tx.execute(&delete, &[&agent, &now]).await?;
    let insert = tx
        .prepare_cached("INSERT INTO dashboard_links (hash, agent_id, key_hash, until) VALUES ($1, $2, $3, $4)")
        .await?;
    tx.execute(&insert, &[&link.hash.to_hex(), &agent, &key.to_hex(), &link.until]).await?;
    let bound = tx
        .prepare_cached(
            "DELETE FROM dashboard_links WHERE hash IN (
                 SELECT hash FROM dashboard_links WHERE agent_id = $1 ORDER BY until DESC OFFSET $2)",
        )
        .await?;
    tx.execute(&bound, &[&agent, &i64::from(MAX_LINKS)]).await?;
    Ok(())
}

pub(super) async fn use_link(
    tx: &Transaction<'_>,
    link: KeyHash,
    browser: SignIn,
    now: Timestamp,
) -> Result<bool, Failed> {
    let delete = tx
        .prepare_cached("DELETE FROM dashboard_links WHERE hash = $1 RETURNING agent_id, key_hash, until > $2")
        .await?;
    let found = tx.query_opt(&delete, &[&link.to_hex(), &now]).await?;
    let Some(found) = found.filter(|row| row.get(2)) else { return Ok(false) };
    let (agent, key): (i64, String) = (found.try_get(0)?, found.try_get(1)?);
    let delete = tx.prepare_cached("DELETE FROM dashboard_browsers WHERE agent_id = $1 AND until <= $2").await?;
    tx.execute(&delete, &[&agent, &now]).await?;
    let insert = tx
        .prepare_cached("INSERT INTO dashboard_browsers (hash, agent_id, key_hash, until) VALUES ($1, $2, $3, $4)")
        .await?;
    tx.execute(&insert, &[&browser.hash.to_hex(), &agent, &key, &browser.until]).await?;
    let bound = tx
        .prepare_cached(
            "DELETE FROM dashboard_browsers WHERE hash IN (
                 SELECT hash FROM dashboard_browsers WHERE agent_id = $1 ORDER BY until DESC OFFSET $2)",
        )
        .await?;
    tx.execute(&bound, &[&agent, &i64::from(MAX_BROWSERS)]).await?;
    Ok(true)
}

pub(super) async fn browser(tx: &Transaction<'_>, hash: KeyHash, now: Timestamp) -> Result<Option<Browser>, Failed> {
    let select = tx
        .prepare_cached("SELECT agent_id, key_hash, until FROM dashboard_browsers WHERE hash = $1 AND until > $2")
        .await?;
    let Some(row) = tx.query_opt(&select, &[&hash.to_hex(), &now]).await? else { return Ok(None) };
    Ok(Some(Browser { agent: AgentKey(row.try_get(0)?), key: key_hash(row.try_get(1)?)?, until: row.try_get(2)? }))
}

pub(super) async fn sign_out(tx: &Transaction<'_>, hash: KeyHash) -> Result<(), Failed> {
    let delete = tx.prepare_cached("DELETE FROM dashboard_browsers WHERE hash = $1").await?;
    tx.execute(&delete, &[&hash.to_hex()]).await?;
    Ok(())
}

pub(super) async fn viewer(tx: &Transaction<'_>, agent: &Agent) -> Result<Viewer, Failed> {
    let select = tx
        .prepare_cached(
            "SELECT CASE WHEN a.person THEN a.household_id END, EXISTS (SELECT FROM operators o WHERE o.agent_id = a.id),
                    (SELECT min(h.id) FROM households h)
             FROM agents a WHERE a.id = $1",
        )
        .await?;
    let row = tx.query_one(&select, &[&agent.key.0]).await?;
    let household: Option<i64> = row.try_get(0)?;
    let first: Option<i64> = row.try_get(2)?;
    Ok(Viewer {
        agent: agent.clone(),
        household: household.map(HouseholdKey),
        first_household: household.is_some() && household == first,
        operator: row.try_get(1)?,
    })
}

pub(super) async fn set_operator(
    tx: &Transaction<'_>,
    name: &AgentName,
    operator: bool,
    now: Timestamp,
) -> Result<(), Failed> {
    let Some(agent) = agent_named(&mut Reading(tx), name).await? else { return Err(refusals::no_agent(name).into()) };
    if operator {
        let insert =
            tx.prepare_cached("INSERT INTO operators (agent_id, since) VALUES ($1, $2) ON CONFLICT DO NOTHING").await?;
        tx.execute(&insert, &[&agent.key.0, &now]).await?;
    } else {
        let delete = tx.prepare_cached("DELETE FROM operators WHERE agent_id = $1").await?;
        tx.execute(&delete, &[&agent.key.0]).await?;
    }
    Ok(())
}
