//! Finds one message of an agent, in its own mailbox or, if it sent it, in the recipient's.

use std::os::unix::fs::MetadataExt;

use amb_core::doc::MessageWithReceipts;
use amb_core::{AgentName, Message, MessageId, OfficeError, Receipt, Timestamp};
use serde::Serialize;
use serde_json::json;

use crate::files::failure::IoContext;
use crate::files::layout::Layout;
use crate::files::message_file;
use crate::log::{Brief, LogLine};
use crate::office::{AgentDir, OfficeState};
use crate::verbs::deliver::FileLocation;
use crate::verbs::tasks::Pointer;

/// Metadata field of a task update that has not moved its task: the reported task and state, and the reason.
const NOT_APPLIED: &str = "not_applied";

/// A message that was found.
#[derive(Debug, Clone)]
pub(crate) struct FoundMessage {
    pub(crate) message: Message,
    /// The id in its file, which its sender knows. The message has another if this one was taken.
    pub(crate) own_id: MessageId,
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

    /// Loads a message that is in a log with the file name under which it arrived, wherever its file is now.
    pub(crate) fn load(
        &self,
        owner: &AgentName,
        file: &str,
        logged: &Brief,
    ) -> Result<Option<FoundMessage>, OfficeError> {
        let identify = |message| message_file::as_logged(message, file, logged);
        let open = |at: &FileLocation| self.open_at(owner, at, file, identify);
        let mut found: Vec<FoundMessage> = self.locations(owner, file)?.iter().filter_map(open).collect();
        let is_exact = |found: &FoundMessage| found.message.sent_at == logged.at;
        let is_ambiguous = logged.content.is_some() && !found.iter().any(is_exact);
        if found.is_empty() || is_ambiguous {
            found.extend(self.renamed_locations(owner, file).iter().filter_map(open));
        }
        // Two messages may differ in their time alone. It is not always in the file, so it only decides between two.
        let at = found.iter().position(is_exact).unwrap_or(0);
        Ok((!found.is_empty()).then(|| found.swap_remove(at)))
    }

    /// Like `load`, for a message whose log line is not at hand.
    pub(crate) fn load_by_id(
        &self,
        owner: &AgentName,
        file: &str,
        id: &MessageId,
    ) -> Result<Option<FoundMessage>, OfficeError> {
        let identify = |message| message_file::with_known_id(message, file, id);
        let open =
            |locations: Vec<FileLocation>| locations.iter().find_map(|at| self.open_at(owner, at, file, identify));
        Ok(open(self.locations(owner, file)?).or_else(|| open(self.renamed_locations(owner, file))))
    }

    /// Reads the message at this location, if it is the one that `identify` accepts.
    fn open_at(
        &self,
        owner: &AgentName,
        location: &FileLocation,
        file: &str,
        identify: impl Fn(Message) -> Option<Message>,
    ) -> Option<FoundMessage> {
        let layout = self.paths.layout;
        let message_file = match message_file::open(layout, owner, &location.path, file) {
            Ok(message_file) => message_file,
            Err(gone) if gone.is_gone() => return None,
            Err(bad) => {
                tracing::warn!(file = %location.path.display(), %bad, "a message in the log cannot be read now");
                return None;
            }
        };
        let own_id = message_file.message.id.clone();
        let mut message = identify(message_file.message)?;
        if let Err(error) = self.set_known_task_id(owner, &mut message, file) {
            tracing::warn!(%error, id = %message.id, "reading the task record of a message failed");
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
        Some(FoundMessage { message, own_id, read_at })
    }
}

impl AgentDir {
    /// Returns a message that the agent received or sent.
    pub(crate) fn find(&self, id: &MessageId) -> Result<FoundMessage, OfficeError> {
        let found = match self.log_line_of(id)?.and_then(|line| line.into_message(&self.me)) {
            Some((brief, mailbox, file)) => self.shared.load(&mailbox, &file, &brief)?,
            None => None,
        };
        found.ok_or_else(|| OfficeError::not_found(format!("no message {id} of yours")))
    }

    /// Returns the log line of a message that was received or sent.
    pub(crate) fn log_line_of(&self, id: &MessageId) -> Result<Option<LogLine>, OfficeError> {
        let index = self.ingest_mail()?;
        if let Some((file, known)) = index.by_id(id) {
            return Ok(Some(known.to_line(file)).filter(|_| known.withheld.is_none()));
        }
        drop(index);
        self.shared.last_line(&self.me, id, |line| line.brief().is_some_and(|brief| brief.id == *id))
    }

    /// Returns one message with its receipts.
    pub(crate) fn message(&self, id: &MessageId) -> Result<MessageWithReceipts, OfficeError> {
        self.shared.recover_journal();
        let FoundMessage { message, read_at, .. } = self.find(id)?;
        let receipt = Receipt::of(message.to.clone(), message.sent_at, read_at, read_at);
        Ok(MessageWithReceipts { message: self.redacted(message), receipts: vec![receipt] })
    }

    /// Returns the message as this agent may see it: with a callback only if this agent set it, and without the task of
    /// an update that did not count, which is in the metadata instead.
    pub(crate) fn redacted(&self, mut message: Message) -> Message {
        if message_file::is_report(&message) {
            let pointer = self.pointer_of(&message);
            if let Some(why) = self.why_not_applied(&message, pointer.as_ref()) {
                if let Some(task) = message.task.take() {
                    let note = json!({"task_id": task.id, "state": task.state, "reason": why});
                    message.metadata.insert(NOT_APPLIED.into(), note);
                }
            } else if let (Some(task), Some(pointer)) = (&mut message.task, &pointer) {
                task.id = pointer.id.clone();
            }
            message.callback = pointer.and_then(|pointer| pointer.callback);
        } else if message.from != self.me {
            message.callback = None;
        }
        message
    }

    /// Returns why an update to this agent has not moved the task that it names, if so. An update of a task that is not
    /// known here is shown as it is. `pointer` is that of the task, if its assignee sent the update.
    fn why_not_applied(&self, update: &Message, pointer: Option<&Pointer>) -> Option<String> {
        let task = update.task.as_ref().filter(|_| update.to == self.me && !self.shared.is_mounted(&self.me))?;
        let Some(pointer) = pointer else {
            let pointer = self.shared.pointer_to(&self.me, &task.id).ok()??;
            return Some(format!("the task is {}'s", pointer.assignee));
        };
        let state = self.shared.record(&pointer.assignee, &pointer.id).ok()??.task.state;
        // An earlier state on the way to this one has counted.
        let has_counted = task.state == state || !task.state.path_to(state).is_empty();
        (!has_counted).then(|| format!("the task is {state}"))
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
