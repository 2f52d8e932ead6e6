//! Checkpoints of the write-ahead log, on a thread and a connection of its own: neither sends nor reads wait for them. What is
//! written during one is left to SQLite's own checkpoint in the writer, when the log has grown long.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;

use super::disk::Disk;
use crate::sqlite::error::is_failed_sync;

/// How often it looks whether there is something to checkpoint.
const PERIOD: Duration = Duration::from_millis(250);

/// The thread; ends when this is dropped.
#[derive(Debug)]
pub(in crate::sqlite) struct Checkpoints {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpoints {
    pub(in crate::sqlite) fn start(db: Connection, disk: Arc<Disk>) -> io::Result<Self> {
        let (stop, stopped) = sync_channel(0);
        let thread = std::thread::Builder::new().name("amb-sqlite-fold".into()).spawn(move || {
            let mut folded = 0;
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                let commits = disk.commits();
                if commits == folded || disk.check().is_err() {
                    continue;
                }
                match db.execute_batch("PRAGMA wal_checkpoint(PASSIVE)") {
                    Ok(()) => folded = commits,
                    Err(error) if is_failed_sync(&error) => disk.fail(&error),
                    Err(error) => tracing::warn!(%error, "the write-ahead log was not folded in; trying again"),
                }
            }
            disk.keep_log_after_failure(&db);
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
