//! Whether the disk keeps what is synced.
//!
//! SQLite syncs the write-ahead log at each commit (`synchronous = FULL`), and shows the commit to readers only after that: so
//! what is answered and what is read is durable. After a failed sync the kernel may have dropped what it could not write,
//! although later syncs succeed: then nothing more is written until the process is started again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::StoreError;
use crate::error::Result;

/// What is known of the disk.
#[derive(Debug, Default)]
pub(in crate::sqlite) struct Disk {
    failed: AtomicBool,
    commits: AtomicU64,
}

impl Disk {
    /// Fails once a sync has failed.
    pub(in crate::sqlite) fn check(&self) -> Result<()> {
        match self.failed.load(Ordering::Acquire) {
            false => Ok(()),
            true => Err(StoreError::unavailable(
                "the office's disk failed: what was sent just now may be lost, and nothing more is taken until the \
                 office is started again",
            )),
        }
    }

    /// A sync failed: from now on nothing is written.
    pub(in crate::sqlite) fn fail(&self, error: &dyn std::error::Error) {
        tracing::error!(%error, "the disk failed; the office takes nothing more until it is started again");
        self.failed.store(true, Ordering::Release);
    }

    /// Transactions that changed something.
    pub(in crate::sqlite) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Acquire)
    }

    pub(in crate::sqlite) fn count_commit(&self) {
        self.commits.fetch_add(1, Ordering::AcqRel);
    }

    /// After a failed sync: makes sure that closing this connection checkpoints nothing of the write-ahead log into the database,
    /// because the disk may claim now to have what it did not take. Returns whether that was so.
    pub(in crate::sqlite) fn keep_log_after_failure(&self, db: &Connection) -> bool {
        let failed = self.check().is_err();
        if failed && let Err(error) = db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true) {
            tracing::error!(%error, "the write-ahead log may be folded in after the disk failed");
        }
        failed
    }
}
