//! Removing what nobody will ask for again.

use amb_core::Timestamp;
use rusqlite::params;

use super::error::failed;
use super::plans::Prepared;
use super::writer::WriteTx;
use crate::error::Result;

/// Rows in one transaction, so that sends do not wait for a long one.
const SOME: i64 = 500;

impl WriteTx {
    pub(super) fn prune(&mut self, before: Timestamp) -> Result<u64> {
        let before = before.as_microsecond();
        let old: Vec<(i64, i64, i64)> = self
            .db
            .prepared("SELECT id, agent_id, number FROM events WHERE at < ?1 ORDER BY at LIMIT ?2")
            .and_then(|mut select| {
                let rows = select.query_map([before, SOME], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
                rows.collect()
            })
            .map_err(failed)?;
        for (id, agent, number) in &old {
            self.keep_floor(*agent, *number)?;
            self.db
                .prepared("DELETE FROM events WHERE id = ?1")
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

    /// Notes that an entry of a log is removed: its number is never given again.
    pub(super) fn keep_floor(&self, agent: i64, number: i64) -> Result<()> {
        self.db
            .prepared("UPDATE agents SET log_floor = ?2 WHERE id = ?1 AND log_floor < ?2")
            .and_then(|mut update| update.execute([agent, number]))
            .map_err(failed)
            .map(drop)
    }
}
