//! Keeping mail: removing old mail, and taking one's own along.

use amb_core::Timestamp;
use amb_core::doc::MessageWithReceipts;
use rusqlite::{Connection, OptionalExtension};
use uuid::Uuid;

use super::error::failed;
use super::keys::{instant, owner_of, place_of, range, row, uuid_at};
use super::messages::find;
use super::plans::Prepared;
use super::receipts::with_receipts;
use super::usage::message_bytes;
use super::writer::Desk;
use crate::budget::Budget;
use crate::error::Result;
use crate::query::ReadPlace;
use crate::quota::{Charges, Stored};
use crate::types::Agent;

/// Entries looked at in one go.
const SOME: i64 = 500;

/// Messages that everybody they went to read before a moment, among some entries after a place; and where to go on. What
/// is found here stays so: nothing becomes unread, the newest again, or a task that is not done.
pub(super) fn old_mail(
    db: &Connection,
    before: Timestamp,
    from: Option<ReadPlace>,
) -> Result<(Vec<i64>, Option<ReadPlace>)> {
    let from = from.map_or((i64::MIN, 0), |from| (from.at.as_microsecond(), row(from.agent, from.number)));
    let mut select = db
        .prepared(
            "SELECT e.read_at, e.id, e.message_id,
                    EXISTS (SELECT 1 FROM messages n WHERE n.id > e.message_id AND n.id <= (e.message_id | 4294967295))
                    AND NOT EXISTS (SELECT 1 FROM copies c JOIN entries o ON o.id = c.entry_id
                                    WHERE c.message_id = e.message_id AND (o.read_at IS NULL OR o.read_at >= ?1))
                    AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.message_id = e.message_id
                                    AND t.state IN ('pending', 'accepted', 'working'))
             FROM entries e
             WHERE e.read_at IS NOT NULL AND e.read_at < ?1 AND (e.read_at, e.id) > (?2, ?3)
             ORDER BY e.read_at, e.id LIMIT ?4",
        )
        .map_err(failed)?;
    let rows = select.query_map([before.as_microsecond(), from.0, from.1, SOME], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
    });
    let rows: Vec<(i64, i64, Option<i64>, bool)> = rows.and_then(Iterator::collect).map_err(failed)?;
    let last = rows.last().filter(|_| rows.len() == SOME as usize);
    let next = last.map(|(at, id, ..)| ReadPlace { at: instant(*at), agent: owner_of(*id), number: place_of(*id) });
    let mut old: Vec<i64> = rows.iter().filter(|(.., old)| *old).filter_map(|(_, _, message, _)| *message).collect();
    // A group's message is found once for each who got it.
    old.sort_unstable();
    old.dedup();
    Ok((old, next))
}

impl Desk {
    /// Removes messages and the entries that delivered them. The rejection of a task that went to nobody was charged to the
    /// task's sender, whose own message is never removed: nobody can read it.
    pub(super) fn remove_mail(&mut self, old: &[i64]) -> Result<u64> {
        let (mut gone, mut freed) = (0, Charges::new());
        for message in old {
            let mut entries: Vec<i64> = self
                .db
                .prepared("SELECT entry_id FROM copies WHERE message_id = ?1")
                .and_then(|mut select| select.query_map([message], |row| row.get(0)).and_then(Iterator::collect))
                .map_err(failed)?;
            let removed: Option<(Option<i64>, i64, i64)> = self
                .db
                .prepared(concat!(
                    "DELETE FROM messages WHERE id = ?1
                     RETURNING delivery_id, iif(kind = 'task_update' AND EXISTS (
                         SELECT 1 FROM messages n WHERE n.public_id = messages.reply_to AND n.delivery_id IS NULL),
                     delivery_id >> 32, sender_id), ",
                    message_bytes!("messages")
                ))
                .and_then(|mut delete| {
                    delete.query_row([message], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()
                })
                .map_err(failed)?;
            if let Some((direct, payer, bytes)) = removed {
                gone += 1;
                entries.extend(direct);
                let messages = i64::try_from(entries.len().max(1)).unwrap_or(0);
                *freed.entry(payer).or_default() += -Stored { messages, bytes };
            }
            for entry in entries {
                self.db
                    .prepared("UPDATE agents SET log_floor = max(log_floor, ?2) WHERE id = ?1")
                    .and_then(|mut update| update.execute([owner_of(entry), place_of(entry)]))
                    .map_err(failed)?;
                self.db
                    .prepared("DELETE FROM entries WHERE id = ?1")
                    .and_then(|mut delete| delete.execute([entry]))
                    .map_err(failed)?;
            }
            self.db
                .prepared("DELETE FROM copies WHERE message_id = ?1")
                .and_then(|mut delete| delete.execute([message]))
                .map_err(failed)?;
        }
        self.charge_all(freed)?;
        Ok(gone)
    }
}

/// The caller's mail after a message, session by session.
pub(super) fn export(
    db: &Connection,
    caller: &Agent,
    after: Option<Uuid>,
    since: Option<Timestamp>,
    limit: u32,
) -> Result<Vec<MessageWithReceipts>> {
    let since = since.map_or(i64::MIN, |since| since.as_microsecond());
    let mut at = match after {
        Some(id) => find(db, id)?.ok_or_else(|| crate::letter::no_message(&id.into()))?.row_id,
        None => 0,
    };
    let (mut mail, mut budget) = (Vec::new(), Budget::page());
    while mail.len() < limit as usize {
        let session: Option<i64> = db
            .prepared("SELECT min(session_id) FROM session_members WHERE agent_id = ?1 AND session_id >= ?2")
            .and_then(|mut select| select.query_row([caller.key.0, owner_of(at)], |row| row.get(0)))
            .map_err(failed)?;
        let Some(session) = session else { break };
        let (first, last) = range(session);
        let room = i64::from(limit) - i64::try_from(mail.len()).unwrap_or(0);
        let page: Vec<(i64, Uuid)> = db
            .prepared(
                "SELECT id, public_id FROM messages WHERE id > ?1 AND id <= ?2 AND created_at >= ?4
                 ORDER BY id LIMIT ?3",
            )
            .and_then(|mut select| {
                let place = [at.max(first), last, room, since];
                let rows = select.query_map(place, |row| Ok((row.get(0)?, uuid_at(row, 1)?)))?;
                rows.collect()
            })
            .map_err(failed)?;
        let Some((newest, _)) = page.last().copied() else {
            at = last + 1;
            continue;
        };
        for (_, id) in page {
            let Some(found) = find(db, id)? else { continue };
            if found.is_shown_to(db, caller.key.0)? {
                if !budget.takes(found.row.bytes()) {
                    return Ok(mail);
                }
                mail.push(with_receipts(db, caller, found)?);
            }
        }
        at = newest;
    }
    Ok(mail)
}
