//! Journal of verbs that consist of several writes, so that another process can finish them after a kill.
//!
//! One write decides that a verb happened. All that follows from it (lines in logs, task records, pointers, updates,
//! receipts) is derived, and can be derived again by anybody. Before the deciding write, the verb leaves a note here that
//! says what it is about to do, and holds a lock on it; when everything is done it removes the note. A note whose lock is
//! free belongs to a dead process: the next verb that reads a mailbox (a repeat, an inbox, a watch, a task list, the doctor;
//! of any agent) finishes what it names.
//!
//! | verb | steps, the deciding one in capitals | what a kill leaves |
//! |---|---|---|
//! | `send` of a message | temporary file synced; `out` line in the sender's log; RENAME into the mailbox; directory synced | before the rename a temporary file, and a line about a message that is not there, which nobody is shown; after it the message, which its recipient's next look enters in the recipient's log |
//! | `send` under a key | the key with moment and file name, synced; as above; the key with its answer, synced | the repeat finds the file of that name, or sends it |
//! | `send` of a task | as a message, with a note before the rename; a task that the office rejects says so in its file, and the RENAME is into `processed/` or `archive/`; the assignee's record, synced; the update if it was rejected; the owner's pointer, synced; note removed | after the rename record, update and pointer follow from the file |
//! | `task accept`, `reject`, … | note; the RECORD with the new state and the update to be sent, synced; the update delivered under its one name; the record without it; the task's message acknowledged if the task has ended; note removed | after the record's rename the update is in the record, and the next reader of it delivers it |
//! | `ack` | note; RENAME to `processed/`, or the file exchanged for one marked as read; both directories synced; receipts in the senders' logs; note removed | after the deciding write the receipts follow from where the file lies, or what it says, and from what is in the senders' logs already |
//! | a task found in the mailbox | its RECORD as for a move; `in` line in the log; if rejected the update, then to `processed/` | the file is still in the mailbox and not in the log, so the next look does the same |
//! | `read` | as `ack`, of what the page shows and is unread | as `ack`; the page is shown again |
//! | `archive` | each file RENAMED; directories synced; old idempotency keys removed | the next run moves the rest |
//! | `register` | mailbox; CARD synced; status; registry | the next registration or heartbeat does the rest |
//! | `heartbeat`, `leave` | the status REPLACED, or its time set; registry | the next heartbeat writes the registry; an agent that left half is offline when its heartbeats stay away |
//! | a task runs past its deadline | `overdue` LINE in the log; the record says who was told | the next look finds the line and writes the record |
//! | `carry` of mail that another office accepted | temporary file synced; RENAME under its one name; directory synced; `out` line | the carrier carries it again: the name is taken, or the line is there |
//! | `carry` of an update | the RECORD synced; then as any mail | the carrier carries it again, and the record says that it has moved |
//! | `refuse` | RENAME to `refused/`; both directories synced | the message is where it was, or in `refused/` |
//! | `transcript append` | the file's owner recorded, synced; one WRITE of whole lines; file synced | before the write nothing; a line cut short is closed by the next writer and passed over by readers |
//! | `doctor --mend` | each finding by itself: a RENAME, a removal, or what the verbs above do | the next run mends the rest |
//!
//! Notes are not synced, since every verb would pay for that and only a kill needs them; on a full disk a verb goes on without
//! one. So the doctor looks at everything: each record whose update waits, whose owner has no pointer or whose
//! message waits though the task has ended, each task that the office rejected and that has no record, and each message
//! that was read and whose sender has no receipt. A list of tasks finishes its own records in the same way.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use amb_core::{AgentName, OfficeError, TaskId};
use serde::{Deserialize, Serialize};

use crate::files::durable::{self, TEMP_PREFIX, TEMP_SUFFIX, nonce};
use crate::files::failure::Doing;
use crate::files::lock::{FileLock, same_file};
use crate::files::open;
use crate::log::Brief;
use crate::office::OfficeState;

/// Where the file system has no locks, a note this old has no writer.
const ABANDONED: Duration = Duration::from_secs(60);

/// A note larger than this is none of ours: one names at most as many messages as one call acknowledges.
const LARGEST: u64 = 64 << 20;

/// A verb that is about to be carried out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case")]
pub(crate) enum Intent {
    /// A task is sent or moved.
    Task {
        /// Whose task.
        assignee: AgentName,
        /// Which.
        id: TaskId,
        /// The file that brings it, as it is named when it arrives, if it is just being sent: then that decides.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
    },
    /// Messages are acknowledged.
    Read {
        /// Whose mail.
        agent: AgentName,
        /// Which.
        messages: Vec<AckedFile>,
    },
}

/// A message that is being acknowledged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AckedFile {
    /// Its file, as it was named when it arrived.
    pub(crate) file: String,
    #[serde(flatten)]
    pub(crate) brief: Brief,
}

/// A journal entry that this process holds. Dropped before [`OpenIntent::done`], another process finishes it.
#[derive(Debug)]
pub(crate) struct OpenIntent {
    path: PathBuf,
    /// Open and locked while the process lives.
    _file: fs_err::File,
}

impl OpenIntent {
    /// Removes the entry after everything is done.
    pub(crate) fn done(self) {
        if let Err(error) = durable::remove(&self.path) {
            tracing::debug!(%error, "removing a finished journal entry failed; finishing it again changes nothing");
        }
    }
}

impl OfficeState {
    pub(crate) fn unfinished_dir(&self) -> PathBuf {
        self.paths.side().join("unfinished")
    }

    /// Writes a journal entry. If that fails (a full disk) the verb continues without: only a kill would need it.
    pub(crate) fn begin(&self, note: &Intent) -> Option<OpenIntent> {
        self.leave_note(note)
            .inspect_err(
                |error| tracing::warn!(%error, "writing a journal entry failed; a kill now would leave the verb half done"),
            )
            .ok()
    }

    fn leave_note(&self, note: &Intent) -> io::Result<OpenIntent> {
        let directory = self.unfinished_dir();
        durable::make_dir(&directory, &self.syncer)?;
        let name = format!("{}-{:016x}", std::process::id(), nonce());
        // Locked before it has its name: a note without a lock belongs to a dead process.
        let temp = directory.join(format!("{TEMP_PREFIX}{name}{TEMP_SUFFIX}"));
        let mut file = open::options().write(true).create_new(true).open(&temp)?;
        let _unsupported = file.file().try_lock();
        let path = directory.join(format!("{name}.json"));
        let written = serde_json::to_vec(note)
            .map_err(io::Error::other)
            .and_then(|bytes| file.write_all(&bytes))
            .and_then(|()| durable::rename_new(&temp, &path));
        if let Err(error) = written {
            let _leaving = fs_err::remove_file(&temp);
            return Err(error);
        }
        Ok(OpenIntent { path, _file: file })
    }

    /// Finishes what dead processes began. Failures are only logged: mail must be shown all the same.
    pub(crate) fn finish_begun(self: &Arc<Self>) {
        if let Err(error) = self.try_finish_begun() {
            tracing::warn!(%error, "finishing a dead process's verb failed; retrying at the next ingest");
        }
    }

    fn try_finish_begun(self: &Arc<Self>) -> Result<(), OfficeError> {
        let doing = "could not finish what a dead process began";
        if self.abandoned_notes().doing(doing)?.is_empty() {
            return Ok(());
        }
        // One at a time: two that finish two notes about one message would each leave it to the other.
        let _locked = FileLock::wait(&self.unfinished_dir().join("lock")).doing(doing)?;
        let mut failed = Ok(());
        for path in self.abandoned_notes().doing(doing)? {
            let finished = match read_note(&path).doing(doing)? {
                Some(Intent::Task { assignee, id, file }) => {
                    self.finish_task(&assignee, &id, file.as_deref()).map(|_| true)
                }
                Some(Intent::Read { agent, messages }) => self.finish_reading(&agent, &messages, &path),
                None => Ok(true),
            };
            match finished {
                Ok(true) => durable::remove(&path).doing(doing)?,
                // A live process has a part in it: the next look finishes it.
                Ok(false) => {}
                // The others are finished all the same.
                Err(error) => failed = Err(error),
            }
        }
        failed
    }

    /// Notes whose writers are dead.
    pub(crate) fn abandoned_notes(&self) -> io::Result<Vec<PathBuf>> {
        let mut notes = self.notes()?;
        notes.retain(|path| is_abandoned(path));
        Ok(notes)
    }

    /// What live processes are about to do, except for the one note.
    pub(crate) fn live_notes(&self, except: &Path) -> io::Result<Vec<Intent>> {
        let others = self.notes()?.into_iter().filter(|path| path != except && !is_abandoned(path));
        Ok(others.filter_map(|path| read_note(&path).ok()?).collect())
    }

    fn notes(&self) -> io::Result<Vec<PathBuf>> {
        let Some(entries) = open::if_there(fs_err::read_dir(self.unfinished_dir()))? else { return Ok(Vec::new()) };
        let mut notes = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                notes.push(path);
            }
        }
        notes.sort();
        Ok(notes)
    }
}

/// The note in a file; none if it is gone, or was cut short by a power cut.
fn read_note(path: &Path) -> io::Result<Option<Intent>> {
    let Some(bytes) = open::if_there(open::bytes(path, LARGEST))? else { return Ok(None) };
    Ok(serde_json::from_slice(&bytes)
        .inspect_err(|error| tracing::warn!(path = %path.display(), %error, "corrupt journal entry"))
        .ok())
}

/// Whether the writer of a note is dead.
fn is_abandoned(path: &Path) -> bool {
    let Ok(file) = open::regular(path) else { return false };
    // Shared: two that ask at once must not take each other for the writer.
    match file.file().try_lock_shared() {
        Ok(()) => same_file(file.file(), path),
        Err(std::fs::TryLockError::WouldBlock) => false,
        Err(_) => {
            let modified = file.metadata().and_then(|about| about.modified());
            modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > ABANDONED))
        }
    }
}
