//! Storage usage, counted in the transaction that writes or removes mail.

use std::sync::Arc;

use rusqlite::{Connection, params};

use crate::error::Result;
use crate::quota::{Account, Stored};
use crate::sqlite::engine::run;
use crate::sqlite::error::failed;
use crate::sqlite::plans::Prepared;
use crate::sqlite::writer::WriteTx;
use crate::verbs::stored_by;

/// The usage of the whole office.
#[derive(Debug)]
pub(in crate::sqlite) struct OfficeUsage {
    pub(in crate::sqlite) account: Arc<Account>,
    /// Includes the current transaction.
    now: Stored,
    committed: Stored,
}

impl OfficeUsage {
    /// Adds up the usage of all agents, once at the start.
    pub(in crate::sqlite) fn count(db: &Connection, account: Arc<Account>) -> Result<Self> {
        let sql = "SELECT ifnull(sum(messages), 0), ifnull(sum(bytes), 0) FROM usage";
        let count = |row: &rusqlite::Row<'_>| Ok(Stored { messages: row.get(0)?, bytes: row.get(1)? });
        let stored = db.query_row(sql, [], count).map_err(failed)?;
        account.set_office(stored);
        Ok(Self { account, now: stored, committed: stored })
    }

    pub(in crate::sqlite) fn now(&self) -> Stored {
        self.now
    }

    /// Resets the usage to what it was when the savepoint began.
    pub(in crate::sqlite) fn reset_to(&mut self, before: Stored) {
        self.now = before;
    }

    /// Discards the changes of the current transaction.
    pub(in crate::sqlite) fn roll_back(&mut self) {
        self.now = self.committed;
    }

    /// Publishes the changes of the current transaction.
    pub(in crate::sqlite) fn commit(&mut self) {
        if self.now != self.committed {
            self.committed = self.now;
            self.account.set_office(self.now);
        }
    }
}

impl WriteTx {
    /// Returns how much this agent stores.
    pub(in crate::sqlite) fn stored_by(&mut self, agent: i64) -> Result<Stored> {
        if let Some(known) = self.caches.stored.get(&agent) {
            return Ok(*known);
        }
        let stored = run(stored_by(self, agent))?;
        self.caches.stored.insert(agent, stored);
        Ok(stored)
    }

    /// Adds to the usage of this agent; `more` is negative for what was removed.
    pub(in crate::sqlite) fn charge(&mut self, agent: i64, more: Stored) -> Result<()> {
        self.office.now += more;
        if let Some(mut known) = self.caches.stored.get_mut(&agent) {
            *known += more;
        }
        self.db
            .prepared(
                "INSERT INTO usage (agent_id, messages, bytes) VALUES (?1, ?2, ?3)
                 ON CONFLICT (agent_id) DO UPDATE SET messages = messages + excluded.messages,
                                                      bytes = bytes + excluded.bytes",
            )
            .and_then(|mut insert| insert.execute(params![agent, more.messages, more.bytes]))
            .map_err(failed)
            .map(drop)
    }
}
