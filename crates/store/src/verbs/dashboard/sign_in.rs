//! Sign-in links, browser sessions, and operators.

use amb_core::{AgentName, Timestamp};

use super::types::{Browser, HouseholdKey, SignIn, Viewer};
use crate::engine::{Db, Query, Tried, Tx, values};
use crate::error::Result;
use crate::types::{Agent, AgentKey, KeyHash, to_micros};
use crate::verbs::agents::agent_named;
use crate::{StoreError, refusals};

/// A table of links or browsers.
struct SignInTable {
    name: &'static str,
    /// Most rows of one person; beyond this the one that ends first is deleted.
    most: u32,
}

const LINKS: SignInTable = SignInTable { name: "dashboard_links", most: 8 };
const BROWSERS: SignInTable = SignInTable { name: "dashboard_browsers", most: 32 };

pub(super) async fn open_link(tx: &mut dyn Tx, agent: i64, key: KeyHash, link: SignIn, now: Timestamp) -> Tried<()> {
    add(tx, LINKS, agent, &key.to_hex(), link, now).await
}

async fn add(tx: &mut dyn Tx, to: SignInTable, agent: i64, key: &str, new: SignIn, now: Timestamp) -> Tried<()> {
    let SignInTable { name, most } = to;
    tx.execute(&format!("DELETE FROM {name} WHERE agent_id = $1 AND until <= $2"), values![agent, now]).await?;
    let insert = format!("INSERT INTO {name} (hash, agent_id, key_hash, until) VALUES ($1, $2, $3, $4)");
    tx.execute(&insert, values![&new.hash.to_hex(), agent, key, to_micros(new.until)]).await?;
    let bound = format!(
        "DELETE FROM {name} WHERE hash IN (
             SELECT hash FROM {name} WHERE agent_id = $1 ORDER BY until DESC LIMIT 1000 OFFSET {most})"
    );
    tx.execute(&bound, values![agent]).await.map(drop)
}

pub(super) async fn use_link(tx: &mut dyn Tx, link: KeyHash, browser: SignIn, now: Timestamp) -> Tried<bool> {
    let sql = "DELETE FROM dashboard_links WHERE hash = $1 RETURNING agent_id, key_hash, until";
    let found: Option<(i64, String, Timestamp)> = tx.find(sql, values![&link.to_hex()]).await?;
    let Some((agent, key, _)) = found.filter(|(_, _, until)| *until > now) else { return Ok(false) };
    add(tx, BROWSERS, agent, &key, browser, now).await?;
    Ok(true)
}

pub(super) async fn browser(db: &mut dyn Db, hash: KeyHash, now: Timestamp) -> Tried<Option<Browser>> {
    let sql = "SELECT agent_id, key_hash, until FROM dashboard_browsers WHERE hash = $1 AND until > $2";
    let found: Option<(i64, String, Timestamp)> = db.find(sql, values![&hash.to_hex(), now]).await?;
    let browser = |(agent, key, until): (i64, String, Timestamp)| -> Result<Browser> {
        Ok(Browser { agent: AgentKey(agent), key: key_hash(&key)?, until })
    };
    Ok(found.map(browser).transpose()?)
}

/// Parses a key hash, which is stored as hex.
fn key_hash(hex: &str) -> Result<KeyHash> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(hex, &mut bytes).map_err(StoreError::internal)?;
    Ok(KeyHash(bytes))
}

pub(super) async fn sign_out(tx: &mut dyn Tx, hash: KeyHash) -> Tried<()> {
    tx.execute("DELETE FROM dashboard_browsers WHERE hash = $1", values![&hash.to_hex()]).await.map(drop)
}

pub(super) async fn viewer(db: &mut dyn Db, agent: &Agent) -> Tried<Viewer> {
    let sql = "SELECT CASE WHEN a.person THEN a.household_id END,
                      EXISTS (SELECT 1 FROM operators o WHERE o.agent_id = a.id), (SELECT min(h.id) FROM households h)
               FROM agents a WHERE a.id = $1";
    let (household, operator, first): (Option<i64>, bool, Option<i64>) = db.one(sql, values![agent.key.0]).await?;
    Ok(Viewer {
        agent: agent.clone(),
        household: household.map(HouseholdKey),
        first_household: household.is_some() && household == first,
        operator,
    })
}

pub(super) async fn set_operator(tx: &mut dyn Tx, name: &AgentName, operator: bool, now: Timestamp) -> Tried<()> {
    let agent = agent_named(tx, name).await?.ok_or_else(|| refusals::no_agent(name))?.key.0;
    if !operator {
        return tx.execute("DELETE FROM operators WHERE agent_id = $1", values![agent]).await.map(drop);
    }
    let sql = "INSERT INTO operators (agent_id, since) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    tx.execute(sql, values![agent, now]).await.map(drop)
}
