//! Delivers a message to its recipient's mailbox, and locates it later.

use std::path::{Path, PathBuf};

use amb_core::wire::chipset;
use amb_core::{AgentName, Message, MessageId, OfficeError, Timestamp};

use crate::files::durable;
use crate::files::failure::IoContext;
use crate::files::layout::Layout;
use crate::files::message_file;
use crate::files::open;
use crate::journal::{Intent, JournalEntry};
use crate::log::{Brief, LogLine};
use crate::office::OfficeState;

/// How the file name of a message is chosen, with a nonce that is part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    /// The first free name; the nonce is used if the plain one is taken.
    Free(u32),
    /// An exact name: if it is taken, the message has been delivered before.
    Exact(u32),
    /// An exact name, of a message that another office accepted. It is logged for its sender after the delivery, not
    /// before: there the line shows that it was delivered, even if its recipient has deleted it since.
    Carried(u32),
    /// An exact name, of an update that the office sends in the name of an agent that must not see it: not logged for that
    /// agent.
    Unlogged(u32),
}

impl Naming {
    pub(crate) fn nonce(self) -> u32 {
        let (Naming::Free(nonce) | Naming::Exact(nonce) | Naming::Carried(nonce) | Naming::Unlogged(nonce)) = self;
        nonce
    }
}

/// Location of a message's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileLocation {
    pub(crate) path: PathBuf,
    /// Whether it is in the mailbox, and not among the processed ones.
    pub(crate) in_inbox: bool,
}

impl OfficeState {
    /// Writes a message to its recipient's mailbox, durably, and returns its file name.
    ///
    /// In the chipset layout the file name is the id, so the message's id may change here.
    pub(crate) fn deliver(&self, message: &mut Message, naming: Naming) -> Result<String, OfficeError> {
        let inbox = self.make_mailbox(&message.to)?;
        self.deliver_into(&inbox, message, naming, |_, _| {})
    }

    /// Writes a task to its recipient's mailbox, or, if the office rejects it, to the processed mail, where the
    /// recipient does not see it. Returns its file name and the journal entry for the steps that follow.
    pub(crate) fn deliver_task(
        &self,
        message: &mut Message,
        naming: Naming,
    ) -> Result<(String, Option<JournalEntry>), OfficeError> {
        let directory = match message_file::is_rejected(message) {
            false => self.make_mailbox(&message.to)?,
            true => {
                self.refuse_links(&message.to)?;
                let processed = self.paths.processed(&message.to);
                durable::make_dir(&processed, &self.syncer).context("could not make the mailbox")?;
                processed
            }
        };
        let mut entry: Option<JournalEntry> = None;
        let file = self.deliver_into(&directory, message, naming, |message, name| {
            let task = message.task.as_ref().map(|task| task.id.clone());
            let intent = task.map(|id| Intent::Task { assignee: message.to.clone(), id, file: Some(name.to_owned()) });
            // The entry of an attempt whose name was taken.
            entry.take().into_iter().for_each(JournalEntry::done);
            entry = intent.and_then(|intent| self.begin(&intent));
        })?;
        Ok((file, entry))
    }

    /// Writes a message to a directory. `before` is called right before the rename.
    fn deliver_into(
        &self,
        directory: &Path,
        message: &mut Message,
        naming: Naming,
        mut before: impl FnMut(&Message, &str),
    ) -> Result<String, OfficeError> {
        self.record_first_stamp(message.sent_at);
        let layout = self.paths.layout;
        let mut bytes = message_file::write(layout, message).map_err(OfficeError::internal)?;
        if message_file::is_rejected(message) && layout == Layout::Chipset {
            bytes = chipset::marked_read(&bytes).map_err(OfficeError::internal)?.unwrap_or(bytes);
        }
        let context = "the message was not sent";
        let (at, from) = (message.sent_at, message.from.clone());
        let mut announce = |message: &mut Message, name: &str| {
            if layout == Layout::Chipset
                && let Ok(id) = MessageId::parse(message_file::stem(layout, name))
            {
                message.id = id;
            }
            if matches!(naming, Naming::Free(_) | Naming::Exact(_)) {
                self.log_sent(message, name);
            }
            before(message, name);
        };
        let name = match naming {
            Naming::Free(nonce) => durable::create(directory, &bytes, &self.syncer, |attempt| {
                let name = message_file::new_name(layout, at, &from, nonce, attempt);
                announce(message, &name);
                name
            })
            .context(context)?,
            Naming::Exact(nonce) | Naming::Carried(nonce) | Naming::Unlogged(nonce) => {
                let name = message_file::exact_name(layout, &message.id, at, &from, nonce);
                durable::create_exact(directory, &bytes, &self.syncer, &name, || announce(message, &name))
                    .context(context)?;
                name
            }
        };
        if matches!(naming, Naming::Carried(_)) {
            self.log_sent(message, &name);
        }
        Ok(name)
    }

    /// Logs a message for its sender. A line about a missing message is not shown, so the line is written first, and no
    /// kill can leave a message without it. A failure is only logged: it must not fail the send.
    pub(crate) fn log_sent(&self, message: &Message, file: &str) {
        let line = LogLine::Out { f: file.to_owned(), brief: Brief::of(message, &message.from) };
        if let Err(error) = self.append_log(&message.from, &[line]) {
            tracing::warn!(%error, id = %message.id, "logging a sent message failed; it is not in the sender's history");
        }
    }

    /// Whether a message was delivered before, even if its recipient has read, refused or deleted it since.
    pub(crate) fn was_delivered(&self, to: &AgentName, file: &str, id: &MessageId) -> Result<bool, OfficeError> {
        if self.locate(to, file)?.is_some() || self.paths.refused(to).join(file).exists() {
            return Ok(true);
        }
        let received = |line: &LogLine| matches!(line, LogLine::In { brief, .. } if brief.id == *id);
        Ok(self.last_line(to, id, received)?.is_some())
    }

    /// Returns where the file that arrived under this name is now.
    pub(crate) fn locate(&self, agent: &AgentName, file: &str) -> Result<Option<FileLocation>, OfficeError> {
        Ok(self.locations(agent, file)?.into_iter().next())
    }

    /// Returns every location of a file of this name: another program may have used a name twice.
    pub(crate) fn locations(&self, agent: &AgentName, file: &str) -> Result<Vec<FileLocation>, OfficeError> {
        let mut found = Vec::new();
        // Twice: it may be moved meanwhile.
        for _ in 0..2 {
            let path = self.paths.inbox(agent).join(file);
            if path.is_file() {
                found.push(FileLocation { path, in_inbox: true });
            }
            let processed = self.paths.processed(agent);
            let path = processed.join(file);
            if path.is_file() {
                found.push(FileLocation { path, in_inbox: false });
            }
            if self.paths.layout == Layout::Nanobot
                && let Some(path) = self.locate_by_month(&processed, file)?
            {
                found.push(FileLocation { path, in_inbox: false });
            }
            if !found.is_empty() {
                break;
            }
        }
        Ok(found)
    }

    /// Returns processed files whose names were extended because the plain name was taken.
    pub(crate) fn renamed_locations(&self, agent: &AgentName, file: &str) -> Vec<FileLocation> {
        let processed = self.paths.processed(agent);
        let stem = format!("{}_", message_file::stem(self.paths.layout, file));
        let mut folders = vec![processed.clone()];
        if let Some(at) = message_file::time_in_name(self.paths.layout, file) {
            folders.push(processed.join(month(at)));
        }
        let entries = folders.iter().filter_map(|folder| fs_err::read_dir(folder).ok()).flatten().flatten();
        let renamed = entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(&stem)));
        renamed.map(|entry| FileLocation { path: entry.path(), in_inbox: false }).collect()
    }

    fn locate_by_month(&self, processed: &Path, file: &str) -> Result<Option<PathBuf>, OfficeError> {
        if let Some(at) = message_file::time_in_name(self.paths.layout, file) {
            let path = processed.join(month(at)).join(file);
            return Ok(path.is_file().then_some(path));
        }
        // A file without a time in its name is in the month of its mtime.
        let found = open::entries(processed)
            .context("could not look for the message")?
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path().join(file))
            .find(|path| path.is_file());
        Ok(found)
    }
}

/// Returns the name of a monthly folder, such as `2026-03`.
pub(crate) fn month(at: Timestamp) -> String {
    let date = jiff::tz::Offset::UTC.to_datetime(at).date();
    format!("{:04}-{:02}", date.year(), date.month())
}
