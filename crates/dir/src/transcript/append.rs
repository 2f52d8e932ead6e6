//! Appends whole lines durably, with one sync for all waiting callers.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use fs_err::File;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::file::{lock, open_append};
use crate::files::lock::same_file;
use crate::files::step::step;
use crate::files::syncer::Syncer;

/// Most bytes in one write. Only lines that wait at the same time share a write; a single line never waits for others.
const MAX_BATCH_BYTES: usize = 1024 * 1024;
/// How often a file may be rotated between open and lock before that is an error.
const MAX_REOPENS: usize = 16;

/// The writer of one transcript in this process.
#[derive(Debug)]
pub(super) struct Appender {
    path: PathBuf,
    syncer: Arc<Syncer>,
    queue: Mutex<AppendQueue>,
    /// Held by the writing task, never by waiting callers.
    file: Mutex<Option<File>>,
}

#[derive(Debug, Default)]
struct AppendQueue {
    waiting: VecDeque<QueuedLine>,
    /// Whether a task is writing. It drains the queue before it ends.
    writing: bool,
}

#[derive(Debug)]
struct QueuedLine {
    line: Vec<u8>,
    answer: oneshot::Sender<Result<(), Arc<io::Error>>>,
}

impl Appender {
    pub(super) fn new(path: PathBuf, syncer: Arc<Syncer>) -> Self {
        Self { path, syncer, queue: Mutex::default(), file: Mutex::default() }
    }

    /// Appends one line, including its newline, durably.
    pub(super) async fn append(self: &Arc<Self>, line: Vec<u8>) -> Result<(), Arc<io::Error>> {
        let (answer, answered) = oneshot::channel();
        let lead = {
            let mut queue = self.queue.lock();
            queue.waiting.push_back(QueuedLine { line, answer });
            !std::mem::replace(&mut queue.writing, true)
        };
        if lead {
            let appender = Arc::clone(self);
            tokio::task::spawn_blocking(move || appender.drain());
        }
        answered.await.unwrap_or_else(|_| Err(Arc::new(io::Error::other("the writer stopped before it answered"))))
    }

    /// Writes batches until the queue is empty.
    fn drain(&self) {
        loop {
            let batch = self.next_batch();
            if batch.is_empty() {
                return;
            }
            let outcome = self.commit(&batch).map_err(Arc::new);
            for waiting in batch {
                // The caller may be gone; its line is written anyway.
                let _ = waiting.answer.send(outcome.clone());
            }
        }
    }

    fn next_batch(&self) -> Vec<QueuedLine> {
        let mut queue = self.queue.lock();
        let mut batch = Vec::new();
        let mut bytes = 0;
        while let Some(waiting) = queue.waiting.pop_front() {
            bytes += waiting.line.len();
            batch.push(waiting);
            if queue.waiting.front().is_some_and(|next| bytes + next.line.len() > MAX_BATCH_BYTES) {
                break;
            }
        }
        queue.writing = !batch.is_empty();
        batch
    }

    fn commit(&self, batch: &[QueuedLine]) -> io::Result<()> {
        let mut slot = self.file.lock();
        let written = self.write(&mut slot, batch);
        // The lock is already released, so that other processes write while this one syncs.
        let synced = match (&*slot, written) {
            (Some(file), Ok(())) => {
                step();
                file.sync_data()
            }
            (_, outcome) => outcome,
        };
        if synced.is_err() {
            // After a failed sync the kernel may drop dirty pages; a new handle at least reports the next failure.
            *slot = None;
        }
        synced
    }

    fn write(&self, slot: &mut Option<File>, batch: &[QueuedLine]) -> io::Result<()> {
        for _ in 0..MAX_REOPENS {
            let file = match slot {
                Some(file) => file,
                None => slot.insert(open_append(&self.path, &self.syncer)?),
            };
            let lock = lock(file)?;
            if same_file(file.file(), &self.path) {
                return write_lines(file, batch);
            }
            drop(lock);
            *slot = None;
        }
        Err(io::Error::other("the transcript is replaced faster than it can be opened"))
    }
}

/// One write for the whole batch. The caller holds the lock.
fn write_lines(file: &File, batch: &[QueuedLine]) -> io::Result<()> {
    let before = file.metadata()?.len();
    let mut bytes = Vec::with_capacity(batch.iter().map(|waiting| waiting.line.len()).sum::<usize>() + 1);
    if !ends_with_newline(file, before)? {
        // Another program died in the middle of a line, or left out its newline.
        bytes.push(b'\n');
    }
    for waiting in batch {
        bytes.extend_from_slice(&waiting.line);
    }
    let mut written = 0;
    step();
    while written < bytes.len() {
        match (&mut &*file).write(&bytes[written..]) {
            Ok(0) => return undo(file, before, written, io::ErrorKind::WriteZero.into()),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return undo(file, before, written, error),
        }
    }
    Ok(())
}

/// Truncates a partly written batch, so that no line of a failed append remains.
fn undo(file: &File, before: u64, written: usize, error: io::Error) -> io::Result<()> {
    // Not if a program that takes no lock has appended meanwhile: a torn line is better than a lost one.
    if written > 0 && file.metadata()?.len() == before + written as u64 {
        file.set_len(before)?;
    }
    Err(error)
}

fn ends_with_newline(file: &File, len: u64) -> io::Result<bool> {
    if len == 0 {
        return Ok(true);
    }
    let mut last = [0];
    match file.file().read_exact_at(&mut last, len - 1) {
        Ok(()) => Ok(last == *b"\n"),
        // Truncated meanwhile by a program that takes no lock, such as `logrotate` with `copytruncate`.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(true),
        Err(error) => Err(error),
    }
}
