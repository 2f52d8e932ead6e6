//! Acknowledges messages: moves them to `processed/` (nanobot), or marks them as read in their files (chipset).
//!
//! The rename or the exchange of the file decides that a message was read, and only one process can do it. The receipt
//! for the sender follows from it, see [`crate::journal`].

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use amb_core::wire::chipset;
use amb_core::{AgentName, MessageId, OfficeError, Receipt, Timestamp};

use crate::files::durable;
use crate::files::failure::IoContext;
use crate::files::layout::Layout;
use crate::files::lock::FileLock;
use crate::files::message_file;
use crate::files::open;
use crate::files::version::FileVersion;
use crate::journal::{AckedFile, Intent, JournalEntry};
use crate::log::index::{IndexedMessage, MailboxIndex};
use crate::log::{Brief, LogLine};
use crate::office::{AgentDir, OfficeState};

impl AgentDir {
    /// Acknowledges received messages. Returns how many were unread.
    pub(crate) fn ack(&self, ids: &[MessageId]) -> Result<u64, OfficeError> {
        self.shared.recover_journal();
        self.ack_indexed(ids)
    }

    /// Like `ack`, without recovering the journal, for callers that have done it.
    pub(crate) fn ack_indexed(&self, ids: &[MessageId]) -> Result<u64, OfficeError> {
        // What is claimed here and known as unread is found without listing the mailbox: the cost does not grow with the mail
        // that waits.
        if let Some(mut names) = self.claimed_names(ids).filter(|names| !names.is_empty()) {
            self.shared.refuse_links(&self.me)?;
            let mut index = self.index.lock();
            let is_unread = |(name, id): (&String, &MessageId)| {
                index.known.get(name).is_some_and(|known| known.is_unread() && known.brief.id == *id)
            };
            if names.iter().zip(ids).all(is_unread) {
                names.sort();
                names.dedup();
                return self.mark_each_handled(&mut index, &names);
            }
        }
        let mut index = self.ingest_mail()?;
        let mut in_mailbox = index.names_of(ids);
        let not_in_mailbox: Vec<&MessageId> = ids.iter().filter(|id| !in_mailbox.contains_key(id)).collect();
        // All are looked up before any is marked: an error means that nothing was done.
        let mut archived = Vec::new();
        if !not_in_mailbox.is_empty() {
            drop(index);
            for id in not_in_mailbox {
                match self.log_line_of(id)? {
                    Some(LogLine::In { f, brief, .. }) => archived.push((f, brief)),
                    Some(_) => {}
                    None => return Err(OfficeError::not_found(format!("no message {id} of yours"))),
                }
            }
            index = self.ingest_mail()?;
            in_mailbox = index.names_of(ids);
        }
        let mut names: Vec<String> = in_mailbox.into_values().collect();
        names.retain(|name| index.known.get(name).is_some_and(IndexedMessage::is_unread));
        names.sort();
        let mut done = self.mark_each_handled(&mut index, &names)?;
        drop(index);
        if self.shared.paths.layout == Layout::Chipset {
            for (file, brief) in archived {
                let entry = self.journal_receipts([(&file, &brief)]);
                let marked = self.mark_read(&file)?.is_some();
                done += u64::from(marked);
                self.write_own_receipts(entry, marked.then_some(&brief));
            }
        }
        self.release(ids);
        Ok(done)
    }

    /// The file names of these messages, if this mailbox holds claims on all of them.
    fn claimed_names(&self, ids: &[MessageId]) -> Option<Vec<String>> {
        let claims = self.claims.lock();
        ids.iter().map(|id| claims.get(id).filter(|claim| claim.holds())?.file_name()).collect()
    }

    /// Marks messages as handled, by their file names, and releases the claims on them.
    fn mark_each_handled(&self, index: &mut MailboxIndex, names: &[String]) -> Result<u64, OfficeError> {
        // One by one where files are rewritten: until a claim is released, the old file takes space on the disk.
        let batch = if self.shared.paths.layout == Layout::Chipset { 1 } else { usize::MAX };
        let mut done = 0;
        for names in names.chunks(batch.min(names.len()).max(1)) {
            let handled: Vec<_> =
                names.iter().filter_map(|name| Some(index.known.get(name)?.brief.id.clone())).collect();
            done += self.mark_handled(index, names)?;
            self.release(&handled);
        }
        Ok(done)
    }

    /// Marks messages as handled, durably, by their file names, and writes receipts. Returns how many; those that
    /// another process handled meanwhile do not count.
    pub(crate) fn mark_handled(&self, index: &mut MailboxIndex, names: &[String]) -> Result<u64, OfficeError> {
        let shown = names.iter().filter_map(|name| Some((name, index.known.get(name)?)));
        let entry = self.journal_receipts(
            shown.filter(|(_, known)| known.withheld.is_none()).map(|(name, known)| (name, &known.brief)),
        );
        let mut done = Vec::new();
        match self.shared.paths.layout {
            Layout::Nanobot => {
                let (inbox, processed) = (self.shared.paths.inbox(&self.me), self.shared.paths.processed(&self.me));
                let context = "could not acknowledge the message";
                for name in names {
                    let move_file =
                        || durable::move_into(&inbox.join(name), &processed, name, Layout::Nanobot.suffix());
                    let moved = match move_file() {
                        // The first time, the target directory is missing.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {
                            durable::make_dir(&processed, &self.shared.syncer).context(context)?;
                            move_file()
                        }
                        moved => moved,
                    };
                    let known = index.known.remove(name);
                    if moved.context(context)?.is_some() {
                        done.extend(known);
                    }
                }
                if !done.is_empty() {
                    self.shared.syncer.sync(&processed).context(context)?;
                    self.shared.syncer.sync(&inbox).context(context)?;
                }
            }
            Layout::Chipset => {
                let mut lines = Vec::new();
                for name in names {
                    if let Some(version) = self.mark_read(name)? {
                        lines.push(LogLine::Seen { f: name.clone(), version, read: true });
                        done.extend(index.known.get(name).cloned());
                    }
                }
                if !lines.is_empty() {
                    self.shared.append_log(&self.me, &lines)?;
                    self.catch_up(index)?;
                }
            }
        }
        self.write_own_receipts(entry, done.iter().filter(|known| known.withheld.is_none()).map(|known| &known.brief));
        Ok(done.len() as u64)
    }

    /// Marks a message as read wherever its file is now (chipset). Returns the version of the new file; `None` if it
    /// is missing or marked already.
    fn mark_read(&self, file: &str) -> Result<Option<FileVersion>, OfficeError> {
        // Twice: it may be archived meanwhile.
        for _ in 0..2 {
            let Some(location) = self.shared.locate(&self.me, file)? else { return Ok(None) };
            if let Some(version) = self.mark_file(&location.path)? {
                return Ok(Some(version));
            }
            if location.path.exists() {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Marks a file as read. Returns the version of the new file; `None` if it is missing or marked already.
    fn mark_file(&self, path: &Path) -> Result<Option<FileVersion>, OfficeError> {
        let context = "could not mark the message as read";
        self.shared.make_state_dir(&self.me)?;
        let lock = self.shared.paths.state(&self.me).join("read.lock");
        let unread = || match open::if_exists(open::read(path, message_file::MAX_BYTES))? {
            Some(bytes) => chipset::marked_read(&bytes).map_err(io::Error::other),
            None => Ok(None),
        };
        let Some(marked) = unread().context(context)? else { return Ok(None) };
        // Of two processes that mark it at once, one does.
        let lock_if_unread = || {
            let locked = FileLock::lock(&lock)?;
            Ok(unread()?.map(|_| locked))
        };
        let replaced = durable::replace_existing(path, &marked, &self.shared.syncer, lock_if_unread);
        match open::if_exists(replaced).context(context)? {
            Some(true) => {
                Ok(Some(fs_err::metadata(path).map_or(FileVersion::NONE, |metadata| FileVersion::of(&metadata))))
            }
            // Marked by another process, or archived between the read and the write.
            Some(false) | None => Ok(None),
        }
    }

    /// Writes a journal entry for the receipts to be written.
    fn journal_receipts<'a>(
        &self,
        messages: impl IntoIterator<Item = (&'a String, &'a Brief)>,
    ) -> Option<JournalEntry> {
        let due = messages.into_iter().filter(|(_, brief)| brief.peer != self.me);
        let messages: Vec<AckedFile> =
            due.map(|(file, brief)| AckedFile { file: file.clone(), brief: brief.clone() }).collect();
        if messages.is_empty() {
            return None;
        }
        self.shared.begin(&Intent::Read { agent: self.me.clone(), messages })
    }

    /// Writes receipts for messages that this process has marked, and removes the journal entry.
    fn write_own_receipts<'a>(&self, entry: Option<JournalEntry>, read: impl IntoIterator<Item = &'a Brief>) {
        let now = self.shared.now();
        let read = read.into_iter().filter(|brief| brief.peer != self.me).map(|brief| (brief, now));
        // A receipt that fails is written by the next recovery.
        if self.shared.write_receipts(&self.me, read, false).is_ok() {
            entry.into_iter().for_each(JournalEntry::done);
        }
    }
}

impl AgentDir {
    /// Returns read messages whose receipt is not in the sender's log and not being written.
    pub(crate) fn missing_receipts(&self) -> Result<Vec<(Brief, Timestamp)>, OfficeError> {
        let context = "could not read the log";
        let mut received: BTreeMap<AgentName, Vec<(String, Brief)>> = BTreeMap::new();
        let add = |line| {
            if let LogLine::In { f, brief, withheld: None, .. } = line
                && brief.peer != self.me
            {
                received.entry(brief.peer.clone()).or_default().push((f, brief));
            }
            ControlFlow::Continue(())
        };
        self.shared.log(&self.me).scan(0, add).context(context)?;
        let mut unsent = Vec::new();
        for (sender, messages) in received {
            let open = self.shared.without_receipt(&sender, &self.me).context(context)?;
            for (file, brief) in messages.into_iter().filter(|(_, brief)| open.contains(&brief.id)) {
                if let Some(read_at) = self.shared.load(&self.me, &file, &brief)?.and_then(|found| found.read_at) {
                    unsent.push((brief, read_at));
                }
            }
        }
        if unsent.is_empty() {
            return Ok(unsent);
        }
        // A live process has a journal entry until its receipt is written. Receipts may have been written since.
        let live = self.shared.live_entries(Path::new("")).context(context)?;
        unsent.retain(|(brief, _)| !is_being_acked(&live, &self.me, &brief.id));
        let mut still = BTreeMap::new();
        for (brief, _) in &unsent {
            if !still.contains_key(&brief.peer) {
                let open = self.shared.without_receipt(&brief.peer, &self.me).context(context)?;
                still.insert(brief.peer.clone(), open);
            }
        }
        unsent.retain(|(brief, _)| still[&brief.peer].contains(&brief.id));
        Ok(unsent)
    }
}

/// Whether one of these journal entries says that this message is being acknowledged.
fn is_being_acked(intents: &[Intent], agent: &AgentName, id: &MessageId) -> bool {
    intents.iter().any(|intent| match intent {
        Intent::Read { agent: whose, messages } => whose == agent && messages.iter().any(|other| other.brief.id == *id),
        Intent::Task { .. } => false,
    })
}

impl OfficeState {
    /// Writes receipts for messages that a dead process has marked, each once. Returns whether all are written: if a
    /// live process is acknowledging a message too, either may have marked it, so its receipt waits until that process
    /// is done.
    pub(crate) fn finish_receipts(
        &self,
        agent: &AgentName,
        messages: &[AckedFile],
        entry: &Path,
    ) -> Result<bool, OfficeError> {
        let context = "could not finish what a dead process began";
        let mut due = Vec::new();
        for AckedFile { file, brief } in messages {
            if let Some(read_at) = self.load(agent, file, brief)?.and_then(|found| found.read_at) {
                due.push((brief, read_at));
            }
        }
        // Read after the files: a process writes its entry before it moves a file, and removes it after the receipt.
        let live = self.live_entries(entry).context(context)?;
        let all = due.len();
        due.retain(|(brief, _)| !is_being_acked(&live, agent, &brief.id));
        let is_complete = due.len() == all;
        self.write_receipts(agent, due.into_iter(), true)?;
        Ok(is_complete)
    }

    /// Returns the messages from `sender` to `reader` that have no receipt in the sender's log.
    fn without_receipt(&self, sender: &AgentName, reader: &AgentName) -> io::Result<HashSet<MessageId>> {
        let (mut sent, mut confirmed) = (HashSet::new(), HashSet::new());
        self.log(sender).scan(0, |line| {
            match line {
                LogLine::Out { brief, .. } if brief.peer == *reader => drop(sent.insert(brief.id)),
                LogLine::Receipt { id, receipt } if receipt.recipient == *reader => drop(confirmed.insert(id)),
                _ => {}
            }
            ControlFlow::Continue(())
        })?;
        sent.retain(|id| !confirmed.contains(id));
        Ok(sent)
    }

    /// Appends receipts to the logs of senders that have one; with `again`, only those that are missing. A failure for
    /// one sender does not keep the others from theirs.
    pub(crate) fn write_receipts<'a>(
        &self,
        reader: &AgentName,
        read: impl Iterator<Item = (&'a Brief, Timestamp)>,
        again: bool,
    ) -> Result<(), OfficeError> {
        let mut by_sender: BTreeMap<&AgentName, Vec<LogLine>> = BTreeMap::new();
        for (brief, at) in read {
            if self.is_hidden_update(&brief.peer, brief).unwrap_or(false) {
                continue;
            }
            let receipt = Receipt::of(reader.clone(), brief.at, Some(at), Some(at));
            by_sender.entry(&brief.peer).or_default().push(LogLine::Receipt { id: brief.id.clone(), receipt });
        }
        let mut result = Ok(());
        for (sender, lines) in by_sender {
            if let Err(error) = self.append_receipts(sender, lines, again) {
                tracing::warn!(%error, %sender, "writing a read receipt failed");
                result = Err(OfficeError::unavailable("a sender could not be told that its message was read"));
            }
        }
        result
    }

    fn append_receipts(&self, sender: &AgentName, mut lines: Vec<LogLine>, again: bool) -> io::Result<()> {
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
                let is_same = |other: &LogLine| match other {
                    LogLine::Receipt { id: of, receipt: by } => of == id && by.recipient == receipt.recipient,
                    _ => false,
                };
                if log.find_last(&text, is_same)?.is_none() {
                    missing.push(line);
                }
            }
            lines = missing;
        }
        writer.add(&lines).map(drop)
    }
}
