//! Agents that a resident wrote to first: they may answer even if its card names only `*`.
//!
//! A pair is stored with the row of its first message, and stays when that row is deleted.

use amb_core::AgentName;
use rusqlite::{Connection, params};

use super::{CrossingLedger, CrossingState, Result};

/// Creates the table and fills it from earlier crossings.
pub(super) fn create(db: &Connection) -> rusqlite::Result<()> {
    if db.table_exists(None, "contacts")? {
        return Ok(());
    }
    db.execute_batch(
        "BEGIN;
         CREATE INDEX IF NOT EXISTS crossings_pair ON crossings (inward, sender, recipient);
         CREATE TABLE contacts (number INTEGER PRIMARY KEY, resident TEXT NOT NULL, guest TEXT NOT NULL,
                                UNIQUE (resident, guest)) STRICT;
         INSERT INTO contacts (resident, guest)
         SELECT sender, recipient FROM crossings AS o
         WHERE inward = 0 AND office_id IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM crossings AS i
                           WHERE i.inward = 1 AND i.sender = o.recipient AND i.recipient = o.sender
                             AND i.number < o.number AND i.state <> 4)
         GROUP BY sender, recipient;
         COMMIT;",
    )
}

/// Stores that a resident wrote to a guest first, unless the guest had written before.
pub(super) fn record(db: &Connection, resident: &AgentName, guest: &AgentName) -> rusqlite::Result<()> {
    let (resident, guest) = (resident.as_str(), guest.as_str());
    db.prepare_cached(
        "INSERT INTO contacts (resident, guest)
         SELECT ?1, ?2
         WHERE NOT EXISTS (SELECT 1 FROM contacts WHERE resident = ?1 AND guest = ?2)
           AND NOT EXISTS (SELECT 1 FROM crossings WHERE inward = 1 AND sender = ?2 AND recipient = ?1 AND state <> ?3)",
    )?
    .execute(params![resident, guest, CrossingState::Refused as i64])
    .map(drop)
}

impl CrossingLedger {
    /// Whether the resident wrote to this agent of the office first.
    pub(crate) async fn is_contact(&self, resident: &AgentName, guest: &AgentName) -> Result<bool> {
        let (resident, guest) = (resident.clone(), guest.clone());
        self.run(move |db| {
            db.prepare_cached("SELECT 1 FROM contacts WHERE resident = ?1 AND guest = ?2")?
                .exists([resident.as_str(), guest.as_str()])
        })
        .await
    }

    /// Returns at most `max` residents and the agents that they wrote to first, newest first.
    pub(crate) async fn contacts(&self, max: usize) -> Result<Vec<(AgentName, AgentName)>> {
        let rows: Vec<(String, String)> = self
            .run(move |db| {
                let mut select =
                    db.prepare_cached("SELECT resident, guest FROM contacts ORDER BY number DESC LIMIT ?1")?;
                let rows =
                    select.query_map([i64::try_from(max).unwrap_or(i64::MAX)], |row| Ok((row.get(0)?, row.get(1)?)))?;
                rows.collect()
            })
            .await?;
        let parsed =
            rows.into_iter().filter_map(|(resident, guest)| Some((resident.parse().ok()?, guest.parse().ok()?)));
        Ok(parsed.collect())
    }
}
