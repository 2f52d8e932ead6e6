//! The tray: mail that was accepted and is not sorted yet.
//!
//! A message belongs in its session and in the log of its recipient, and each of these is a page of its own: sixty messages
//! of sixty pairs change two hundred pages. So a message between two agents is laid at the end of one table first, where
//! sixty of them fill a handful of pages, and is durable there. An agent that looks at its mail has that sorted before; the
//! rest is sorted when there is much of it, and then many messages of one session share a page.
//!
//! A full tray is sorted a slice of its sessions at a time, with other transactions in between, so that no sender waits
//! longer than for a slice. What has been sorted leaves the tray when all that lay there with it has, so between two
//! slices a message may be in both places; it is unsorted as long as no session has it.
//!
//! So the tables may have an agent's newer message and not yet an older one. Whoever looks at mail sees it whole all the
//! same: it has that agent's mail sorted, looks, and looks again if any of it was put into place meanwhile
//! ([`SqliteStore::look_for`](super::SqliteStore)).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::params;
use rusqlite::types::ToSqlOutput;
use uuid::Uuid;

use super::error::failed;
use super::keys::{number_of, owner_of, row};
use super::plans::Prepared;
use super::post::Post;
use super::usage::message_bytes;
use super::writer::Desk;
use crate::error::Result;
use crate::quota::Stored;
use crate::types::AgentKey;

/// Messages in the tray before it is sorted unasked: enough to share pages, few enough that nobody waits long for it.
const FULL: usize = 4_096;
/// Messages sorted at a time while others want to send: about a millisecond's work.
const SLICE: usize = 128;
/// A slice is at least this part of what lies there, so that sorting keeps up with whatever comes.
const SLICES: usize = 8;

/// Columns of a message in the tray.
const COLUMNS: usize = 15;

/// Of the tray, as `laid`, what no session has yet.
macro_rules! unsorted {
    () => {
        "FROM main.tray laid WHERE NOT EXISTS (SELECT 1 FROM main.messages m WHERE m.id = laid.message_id)"
    };
}
pub(super) use unsorted;

/// A message in the tray.
#[derive(Debug, Clone, Copy)]
struct Laid {
    /// Its row there.
    row: i64,
    message: i64,
    sender: i64,
    delivery: i64,
    priority: i16,
    bytes: i64,
}

impl Laid {
    fn stored(self) -> Stored {
        Stored { messages: 1, bytes: self.bytes }
    }
}

/// What lies in the tray, as far as the writer knows.
#[derive(Debug)]
pub(super) struct Tray {
    /// Laid since the sorting under way began, or since something was rolled back.
    laid: Vec<Laid>,
    /// Still to be sorted in the sorting under way, the last first.
    sorting: Vec<Laid>,
    /// What lay there before the first of `laid` is not known: a rollback may have brought it back, or a process that was
    /// killed may have left it.
    forgot: bool,
    /// Rows that sorting changed in the middle of an operation, since the start.
    changes: u64,
    holds_mail: HoldsMail,
}

/// Whether there may be mail that no table but the tray has; for those who want to look at mail.
#[derive(Debug, Clone)]
pub(super) struct HoldsMail(Arc<AtomicBool>);

impl HoldsMail {
    /// A tray of which nothing is known: a process that was killed may have left something in it.
    pub(super) fn perhaps() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    pub(super) fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Tray {
    pub(super) fn new(holds_mail: HoldsMail) -> Self {
        Self { laid: Vec::new(), sorting: Vec::new(), forgot: true, changes: 0, holds_mail }
    }

    /// Whether it is to be sorted in between: it is full, or that is not finished.
    pub(super) fn wants_sorting(&self) -> bool {
        self.laid.len() >= FULL || !self.sorting.is_empty()
    }

    fn is_empty(&self) -> bool {
        !self.forgot && self.laid.is_empty() && self.sorting.is_empty()
    }

    /// Rows that sorting changed in the middle of an operation, since the start.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Something was rolled back, perhaps the sorting.
    pub(super) fn rolled_back(&mut self) {
        self.laid.clear();
        self.sorting.clear();
        self.forgot = true;
    }

    /// What was done to it is there for others to see. Not before: until then they see it as it was.
    pub(super) fn committed(&self) {
        if self.is_empty() {
            self.holds_mail.0.store(false, Ordering::Release);
        }
    }

    fn lay(&mut self, laid: Laid) {
        self.laid.push(laid);
        self.holds_mail.0.store(true, Ordering::Release);
    }

    /// Takes all that is to be sorted, in the order of the sessions that it goes to.
    fn take(&mut self) -> Vec<Laid> {
        let mut all = std::mem::take(&mut self.sorting);
        all.append(&mut self.laid);
        all.sort_unstable_by_key(|laid| laid.message);
        all
    }

    /// Takes what is in the mail of those whom this says, in the order of their sessions.
    fn take_of(&mut self, wanted: impl Fn(i64) -> bool) -> Vec<Laid> {
        let concerns = |laid: &mut Laid| wanted(laid.sender) || wanted(owner_of(laid.delivery));
        let mut theirs: Vec<Laid> = self.sorting.extract_if(.., concerns).collect();
        theirs.extend(self.laid.extract_if(.., concerns));
        theirs.sort_unstable_by_key(|laid| laid.message);
        theirs
    }

    /// Takes the next slice of what is to be sorted.
    fn take_slice(&mut self) -> Vec<Laid> {
        if self.sorting.is_empty() {
            self.sorting = self.take();
            self.sorting.reverse();
        }
        let size = SLICE.max((self.sorting.len() + self.laid.len()) / SLICES);
        let mut slice = self.sorting.split_off(self.sorting.len().saturating_sub(size));
        slice.reverse();
        slice
    }
}

impl Desk {
    /// Accepts a message as the newest of its session. Answers its place in the log of the agent it goes to.
    pub(super) fn lay(&mut self, session: i64, post: Post<'_>, agent: i64) -> Result<u64> {
        let message = row(session, self.next_in_session(session)?);
        let delivery = row(agent, self.next_place(agent)?);
        self.db
            .prepared(
                "INSERT INTO tray (message_id, public_id, sender_id, delivery_id, created_at, priority, ttl, kind,
                                   trace, reply_to, correlation_id, callback, content, parts, metadata)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
            )
            .and_then(|mut insert| {
                insert.execute(params![
                    message,
                    post.id.as_bytes(),
                    post.sender,
                    delivery,
                    post.at.as_microsecond(),
                    post.priority,
                    post.ttl,
                    post.kind,
                    post.trace,
                    post.reply_to.as_ref().map(Uuid::as_bytes),
                    post.correlation_id,
                    post.callback,
                    post.content,
                    post.parts,
                    post.metadata,
                ])
            })
            .map_err(failed)?;
        self.changed.agent(post.sender);
        self.changed.agent(agent);
        self.findable.push(AgentKey(agent));
        let row = self.db.last_insert_rowid();
        let stored = post.stored(1);
        let laid = Laid { row, message, sender: post.sender, delivery, priority: post.priority, bytes: stored.bytes };
        self.tray.lay(laid);
        self.count_laid(post.sender, stored);
        Ok(number_of(delivery))
    }

    /// Puts all that lies in the tray where it belongs.
    pub(super) fn sort(&mut self) -> Result<()> {
        self.sorting(Tray::take)
    }

    /// Puts this agent's mail where it belongs.
    pub(super) fn sort_for(&mut self, agent: i64) -> Result<()> {
        self.sorting(|tray| tray.take_of(|one| one == agent))
    }

    /// Puts the mail of these agents where it belongs.
    pub(super) fn sort_for_all(&mut self, agents: &[AgentKey]) -> Result<()> {
        let agents: HashSet<i64> = agents.iter().map(|agent| agent.0).collect();
        self.sorting(|tray| tray.take_of(|one| agents.contains(&one)))
    }

    fn sorting(&mut self, take: impl FnOnce(&mut Tray) -> Vec<Laid>) -> Result<()> {
        if self.tray.is_empty() {
            return Ok(());
        }
        let before = self.db.total_changes();
        let sorted = self.guarded(|desk| {
            desk.recall_tray()?;
            let some = take(&mut desk.tray);
            desk.put_in_place(some)?;
            desk.clear_tray()
        });
        self.tray.changes += self.db.total_changes() - before;
        // What was taken to be sorted was not.
        sorted.inspect_err(|_| self.tray.rolled_back())
    }

    /// Puts some of what lies in the tray where it belongs, in a transaction that has to be rolled back should this fail: a
    /// savepoint would keep a copy of every page that is changed.
    pub(super) fn sort_slice(&mut self) -> Result<()> {
        self.recall_tray()?;
        let slice = self.tray.take_slice();
        self.put_in_place(slice)?;
        self.clear_tray()
    }

    /// Looks up what is unsorted, where that is not known.
    fn recall_tray(&mut self) -> Result<()> {
        if !self.tray.forgot {
            return Ok(());
        }
        let sql = concat!(
            "SELECT laid.id, laid.message_id, laid.sender_id, laid.delivery_id, laid.priority, ",
            message_bytes!("laid"),
            " ",
            unsorted!(),
            " ORDER BY laid.id"
        );
        let mut select = self.db.prepared(sql).map_err(failed)?;
        let found = select.query_map([], |row| {
            Ok(Laid {
                row: row.get(0)?,
                message: row.get(1)?,
                sender: row.get(2)?,
                delivery: row.get(3)?,
                priority: row.get(4)?,
                bytes: row.get(5)?,
            })
        });
        self.tray.laid = found.and_then(Iterator::collect).map_err(failed)?;
        self.tray.forgot = false;
        Ok(())
    }

    /// What this agent sent and is not sorted yet.
    pub(super) fn laid_by(&mut self, agent: i64) -> Result<Stored> {
        self.recall_tray()?;
        let mut all = Stored::default();
        let laid = self.tray.sorting.iter().chain(&self.tray.laid);
        laid.filter(|laid| laid.sender == agent).for_each(|laid| all += laid.stored());
        Ok(all)
    }

    /// Puts these where they belong, in the order of the tables they go to, so that every page is visited once. Others of
    /// the same agents may still lie in the tray, so their readers are warned.
    fn put_in_place(&self, mut some: Vec<Laid>) -> Result<()> {
        if some.is_empty() {
            return Ok(());
        }
        let prepared = |sql| self.db.prepared(sql).map_err(failed);
        // Row by row: SQLite guards a statement that may change many rows by copies of the pages it changes.
        let mut select = prepared(
            "SELECT message_id, public_id, sender_id, delivery_id, created_at, priority, ttl, kind, trace, reply_to,
                    correlation_id, callback, content, parts, metadata
             FROM tray WHERE id = ?1",
        )?;
        let mut insert = prepared(
            "INSERT INTO messages (id, public_id, sender_id, delivery_id, created_at, priority, ttl, kind, trace, reply_to,
                                   correlation_id, callback, content, parts, metadata)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
        )?;
        for laid in &some {
            let moved = select.query_row([laid.row], |row| {
                for (column, parameter) in (1..=COLUMNS).enumerate() {
                    insert.raw_bind_parameter(parameter, ToSqlOutput::Borrowed(row.get_ref(column)?))?;
                }
                insert.raw_execute()
            });
            moved.map_err(failed)?;
        }
        some.sort_unstable_by_key(|laid| laid.delivery);
        let mut insert = prepared("INSERT INTO entries (id, message_id, priority) VALUES (?1, ?2, ?3)")?;
        let mut unread: BTreeMap<(i64, i64), i64> = BTreeMap::new();
        let mut sorted: HashMap<i64, Stored> = HashMap::new();
        for laid in &some {
            *sorted.entry(laid.sender).or_default() += laid.stored();
            insert.execute(params![laid.delivery, laid.message, laid.priority]).map_err(failed)?;
            *unread.entry((owner_of(laid.delivery), owner_of(laid.message))).or_default() += 1;
            self.placed.count(laid.sender);
            self.placed.count(owner_of(laid.delivery));
        }
        let mut update =
            prepared("UPDATE session_members SET unread = unread + ?3 WHERE agent_id = ?1 AND session_id = ?2")?;
        for ((agent, session), count) in unread {
            update.execute([agent, session, count]).map_err(failed)?;
        }
        self.charge_sorted(sorted)
    }

    /// Takes what was sorted out of the tray, once nothing before it is unsorted.
    fn clear_tray(&self) -> Result<()> {
        let cleared = match (self.tray.sorting.is_empty(), self.tray.laid.first()) {
            (false, _) => return Ok(()),
            // Without a condition, whole pages are thrown away.
            (true, None) => self.db.prepared("DELETE FROM tray").and_then(|mut delete| delete.execute([])),
            (true, Some(unsorted)) => {
                self.db.prepared("DELETE FROM tray WHERE id < ?1").and_then(|mut delete| delete.execute([unsorted.row]))
            }
        };
        cleared.map_err(failed).map(drop)
    }
}

/// Views of one connection that take the place of the tables, with the tray's mail where it belongs: for reading where
/// nothing can be put there. They are slow: SQLite joins to a view by making all of it.
pub(super) const AS_IF_SORTED: &str = concat!(
    "CREATE TEMP VIEW unsorted AS SELECT laid.* ",
    unsorted!(),
    ";
    CREATE TEMP VIEW messages AS
        SELECT id, public_id, sender_id, delivery_id, created_at, priority, ttl, kind, trace, reply_to, correlation_id,
               task, callback, content, parts, metadata
        FROM main.messages
        UNION ALL
        SELECT message_id, public_id, sender_id, delivery_id, created_at, priority, ttl, kind, trace, reply_to,
               correlation_id, NULL, callback, content, parts, metadata
        FROM unsorted;
    CREATE TEMP VIEW entries AS
        SELECT id, message_id, priority, delivered_at, read_at, lease_until, event, at FROM main.entries
        UNION ALL
        SELECT delivery_id, message_id, priority, NULL, NULL, NULL, NULL, NULL FROM unsorted;
    CREATE TEMP VIEW session_members AS
        SELECT agent_id, session_id, unread + (
            SELECT count(*) FROM unsorted u WHERE u.delivery_id >> 32 = agent_id AND u.message_id >> 32 = session_id
        ) AS unread
        FROM main.session_members;"
);
