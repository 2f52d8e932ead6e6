//! Finds one message of an agent, in its own mailbox or, if it sent it, in the recipient's.

use std::os::unix::fs::MetadataExt;

use amb_core::doc::MessageWithReceipts;
use amb_core::{AgentName, Kind, Message, MessageId, OfficeError, Receipt, Timestamp};
use serde::Serialize;

use crate::files::failure::IoContext;
use crate::files::layout::Layout;
use crate::files::message_file;
use crate::log::LogLine;
use crate::office::{AgentDir, OfficeState};
use crate::verbs::deliver::FileLocation;
use crate::verbs::tasks::Pointer;

/// A message that was found.
#[derive(Debug, Clone)]
pub(crate) struct FoundMessage {
    pub(crate) message: Message,
    /// When its recipient read it.
    pub(crate) read_at: Option<Timestamp>,
}

impl OfficeState {
    /// Returns the last line of an agent's log that contains this id and satisfies the test.
    pub(crate) fn last_line(
        &self,
        agent: &AgentName,
        id: &impl Serialize,
        wanted: impl Fn(&LogLine) -> bool,
    ) -> Result<Option<LogLine>, OfficeError> {
        // As JSON, with the escapes that the line has.
        let text = serde_json::to_string(id).map_err(OfficeError::internal)?;
        self.log(agent).find_last(&text, wanted).context("could not read the log")
    }

    /// Loads a message by id and by the file name under which it arrived, wherever its file is now.
    pub(crate) fn load(
        &self,
        owner: &AgentName,
        file: &str,
        id: &MessageId,
    ) -> Result<Option<FoundMessage>, OfficeError> {
        let open = |locations: Vec<FileLocation>| locations.iter().find_map(|at| self.open_at(owner, at, file, id));
        Ok(open(self.locations(owner, file)?).or_else(|| open(self.renamed_locations(owner, file))))
    }

    /// Reads the message at this location, if it has this id.
    fn open_at(&self, owner: &AgentName, location: &FileLocation, file: &str, id: &MessageId) -> Option<FoundMessage> {
        let layout = self.paths.layout;
        let message_file = match message_file::open(layout, owner, &location.path, file) {
            Ok(message_file) => message_file,
            Err(gone) if gone.is_gone() => return None,
            Err(bad) => {
                tracing::warn!(file = %location.path.display(), %bad, "a message in the log cannot be read now");
                return None;
            }
        };
        let mut message = message_file::with_known_id(message_file.message, file, id)?;
        if let Err(error) = self.set_known_task_id(owner, &mut message, file) {
            tracing::warn!(%error, %id, "reading the task record of a message failed");
        }
        let read = match layout {
            Layout::Nanobot => !location.in_inbox,
            Layout::Chipset => message_file.read,
        };
        // Moving a file changes its ctime, and marking it creates a new file: the ctime is when it was read.
        let changed = || {
            let metadata = fs_err::metadata(&location.path).ok()?;
            Timestamp::new(metadata.ctime(), i32::try_from(metadata.ctime_nsec()).ok()?).ok()
        };
        // A task that the office rejected was never shown.
        let read = read && !message_file::is_rejected(&message);
        let read_at = read.then(|| changed().unwrap_or(message.sent_at));
        Some(FoundMessage { message, read_at })
    }
}

impl AgentDir {
    /// Returns a message that the agent received or sent.
    pub(crate) fn find(&self, id: &MessageId) -> Result<FoundMessage, OfficeError> {
        let found = match self.log_line_of(id)?.and_then(|line| line.into_message(&self.me)) {
            Some((_, mailbox, file)) => self.shared.load(&mailbox, &file, id)?,
            None => None,
        };
        found.ok_or_else(|| OfficeError::not_found(format!("no message {id} of yours")))
    }

    /// Returns the log line of a message that was received or sent.
    pub(crate) fn log_line_of(&self, id: &MessageId) -> Result<Option<LogLine>, OfficeError> {
        let index = self.ingest_mail()?;
        if let Some((file, known)) = index.by_id(id) {
            let (f, brief) = (file.clone(), known.brief.clone());
            let line = LogLine::In { f, i: known.inode, brief, read: known.read, withheld: known.withheld };
            return Ok(Some(line).filter(|_| known.withheld.is_none()));
        }
        drop(index);
        self.shared.last_line(&self.me, id, |line| line.brief().is_some_and(|brief| brief.id == *id))
    }

    /// Returns one message with its receipts.
    pub(crate) fn message(&self, id: &MessageId) -> Result<MessageWithReceipts, OfficeError> {
        self.shared.recover_journal();
        let FoundMessage { message, read_at } = self.find(id)?;
        let receipt = Receipt::of(message.to.clone(), message.sent_at, read_at, read_at);
        Ok(MessageWithReceipts { message: self.redacted(message), receipts: vec![receipt] })
    }

    /// Returns the message as this agent may see it: with a callback only if this agent set it.
    pub(crate) fn redacted(&self, mut message: Message) -> Message {
        if message.kind == Kind::TaskUpdate {
            let pointer = self.pointer_of(&message);
            if let (Some(task), Some(pointer)) = (&mut message.task, &pointer) {
                task.id = pointer.id.clone();
            }
            message.callback = pointer.and_then(|pointer| pointer.callback);
        } else if message.from != self.me {
            message.callback = None;
        }
        message
    }

    /// Returns the pointer to the task of an update to this agent. It has the callback that this agent set; the one in
    /// the message is not trusted.
    fn pointer_of(&self, update: &Message) -> Option<Pointer> {
        if update.to != self.me {
            return None;
        }
        self.shared.pointer_for_update(update).ok()?
    }
}
