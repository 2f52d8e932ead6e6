//! The log of one agent: everything that came to it or went from it, one JSON line each, only ever added to.
//!
//! Mail itself is durable in the mailboxes; the log says in which order this office noticed it, so that a position in
//! the log is a cursor that misses nothing and repeats nothing, whatever a file is called and whatever stamp a foreign
//! program gave it. Lines are added under a lock; readers need none, for a line counts only once its newline is there.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use amb_core::message::NO_SUBJECT;
use amb_core::{AgentName, Kind, Message, MessageId, Priority, Receipt, SessionId, Task, TaskId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::lock::Locked;
use crate::open;
use crate::step::step;

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What the office needs to know of a message without opening its file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Brief {
    pub(crate) id: MessageId,
    /// The other side: who sent it, or to whom it went.
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
}

impl Brief {
    /// The message as `me` sees it.
    pub(crate) fn of(message: &Message, me: &AgentName) -> Self {
        let peer = if message.from == *me { &message.to } else { &message.from };
        let subject = message.subject.clone().unwrap_or_else(|| NO_SUBJECT.into());
        let session =
            message.session.clone().unwrap_or_else(|| SessionId::between(&message.from, &message.to, &subject));
        Self {
            id: message.id.clone(),
            peer: peer.clone(),
            session,
            subject,
            at: message.sent_at,
            kind: message.kind.clone(),
            priority: message.priority,
            task: message.task.as_ref().map(|task| task.id.clone()),
        }
    }
}

/// Why a message that lies in the mailbox is not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Withheld {
    /// A task that the office rejects on its own.
    Rejected,
    /// From a sender that the agent does not hear.
    Refused,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "e", rename_all = "snake_case")]
pub(crate) enum Line {
    /// A message was noticed in the agent's mailbox.
    In {
        /// Its file.
        f: String,
        /// The file's inode: the same name with another one is another message.
        i: u64,
        #[serde(flatten)]
        brief: Brief,
        /// It had been read when it was noticed.
        #[serde(default, skip_serializing_if = "is_default")]
        read: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        withheld: Option<Withheld>,
    },
    /// A message in the mailbox was rewritten, mostly to mark it as read, which made it a new file (chipset).
    Seen {
        /// Its file.
        f: String,
        /// The new inode.
        i: u64,
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
    /// A task of the agent's ran past its deadline.
    Overdue {
        /// As it stood then.
        task: Box<Task>,
    },
    /// A message that the agent sent has been read.
    Receipt {
        /// Which.
        id: MessageId,
        /// How far it came.
        receipt: Receipt,
    },
    /// Something a later version writes.
    #[serde(other)]
    Unknown,
}

/// A line with the position after it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Placed {
    pub(crate) end: u64,
    pub(crate) line: Line,
}

/// Where an agent's log is.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    path: PathBuf,
    lock: PathBuf,
}

/// The right to add lines.
pub(crate) struct Writer {
    file: File,
    end: u64,
    _lock: Locked,
}

impl Log {
    /// The log in an agent's state directory, which must exist before anything is added.
    pub(crate) fn at(state: &Path) -> Self {
        Self { path: state.join("log"), lock: state.join("log.lock") }
    }

    /// Waits until nobody else is adding.
    pub(crate) fn write(&self) -> io::Result<Writer> {
        let lock = Locked::wait(&self.lock)?;
        let file = open::regular_with(&self.path, open::options().read(true).append(true).create(true))?;
        let mut file = file.into_parts().0;
        let mut end = file.metadata()?.len();
        let mut last = [b'\n'];
        if end > 0 {
            file.read_exact_at(&mut last, end - 1)?;
        }
        if last != *b"\n" {
            // A writer died within its line. Nobody was told of it; the newline makes it one bad line that readers skip.
            file.write_all(b"\n")?;
            end += 1;
        }
        Ok(Writer { file, end, _lock: lock })
    }

    /// The inode and the length, both 0 before the first line.
    pub(crate) fn measure(&self) -> io::Result<(u64, u64)> {
        match fs_err::metadata(&self.path) {
            Ok(there) => Ok((there.ino(), there.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((0, 0)),
            Err(error) => Err(error),
        }
    }

    /// The whole lines from this position on, at most about `most` bytes of them, and the position after the last.
    pub(crate) fn read(&self, from: u64, most: u64) -> io::Result<(Vec<Placed>, u64)> {
        let bytes = self.bytes(from, most)?;
        let mut lines = Vec::new();
        let mut end = from;
        for text in bytes.split_inclusive(|byte| *byte == b'\n').filter(|text| text.ends_with(b"\n")) {
            end += text.len() as u64;
            if let Ok(line) = serde_json::from_slice(text) {
                lines.push(Placed { end, line });
            }
        }
        Ok((lines, end))
    }

    /// The lines that contain any of these texts, from the whole log. Only those are parsed.
    pub(crate) fn find(&self, texts: &[&str]) -> io::Result<Vec<Placed>> {
        const CHUNK: u64 = 4 << 20;
        let mut found = Vec::new();
        let mut at = 0;
        loop {
            let bytes = self.bytes(at, CHUNK)?;
            let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
            if whole == 0 {
                return Ok(found);
            }
            let mut end = at;
            for text in bytes[..whole].split_inclusive(|byte| *byte == b'\n') {
                end += text.len() as u64;
                let Ok(words) = std::str::from_utf8(text) else { continue };
                if texts.iter().any(|wanted| words.contains(wanted))
                    && let Ok(line) = serde_json::from_str(words)
                {
                    found.push(Placed { end, line });
                }
            }
            at += whole as u64;
        }
    }

    /// The last line that contains this text and satisfies the test. Looks from the end, so recent mail is found at once.
    pub(crate) fn find_last(&self, text: &str, wanted: impl Fn(&Line) -> bool) -> io::Result<Option<Line>> {
        const CHUNK: u64 = 256 << 10;
        let (_, mut end) = self.measure()?;
        // The beginning of a line whose end was in the chunk looked at before.
        let mut rest = Vec::new();
        while end > 0 {
            let from = end.saturating_sub(CHUNK);
            let mut bytes = self.bytes(from, end - from)?;
            bytes.append(&mut rest);
            let start = match from {
                0 => 0,
                _ => bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |newline| newline + 1),
            };
            for line in bytes[start..].split(|byte| *byte == b'\n').rev() {
                let Ok(words) = std::str::from_utf8(line) else { continue };
                if words.contains(text)
                    && let Ok(line) = serde_json::from_str(words)
                    && wanted(&line)
                {
                    return Ok(Some(line));
                }
            }
            bytes.truncate(start);
            rest = bytes;
            end = from;
        }
        Ok(None)
    }

    /// The last whole lines, about `most` bytes of them.
    pub(crate) fn tail(&self, most: u64) -> io::Result<Vec<Placed>> {
        let (_, len) = self.measure()?;
        let from = len.saturating_sub(most);
        let from = match from {
            0 => 0,
            // From within a line to the next one's start.
            _ => match self.bytes(from, 64 << 10)?.iter().position(|byte| *byte == b'\n') {
                Some(newline) => from + newline as u64 + 1,
                None => return Ok(Vec::new()),
            },
        };
        Ok(self.read(from, u64::MAX)?.0)
    }

    /// Makes all that is in the log durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        match open::regular(&self.path) {
            Ok(file) => {
                step();
                file.sync_data()
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether a line ends at this position.
    pub(crate) fn is_boundary(&self, position: u64) -> io::Result<bool> {
        if position == 0 {
            return Ok(true);
        }
        Ok(self.bytes(position - 1, 1)? == b"\n")
    }

    fn bytes(&self, from: u64, most: u64) -> io::Result<Vec<u8>> {
        let mut file = match open::regular(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

impl Writer {
    /// Adds lines in one write and answers the new end of the log.
    pub(crate) fn add(&mut self, lines: &[Line]) -> io::Result<u64> {
        if lines.is_empty() {
            return Ok(self.end);
        }
        let mut bytes = Vec::with_capacity(lines.len() * 200);
        for line in lines {
            serde_json::to_writer(&mut bytes, line)?;
            bytes.push(b'\n');
        }
        step();
        if let Err(error) = self.file.write_all(&bytes) {
            // A full disk may have taken a part: cut it off again, so that the next line begins on a line of its own.
            let _newline_heals_it = self.file.set_len(self.end);
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
mod tests {
    use super::*;

    fn line(n: u32, session: &str) -> Line {
        Line::Out {
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
            },
        }
    }

    #[test]
    fn what_is_added_is_read_from_any_position() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::at(dir.path());
        assert_eq!(log.read(0, u64::MAX).unwrap(), (vec![], 0));
        let first = log.write().unwrap().add(&[line(1, "s1"), line(2, "s2")]).unwrap();
        let second = log.write().unwrap().add(&[line(3, "s1")]).unwrap();
        let (all, end) = log.read(0, u64::MAX).unwrap();
        assert_eq!((all.len(), end), (3, second));
        assert_eq!(log.read(first, u64::MAX).unwrap().0, all[2..]);
        assert_eq!(log.find(&["s1"]).unwrap(), [all[0].clone(), all[2].clone()]);
        assert_eq!(log.tail(u64::MAX).unwrap(), all);
        assert_eq!(log.tail(second - first + 1).unwrap(), all[2..]);
        assert!(log.is_boundary(first).unwrap() && !log.is_boundary(first - 1).unwrap());
    }

    #[test]
    fn a_line_that_its_writer_did_not_finish_spoils_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::at(dir.path());
        log.write().unwrap().add(&[line(1, "s1")]).unwrap();
        let mut file = fs_err::OpenOptions::new().append(true).open(dir.path().join("log")).unwrap();
        file.write_all(br#"{"e":"out","f":"#).unwrap();
        assert_eq!(log.read(0, u64::MAX).unwrap().0.len(), 1);
        log.write().unwrap().add(&[line(2, "s1")]).unwrap();
        let (lines, end) = log.read(0, u64::MAX).unwrap();
        assert_eq!((lines.len(), end), (2, log.measure().unwrap().1));
        assert_eq!(lines[1].line, line(2, "s1"));
    }

    #[test]
    fn the_last_line_with_a_text_is_found_across_chunks() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::at(dir.path());
        let lines: Vec<_> = (0..5_000).map(|n| line(n, if n % 2 == 0 { "even" } else { "odd" })).collect();
        log.write().unwrap().add(&lines).unwrap();
        for n in [0, 1, 2_500, 4_998, 4_999] {
            let found = log.find_last(&format!("\"m{n}\""), |_| true).unwrap();
            assert_eq!(found.as_ref(), Some(&lines[n as usize]), "{n}");
        }
        let even = log.find_last("even", |line| matches!(line, Line::Out { .. })).unwrap();
        assert_eq!(even.as_ref(), Some(&lines[4_998]));
        assert_eq!(log.find_last("m5000", |_| true).unwrap(), None);
    }

    #[test]
    fn a_line_of_a_later_version_is_passed_over() {
        let line: Line = serde_json::from_str(r#"{"e":"dance","x":1}"#).unwrap();
        assert_eq!(line, Line::Unknown);
    }
}
