//! New lines of a transcript as they are appended.

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
use crate::files::failure::{Doing as _, failed};
use crate::files::watch::DirectoryWatch;

/// Lines handed out ahead of a slow reader; the file holds the rest.
const AHEAD: usize = 256;
/// Message ids remembered, so that a message two processes wrote is handed out once.
const REMEMBERED: usize = 4_096;
/// How often to read where the kernel reports changes, since events may be lost.
const POLL_WATCHED: Duration = Duration::from_secs(1);
/// How often to read where it does not.
const POLL_ALONE: Duration = Duration::from_millis(100);

/// The new lines of one transcript. Dropping it ends the following.
#[derive(Debug)]
pub struct Follow {
    lines: mpsc::Receiver<Result<Line, OfficeError>>,
}

impl Follow {
    /// The next new line; waits until there is one. `None` only after an error was returned.
    ///
    /// Cancelling the wait loses nothing.
    pub async fn recv(&mut self) -> Option<Result<Line, OfficeError>> {
        self.lines.recv().await
    }
}

/// What the blocking part of following works on.
struct FileFollower {
    root: PathBuf,
    key: TranscriptKey,
    owned: bool,
    cursor: FileCursor,
    known: RecentSet<String, REMEMBERED>,
}

/// Begins to follow at the end of the file; returns the last `backlog` lines before it too.
pub(super) async fn follow(
    root: PathBuf,
    key: TranscriptKey,
    backlog: usize,
    watch: Arc<DirectoryWatch>,
) -> Result<(Vec<Line>, Follow), OfficeError> {
    // Watch first, look second: a line that comes in between then only wakes us once more.
    let changes = watch.directory(&root);
    let opened = tokio::task::spawn_blocking(move || FileFollower::open(root, key, backlog)).await;
    let (recent, follower) = opened.map_err(OfficeError::internal)?.doing(READING)?;
    let (sender, lines) = mpsc::channel(AHEAD);
    tokio::spawn(run(follower, sender, changes, watch));
    Ok((recent, Follow { lines }))
}

async fn run(
    mut follower: FileFollower,
    sender: mpsc::Sender<Result<Line, OfficeError>>,
    mut changes: Option<watch::Receiver<u64>>,
    // Kept, since the store may be dropped before those who follow.
    _watch: Arc<DirectoryWatch>,
) {
    loop {
        let stepped = tokio::task::spawn_blocking(move || {
            let outcome = follower.step();
            (follower, outcome)
        });
        let (lines, more) = match stepped.await {
            Ok((returned, outcome)) => {
                follower = returned;
                match outcome {
                    Ok(stepped) => stepped,
                    Err(error) => {
                        let _ = sender.send(Err(failed(READING, error))).await;
                        return;
                    }
                }
            }
            Err(error) => {
                let _ = sender.send(Err(OfficeError::internal(error))).await;
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

/// Waits until something changed in the root, or it is time to look anyway.
async fn changed(changes: &mut Option<watch::Receiver<u64>>) {
    let Some(receiver) = changes else { return tokio::time::sleep(POLL_ALONE).await };
    if let Ok(Err(_)) = tokio::time::timeout(POLL_WATCHED, receiver.changed()).await {
        *changes = None;
    }
}

impl FileFollower {
    fn open(root: PathBuf, key: TranscriptKey, backlog: usize) -> io::Result<(Vec<Line>, Self)> {
        loop {
            let place = resolve(&root, &key)?;
            let cursor = FileCursor::at_end(place.path.clone())?;
            let window = match cursor.position() {
                Some((file, end)) => gather(file, end, backlog, false)?.unwrap_or_default(),
                None => Default::default(),
            };
            // As in `recent`: what was nobody's before it was read may have become another key's.
            if place.owned || resolve(&root, &key)?.path == place.path {
                let mut known = RecentSet::default();
                for id in window.ids() {
                    known.insert(id.to_owned());
                }
                return Ok((window.into_recent(backlog), Self { root, key, owned: place.owned, cursor, known }));
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
                // Another key took this name; ours has, or will have, a file that began after we did.
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
