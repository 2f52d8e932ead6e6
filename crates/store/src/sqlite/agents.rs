//! Agents and their keys.

use std::sync::Arc;

use amb_core::{AgentName, Card, Consent, Timestamp};
use futures_util::FutureExt;
use rusqlite::{Connection, OptionalExtension};
use uuid::Uuid;

use super::cache::Peer;
use super::engine::now as run;
use super::error::failed;
use super::keys::{maybe_instant_at, uuid_at};
use super::plans::Prepared;
use super::writer::WriteTx;
use crate::error::Result;
use crate::row;
use crate::types::{Agent, AgentKey, KeyHash};
use crate::verbs::{consent, pair};

impl WriteTx {
    /// The agent of this name, for sending to it. Deleted agents are found too, and say so.
    pub(super) fn peer(&mut self, name: &AgentName) -> Result<Option<Peer>> {
        if let Some(peer) = self.caches.peers.get(name) {
            return Ok(Some(peer.clone()));
        }
        let found = self
            .db
            .prepared(
                "SELECT id, description, capabilities, allow_from, max_concurrent_tasks, deleted_at IS NOT NULL
                 FROM agents WHERE name = ?1",
            )
            .and_then(|mut select| {
                select
                    .query_row([name.as_str()], |row| {
                        let card: (String, String, String, u32) = (row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?);
                        Ok((row.get(0)?, card, row.get(5)?))
                    })
                    .optional()
            })
            .map_err(failed)?;
        let Some((id, (description, capabilities, allow_from, max_concurrent_tasks), deleted)) = found else {
            // Remembered under its own name alone, by which it is forgotten when its card changes.
            return match by_name(&self.db, name)? {
                Some(like) => self.peer(&like.name),
                None => Ok(None),
            };
        };
        let card = Card {
            description,
            capabilities: row::parse(Some(capabilities))?.unwrap_or_default(),
            allow_from: row::parse(Some(allow_from))?.unwrap_or_default(),
            max_concurrent_tasks,
        };
        let peer = Peer { id, name: name.clone(), card: Arc::new(card), deleted };
        self.caches.peers.put(name.clone(), peer.clone());
        Ok(Some(peer))
    }
}

impl WriteTx {
    /// What decides whether these two may write to each other.
    pub(super) fn consent(&mut self, a: i64, b: i64) -> Result<Consent> {
        let pair = pair(a, b);
        if let Some(consent) = self.caches.consent.get(&pair) {
            return Ok(*consent);
        }
        let consent = run(consent(self, a, b).boxed())?;
        self.caches.consent.put(pair, consent);
        Ok(consent)
    }
}

/// Whose key this is, and until when, where that is limited.
pub(super) fn by_key(db: &Connection, hash: KeyHash, now: Timestamp) -> Result<Option<(Agent, Option<Timestamp>)>> {
    let hex = hash.to_hex();
    let current = db
        .prepared("SELECT id, public_id, name FROM agents WHERE api_key_hash = ?1")
        .and_then(|mut select| {
            select.query_row([&hex], |row| Ok((row.get(0)?, uuid_at(row, 1)?, row.get(2)?))).optional()
        })
        .map_err(failed)?;
    if let Some(found) = current {
        return Ok(Some((agent(found)?, None)));
    }
    let previous = db
        .prepared("SELECT id, public_id, name, previous_key_until FROM agents WHERE previous_key_hash = ?1")
        .and_then(|mut select| {
            select
                .query_row([&hex], |row| Ok(((row.get(0)?, uuid_at(row, 1)?, row.get(2)?), maybe_instant_at(row, 3)?)))
                .optional()
        })
        .map_err(failed)?;
    match previous {
        Some((found, Some(until))) if now < until => Ok(Some((agent(found)?, Some(until)))),
        _ => Ok(None),
    }
}

/// The agent that this name means, unless it was deleted.
pub(super) fn by_name(db: &Connection, name: &AgentName) -> Result<Option<Agent>> {
    let found: Vec<(i64, Uuid, String)> = db
        .prepared("SELECT id, public_id, name FROM agents WHERE lower(name) = ?1 AND deleted_at IS NULL")
        .and_then(|mut select| {
            select
                .query_map([name.folded()], |row| Ok((row.get(0)?, uuid_at(row, 1)?, row.get(2)?)))
                .and_then(Iterator::collect)
        })
        .map_err(failed)?;
    name.meant(found, |(_, _, name)| name).map(agent).transpose()
}

/// The row of the agent that this name means, even if it was deleted: its mail is still there.
pub(super) fn row_of(db: &Connection, name: &AgentName) -> Result<Option<i64>> {
    let found: Vec<(i64, String)> = db
        .prepared("SELECT id, name FROM agents WHERE lower(name) = ?1")
        .and_then(|mut select| {
            select.query_map([name.folded()], |row| Ok((row.get(0)?, row.get(1)?))).and_then(Iterator::collect)
        })
        .map_err(failed)?;
    Ok(name.meant(found, |(_, name)| name).map(|(id, _)| id))
}

fn agent((key, id, name): (i64, Uuid, String)) -> Result<Agent> {
    Ok(Agent { key: AgentKey(key), id, name: row::name(&name)?, once: None })
}
