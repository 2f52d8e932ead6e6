//! Journal of verbs that consist of several writes, so that another process can finish them after a kill.
//!
//! One write decides that a verb happened. All others (log lines, task records, pointers, updates, receipts) are
//! derived from it, and any process can derive them again. Before the deciding write, the verb writes a journal entry
//! that says what it is about to do, and holds a lock on it; when everything is done it removes the entry. An entry
//! without a lock belongs to a dead process: the next verb that reads a mailbox, of any agent, finishes it.
//!
//! | verb | steps, the deciding one in capitals | what a kill leaves |
//! |---|---|---|
//! | `send` of a message | temporary file synced; `out` line in the sender's log; RENAME into the mailbox; directory synced | before the rename a temporary file, and a line about a missing message, which is not shown; after it the message, which the recipient's next ingest logs |
//! | `send` under a key | the key with timestamp and file name, synced; as above; the key with its result, synced | the repeat finds the file of that name, or sends it |
//! | `send` of a task | as a message, with an entry before the rename; a task that the office rejects says so in its file, and the RENAME is into `processed/` or `archive/`; the assignee's record, synced; the update if it was rejected; the owner's pointer, synced; entry removed | after the rename record, update and pointer follow from the file |
//! | `task accept`, `reject`, … | entry; the RECORD with the new state and the pending update, synced; the update delivered under its exact name; the record without it; the task's message acknowledged if the task has ended; entry removed | after the record's rename the update is in the record, and the next reader of it delivers it |
//! | `ack` | entry; RENAME to `processed/`, or the file exchanged for one marked as read; both directories synced; receipts in the senders' logs; entry removed | after the deciding write the receipts follow from the file's place or contents, and from what is in the senders' logs already |
//! | a task found in the mailbox | its RECORD as for a move; `in` line in the log; if rejected the update, then to `processed/` | the file is still in the mailbox and not in the log, so the next ingest does the same |
//! | `read` | as `ack`, of the unread messages on the page | as `ack`; the page is shown again |
//! | `archive` | each file RENAMED; directories synced; old idempotency keys removed | the next run moves the rest |
//! | `register` | mailbox; CARD synced; status; registry | the next registration or heartbeat does the rest |
//! | `heartbeat`, `leave` | the status REPLACED, or its mtime set; registry | the next heartbeat writes the registry; an agent that has half left goes offline by its heartbeat timeout |
//! | a task passes its deadline | `overdue` LINE in the log; the record lists the agents notified | the next check finds the line and writes the record |
//! | `carry` of mail that another office accepted | temporary file synced; RENAME under its exact name; directory synced; `out` line | the carrier carries it again: the name is taken, or the line is there |
//! | `carry` of an update | the RECORD synced; then as any mail | the carrier carries it again, and the record has moved already |
//! | `refuse` | RENAME to `refused/`; both directories synced | the message is where it was, or in `refused/` |
//! | `transcript append` | the file's owner recorded, synced; one WRITE of whole lines; file synced | before the write nothing; a partial line is ended by the next writer and skipped by readers |
//! | `doctor --mend` | each finding by itself: a RENAME, a removal, or what the verbs above do | the next run mends the rest |
//!
//! Entries are not synced: every verb would pay for that, and only a kill needs them. On a full disk a verb continues
//! without one. So the doctor checks everything: records with a pending update, without a pointer of the owner, or
//! whose task has ended while its message is unread; tasks that the office rejected and that have no record; and read
//! messages without a receipt. A list of tasks finishes its own records in the same way.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use amb_core::{AgentName, OfficeError, TaskId};
use serde::{Deserialize, Serialize};

use crate::files::durable::{self, TEMP_PREFIX, TEMP_SUFFIX, nonce};
use crate::files::failure::IoContext;
use crate::files::lock::{FileLock, same_file};
use crate::files::open;
use crate::log::Brief;
use crate::office::OfficeState;

/// Where the file system has no locks, an entry older than this has no live writer.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);

/// Bound on an entry, which names at most as many messages as one call acknowledges.
const MAX_BYTES: u64 = 64 << 20;

/// A verb in progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case")]
pub(crate) enum Intent {
    /// A task is sent or moved.
    Task {
        /// Whose task it is.
        assignee: AgentName,
        id: TaskId,
        /// File name of the message that brings it, if it is being sent: then that file decides.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
    },
    /// Messages are acknowledged.
    Read {
        /// Whose mail it is.
        agent: AgentName,
        messages: Vec<AckedFile>,
    },
}

/// A message that is being acknowledged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AckedFile {
    /// File name under which it arrived.
    pub(crate) file: String,
    #[serde(flatten)]
    pub(crate) brief: Brief,
}

/// A journal entry that this process holds. If dropped before [`JournalEntry::done`], another process finishes it.
#[derive(Debug)]
pub(crate) struct JournalEntry {
    path: PathBuf,
    /// Open and locked while the entry is held.
    _file: fs_err::File,
}

impl JournalEntry {
    /// Removes the entry after the last step.
    pub(crate) fn done(self) {
        if let Err(error) = durable::remove(&self.path) {
            tracing::debug!(%error, "removing a finished journal entry failed; finishing it again changes nothing");
        }
    }
}

impl OfficeState {
    pub(crate) fn journal_dir(&self) -> PathBuf {
        self.paths.own_dir().join("unfinished")
    }

    /// Writes a journal entry. If that fails, as on a full disk, the verb continues without one.
    pub(crate) fn begin(&self, intent: &Intent) -> Option<JournalEntry> {
        self.write_entry(intent)
            .inspect_err(
                |error| tracing::warn!(%error, "writing a journal entry failed; a kill now would leave the verb half done"),
            )
            .ok()
    }

    fn write_entry(&self, intent: &Intent) -> io::Result<JournalEntry> {
        let directory = self.journal_dir();
        durable::make_dir(&directory, &self.syncer)?;
        let name = format!("{}-{:016x}", std::process::id(), nonce());
        // Locked before the rename: an entry without a lock belongs to a dead process.
        let temp = directory.join(format!("{TEMP_PREFIX}{name}{TEMP_SUFFIX}"));
        let mut file = open::options().write(true).create_new(true).open(&temp)?;
        let _unsupported = file.file().try_lock();
        let path = directory.join(format!("{name}.json"));
        let written = serde_json::to_vec(intent)
            .map_err(io::Error::other)
            .and_then(|bytes| file.write_all(&bytes))
            .and_then(|()| durable::rename_new(&temp, &path));
        if let Err(error) = written {
            let _best_effort = fs_err::remove_file(&temp);
            return Err(error);
        }
        Ok(JournalEntry { path, _file: file })
    }

    /// Finishes the verbs of dead processes. Failures are only logged, so that mail can still be read.
    pub(crate) fn recover_journal(self: &Arc<Self>) {
        if let Err(error) = self.try_recover_journal() {
            tracing::warn!(%error, "finishing a dead process's verb failed; retrying at the next ingest");
        }
    }

    fn try_recover_journal(self: &Arc<Self>) -> Result<(), OfficeError> {
        let context = "could not finish what a dead process began";
        if self.abandoned_entries().context(context)?.is_empty() {
            return Ok(());
        }
        // Under a lock: two processes that finish two entries about one message would each leave it to the other.
        let _locked = FileLock::lock(&self.journal_dir().join("lock")).context(context)?;
        let mut failed = Ok(());
        for path in self.abandoned_entries().context(context)? {
            let finished = match read_entry(&path).context(context)? {
                Some(Intent::Task { assignee, id, file }) => {
                    self.finish_task(&assignee, &id, file.as_deref()).map(|_| true)
                }
                Some(Intent::Read { agent, messages }) => self.finish_receipts(&agent, &messages, &path),
                None => Ok(true),
            };
            match finished {
                Ok(true) => durable::remove(&path).context(context)?,
                // Shared with a live process: finished by a later recovery.
                Ok(false) => {}
                // Does not keep the other entries from being finished.
                Err(error) => failed = Err(error),
            }
        }
        failed
    }

    /// Returns the paths of entries whose writers are dead.
    pub(crate) fn abandoned_entries(&self) -> io::Result<Vec<PathBuf>> {
        let mut entries = self.journal_entries()?;
        entries.retain(|path| is_abandoned(path));
        Ok(entries)
    }

    /// Returns the verbs in progress of live processes, except for one entry.
    pub(crate) fn live_entries(&self, except: &Path) -> io::Result<Vec<Intent>> {
        let others = self.journal_entries()?.into_iter().filter(|path| path != except && !is_abandoned(path));
        Ok(others.filter_map(|path| read_entry(&path).ok()?).collect())
    }

    fn journal_entries(&self) -> io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for entry in open::entries(&self.journal_dir())? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                paths.push(path);
            }
        }
        paths.sort();
        Ok(paths)
    }
}

/// Reads an entry; `None` if it is gone, or was truncated by a power cut.
fn read_entry(path: &Path) -> io::Result<Option<Intent>> {
    let Some(bytes) = open::if_exists(open::read(path, MAX_BYTES))? else { return Ok(None) };
    Ok(serde_json::from_slice(&bytes)
        .inspect_err(|error| tracing::warn!(path = %path.display(), %error, "corrupt journal entry"))
        .ok())
}

/// Whether the writer of an entry is dead.
fn is_abandoned(path: &Path) -> bool {
    let Ok(file) = open::regular(path) else { return false };
    // Shared: two concurrent checks must not take each other for the writer.
    match file.file().try_lock_shared() {
        Ok(()) => same_file(file.file(), path),
        Err(std::fs::TryLockError::WouldBlock) => false,
        Err(_) => file.metadata().is_ok_and(|file| open::age(&file).is_some_and(|age| age > ABANDONED_AFTER)),
    }
}
