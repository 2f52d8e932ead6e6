//! The tray: mail that was accepted and is not sorted yet.
//!
//! A message belongs in its session and in the log of its recipient, and each of these is a page of its own: sixty messages
//! of sixty pairs change two hundred pages. So a message between two agents is laid at the end of one table first, where
//! sixty of them fill a handful of pages, and is durable there. Whoever looks at mail, and whoever changes anything else,
//! has the tray sorted before; then many messages of one session share a page.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::params;
use uuid::Uuid;

use super::error::failed;
use super::keys::{number_of, row};
use super::plans::Prepared;
use super::post::Post;
use super::writer::Desk;
use crate::error::Result;
use crate::types::AgentKey;

/// Messages in the tray before it is sorted unasked: enough to share pages, few enough that nobody waits long for it.
const FULL: usize = 1_024;

/// How much lies in the tray, as far as the writer knows.
#[derive(Debug)]
pub(super) struct Tray {
    /// Never less than there is; more after a rollback.
    laid: usize,
    /// Rows that sorting changed since the start.
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
        Self { laid: 1, changes: 0, holds_mail }
    }

    pub(super) fn is_full(&self) -> bool {
        self.laid >= FULL
    }

    /// Rows that sorting changed since the start.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Something was rolled back, perhaps the sorting.
    pub(super) fn rolled_back(&mut self) {
        self.laid = self.laid.max(1);
    }

    /// What was done to it is durable. Not before: until then others see it as it was.
    pub(super) fn committed(&self) {
        if self.laid == 0 {
            self.holds_mail.0.store(false, Ordering::Release);
        }
    }

    fn laid_one(&mut self) {
        self.laid += 1;
        self.holds_mail.0.store(true, Ordering::Release);
    }
}

impl Desk {
    /// Accepts a message as the newest of its session. Answers its place in the log of the agent it goes to.
    pub(super) fn lay(&mut self, session: i64, post: Post<'_>, agent: i64) -> Result<u64> {
        let message = row(session, self.next_in_session(session)?);
        let delivery = row(agent, self.next_place(agent)?);
        self.tray.laid_one();
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
        self.unindexed.add(AgentKey(agent));
        Ok(number_of(delivery))
    }

    /// Puts what lies in the tray where it belongs.
    pub(super) fn sort(&mut self) -> Result<()> {
        if self.tray.laid == 0 {
            return Ok(());
        }
        let before = self.db.total_changes();
        self.guarded(|desk| {
            SORTING.iter().try_for_each(|sql| {
                desk.db.prepared(sql).and_then(|mut statement| statement.execute([])).map_err(failed).map(drop)
            })
        })?;
        self.tray.changes += self.db.total_changes() - before;
        self.tray.laid = 0;
        Ok(())
    }
}

/// Views of one connection that take the place of the tables, with the tray's mail where it belongs: for reading where
/// nothing can be written any more.
pub(super) const AS_IF_SORTED: &str = "
    CREATE TEMP VIEW messages AS
        SELECT id, public_id, sender_id, delivery_id, created_at, priority, ttl, kind, trace, reply_to, correlation_id,
               task, callback, content, parts, metadata
        FROM main.messages
        UNION ALL
        SELECT message_id, public_id, sender_id, delivery_id, created_at, priority, ttl, kind, trace, reply_to,
               correlation_id, NULL, callback, content, parts, metadata
        FROM main.tray;
    CREATE TEMP VIEW entries AS
        SELECT id, message_id, priority, delivered_at, read_at, lease_until, event, at FROM main.entries
        UNION ALL
        SELECT delivery_id, message_id, priority, NULL, NULL, NULL, NULL, NULL FROM main.tray;
    CREATE TEMP VIEW session_members AS
        SELECT agent_id, session_id, unread + (
            SELECT count(*) FROM main.tray t WHERE t.delivery_id >> 32 = agent_id AND t.message_id >> 32 = session_id
        ) AS unread
        FROM main.session_members;";

/// In the order of the tables they go to, so that every page is visited once.
const SORTING: [&str; 4] = [
    "INSERT INTO messages (id, public_id, sender_id, delivery_id, created_at, priority, ttl, kind, trace, reply_to,
                           correlation_id, callback, content, parts, metadata)
     SELECT message_id, public_id, sender_id, delivery_id, created_at, priority, ttl, kind, trace, reply_to,
            correlation_id, callback, content, parts, metadata
     FROM tray ORDER BY message_id",
    "INSERT INTO entries (id, message_id, priority) SELECT delivery_id, message_id, priority FROM tray
     ORDER BY delivery_id",
    "UPDATE session_members SET unread = unread + laid.count
     FROM (SELECT delivery_id >> 32 AS agent_id, message_id >> 32 AS session_id, count(*) AS count FROM tray
           GROUP BY 1, 2) AS laid
     WHERE session_members.agent_id = laid.agent_id AND session_members.session_id = laid.session_id",
    "DELETE FROM tray",
];
