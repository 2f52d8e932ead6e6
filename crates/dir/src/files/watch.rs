//! Watches directories by the kernel's events, so that readers do not wait for the next poll.
//!
//! An event is a hint only: where the file system has none (network file systems) or a watch is lost, readers still poll.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::Mutex;
use tokio::sync::watch;

/// All watches of one process share one queue of the kernel's.
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
    /// The directory's inode: one that was removed and made again must be watched again.
    inode: u64,
    changes: watch::Sender<u64>,
}

impl std::fmt::Debug for DirectoryWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl DirectoryWatch {
    /// A receiver that changes whenever something appears in the directory; none if it cannot be watched.
    pub(crate) fn directory(&self, path: &Path) -> Option<watch::Receiver<u64>> {
        // Events name absolute paths, wherever the office was opened from.
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
            // The old watch went with the old directory; an error only says so.
            let _gone = watcher.unwatch(path);
        }
        // Entered before it is watched, so that no event is missed.
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
        // Events were lost: all readers are woken.
        _ => return entries.values().for_each(wake),
    };
    let matters = match event.kind {
        EventKind::Create(_) | EventKind::Modify(ModifyKind::Name(_) | ModifyKind::Data(_) | ModifyKind::Any) => true,
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Any | EventKind::Other => true,
        // Reading is what we do ourselves; a removal leaves nothing to look at.
        EventKind::Access(_) | EventKind::Remove(_) | EventKind::Modify(_) => false,
    };
    if !matters {
        return;
    }
    for path in &event.paths {
        // Temporary files do not count, only their rename; nor do lock files, which every read takes.
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
    async fn a_directory_named_from_here_is_watched_as_one_named_whole() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let name = dir.path().file_name().unwrap();
        for path in [Path::new(name), dir.path()] {
            let watch = DirectoryWatch::default();
            let mut changes = watch.directory(path).expect("a watch");
            changes.mark_unchanged();
            fs_err::write(path.join(format!("{}.json", path.components().count())), "{}").unwrap();
            let told = tokio::time::timeout(std::time::Duration::from_secs(60), changes.changed()).await;
            told.unwrap_or_else(|_| panic!("nobody was told of a file in {}", path.display())).unwrap();
        }
    }
}
