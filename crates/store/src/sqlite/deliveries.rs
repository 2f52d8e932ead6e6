//! Marking what recipients did with their mail.

use amb_core::Timestamp;

use super::engine::each;
use super::plans::Prepared;
use super::writer::WriteTx;
use crate::engine::{FromRow, Mark, Marked, Row, Tried, values};

impl WriteTx {
    /// Marks what is not marked so yet.
    pub(super) fn mark(&mut self, agent: i64, places: &[i64], mark: Mark, now: Timestamp) -> Tried<Vec<Marked>> {
        let sql = match mark {
            Mark::Read => {
                "UPDATE deliveries SET read_at = ?3, delivered_at = coalesce(delivered_at, ?3), lease_until = NULL
                 WHERE message_id = ?1 AND agent_id = ?2 AND read_at IS NULL"
            }
            Mark::Rung => {
                "UPDATE deliveries SET rung_at = ?3
                 WHERE message_id = ?1 AND agent_id = ?2 AND rung_at IS NULL AND read_at IS NULL"
            }
            Mark::Delivered => {
                "UPDATE deliveries SET delivered_at = ?3 WHERE message_id = ?1 AND agent_id = ?2 AND delivered_at IS NULL"
            }
        };
        let mut marked = Vec::with_capacity(places.len());
        for place in places {
            if self.db.prepared(sql)?.execute([*place, agent, now.as_microsecond()])? == 0 {
                continue;
            }
            if mark == Mark::Read {
                let sql = "UPDATE session_members SET unread = unread - 1
                           WHERE agent_id = ?1 AND session_id = (SELECT session_id FROM messages WHERE id = ?2)";
                self.db.prepared(sql)?.execute([agent, *place])?;
                self.changed.agent(agent);
            }
            let sql = "SELECT m.public_id, m.sender_id, m.created_at, d.delivered_at, d.read_at, d.rung_at
                       FROM messages m JOIN deliveries d ON d.message_id = m.id WHERE m.id = $1 AND d.agent_id = $2";
            let mut keep = |mut row: Row<'_>| {
                marked.push(Marked::from_row(&mut row)?);
                Ok(true)
            };
            each(&self.db, sql, values![*place, agent], &mut keep)?;
        }
        Ok(marked)
    }
}
