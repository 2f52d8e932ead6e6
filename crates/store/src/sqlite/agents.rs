//! Agents and their keys.

use std::sync::Arc;

use amb_core::{AgentName, Card, Consent};
use futures_util::FutureExt;
use rusqlite::OptionalExtension;

use super::cache::Peer;
use super::engine::now as run;
use super::error::failed;
use super::plans::Prepared;
use super::writer::WriteTx;
use crate::error::Result;
use crate::row;
use crate::verbs::{agent_named, consent, pair};

impl WriteTx {
    /// The agent of this name, for sending to it. Deleted agents are found too, and say so.
    pub(super) fn peer(&mut self, name: &AgentName) -> Result<Option<Peer>> {
        if let Some(peer) = self.caches.peers.get(name) {
            return Ok(Some(peer.clone()));
        }
        let found = self
            .db
            .prepared(
                "SELECT id, description, capabilities, allow_from, max_concurrent_tasks, deleted_at IS NOT NULL,
                        paused_by IS NOT NULL
                 FROM agents WHERE name = ?1",
            )
            .and_then(|mut select| {
                select
                    .query_row([name.as_str()], |row| {
                        let card: (String, String, String, u32) = (row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?);
                        Ok((row.get(0)?, card, row.get(5)?, row.get(6)?))
                    })
                    .optional()
            })
            .map_err(failed)?;
        let Some((id, (description, capabilities, allow_from, max_concurrent_tasks), deleted, paused)) = found else {
            // Remembered under its own name alone, by which it is forgotten when its card changes.
            return match run(agent_named(self, name).boxed())? {
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
        let peer = Peer { id, name: name.clone(), card: Arc::new(card), deleted, paused };
        self.caches.peers.put(name.clone(), peer.clone());
        Ok(Some(peer))
    }

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
