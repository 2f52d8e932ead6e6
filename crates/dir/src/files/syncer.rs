//! Syncs directories; concurrent writers of one directory share a sync.
//!
//! A sync of a directory covers every rename that happened before it began. A writer that requests one while another is
//! running waits for the next, which serves all requests made meanwhile: sixteen senders cost two syncs, not sixteen.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::files::step::step;

/// Above this many directories, those without a waiting writer are dropped.
const MAX_REMEMBERED: usize = 1_024;

/// Directory syncs of one process.
#[derive(Debug, Default)]
pub(crate) struct Syncer {
    directories: Mutex<HashMap<PathBuf, Arc<SyncedDirectory>>>,
}

#[derive(Debug, Default)]
struct SyncedDirectory {
    turns: Mutex<Turns>,
    ended: Condvar,
}

/// Invariant: `completed <= requested`, and a sync is in progress exactly while `running`.
#[derive(Debug, Default)]
struct Turns {
    /// Number of requests.
    requested: u64,
    /// All requests up to this number are served.
    completed: u64,
    running: bool,
}

impl Syncer {
    /// Returns once every entry that the caller made in this directory is durable.
    pub(crate) fn sync(&self, directory: &Path) -> io::Result<()> {
        let shared = self.directory(directory);
        let mut turns = shared.turns.lock();
        turns.requested += 1;
        let mine = turns.requested;
        loop {
            if turns.completed >= mine {
                return Ok(());
            }
            if turns.running {
                shared.ended.wait(&mut turns);
                continue;
            }
            turns.running = true;
            let serves = turns.requested;
            drop(turns);
            let result = sync_now(directory);
            turns = shared.turns.lock();
            turns.running = false;
            if result.is_ok() {
                turns.completed = turns.completed.max(serves);
            }
            // After a failure each waiting writer syncs itself, so that each gets the error.
            shared.ended.notify_all();
            result?;
        }
    }

    fn directory(&self, path: &Path) -> Arc<SyncedDirectory> {
        let mut directories = self.directories.lock();
        if let Some(known) = directories.get(path) {
            return known.clone();
        }
        if directories.len() >= MAX_REMEMBERED {
            directories.retain(|_, directory| Arc::strong_count(directory) > 1);
        }
        directories.entry(path.to_owned()).or_default().clone()
    }
}

/// Syncs a directory once, without sharing.
fn sync_now(directory: &Path) -> io::Result<()> {
    step();
    fs_err::File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_served_and_gets_its_error() {
        let dir = tempfile::tempdir().unwrap();
        let syncer = Syncer::default();
        std::thread::scope(|scope| {
            let handles: Vec<_> =
                (0..8).map(|_| scope.spawn(|| (0..20).try_for_each(|_| syncer.sync(dir.path())))).collect();
            assert!(handles.into_iter().all(|handle| handle.join().unwrap().is_ok()));
            let gone = dir.path().join("gone");
            let handles: Vec<_> = (0..8).map(|_| scope.spawn(|| syncer.sync(&dir.path().join("gone")))).collect();
            assert!(handles.into_iter().all(|handle| handle.join().unwrap().is_err()));
            assert!(syncer.sync(&gone).is_err());
        });
    }
}
