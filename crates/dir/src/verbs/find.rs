//! Finding one message of the agent's, in its own mailbox or, if it sent it, in the recipient's.

use std::os::unix::fs::MetadataExt;

use amb_core::doc::MessageWithReceipts;
use amb_core::{AgentName, Kind, Message, MessageId, OfficeError, Receipt, Timestamp};
use serde::Serialize;

use crate::files::failure::Doing;
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
    /// Whether its recipient has handled it, and when.
    pub(crate) read_at: Option<Timestamp>,
}

impl OfficeState {
    /// The last line of an agent's log that contains this id and satisfies the test.
    pub(crate) fn last_line(
        &self,
        agent: &AgentName,
        id: &impl Serialize,
        wanted: impl Fn(&LogLine) -> bool,
    ) -> Result<Option<LogLine>, OfficeError> {
        // As it stands in the line, escapes included.
        let text = serde_json::to_string(id).map_err(OfficeError::internal)?;
        self.log(agent).find_last(&text, wanted).doing("could not read the log")
    }

    /// The message of this id, which arrived under this name in an agent's mailbox, wherever it lies now.
    pub(crate) fn load(
        &self,
        owner: &AgentName,
        file: &str,
        id: &MessageId,
    ) -> Result<Option<FoundMessage>, OfficeError> {
        let places = self.places(owner, file)?;
        if let Some(found) = places.iter().find_map(|place| self.open_at(owner, place, file, id)) {
            return Ok(Some(found));
        }
        let renamed = self.renamed(owner, file);
        Ok(renamed.iter().find_map(|place| self.open_at(owner, place, file, id)))
    }

    /// The message at this place, if it is the one.
    fn open_at(&self, owner: &AgentName, place: &FileLocation, file: &str, id: &MessageId) -> Option<FoundMessage> {
        let layout = self.paths.layout;
        let message_file = match message_file::open(layout, owner, &place.path, file) {
            Ok(message_file) => message_file,
            Err(gone) if gone.is_gone() => return None,
            Err(bad) => {
                tracing::warn!(file = %place.path.display(), %bad, "a message that was noticed before cannot be read now");
                return None;
            }
        };
        let mut message = message_file::known_as(message_file.message, file, id)?;
        if let Err(error) = self.name_task(owner, &mut message, file) {
            tracing::warn!(%error, %id, "the record of a message's task cannot be read now");
        }
        let read = match layout {
            Layout::Nanobot => !place.in_inbox,
            Layout::Chipset => message_file.read,
        };
        // Moving a file changes its inode; marking it makes a new one. Either is the moment of reading.
        let changed = || {
            let about = fs_err::metadata(&place.path).ok()?;
            Timestamp::new(about.ctime(), i32::try_from(about.ctime_nsec()).ok()?).ok()
        };
        // What the office rejected was put away and never shown.
        let read = read && !message_file::is_rejected(&message);
        let read_at = read.then(|| changed().unwrap_or(message.sent_at));
        Some(FoundMessage { message, read_at })
    }
}

impl AgentDir {
    /// A message that came to the agent or that it sent.
    pub(crate) fn find(&self, id: &MessageId) -> Result<FoundMessage, OfficeError> {
        let nobody = || OfficeError::not_found(format!("no message {id} of yours"));
        let line = self.line_of(id)?.ok_or_else(nobody)?;
        let (owner, file) = match &line {
            LogLine::In { f, .. } => (&self.me, f),
            LogLine::Out { f, brief } => (&brief.peer, f),
            _ => return Err(nobody()),
        };
        self.shared.load(owner, file, id)?.ok_or_else(nobody)
    }

    /// The line with which this message came or went.
    pub(crate) fn line_of(&self, id: &MessageId) -> Result<Option<LogLine>, OfficeError> {
        let index = self.ingest_mail()?;
        if let Some((file, known)) = index.by_id(id) {
            let (f, brief) = (file.clone(), known.brief.clone());
            let line = LogLine::In { f, i: known.inode, brief, read: known.read, withheld: known.withheld };
            return Ok(Some(line).filter(|_| known.withheld.is_none()));
        }
        drop(index);
        let wanted = |line: &LogLine| match line {
            LogLine::In { brief, withheld, .. } => brief.id == *id && withheld.is_none(),
            LogLine::Out { brief, .. } => brief.id == *id,
            _ => false,
        };
        self.shared.last_line(&self.me, id, wanted)
    }

    /// One message with its receipts.
    pub(crate) fn message(&self, id: &MessageId) -> Result<MessageWithReceipts, OfficeError> {
        self.shared.finish_begun();
        let FoundMessage { message, read_at } = self.find(id)?;
        let receipt = Receipt::of(message.to.clone(), message.sent_at, read_at, read_at);
        Ok(MessageWithReceipts { message: self.shown(message), receipts: vec![receipt] })
    }

    /// The message as this agent may see it: a callback only if this agent set it.
    pub(crate) fn shown(&self, mut message: Message) -> Message {
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

    /// The pointer to the task that this agent gave and that a message is an update of. It has the callback that this agent
    /// set. What the message says of it counts for nothing: it has been in others' hands.
    fn pointer_of(&self, update: &Message) -> Option<Pointer> {
        if update.to != self.me {
            return None;
        }
        self.shared.pointer_for(update).ok()?
    }
}
