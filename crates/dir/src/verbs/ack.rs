//! Acknowledging: to `processed/` (nanobot), or marked as read in its file (chipset).
//!
//! The rename or the exchange of the file is what decides that a message was read, and one process can do it. The receipt
//! for the sender follows from it, see [`crate::journal`].

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use amb_core::wire::chipset;
use amb_core::{AgentName, MessageId, OfficeError, Receipt, Timestamp};

use crate::files::durable;
use crate::files::failure::Doing;
use crate::files::layout::Layout;
use crate::files::lock::FileLock;
use crate::files::message_file;
use crate::files::open;
use crate::journal::{AckedFile, Intent, OpenIntent};
use crate::log::index::MailboxIndex;
use crate::log::{Brief, LogLine, PositionedLine};
use crate::office::{AgentDir, OfficeState};

impl AgentDir {
    /// Marks messages that came to the agent as handled. Returns how many were not yet.
    pub(crate) fn ack(&self, ids: &[MessageId]) -> Result<u64, OfficeError> {
        self.shared.finish_begun();
        self.ack_indexed(ids)
    }

    /// Like `ack`, without finishing what others left, for callers that do that.
    pub(crate) fn ack_indexed(&self, ids: &[MessageId]) -> Result<u64, OfficeError> {
        let mut index = self.ingest_mail()?;
        let elsewhere: Vec<&MessageId> = ids.iter().filter(|id| index.by_id(id).is_none()).collect();
        // All are looked up before any is marked, so that an error means that nothing was done.
        let mut archived = Vec::new();
        if !elsewhere.is_empty() {
            drop(index);
            for id in elsewhere {
                match self.line_of(id)? {
                    Some(LogLine::In { f, brief, .. }) => archived.push((f, brief)),
                    Some(_) => {}
                    None => return Err(OfficeError::not_found(format!("no message {id} of yours"))),
                }
            }
            index = self.ingest_mail()?;
        }
        let unread = |id| index.by_id(id).filter(|(_, known)| known.is_unread()).map(|(name, _)| name.clone());
        let mut names: Vec<String> = ids.iter().filter_map(unread).collect();
        names.sort();
        names.dedup();
        // One by one where each is rewritten: a claim holds the old file, and with it its room on the disk.
        let at_once = if self.shared.paths.layout == Layout::Chipset { 1 } else { usize::MAX };
        let mut done = 0;
        for names in names.chunks(at_once.min(names.len()).max(1)) {
            let handled: Vec<_> =
                names.iter().filter_map(|name| Some(index.known.get(name)?.brief.id.clone())).collect();
            done += self.put_away(&mut index, names)?;
            self.release(&handled);
        }
        drop(index);
        if self.shared.paths.layout == Layout::Chipset {
            for (file, brief) in archived {
                let begun = self.begin_reading([(&file, &brief)]);
                let marked = self.mark_read(&file)?.is_some();
                done += u64::from(marked);
                self.finish_own_reading(begun, marked.then_some(&brief));
            }
        }
        self.release(ids);
        Ok(done)
    }

    /// Moves messages out of the mailbox, by the names of their files, durably, and writes receipts. Those that another
    /// process moved meanwhile are not counted.
    pub(crate) fn put_away(&self, index: &mut MailboxIndex, names: &[String]) -> Result<u64, OfficeError> {
        let shown = names.iter().filter_map(|name| Some((name, index.known.get(name)?)));
        let begun = self.begin_reading(
            shown.filter(|(_, known)| known.withheld.is_none()).map(|(name, known)| (name, &known.brief)),
        );
        let mut done = Vec::new();
        match self.shared.paths.layout {
            Layout::Nanobot => {
                let (inbox, away) = (self.shared.paths.inbox(&self.me), self.shared.paths.put_away(&self.me));
                let doing = "could not acknowledge the message";
                for name in names {
                    let moved = match durable::move_into(&inbox.join(name), &away, name, self.shared.paths.suffix()) {
                        // The directory is there but for the first time.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {
                            durable::make_dir(&away, &self.shared.syncer).doing(doing)?;
                            durable::move_into(&inbox.join(name), &away, name, self.shared.paths.suffix())
                        }
                        other => other,
                    };
                    let known = index.known.remove(name);
                    if moved.doing(doing)?.is_some() {
                        done.extend(known);
                    }
                }
                if !done.is_empty() {
                    self.shared.syncer.sync(&away).doing(doing)?;
                    self.shared.syncer.sync(&inbox).doing(doing)?;
                }
            }
            Layout::Chipset => {
                let mut lines = Vec::new();
                for name in names {
                    if let Some(inode) = self.mark_read(name)? {
                        lines.push(LogLine::Seen { f: name.clone(), i: inode, read: true });
                        done.extend(index.known.get(name).cloned());
                    }
                }
                if !lines.is_empty() {
                    self.shared.make_state(&self.me)?;
                    let (state, log, inbox) = self.log_and_places();
                    log.write().and_then(|mut writer| writer.add(&lines)).doing("could not add to the log")?;
                    index.catch_up(&log, &state, &inbox).doing("could not read the log")?;
                }
            }
        }
        self.finish_own_reading(begun, done.iter().filter(|known| known.withheld.is_none()).map(|known| &known.brief));
        Ok(done.len() as u64)
    }

    /// Marks a message as read wherever it lies now (chipset); returns the inode of its new file, `None` if it is marked already
    /// or not there.
    fn mark_read(&self, file: &str) -> Result<Option<u64>, OfficeError> {
        // Twice: it may be archived while we look.
        for _ in 0..2 {
            let Some(place) = self.shared.locate(&self.me, file)? else { return Ok(None) };
            if let Some(inode) = self.mark_file(&place.path)? {
                return Ok(Some(inode));
            }
            if place.path.exists() {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Marks a file as read; returns its new inode, `None` if it is marked already or not there.
    fn mark_file(&self, path: &Path) -> Result<Option<u64>, OfficeError> {
        let doing = "could not mark the message as read";
        self.shared.make_state(&self.me)?;
        let lock = self.shared.paths.state(&self.me).join("read.lock");
        let unread = || match open::if_there(open::bytes(path, message_file::LARGEST))? {
            Some(bytes) => chipset::marked_read(&bytes).map_err(io::Error::other),
            None => Ok(None),
        };
        let Some(marked) = unread().doing(doing)? else { return Ok(None) };
        // Of two that mark it at once, one does.
        let still = || {
            let locked = FileLock::wait(&lock)?;
            Ok(unread()?.map(|_| locked))
        };
        let replaced = durable::replace_existing(path, &marked, &self.shared.syncer, still);
        match open::if_there(replaced).doing(doing)? {
            Some(true) => Ok(Some(fs_err::metadata(path).map(|about| about.ino()).unwrap_or_default())),
            // Marked by another process, or moved to the archive between the read and the write, and not brought back.
            Some(false) | None => Ok(None),
        }
    }

    /// Writes a journal entry for the receipts to come.
    fn begin_reading<'a>(&self, messages: impl IntoIterator<Item = (&'a String, &'a Brief)>) -> Option<OpenIntent> {
        let due = messages.into_iter().filter(|(_, brief)| brief.peer != self.me);
        let messages: Vec<AckedFile> =
            due.map(|(file, brief)| AckedFile { file: file.clone(), brief: brief.clone() }).collect();
        if messages.is_empty() {
            return None;
        }
        self.shared.begin(&Intent::Read { agent: self.me.clone(), messages })
    }

    /// Writes receipts for what this process has marked.
    fn finish_own_reading<'a>(&self, begun: Option<OpenIntent>, read: impl IntoIterator<Item = &'a Brief>) {
        let now = self.shared.now();
        let read = read.into_iter().filter(|brief| brief.peer != self.me).map(|brief| (brief, now));
        // A receipt that could not be written is written by the next ingest.
        if self.shared.write_receipts(&self.me, read, false)
            && let Some(begun) = begun
        {
            begun.done();
        }
    }
}

impl AgentDir {
    /// Read messages whose receipt is neither in the sender's log nor on its way there.
    pub(crate) fn unsent_receipts(&self) -> Result<Vec<(Brief, Timestamp)>, OfficeError> {
        let doing = "could not read the log";
        let mut came: BTreeMap<AgentName, Vec<(String, Brief)>> = BTreeMap::new();
        let mut line = |placed: PositionedLine| {
            if let LogLine::In { f, brief, withheld: None, .. } = placed.line
                && brief.peer != self.me
            {
                came.entry(brief.peer.clone()).or_default().push((f, brief));
            }
            ControlFlow::Continue(())
        };
        self.shared.log(&self.me).scan(0, &mut line).doing(doing)?;
        let mut unsent = Vec::new();
        for (sender, messages) in came {
            let open = self.shared.without_receipt(&sender, &self.me).doing(doing)?;
            for (file, brief) in messages.into_iter().filter(|(_, brief)| open.contains(&brief.id)) {
                if let Some(read_at) = self.shared.load(&self.me, &file, &brief.id)?.and_then(|found| found.read_at) {
                    unsent.push((brief, read_at));
                }
            }
        }
        if unsent.is_empty() {
            return Ok(unsent);
        }
        // A process that is at it now has a journal entry until its receipt is written.
        let live = self.shared.live_notes(Path::new("")).doing(doing)?;
        unsent.retain(|(brief, _)| !is_named(&live, &self.me, &brief.id));
        let mut still = BTreeMap::new();
        for (brief, _) in &unsent {
            if !still.contains_key(&brief.peer) {
                let open = self.shared.without_receipt(&brief.peer, &self.me).doing(doing)?;
                still.insert(brief.peer.clone(), open);
            }
        }
        unsent.retain(|(brief, _)| still[&brief.peer].contains(&brief.id));
        Ok(unsent)
    }

    /// Writes receipts for these.
    pub(crate) fn send_receipts(&self, read: &[(Brief, Timestamp)]) -> Result<(), OfficeError> {
        match self.shared.write_receipts(&self.me, read.iter().map(|(brief, at)| (brief, *at)), true) {
            true => Ok(()),
            false => Err(OfficeError::unavailable("a sender could not be told that its message was read")),
        }
    }
}

/// Whether one of these notes says that this message of the agent's is being acknowledged.
fn is_named(notes: &[Intent], agent: &AgentName, id: &MessageId) -> bool {
    notes.iter().any(|note| match note {
        Intent::Read { agent: whose, messages } => whose == agent && messages.iter().any(|other| other.brief.id == *id),
        Intent::Task { .. } => false,
    })
}

impl OfficeState {
    /// Writes receipts for messages that a dead process has marked, each once. Returns whether all are written: a message that
    /// a live process names in a note of its own may be marked by it or by the dead one, so its receipt waits until that process
    /// is done.
    pub(crate) fn finish_reading(
        &self,
        agent: &AgentName,
        messages: &[AckedFile],
        note: &Path,
    ) -> Result<bool, OfficeError> {
        let doing = "could not finish what a dead process began";
        let mut due = Vec::new();
        for AckedFile { file, brief } in messages {
            if let Some(read_at) = self.load(agent, file, &brief.id)?.and_then(|found| found.read_at) {
                due.push((brief, read_at));
            }
        }
        // After the files: a process that put one away had left its note before, and removes it when the receipt is written.
        let live = self.live_notes(note).doing(doing)?;
        let all = due.len();
        due.retain(|(brief, _)| !is_named(&live, agent, &brief.id));
        let is_whole = due.len() == all;
        match self.write_receipts(agent, due.into_iter(), true) {
            true => Ok(is_whole),
            false => Err(OfficeError::unavailable("a sender could not be told that its message was read")),
        }
    }

    /// Which of the messages that an agent sent to `reader` have no receipt of it in the sender's log.
    fn without_receipt(&self, sender: &AgentName, reader: &AgentName) -> io::Result<HashSet<MessageId>> {
        let (mut sent, mut told) = (HashSet::new(), HashSet::new());
        self.log(sender).scan(0, |placed| {
            match placed.line {
                LogLine::Out { brief, .. } if brief.peer == *reader => drop(sent.insert(brief.id)),
                LogLine::Receipt { id, receipt } if receipt.recipient == *reader => drop(told.insert(id)),
                _ => {}
            }
            ControlFlow::Continue(())
        })?;
        sent.retain(|id| !told.contains(id));
        Ok(sent)
    }

    /// Appends receipts to the logs of the senders that have one; `again` if they may be there already. Returns whether
    /// all are there now.
    fn write_receipts<'a>(
        &self,
        reader: &AgentName,
        read: impl Iterator<Item = (&'a Brief, Timestamp)>,
        again: bool,
    ) -> bool {
        let mut by_sender: BTreeMap<&AgentName, Vec<LogLine>> = BTreeMap::new();
        for (brief, at) in read {
            let receipt = Receipt::of(reader.clone(), brief.at, Some(at), Some(at));
            by_sender.entry(&brief.peer).or_default().push(LogLine::Receipt { id: brief.id.clone(), receipt });
        }
        let mut all = true;
        for (sender, lines) in by_sender {
            if let Err(error) = self.add_receipts(sender, lines, again) {
                tracing::warn!(%error, %sender, "could not tell the sender that its message was read");
                all = false;
            }
        }
        all
    }

    fn add_receipts(&self, sender: &AgentName, mut lines: Vec<LogLine>, again: bool) -> io::Result<()> {
        let log = self.log(sender);
        if log.measure()? == (0, 0) {
            return Ok(());
        }
        let mut writer = log.write()?;
        if again {
            let mut missing = Vec::new();
            for line in lines {
                let LogLine::Receipt { id, receipt } = &line else { continue };
                let text = serde_json::to_string(id)?;
                let is_there = |there: &LogLine| matches!(there, LogLine::Receipt { id: of, receipt: by } if of == id && by.recipient == receipt.recipient);
                if log.find_last(&text, is_there)?.is_none() {
                    missing.push(line);
                }
            }
            lines = missing;
        }
        writer.add(&lines).map(drop)
    }
}
