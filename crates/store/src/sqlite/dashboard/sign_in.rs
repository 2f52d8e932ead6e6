//! Who is signed in, and as what.

use amb_core::{AgentName, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use crate::dashboard::{Browser, HouseholdKey, MAX_BROWSERS, MAX_LINKS, SignIn, Viewer, key_hash};
use crate::error::Result;
use crate::refusals;
use crate::sqlite::agents;
use crate::sqlite::error::failed;
use crate::sqlite::keys::instant;
use crate::sqlite::plans::Prepared;
use crate::types::{Agent, AgentKey, KeyHash};

pub(super) fn open_link(db: &Connection, agent: i64, key: KeyHash, link: SignIn, now: Timestamp) -> Result<()> {
    db.prepared("DELETE FROM dashboard_links WHERE agent_id = ?1 AND until <= ?2")
        .and_then(|mut delete| delete.execute([agent, now.as_microsecond()]))
        .and_then(|_| {
            db.prepared("INSERT INTO dashboard_links (hash, agent_id, key_hash, until) VALUES (?1, ?2, ?3, ?4)")?
                .execute(params![link.hash.to_hex(), agent, key.to_hex(), link.until.as_microsecond()])
        })
        .and_then(|_| {
            db.prepared(
                "DELETE FROM dashboard_links WHERE hash IN (
                     SELECT hash FROM dashboard_links WHERE agent_id = ?1 ORDER BY until DESC LIMIT -1 OFFSET ?2)",
            )?
            .execute([agent, MAX_LINKS.into()])
        })
        .map(drop)
        .map_err(failed)
}

pub(super) fn use_link(db: &Connection, link: KeyHash, browser: SignIn, now: Timestamp) -> Result<bool> {
    let found: Option<(i64, String)> = db
        .prepared("DELETE FROM dashboard_links WHERE hash = ?1 RETURNING agent_id, key_hash, until")
        .and_then(|mut delete| {
            delete.query_row([link.to_hex()], |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)?))).optional()
        })
        .map_err(failed)?
        .filter(|(_, _, until)| *until > now.as_microsecond())
        .map(|(agent, key, _)| (agent, key));
    let Some((agent, key)) = found else { return Ok(false) };
    db.prepared("DELETE FROM dashboard_browsers WHERE agent_id = ?1 AND until <= ?2")
        .and_then(|mut delete| delete.execute([agent, now.as_microsecond()]))
        .and_then(|_| {
            db.prepared("INSERT INTO dashboard_browsers (hash, agent_id, key_hash, until) VALUES (?1, ?2, ?3, ?4)")?
                .execute(params![browser.hash.to_hex(), agent, key, browser.until.as_microsecond()])
        })
        .and_then(|_| {
            db.prepared(
                "DELETE FROM dashboard_browsers WHERE hash IN (
                     SELECT hash FROM dashboard_browsers WHERE agent_id = ?1 ORDER BY until DESC LIMIT -1 OFFSET ?2)",
            )?
            .execute([agent, MAX_BROWSERS.into()])
        })
        .map_err(failed)?;
    Ok(true)
}

pub(super) fn browser(db: &Connection, hash: KeyHash, now: Timestamp) -> Result<Option<Browser>> {
    let found: Option<(i64, String, i64)> = db
        .prepared("SELECT agent_id, key_hash, until FROM dashboard_browsers WHERE hash = ?1 AND until > ?2")
        .and_then(|mut select| {
            let values = params![hash.to_hex(), now.as_microsecond()];
            select.query_row(values, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()
        })
        .map_err(failed)?;
    let browser = |(agent, key, until): (i64, String, i64)| {
        Ok(Browser { agent: AgentKey(agent), key: key_hash(&key)?, until: instant(until) })
    };
    found.map(browser).transpose()
}

pub(super) fn sign_out(db: &Connection, hash: KeyHash) -> Result<()> {
    db.prepared("DELETE FROM dashboard_browsers WHERE hash = ?1")
        .and_then(|mut delete| delete.execute([hash.to_hex()]))
        .map(drop)
        .map_err(failed)
}

pub(super) fn viewer(db: &Connection, agent: &Agent) -> Result<Viewer> {
    let (household, operator, first): (Option<i64>, bool, Option<i64>) = db
        .prepared(
            "SELECT iif(a.person, a.household_id, NULL), EXISTS (SELECT 1 FROM operators o WHERE o.agent_id = a.id),
                    (SELECT min(h.id) FROM households h)
             FROM agents a WHERE a.id = ?1",
        )
        .and_then(|mut select| select.query_row([agent.key.0], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))))
        .map_err(failed)?;
    Ok(Viewer {
        agent: agent.clone(),
        household: household.map(HouseholdKey),
        first_household: household.is_some() && household == first,
        operator,
    })
}

pub(super) fn set_operator(db: &Connection, name: &AgentName, operator: bool, now: Timestamp) -> Result<()> {
    let Some(agent) = agents::by_name(db, name)? else { return Err(refusals::no_agent(name)) };
    let changed = match operator {
        true => db
            .prepared("INSERT INTO operators (agent_id, since) VALUES (?1, ?2) ON CONFLICT DO NOTHING")
            .and_then(|mut insert| insert.execute([agent.key.0, now.as_microsecond()])),
        false => db
            .prepared("DELETE FROM operators WHERE agent_id = ?1")
            .and_then(|mut delete| delete.execute([agent.key.0])),
    };
    changed.map(drop).map_err(failed)
}
