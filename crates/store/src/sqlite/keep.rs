//! Keeping mail: copies of the database, removing old mail, and taking one's own along.

use std::path::Path;

use amb_core::Timestamp;
use amb_core::doc::MessageWithReceipts;
use rusqlite::{Connection, OpenFlags};
use uuid::Uuid;

use super::error::failed;
use super::keys::{owner_of, place_of, range, uuid_at};
use super::messages::find;
use super::plans::Prepared;
use super::receipts::with_receipts;
use super::writer::Desk;
use crate::error::Result;
use crate::types::Agent;
use crate::{StoreError, words};

/// Messages removed in one transaction.
const SOME: i64 = 200;

/// Copies the database as it is at one moment. The copy appears under its name only when it is whole and on disk.
pub(super) fn backup(db: &Connection, to: &Path) -> Result<()> {
    if to.exists() {
        return Err(words::file_is_there(to));
    }
    let making = to.with_extension("making");
    if making.exists() {
        fs_err::remove_file(&making).map_err(cannot)?;
    }
    // A connection of its own, for as long as it takes. Not the backup API: that one begins anew with every write.
    let alone = Connection::open_with_flags(db.path().unwrap_or_default(), OpenFlags::SQLITE_OPEN_READ_WRITE);
    let alone = alone.map_err(failed)?;
    alone.execute("VACUUM INTO ?1", [making.to_string_lossy()]).map_err(failed)?;
    drop(alone);
    let file = fs_err::OpenOptions::new().write(true).open(&making).map_err(cannot)?;
    file.sync_all().map_err(cannot)?;
    fs_err::hard_link(&making, to).map_err(cannot)?;
    fs_err::remove_file(&making).map_err(cannot)?;
    if let Some(directory) = to.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        fs_err::File::open(directory).and_then(|directory| directory.sync_all()).map_err(cannot)?;
    }
    Ok(())
}

fn cannot(error: std::io::Error) -> StoreError {
    StoreError::unavailable(format!("the copy could not be made: {error}")).caused_by(error)
}

impl Desk {
    /// Removes messages that everybody they went to read before a moment. Answers their rows.
    pub(super) fn remove_read_mail(&mut self, before: Timestamp) -> Result<Vec<i64>> {
        let old: Vec<i64> = self
            .db
            .prepared(
                "SELECT DISTINCT e.message_id FROM entries e
                 WHERE e.read_at < ?1 AND e.message_id IS NOT NULL
                 AND EXISTS (SELECT 1 FROM messages n WHERE n.id > e.message_id
                             AND n.id <= (e.message_id | 4294967295))
                 AND NOT EXISTS (SELECT 1 FROM copies c JOIN entries o ON o.id = c.entry_id
                                 WHERE c.message_id = e.message_id AND (o.read_at IS NULL OR o.read_at >= ?1))
                 AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.message_id = e.message_id
                                 AND t.state IN ('pending', 'accepted', 'working'))
                 ORDER BY e.read_at LIMIT ?2",
            )
            .and_then(|mut select| {
                select.query_map([before.as_microsecond(), SOME], |row| row.get(0)).and_then(Iterator::collect)
            })
            .map_err(failed)?;
        for message in &old {
            let mut entries: Vec<i64> = self
                .db
                .prepared("SELECT entry_id FROM copies WHERE message_id = ?1")
                .and_then(|mut select| select.query_map([message], |row| row.get(0)).and_then(Iterator::collect))
                .map_err(failed)?;
            let direct: Option<i64> = self
                .db
                .prepared("DELETE FROM messages WHERE id = ?1 RETURNING delivery_id")
                .and_then(|mut delete| delete.query_row([message], |row| row.get(0)))
                .map_err(failed)?;
            entries.extend(direct);
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
        Ok(old)
    }
}

/// The caller's mail after a message, session by session.
pub(super) fn export(
    db: &Connection,
    caller: &Agent,
    after: Option<Uuid>,
    limit: u32,
) -> Result<Vec<MessageWithReceipts>> {
    let mut at = match after {
        Some(id) => find(db, id)?.ok_or_else(|| crate::letter::no_message(&id.into()))?.row_id,
        None => 0,
    };
    let mut mail = Vec::new();
    while mail.len() < limit as usize {
        let session: Option<i64> = db
            .prepared("SELECT min(session_id) FROM session_members WHERE agent_id = ?1 AND session_id >= ?2")
            .and_then(|mut select| select.query_row([caller.key.0, owner_of(at)], |row| row.get(0)))
            .map_err(failed)?;
        let Some(session) = session else { break };
        let (first, last) = range(session);
        let room = i64::from(limit) - i64::try_from(mail.len()).unwrap_or(0);
        let page: Vec<(i64, Uuid)> = db
            .prepared("SELECT id, public_id FROM messages WHERE id > ?1 AND id <= ?2 ORDER BY id LIMIT ?3")
            .and_then(|mut select| {
                let rows = select.query_map([at.max(first), last, room], |row| Ok((row.get(0)?, uuid_at(row, 1)?)))?;
                rows.collect()
            })
            .map_err(failed)?;
        let Some((newest, _)) = page.last().copied() else {
            at = last + 1;
            continue;
        };
        for (_, id) in page {
            let Some(found) = find(db, id)? else { continue };
            // Of a group's session, what the agent sent and what came to it.
            if found.sender == caller.key.0 || found.group.is_none() || found.came_to(db, caller.key.0)? {
                mail.push(with_receipts(db, caller, found)?);
            }
        }
        at = newest;
    }
    Ok(mail)
}
