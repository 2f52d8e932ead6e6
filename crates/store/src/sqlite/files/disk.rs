//! Failed syncs.
//!
//! SQLite syncs the write-ahead log at each commit (`synchronous = FULL`), and readers see the commit only after that:
//! everything that is answered or read is durable. After a failed sync the kernel may have dropped dirty pages,
//! although later syncs succeed: then nothing more is written until the process is restarted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::StoreError;
use crate::error::Result;

/// The state of the disk.
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

    /// Records a failed sync: from now on nothing is written.
    pub(in crate::sqlite) fn fail(&self, error: &dyn std::error::Error) {
        tracing::error!(%error, "a sync failed; the office accepts no writes until it is restarted");
        self.failed.store(true, Ordering::Release);
    }

    /// Returns the number of transactions that changed something.
    pub(in crate::sqlite) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Acquire)
    }

    pub(in crate::sqlite) fn count_commit(&self) {
        self.commits.fetch_add(1, Ordering::AcqRel);
    }

    /// After a failed sync, keeps SQLite from checkpointing the write-ahead log when this connection is closed: the
    /// disk may have lost parts of it. Returns whether a sync has failed.
    pub(in crate::sqlite) fn keep_log_after_failure(&self, db: &Connection) -> bool {
        let failed = self.check().is_err();
        if failed && let Err(error) = db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true) {
            tracing::error!(%error, "the write-ahead log may be checkpointed after a failed sync");
        }
        failed
    }
}
