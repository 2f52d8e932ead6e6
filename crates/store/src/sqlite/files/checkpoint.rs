//! Checkpoints of the write-ahead log, on a separate thread and connection: neither sends nor reads wait for them.
//! SQLite's own checkpoint, in the writer, runs only when the log has grown long.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;

use super::disk::Disk;
use crate::sqlite::error::is_failed_sync;

/// How often the thread checks whether there is something to checkpoint.
const PERIOD: Duration = Duration::from_millis(250);

/// The checkpoint thread; ends when this is dropped.
#[derive(Debug)]
pub(in crate::sqlite) struct Checkpoints {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpoints {
    pub(in crate::sqlite) fn start(db: Connection, disk: Arc<Disk>) -> io::Result<Self> {
        let (stop, stopped) = sync_channel(0);
        let thread = std::thread::Builder::new().name("amb-sqlite-fold".into()).spawn(move || {
            let mut checkpointed = 0;
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                let commits = disk.commits();
                if commits == checkpointed || disk.check().is_err() {
                    continue;
                }
                match db.execute_batch("PRAGMA wal_checkpoint(PASSIVE)") {
                    Ok(()) => checkpointed = commits,
                    Err(error) if is_failed_sync(&error) => disk.fail(&error),
                    Err(error) => tracing::warn!(%error, "the write-ahead log was not checkpointed; retrying"),
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
