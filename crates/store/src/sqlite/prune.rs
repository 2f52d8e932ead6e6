//! Removing what nobody will ask for again.

use amb_core::Timestamp;
use rusqlite::params;

use super::error::failed;
use super::keys::{owner_of, place_of};
use super::plans::Prepared;
use super::writer::Desk;
use crate::error::Result;

/// Rows in one transaction, so that sends do not wait for a long one.
const SOME: i64 = 500;

impl Desk {
    pub(super) fn prune(&mut self, before: Timestamp) -> Result<u64> {
        let before = before.as_microsecond();
        let mut select = self
            .db
            .prepared("SELECT id FROM entries WHERE message_id IS NULL AND at < ?1 ORDER BY at LIMIT ?2")
            .map_err(failed)?;
        let old: Vec<i64> =
            select.query_map([before, SOME], |row| row.get(0)).and_then(Iterator::collect).map_err(failed)?;
        drop(select);
        for id in &old {
            self.db
                .prepared("UPDATE agents SET log_floor = max(log_floor, ?2) WHERE id = ?1")
                .and_then(|mut update| update.execute([owner_of(*id), place_of(*id)]))
                .map_err(failed)?;
            self.db
                .prepared("DELETE FROM entries WHERE id = ?1")
                .and_then(|mut delete| delete.execute([id]))
                .map_err(failed)?;
        }
        let answers = self
            .db
            .prepared(
                "DELETE FROM idempotency WHERE (agent_id, key) IN
                 (SELECT agent_id, key FROM idempotency WHERE created_at < ?1 ORDER BY created_at LIMIT ?2)",
            )
            .and_then(|mut delete| delete.execute(params![before, SOME]))
            .map_err(failed)?;
        Ok((old.len() + answers) as u64)
    }
}
