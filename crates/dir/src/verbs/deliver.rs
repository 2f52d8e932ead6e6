//! Delivers a message into its recipient's mailbox, and finds it again.

use std::path::PathBuf;

use amb_core::wire::chipset;
use amb_core::{AgentName, Message, MessageId, OfficeError, Timestamp};

use crate::files::durable;
use crate::files::failure::Doing;
use crate::files::layout::Layout;
use crate::files::message_file;
use crate::files::open;
use crate::journal::{Intent, OpenIntent};
use crate::log::{Brief, LogLine};
use crate::office::OfficeState;

/// Which name the file of a message gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    /// The first free one.
    Free {
        /// Makes it unique where the plain one is taken.
        nonce: u32,
    },
    /// One name only: if it is taken, the message has been delivered before.
    Exact {
        /// Part of the name.
        nonce: u32,
    },
    /// One name only, of a message that another office accepted. It is entered in its sender's log once it is delivered, not
    /// before: there the line says that it was, also when its recipient has removed it since.
    Carried {
        /// Part of the name.
        nonce: u32,
    },
}

impl Naming {
    pub(crate) fn nonce(self) -> u32 {
        let (Naming::Free { nonce } | Naming::Exact { nonce } | Naming::Carried { nonce }) = self;
        nonce
    }
}

/// Where a message's file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileLocation {
    pub(crate) path: PathBuf,
    /// In the mailbox itself, and not put away.
    pub(crate) in_inbox: bool,
}

impl OfficeState {
    /// Writes a message into its recipient's mailbox, durably, and returns the name of its file.
    ///
    /// In the chipset layout the name is the id, so the message's id may change here.
    pub(crate) fn deliver(&self, message: &mut Message, naming: Naming) -> Result<String, OfficeError> {
        let inbox = self.make_mailbox(&message.to)?;
        self.deliver_into(&inbox, message, naming, |_, _| {})
    }

    /// Puts a task into its recipient's mailbox, or, if it says that the office rejects it, among the mail put away: its
    /// recipient need not see what is decided already. The journal entry says that what follows from it is not done yet.
    pub(crate) fn deliver_task(
        &self,
        message: &mut Message,
        naming: Naming,
    ) -> Result<(String, Option<OpenIntent>), OfficeError> {
        let directory = match message_file::is_rejected(message) {
            false => self.make_mailbox(&message.to)?,
            true => {
                self.refuse_links(&message.to)?;
                let away = self.paths.put_away(&message.to);
                durable::make_dir(&away, &self.syncer).doing("could not make the mailbox")?;
                away
            }
        };
        let mut begun: Option<OpenIntent> = None;
        let file = self.deliver_into(&directory, message, naming, |message, name| {
            let task = message.task.as_ref().map(|task| task.id.clone());
            let note = task.map(|id| Intent::Task { assignee: message.to.clone(), id, file: Some(name.to_owned()) });
            if let Some(taken_name) = begun.take() {
                taken_name.done();
            }
            begun = note.and_then(|note| self.begin(&note));
        })?;
        Ok((file, begun))
    }

    /// `before` is called right before the file gets the name.
    fn deliver_into(
        &self,
        directory: &std::path::Path,
        message: &mut Message,
        naming: Naming,
        mut before: impl FnMut(&Message, &str),
    ) -> Result<String, OfficeError> {
        self.note_stamp(message.sent_at);
        let layout = self.paths.layout;
        let mut bytes = message_file::write(layout, message).map_err(OfficeError::internal)?;
        if message_file::is_rejected(message) && layout == Layout::Chipset {
            bytes = chipset::marked_read(&bytes).map_err(OfficeError::internal)?.unwrap_or(bytes);
        }
        let doing = "the message was not sent";
        let (at, from) = (message.sent_at, message.from.clone());
        let mut announce = |message: &mut Message, name: &str| {
            if layout == Layout::Chipset
                && let Ok(id) = MessageId::parse(message_file::stem(layout, name))
            {
                message.id = id;
            }
            if !matches!(naming, Naming::Carried { .. }) {
                self.note_sent(message, name);
            }
            before(message, name);
        };
        let name = match naming {
            Naming::Free { nonce } => durable::create(directory, &bytes, &self.syncer, |attempt| {
                let name = message_file::new_name(layout, at, &from, nonce, attempt);
                announce(message, &name);
                name
            })
            .doing(doing)?,
            Naming::Exact { nonce } | Naming::Carried { nonce } => {
                let name = message_file::exact_name(layout, &message.id, at, &from, nonce);
                durable::create_exact(directory, &bytes, &self.syncer, &name, || announce(message, &name))
                    .doing(doing)?;
                name
            }
        };
        if matches!(naming, Naming::Carried { .. }) {
            self.note_sent(message, &name);
        }
        Ok(name)
    }

    /// Enters a message in its sender's log. A line about a message that is not there is shown to nobody, so it comes first
    /// and no kill can leave a message without it. A failure here is not the sender's.
    pub(crate) fn note_sent(&self, message: &Message, file: &str) {
        let line = LogLine::Out { f: file.to_owned(), brief: Brief::of(message, &message.from) };
        let noted = self.make_state(&message.from).and_then(|()| {
            self.log(&message.from).write().and_then(|mut log| log.add(&[line])).doing("could not add to the log")
        });
        if let Err(error) = noted {
            tracing::warn!(%error, id = %message.id, "a message that is sent is not in the sender's log");
        }
    }

    /// Whether a message was put into this mailbox before, though its recipient may have taken, refused or removed it since.
    pub(crate) fn was_delivered(&self, to: &AgentName, file: &str, id: &MessageId) -> Result<bool, OfficeError> {
        if self.locate(to, file)?.is_some() || self.paths.refused(to).join(file).exists() {
            return Ok(true);
        }
        let came = |line: &LogLine| matches!(line, LogLine::In { brief, .. } if brief.id == *id);
        Ok(self.last_line(to, id, came)?.is_some())
    }

    /// Where the file that arrived under this name in an agent's mailbox is now.
    pub(crate) fn locate(&self, agent: &AgentName, file: &str) -> Result<Option<FileLocation>, OfficeError> {
        Ok(self.places(agent, file)?.into_iter().next())
    }

    /// Every place where a file of this name is: another program may have used a name twice.
    pub(crate) fn places(&self, agent: &AgentName, file: &str) -> Result<Vec<FileLocation>, OfficeError> {
        let mut places = Vec::new();
        // Twice: it may be moved from the one place to the other while we look.
        for _ in 0..2 {
            let path = self.paths.inbox(agent).join(file);
            if path.is_file() {
                places.push(FileLocation { path, in_inbox: true });
            }
            let away = self.paths.put_away(agent);
            let path = away.join(file);
            if path.is_file() {
                places.push(FileLocation { path, in_inbox: false });
            }
            if self.paths.layout == Layout::Nanobot
                && let Some(path) = self.locate_by_month(&away, file)?
            {
                places.push(FileLocation { path, in_inbox: false });
            }
            if !places.is_empty() {
                break;
            }
        }
        Ok(places)
    }

    /// Files that were put away under a longer name because theirs was taken.
    pub(crate) fn renamed(&self, agent: &AgentName, file: &str) -> Vec<FileLocation> {
        let away = self.paths.put_away(agent);
        let stem = format!("{}_", message_file::stem(self.paths.layout, file));
        let mut folders = vec![away.clone()];
        if let Some(at) = message_file::time_in(self.paths.layout, file) {
            folders.push(away.join(month(at)));
        }
        let entries = folders.iter().filter_map(|folder| fs_err::read_dir(folder).ok()).flatten().flatten();
        let renamed = entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(&stem)));
        renamed.map(|entry| FileLocation { path: entry.path(), in_inbox: false }).collect()
    }

    fn locate_by_month(&self, away: &std::path::Path, file: &str) -> Result<Option<PathBuf>, OfficeError> {
        if let Some(at) = message_file::time_in(self.paths.layout, file) {
            let path = away.join(month(at)).join(file);
            return Ok(path.is_file().then_some(path));
        }
        // A name that tells no time lies in the month in which it was put away.
        let Some(entries) = open::if_there(fs_err::read_dir(away)).doing("could not look for the message")? else {
            return Ok(None);
        };
        let found = entries
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path().join(file))
            .find(|path| path.is_file());
        Ok(found)
    }
}

/// The folder of a month, such as `2026-03`.
pub(crate) fn month(at: Timestamp) -> String {
    let date = jiff::tz::Offset::UTC.to_datetime(at).date();
    format!("{:04}-{:02}", date.year(), date.month())
}
