//! Watches directories by kernel events, so that readers do not wait for the next poll.
//!
//! An event is only a hint: on file systems without events, or when a watch is lost, readers still poll.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::Mutex;
use tokio::sync::watch;

/// The watched directories of one process, which share one kernel queue.
#[derive(Default)]
pub(crate) struct DirectoryWatch {
    state: Mutex<WatchState>,
}

#[derive(Default)]
struct WatchState {
    watcher: Option<RecommendedWatcher>,
    directories: Arc<Mutex<HashMap<PathBuf, WatchedDirectory>>>,
}

struct WatchedDirectory {
    /// Inode: a directory that was removed and created again must be watched again.
    inode: u64,
    changes: watch::Sender<u64>,
}

impl std::fmt::Debug for DirectoryWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl DirectoryWatch {
    /// Returns a receiver that changes when a file appears in the directory; `None` if it cannot be watched.
    pub(crate) fn directory(&self, path: &Path) -> Option<watch::Receiver<u64>> {
        // Events have absolute paths.
        let path = &std::path::absolute(path).ok()?;
        let inode = fs_err::metadata(path).ok()?.ino();
        let mut state = self.state.lock();
        if let Some(watched) = state.directories.lock().get(path)
            && watched.inode == inode
        {
            return Some(watched.changes.subscribe());
        }
        let directories = state.directories.clone();
        if state.watcher.is_none() {
            let handler = move |event| dispatch(&directories, event);
            match notify::recommended_watcher(handler) {
                Ok(watcher) => state.watcher = Some(watcher),
                Err(error) => {
                    tracing::warn!(%error, "directories cannot be watched; polling instead");
                    return None;
                }
            }
        }
        let directories = state.directories.clone();
        let watcher = state.watcher.as_mut()?;
        if directories.lock().contains_key(path) {
            // The watch was removed with the old directory, so an error is expected.
            let _gone = watcher.unwatch(path);
        }
        // Inserted before the watch starts, so that no event is missed.
        let mut entries = directories.lock();
        let changes = entries.remove(path).map_or_else(|| watch::Sender::new(0), |old| old.changes);
        let receiver = changes.subscribe();
        entries.insert(path.to_owned(), WatchedDirectory { inode, changes });
        drop(entries);
        match watcher.watch(path, RecursiveMode::NonRecursive) {
            Ok(()) => Some(receiver),
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "a directory cannot be watched; polling instead");
                directories.lock().remove(path);
                None
            }
        }
    }
}

fn dispatch(directories: &Mutex<HashMap<PathBuf, WatchedDirectory>>, event: notify::Result<notify::Event>) {
    let entries = directories.lock();
    let wake = |watched: &WatchedDirectory| watched.changes.send_modify(|count| *count += 1);
    let event = match event {
        Ok(event) if !event.need_rescan() => event,
        // Events were lost: wake all readers.
        _ => return entries.values().for_each(wake),
    };
    let is_relevant = match event.kind {
        EventKind::Create(_) | EventKind::Modify(ModifyKind::Name(_) | ModifyKind::Data(_) | ModifyKind::Any) => true,
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Any | EventKind::Other => true,
        // We read files ourselves; a removal leaves nothing to read.
        EventKind::Access(_) | EventKind::Remove(_) | EventKind::Modify(_) => false,
    };
    if !is_relevant {
        return;
    }
    for path in &event.paths {
        // Temporary files count only when renamed; lock files, which every read touches, do not count.
        let name = path.file_name().map_or(&[][..], |name| name.as_encoded_bytes());
        let counts = !name.starts_with(b".") && !name.ends_with(b".lock");
        if counts && let Some(watched) = path.parent().and_then(|parent| entries.get(parent)) {
            wake(watched);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_directory_is_watched_by_its_relative_and_its_absolute_path() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let name = dir.path().file_name().unwrap();
        for path in [Path::new(name), dir.path()] {
            let watch = DirectoryWatch::default();
            let mut changes = watch.directory(path).expect("a watch");
            fs_err::write(path.join(format!("{}.json", path.components().count())), "{}").unwrap();
            let changed = tokio::time::timeout(std::time::Duration::from_secs(60), changes.changed()).await;
            changed.unwrap_or_else(|_| panic!("no event for a file in {}", path.display())).unwrap();
        }
    }
}
