//! Follows a transcript: new lines as they are appended.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use amb_core::transcript::{Line, TranscriptKey};
use amb_core::{OfficeError, RecentSet};
use tokio::sync::{mpsc, watch};

use super::cursor::FileCursor;
use super::owner::{TranscriptPath, resolve};
use super::recent::gather;
use super::store::READING;
use crate::files::failure::IoContext as _;
use crate::files::watch::DirectoryWatch;

/// Lines buffered for a slow reader; the rest stays in the file.
const MAX_AHEAD: usize = 256;
/// Message ids remembered, so that a message that two processes wrote is returned once.
const MAX_REMEMBERED: usize = 4_096;
/// Poll interval with kernel events, which may be lost.
const POLL_WATCHED: Duration = Duration::from_secs(1);
/// Poll interval without kernel events.
const POLL_UNWATCHED: Duration = Duration::from_millis(100);

/// The new lines of one transcript. Stops on drop.
#[derive(Debug)]
pub struct Follow {
    lines: mpsc::Receiver<Result<Line, OfficeError>>,
}

impl Follow {
    /// Waits for the next new line. `None` only after an error was returned. Cancel safe.
    pub async fn recv(&mut self) -> Option<Result<Line, OfficeError>> {
        self.lines.recv().await
    }
}

/// State of the blocking part.
struct FileFollower {
    root: PathBuf,
    key: TranscriptKey,
    owned: bool,
    cursor: FileCursor,
    known: RecentSet<String, MAX_REMEMBERED>,
}

/// Follows from the end of the file. Also returns the last `backlog` lines before it.
pub(super) async fn follow(
    root: PathBuf,
    key: TranscriptKey,
    backlog: usize,
    watch: Arc<DirectoryWatch>,
) -> Result<(Vec<Line>, Follow), OfficeError> {
    // Watched before the first read, so that no line is missed in between.
    let changes = watch.directory(&root);
    let opened = tokio::task::spawn_blocking(move || FileFollower::open(root, key, backlog)).await;
    let (recent, follower) = opened.map_err(OfficeError::internal)?.context(READING)?;
    let (sender, lines) = mpsc::channel(MAX_AHEAD);
    tokio::spawn(run(follower, sender, changes, watch));
    Ok((recent, Follow { lines }))
}

async fn run(
    mut follower: FileFollower,
    sender: mpsc::Sender<Result<Line, OfficeError>>,
    mut changes: Option<watch::Receiver<u64>>,
    // Kept alive: the store may be dropped before its followers.
    _watch: Arc<DirectoryWatch>,
) {
    loop {
        let stepped = tokio::task::spawn_blocking(move || {
            let (lines, more) = follower.step().context(READING)?;
            Ok((follower, lines, more))
        });
        let (lines, more) = match stepped.await.unwrap_or_else(|error| Err(OfficeError::internal(error))) {
            Ok((returned, lines, more)) => {
                follower = returned;
                (lines, more)
            }
            Err(error) => {
                let _ = sender.send(Err(error)).await;
                return;
            }
        };
        for line in lines {
            if sender.send(Ok(line)).await.is_err() {
                return;
            }
        }
        if more {
            continue;
        }
        tokio::select! {
            () = changed(&mut changes) => {}
            () = sender.closed() => return,
        }
    }
}

/// Waits for a change in the root, or the poll interval.
async fn changed(changes: &mut Option<watch::Receiver<u64>>) {
    let Some(receiver) = changes else { return tokio::time::sleep(POLL_UNWATCHED).await };
    if let Ok(Err(_)) = tokio::time::timeout(POLL_WATCHED, receiver.changed()).await {
        *changes = None;
    }
}

impl FileFollower {
    fn open(root: PathBuf, key: TranscriptKey, backlog: usize) -> io::Result<(Vec<Line>, Self)> {
        loop {
            let location = resolve(&root, &key)?;
            let cursor = FileCursor::at_end(location.path.clone())?;
            let window = match cursor.position() {
                Some((file, end)) => gather(file, end, backlog, false)?.unwrap_or_default(),
                None => Default::default(),
            };
            // As in `recent`: a file without an owner may have become another key's meanwhile.
            if location.owned || resolve(&root, &key)?.path == location.path {
                let mut known = RecentSet::default();
                for id in window.ids() {
                    known.insert(id.to_owned());
                }
                return Ok((window.into_recent(backlog), Self { root, key, owned: location.owned, cursor, known }));
            }
        }
    }

    fn step(&mut self) -> io::Result<(Vec<Line>, bool)> {
        let mut lines = Vec::new();
        let more = self.cursor.step(&mut lines)?;
        if !self.owned {
            let TranscriptPath { path, owned } = resolve(&self.root, &self.key)?;
            self.owned = owned;
            if path != self.cursor.path() {
                // Another key has claimed this name; our file is newer than the start of the following.
                self.cursor = FileCursor::at_start(path);
                return Ok((Vec::new(), true));
            }
        }
        lines.retain(|line| match line.message_id.as_deref() {
            Some(id) if !id.is_empty() => self.known.insert(id.to_owned()),
            _ => true,
        });
        Ok((lines, more))
    }
}
