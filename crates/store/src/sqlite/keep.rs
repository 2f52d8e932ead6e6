//! Removing old mail.

use amb_core::Timestamp;
use rusqlite::{Connection, OptionalExtension};

use super::error::failed;
use super::keys::instant_at;
use super::messages::undelivered;
use super::plans::Prepared;
use super::usage::message_bytes;
use super::writer::WriteTx;
use crate::error::Result;
use crate::query::ReadPlace;
use crate::quota::{Charges, Stored};

/// Deliveries looked at in one go.
const SOME: i64 = 500;

/// Messages that all their recipients read before a moment, among some deliveries after a place; and where to continue. What is
/// found stays removable: nothing becomes unread again, the newest of its session again, or an open task again.
pub(super) fn old_mail(
    db: &Connection,
    before: Timestamp,
    from: Option<ReadPlace>,
) -> Result<(Vec<i64>, Option<ReadPlace>)> {
    let from = from.map_or((i64::MIN, 0, 0), |from| (from.at.as_microsecond(), from.agent, from.number));
    let mut select = db
        .prepared(
            "SELECT e.read_at, e.agent_id, e.number, e.message_id,
                    EXISTS (SELECT 1 FROM messages n WHERE n.session_id = m.session_id AND n.id > m.id)
                    AND NOT EXISTS (SELECT 1 FROM deliveries o WHERE o.message_id = m.id
                                    AND (o.read_at IS NULL OR o.read_at >= ?1))
                    AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.message_id = m.id
                                    AND t.state IN ('pending', 'accepted', 'working'))
             FROM deliveries e JOIN messages m ON m.id = e.message_id
             WHERE e.read_at IS NOT NULL AND e.read_at < ?1 AND (e.read_at, e.agent_id, e.number) > (?2, ?3, ?4)
             ORDER BY e.read_at, e.agent_id, e.number LIMIT ?5",
        )
        .map_err(failed)?;
    let rows = select.query_map([before.as_microsecond(), from.0, from.1, from.2, SOME], |row| {
        let place = ReadPlace { at: instant_at(row, 0)?, agent: row.get(1)?, number: row.get(2)? };
        Ok((place, row.get(3)?, row.get(4)?))
    });
    let rows: Vec<(ReadPlace, i64, bool)> = rows.and_then(Iterator::collect).map_err(failed)?;
    let next = rows.last().filter(|_| rows.len() == SOME as usize).map(|(place, ..)| *place);
    let mut old: Vec<i64> = rows.iter().filter(|(.., old)| *old).map(|(_, message, _)| *message).collect();
    // A group's message is found once for each who got it.
    old.sort_unstable();
    old.dedup();
    Ok((old, next))
}

impl WriteTx {
    /// Removes messages and their deliveries. The rejection of a task that went to nobody was charged to the task's sender,
    /// whose own message is never removed: nobody can read it.
    pub(super) fn remove_mail(&mut self, old: &[i64]) -> Result<u64> {
        let (mut gone, mut freed) = (0, Charges::new());
        for message in old {
            let removed: Option<(i64, i64)> = self
                .db
                .prepared(concat!(
                    "DELETE FROM messages WHERE id = ?1
                     RETURNING iif(kind = 'task_update' AND EXISTS (
                         SELECT 1 FROM messages n WHERE n.public_id = messages.reply_to AND ",
                    undelivered!("n"),
                    "), (SELECT agent_id FROM deliveries WHERE message_id = ?1), sender_id), ",
                    message_bytes!("messages")
                ))
                .and_then(|mut delete| delete.query_row([message], |row| Ok((row.get(0)?, row.get(1)?))).optional())
                .map_err(failed)?;
            let deliveries: Vec<(i64, i64)> = self
                .db
                .prepared("DELETE FROM deliveries WHERE message_id = ?1 RETURNING agent_id, number")
                .and_then(|mut delete| {
                    delete.query_map([message], |row| Ok((row.get(0)?, row.get(1)?))).and_then(Iterator::collect)
                })
                .map_err(failed)?;
            if let Some((payer, bytes)) = removed {
                gone += 1;
                let messages = i64::try_from(deliveries.len().max(1)).unwrap_or(0);
                *freed.entry(payer).or_default() += -Stored { messages, bytes };
            }
            for (agent, number) in deliveries {
                self.keep_floor(agent, number)?;
            }
        }
        self.charge_all(freed)?;
        Ok(gone)
    }
    /// Notes that an entry of a log is removed: its number is never given again.
    fn keep_floor(&self, agent: i64, number: i64) -> Result<()> {
        self.db
            .prepared("UPDATE agents SET log_floor = ?2 WHERE id = ?1 AND log_floor < ?2")
            .and_then(|mut update| update.execute([agent, number]))
            .map_err(failed)
            .map(drop)
    }
}
