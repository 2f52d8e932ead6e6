//! The append-only log of one agent: messages received and sent, receipts and overdue tasks, one JSON line each.
//!
//! Mail itself is durable in the mailboxes; the log records the order in which this office found it. A position in the
//! log is therefore a cursor that misses and repeats nothing, whatever names and timestamps other programs give their
//! files. Lines are appended under a lock; readers need none, since a line counts only once its newline is there.

pub(crate) mod index;
pub(crate) mod ingest;
pub(crate) mod scan;

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use amb_core::doc::is_default;
use amb_core::limits::MAX_SUBJECT_CHARS;
use amb_core::message::NO_SUBJECT;
use amb_core::{AgentName, Kind, Message, MessageId, Priority, Receipt, SessionId, Task, TaskId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::files::layout::Layout;
use crate::files::lock::FileLock;
use crate::files::message_file::{self, derived_session};
use crate::files::open;
use crate::files::step::step;
use crate::files::version::FileVersion;
use crate::log::scan::MAX_LINE_BYTES;

/// Metadata of a message, so that its file need not be opened. Short field names keep lines short.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Brief {
    pub(crate) id: MessageId,
    /// The other agent: sender or recipient.
    #[serde(rename = "p")]
    pub(crate) peer: AgentName,
    #[serde(rename = "s")]
    pub(crate) session: SessionId,
    #[serde(rename = "u")]
    pub(crate) subject: String,
    #[serde(rename = "t")]
    pub(crate) at: Timestamp,
    #[serde(rename = "k", default, skip_serializing_if = "is_default")]
    pub(crate) kind: Kind,
    #[serde(rename = "q", default, skip_serializing_if = "is_default")]
    pub(crate) priority: Priority,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) task: Option<TaskId>,
    /// Hash of the content, if the message's id need not be unique: other programs use names and ids twice. Missing in
    /// lines of earlier versions.
    #[serde(rename = "h", default, skip_serializing_if = "Option::is_none")]
    pub(crate) content: Option<u32>,
}

impl Brief {
    /// The message from the point of view of `me`.
    pub(crate) fn of(message: &Message, me: &AgentName) -> Self {
        let peer = if message.from == *me { &message.to } else { &message.from };
        let session = message.session.clone().unwrap_or_else(|| derived_session(message));
        // Other programs may write a subject of any length; a line of the log has a bound.
        let subject = message.subject.as_deref().unwrap_or(NO_SUBJECT).chars().take(MAX_SUBJECT_CHARS).collect();
        Self {
            id: message.id.clone(),
            peer: peer.clone(),
            session,
            subject,
            at: message.sent_at,
            kind: message.kind.clone(),
            priority: message.priority,
            task: message.task.as_ref().map(|task| task.id.clone()),
            content: None,
        }
    }

    /// A message that was found in the file of this name.
    pub(crate) fn of_found(message: &Message, me: &AgentName, layout: Layout, name: &str) -> Self {
        let is_unique = message_file::has_unique_id(layout, name, message);
        Self { content: (!is_unique).then(|| message_file::content_hash(message)), ..Self::of(message, me) }
    }

    /// Whether this is a message that the log has as `logged`, in a new file.
    pub(crate) fn is_same_as(&self, logged: &Brief) -> bool {
        let content = logged.content.and(self.content);
        Brief { id: logged.id.clone(), content, ..self.clone() } == *logged
    }
}

/// Why a message in the mailbox is withheld from its recipient.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Withheld {
    /// A task that the office rejects on its own.
    Rejected,
    /// The sender is not in the agent's `allow_from`.
    Refused,
}

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "e", rename_all = "snake_case")]
pub(crate) enum LogLine {
    /// A message was found in the agent's mailbox.
    In {
        /// Its file.
        f: String,
        /// Its version when it was read.
        #[serde(flatten)]
        version: FileVersion,
        #[serde(flatten)]
        brief: Brief,
        /// Whether it had been read when it was found.
        #[serde(default, skip_serializing_if = "is_default")]
        read: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        withheld: Option<Withheld>,
    },
    /// The file of a message in the mailbox was written again, usually to mark the message as read (chipset).
    Seen {
        /// Its file.
        f: String,
        /// The new version.
        #[serde(flatten)]
        version: FileVersion,
        /// Whether it is marked as read.
        read: bool,
    },
    /// The agent sent a message.
    Out {
        /// Its file in the recipient's mailbox.
        f: String,
        #[serde(flatten)]
        brief: Brief,
    },
    /// A task that the agent gave or was given is past its deadline.
    Overdue {
        /// The task at that time.
        task: Box<Task>,
    },
    /// A message that the agent sent has been read.
    Receipt {
        /// The message.
        id: MessageId,
        /// Its receipt.
        receipt: Receipt,
    },
    /// A line of a later version.
    #[serde(other)]
    Unknown,
}

impl LogLine {
    /// Returns the metadata of a message that was received or sent; `None` for withheld messages and other lines.
    pub(crate) fn brief(&self) -> Option<&Brief> {
        match self {
            LogLine::In { brief, withheld: None, .. } | LogLine::Out { brief, .. } => Some(brief),
            _ => None,
        }
    }

    /// Returns the message that was received or sent: its metadata, the mailbox it was delivered to, and its file
    /// there. `None` for withheld messages and other lines.
    pub(crate) fn into_message(self, me: &AgentName) -> Option<(Brief, AgentName, String)> {
        match self {
            LogLine::In { f, brief, withheld: None, .. } => Some((brief, me.clone(), f)),
            LogLine::Out { f, brief } => {
                let recipient = brief.peer.clone();
                Some((brief, recipient, f))
            }
            _ => None,
        }
    }
}

/// The files of an agent's log.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    pub(crate) path: PathBuf,
    lock: PathBuf,
}

/// The lock under which lines are appended.
pub(crate) struct LogWriter {
    path: PathBuf,
    file: File,
    end: u64,
    _lock: FileLock,
}

impl Log {
    /// The log in an agent's state directory, which must exist before a line is appended.
    pub(crate) fn at(state: &Path) -> Self {
        Self { path: state.join("log"), lock: state.join("log.lock") }
    }

    /// Waits for the writer's lock.
    pub(crate) fn write(&self) -> io::Result<LogWriter> {
        let lock = FileLock::lock(&self.lock)?;
        let file = open::regular_with(&self.path, open::options().read(true).append(true).create(true))?;
        let mut file = file.into_parts().0;
        let mut end = file.metadata()?.len();
        let mut last = [b'\n'];
        if end > 0 {
            file.read_exact_at(&mut last, end - 1)?;
        }
        if last != *b"\n" {
            // A writer died in the middle of a line, which was never acknowledged. The newline makes it one corrupt
            // line, which readers skip.
            file.write_all(b"\n")?;
            end += 1;
        }
        Ok(LogWriter { path: self.path.clone(), file, end, _lock: lock })
    }

    /// Returns inode and length, both 0 before the first line.
    pub(crate) fn measure(&self) -> io::Result<(u64, u64)> {
        let there = open::if_exists(fs_err::metadata(&self.path))?;
        Ok(there.map_or((0, 0), |there| (there.ino(), there.len())))
    }

    /// Makes the log durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let Some(file) = open::if_exists(open::regular(&self.path))? else { return Ok(()) };
        step();
        file.sync_data()
    }

    /// Whether a line ends at this position.
    pub(crate) fn is_boundary(&self, position: u64) -> io::Result<bool> {
        if position == 0 {
            return Ok(true);
        }
        let Some(file) = open::if_exists(open::regular(&self.path))? else { return Ok(false) };
        let mut last = [0];
        Ok(file.file().read_at(&mut last, position - 1)? == 1 && last == *b"\n")
    }
}

impl LogWriter {
    /// Appends lines in one write and returns the new end of the log.
    pub(crate) fn add(&mut self, lines: &[LogLine]) -> io::Result<u64> {
        if lines.is_empty() {
            return Ok(self.end);
        }
        let mut bytes = Vec::with_capacity(lines.len() * 200);
        for line in lines {
            let start = bytes.len();
            serde_json::to_writer(&mut bytes, line)?;
            bytes.push(b'\n');
            if bytes.len() - start > MAX_LINE_BYTES {
                // Readers would skip it. Only a file of another program can cause this.
                tracing::warn!(log = %self.path.display(), "log line too long; skipped");
                bytes.truncate(start);
            }
        }
        step();
        if let Err(error) = self.file.write_all(&bytes) {
            // A full disk may have taken a part of it: truncate, so that the next line starts on a new line. If this
            // fails, the next writer ends the partial line.
            let _best_effort = self.file.set_len(self.end);
            return Err(error);
        }
        self.end += bytes.len() as u64;
        Ok(self.end)
    }

    /// The log's inode.
    pub(crate) fn inode(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.ino())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn line(n: u32, session: &str) -> LogLine {
        LogLine::Out {
            f: format!("{n}_a.msg.json"),
            brief: Brief {
                id: MessageId::parse(&format!("m{n}")).unwrap(),
                peer: "b".parse().unwrap(),
                session: session.parse().unwrap(),
                subject: "x".into(),
                at: Timestamp::from_second(n.into()).unwrap(),
                kind: Kind::Message,
                priority: Priority::Normal,
                task: None,
                content: None,
            },
        }
    }

    #[test]
    fn lines_are_read_from_any_position() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::at(dir.path());
        assert_eq!(log.read(0, u64::MAX).unwrap(), (vec![], 0));
        let first = log.write().unwrap().add(&[line(1, "s1"), line(2, "s2")]).unwrap();
        let second = log.write().unwrap().add(&[line(3, "s1")]).unwrap();
        let (all, end) = log.read(0, u64::MAX).unwrap();
        assert_eq!((all.len(), end), (3, second));
        assert_eq!(log.read(first, u64::MAX).unwrap().0, all[2..]);
        let lines: Vec<LogLine> = all.into_iter().map(|(line, _)| line).collect();
        assert_eq!(log.find(&["s1"]).unwrap(), [lines[0].clone(), lines[2].clone()]);
        assert_eq!(log.tail(u64::MAX).unwrap(), lines);
        assert_eq!(log.tail(second - first + 1).unwrap(), lines[2..]);
        assert!(log.is_boundary(first).unwrap() && !log.is_boundary(first - 1).unwrap());
    }

    #[test]
    fn an_unfinished_line_does_not_damage_others() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::at(dir.path());
        log.write().unwrap().add(&[line(1, "s1")]).unwrap();
        let mut file = fs_err::OpenOptions::new().append(true).open(dir.path().join("log")).unwrap();
        file.write_all(br#"{"e":"out","f":"#).unwrap();
        assert_eq!(log.read(0, u64::MAX).unwrap().0.len(), 1);
        log.write().unwrap().add(&[line(2, "s1")]).unwrap();
        let (lines, end) = log.read(0, u64::MAX).unwrap();
        assert_eq!((lines.len(), end), (2, log.measure().unwrap().1));
        assert_eq!(lines[1].0, line(2, "s1"));
    }

    #[test]
    fn a_line_of_a_later_version_is_skipped() {
        let line: LogLine = serde_json::from_str(r#"{"e":"dance","x":1}"#).unwrap();
        assert_eq!(line, LogLine::Unknown);
    }
}
