//! In-memory index of one mailbox: its messages with their positions in the log.
//!
//! Updated from the log and a listing of the directory, so that each file is opened once. Saved from time to time
//! (`known.json`), so that a new process need not read the whole log.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use amb_core::MessageId;
use serde::{Deserialize, Serialize};

use crate::files::durable::{self, Wait};
use crate::files::open;
use crate::files::syncer::Syncer;
use crate::files::version::FileVersion;
use crate::log::{Brief, Log, LogLine, Withheld};

/// The index is saved again after the log has grown by this many bytes.
const SAVE_AFTER_BYTES: u64 = 256 << 10;

/// Above this many messages, those that are no longer in the mailbox are dropped while a log is read.
const PRUNE_ABOVE: usize = 50_000;

/// Bound on the saved index; a larger one is ignored, and the log is read instead.
pub(crate) const MAX_SAVED_BYTES: u64 = 256 << 20;

/// A message in the mailbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct IndexedMessage {
    #[serde(flatten)]
    pub(crate) version: FileVersion,
    #[serde(flatten)]
    pub(crate) brief: Brief,
    #[serde(default)]
    pub(crate) read: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) withheld: Option<Withheld>,
}

impl IndexedMessage {
    pub(crate) fn is_logged(&self) -> bool {
        self.version != FileVersion::NONE
    }

    /// Returns its line in the log.
    pub(crate) fn to_line(&self, file: &str) -> LogLine {
        let Self { version, brief, read, withheld } = self.clone();
        LogLine::In { f: file.to_owned(), version, brief, read, withheld }
    }

    pub(crate) fn is_unread(&self) -> bool {
        !self.read && self.withheld.is_none()
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct MailboxIndex {
    /// Messages by file name. Invariant: everything here is in the log before `read_to`, unless it has no version.
    pub(crate) known: HashMap<String, IndexedMessage>,
    /// The log up to this position is in `known`.
    read_to: u64,
    /// Inode of the log: if it changes, the log was replaced.
    log_inode: u64,
    /// Length of the log when the index was last saved.
    saved_at: u64,
    /// Position up to which the log is known to be durable.
    pub(crate) synced_to: u64,
    /// Files that are no mail: not opened again until they change.
    pub(crate) bad: HashMap<String, FileVersion>,
    /// Why some messages could not be logged, such as a full disk. They are in `known` without a version, or, if their task
    /// could not be stored, missing.
    pub(crate) unlogged: Option<String>,
}

/// The saved form of the index.
#[derive(Serialize, Deserialize)]
struct SavedIndex {
    log: u64,
    read_to: u64,
    known: HashMap<String, IndexedMessage>,
}

impl MailboxIndex {
    /// Applies lines that other processes appended to the log. `inbox` is the mailbox's directory.
    pub(crate) fn catch_up(&mut self, log: &Log, state: &Path, inbox: &Path) -> io::Result<()> {
        let (inode, len) = log.measure()?;
        if inode != self.log_inode || len < self.read_to {
            *self = Self { log_inode: inode, ..Self::default() };
            if let Some(saved) = load_saved(state, inode, len) {
                (self.read_to, self.known) = (saved.read_to, saved.known);
                self.saved_at = self.read_to;
            }
        }
        if len > self.read_to {
            let mut bound = PRUNE_ABOVE;
            self.read_to = log.scan_text(self.read_to, |_, text| {
                // Sent messages, receipts and tasks are not indexed.
                if (text.contains(r#""e":"in""#) || text.contains(r#""e":"seen""#))
                    && let Ok(line) = serde_json::from_str(text)
                {
                    self.apply(line);
                }
                if self.known.len() > bound {
                    self.drop_removed(inbox);
                    bound = 2 * self.known.len() + PRUNE_ABOVE;
                }
                ControlFlow::Continue(())
            })?;
        }
        Ok(())
    }

    /// Drops messages that are no longer in the mailbox, so that memory does not grow with the log.
    fn drop_removed(&mut self, inbox: &Path) {
        let Ok(entries) = fs_err::read_dir(inbox) else { return };
        let there: HashSet<OsString> = entries.flatten().map(|entry| entry.file_name()).collect();
        self.known.retain(|name, _| there.contains(OsStr::new(name)));
    }

    /// Whether the agent has no log yet.
    pub(crate) fn is_new(&self) -> bool {
        self.log_inode == 0
    }

    /// Applies lines that this process has just appended.
    pub(crate) fn apply_appended(&mut self, lines: Vec<LogLine>, end: u64, inode: u64) {
        lines.into_iter().for_each(|line| self.apply(line));
        self.read_to = end;
        self.log_inode = inode;
    }

    fn apply(&mut self, line: LogLine) {
        match line {
            LogLine::In { f, version, brief, read, withheld } => {
                self.known.insert(f, IndexedMessage { version, brief, read, withheld });
            }
            LogLine::Seen { f, version, read } => {
                if let Some(known) = self.known.get_mut(&f) {
                    known.version = version;
                    known.read = read;
                }
            }
            _ => {}
        }
    }

    /// Indexes mail that cannot be logged now, so that it can still be read.
    pub(crate) fn add_unlogged(&mut self, lines: Vec<LogLine>, why: String) {
        for line in lines {
            match line {
                LogLine::In { f, brief, read, withheld, .. } => {
                    let message = IndexedMessage { version: FileVersion::NONE, brief, read, withheld };
                    self.known.insert(f, message);
                }
                LogLine::Seen { f, read, .. } => {
                    // Keeps its old version, so that it is read again.
                    self.known.entry(f).and_modify(|known| known.read = read);
                }
                _ => {}
            }
        }
        self.unlogged = Some(why);
    }

    /// Drops unlogged messages, so that logging them is tried again.
    pub(crate) fn drop_unlogged(&mut self) {
        if self.unlogged.take().is_some() {
            self.known.retain(|_, known| known.is_logged());
        }
    }

    /// Returns the file name and entry of a message that is in the mailbox.
    pub(crate) fn by_id(&self, id: &MessageId) -> Option<(&String, &IndexedMessage)> {
        self.known.iter().find(|(_, known)| known.brief.id == *id)
    }

    /// Returns the file names of those of these messages that are in the mailbox, by id.
    pub(crate) fn names_of(&self, ids: &[MessageId]) -> HashMap<MessageId, String> {
        let ids: HashSet<&MessageId> = ids.iter().collect();
        let wanted = self.known.iter().filter(|(_, known)| ids.contains(&known.brief.id));
        wanted.map(|(name, known)| (known.brief.id.clone(), name.clone())).collect()
    }

    /// Saves the index if the log has grown enough. Best effort: it can be rebuilt from the log.
    pub(crate) fn save(&mut self, state: &Path, syncer: &Syncer) {
        // Unlogged messages must not be saved as logged.
        if self.read_to < self.saved_at + SAVE_AFTER_BYTES || self.unlogged.is_some() {
            return;
        }
        let saved = SavedIndex { log: self.log_inode, read_to: self.read_to, known: std::mem::take(&mut self.known) };
        if let Ok(bytes) = serde_json::to_vec(&saved)
            && let Err(error) = durable::replace(&saved_path(state), &bytes, Wait::Cached, syncer)
        {
            tracing::debug!(%error, "saving the index of a mailbox failed");
        }
        self.known = saved.known;
        self.saved_at = self.read_to;
    }
}

/// Loads the saved index, unless it is of another log or says more than the log, which a power cut may have shortened.
fn load_saved(state: &Path, log: u64, len: u64) -> Option<SavedIndex> {
    let bytes = open::read(&saved_path(state), MAX_SAVED_BYTES).ok()?;
    let saved: SavedIndex = serde_json::from_slice(&bytes).ok()?;
    (saved.log == log && saved.read_to <= len).then_some(saved)
}

fn saved_path(state: &Path) -> PathBuf {
    state.join("known.json")
}
