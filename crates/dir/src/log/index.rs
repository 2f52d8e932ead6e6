//! In-memory index of one mailbox: its messages with their positions in the log.
//!
//! Kept in memory and brought up to date from the log and a listing of the directory, so that each file is opened once
//! however often the mailbox is looked at. From time to time it is written down (`known.json`), so that a new process
//! need not read the whole log.

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
use crate::log::{Brief, Log, LogLine, Withheld};

/// The index is saved again after the log has grown by this much.
const WRITE_DOWN_AFTER: u64 = 256 << 10;

/// Above this many messages, those that left the mailbox are dropped while a log is read.
const FORGET_ABOVE: usize = 50_000;

/// A larger saved index is ignored, and the log is read instead.
pub(crate) const LARGEST_NOTE: u64 = 256 << 20;

/// A message in the mailbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct IndexedMessage {
    #[serde(rename = "i")]
    pub(crate) inode: u64,
    #[serde(flatten)]
    pub(crate) brief: Brief,
    #[serde(default)]
    pub(crate) read: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) withheld: Option<Withheld>,
}

impl IndexedMessage {
    pub(crate) fn is_unread(&self) -> bool {
        !self.read && self.withheld.is_none()
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct MailboxIndex {
    /// By the name of the file. Invariant: everything here is in the log before `read_to`.
    pub(crate) known: HashMap<String, IndexedMessage>,
    /// The log up to here is in `known`.
    read_to: u64,
    /// The log's inode: another one is another log.
    log_inode: u64,
    /// Length of the log when the index was last saved.
    written_down: u64,
    /// Up to where the log is known to be durable.
    pub(crate) synced_to: u64,
    /// Files that are no mail, with their time of change and size when that was found: not opened again until they change.
    pub(crate) bad: HashMap<String, (u64, i64, u64)>,
    /// Why mail that is shown could not be entered in the log, such as a full disk. It stands in `known` with inode 0.
    pub(crate) not_entered: Option<String>,
}

/// The saved form of the index.
#[derive(Serialize, Deserialize)]
struct SavedIndex {
    log: u64,
    read_to: u64,
    known: HashMap<String, IndexedMessage>,
}

impl MailboxIndex {
    /// Applies what others appended to the log. `inbox` is the mailbox's directory.
    pub(crate) fn catch_up(&mut self, log: &Log, state: &Path, inbox: &Path) -> io::Result<()> {
        let (inode, len) = log.measure()?;
        if inode != self.log_inode || len < self.read_to {
            *self = Self { log_inode: inode, ..Self::default() };
            if let Some(written) = self.recall(state, inode, len) {
                (self.read_to, self.known) = (written.read_to, written.known);
                self.written_down = self.read_to;
            }
        }
        if len > self.read_to {
            let mut bound = FORGET_ABOVE;
            self.read_to = log.scan_text(self.read_to, |_, text| {
                // Sent messages, receipts and tasks are not indexed.
                if (text.contains(r#""e":"in""#) || text.contains(r#""e":"seen""#))
                    && let Ok(line) = serde_json::from_str(text)
                {
                    self.take(line);
                }
                if self.known.len() > bound {
                    self.forget_gone(inbox);
                    bound = 2 * self.known.len() + FORGET_ABOVE;
                }
                ControlFlow::Continue(())
            })?;
        }
        Ok(())
    }

    /// Forgets messages that do not lie in the mailbox any more, so that a long log needs no more memory than the mailbox.
    fn forget_gone(&mut self, inbox: &Path) {
        let Ok(entries) = fs_err::read_dir(inbox) else { return };
        let there: HashSet<OsString> = entries.flatten().map(|entry| entry.file_name()).collect();
        self.known.retain(|name, _| there.contains(OsStr::new(name)));
    }

    /// Whether the agent has no log yet.
    pub(crate) fn is_new(&self) -> bool {
        self.log_inode == 0
    }

    /// Takes in lines that this process has just added.
    pub(crate) fn added(&mut self, lines: Vec<LogLine>, end: u64, inode: u64) {
        lines.into_iter().for_each(|line| self.take(line));
        self.read_to = end;
        self.log_inode = inode;
    }

    fn take(&mut self, line: LogLine) {
        match line {
            LogLine::In { f, i, brief, read, withheld } => {
                self.known.insert(f, IndexedMessage { inode: i, brief, read, withheld });
            }
            LogLine::Seen { f, i, read } => {
                if let Some(known) = self.known.get_mut(&f) {
                    known.inode = i;
                    known.read = read;
                }
            }
            _ => {}
        }
    }

    /// Indexes mail that cannot be logged now, so that it can be read all the same.
    pub(crate) fn show_only(&mut self, lines: Vec<LogLine>, why: String) {
        for line in lines {
            if let LogLine::In { f, brief, read, withheld, .. } = line {
                self.known.insert(f, IndexedMessage { inode: 0, brief, read, withheld });
            }
        }
        self.not_entered = Some(why);
    }

    /// Forgets what was only shown: it is entered at the next try.
    pub(crate) fn try_again(&mut self) {
        if self.not_entered.take().is_some() {
            self.known.retain(|_, known| known.inode != 0);
        }
    }

    /// The file and the message of this id, if it lies in the mailbox.
    pub(crate) fn by_id(&self, id: &MessageId) -> Option<(&String, &IndexedMessage)> {
        self.known.iter().find(|(_, known)| known.brief.id == *id)
    }

    fn recall(&self, state: &Path, log: u64, len: u64) -> Option<SavedIndex> {
        let bytes = open::bytes(&note(state), LARGEST_NOTE).ok()?;
        let written: SavedIndex = serde_json::from_slice(&bytes).ok()?;
        // After a power cut the log may be shorter than it was: then the note says too much.
        (written.log == log && written.read_to <= len).then_some(written)
    }

    /// Saves the index if the log has grown enough. Best effort: the log has everything.
    pub(crate) fn write_down(&mut self, state: &Path, syncer: &Syncer) {
        // What was only shown is not in the log, and must not be taken for it.
        if self.read_to < self.written_down + WRITE_DOWN_AFTER || self.not_entered.is_some() {
            return;
        }
        let written = SavedIndex { log: self.log_inode, read_to: self.read_to, known: std::mem::take(&mut self.known) };
        if let Ok(bytes) = serde_json::to_vec(&written)
            && let Err(error) = durable::replace(&note(state), &bytes, Wait::Cached, syncer)
        {
            tracing::debug!(%error, "saving the index of a mailbox failed");
        }
        self.known = written.known;
        self.written_down = self.read_to;
    }
}

fn note(state: &Path) -> PathBuf {
    state.join("known.json")
}
