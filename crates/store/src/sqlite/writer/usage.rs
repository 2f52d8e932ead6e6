//! What each agent has stored, counted in the transaction that writes or removes it.

use std::sync::Arc;

use amb_core::send::Storage;
use futures_util::FutureExt;
use rusqlite::{Connection, params};

use crate::error::Result;
use crate::quota::{Account, Stored};
use crate::sqlite::engine::run;
use crate::sqlite::error::failed;
use crate::sqlite::plans::Prepared;
use crate::sqlite::writer::WriteTx;
use crate::verbs::stored_by;

/// What the whole office stores.
#[derive(Debug)]
pub(in crate::sqlite) struct OfficeUsage {
    account: Arc<Account>,
    /// With what the transaction under way has done.
    now: Stored,
    committed: Stored,
}

impl OfficeUsage {
    /// Adds up the rows of all agents, once at the start.
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

    /// Something was rolled back; it is as it was then.
    pub(in crate::sqlite) fn back_to(&mut self, before: Stored) {
        self.now = before;
    }

    /// The whole transaction was rolled back.
    pub(in crate::sqlite) fn abandoned(&mut self) {
        self.now = self.committed;
    }

    /// What the transaction did is there for others to see.
    pub(in crate::sqlite) fn committed(&mut self) {
        if self.now != self.committed {
            self.committed = self.now;
            self.account.set_office(self.now);
        }
    }
}

impl WriteTx {
    /// Refuses what would be more than this sender, or the office, may store. Asked before anything is written.
    pub(in crate::sqlite) fn check_quota(&mut self, sender: i64, more: Stored) -> Result<()> {
        let Storage { quotas, sender, office, more } = self.storage(sender, more)?;
        quotas.check(sender, office, more)
    }

    /// What decides whether a sender may add `more`.
    pub(in crate::sqlite) fn storage(&mut self, sender: i64, more: Stored) -> Result<Storage> {
        let (sender, quotas) = (self.stored_by(sender)?.usage(), self.office.account.quotas());
        Ok(Storage { quotas, sender, office: self.office.now.usage(), more: more.usage() })
    }

    /// What this agent has stored.
    pub(in crate::sqlite) fn stored_by(&mut self, agent: i64) -> Result<Stored> {
        if let Some(known) = self.caches.stored.get(&agent) {
            return Ok(*known);
        }
        let stored = run(stored_by(self, agent).boxed())?;
        self.caches.stored.insert(agent, stored);
        Ok(stored)
    }

    /// Counts what was written or removed.
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
