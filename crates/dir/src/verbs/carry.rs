//! Delivers mail that another office accepted, with its time, ttl and trace unchanged.
//!
//! The carrier chooses a timestamp and a nonce, stores them, and then carries. The message's id and its exact file name
//! follow from them, so that carrying it again after a crash delivers nothing twice.

use std::io;

use amb_core::consent::may_write;
use amb_core::doc::Sent;
use amb_core::{AgentName, Consent, Kind, Message, MessageId, OfficeError, TaskId, TaskState, Timestamp};

use crate::files::durable::{self, Wait};
use crate::files::failure::IoContext;
use crate::files::layout::Layout;
use crate::files::message_file;
use crate::log::LogLine;
use crate::office::{AgentDir, DirMailbox, DirOffice, OfficeState};
use crate::verbs::deliver::Naming;
use crate::verbs::send::sent;
use crate::verbs::tasks::TaskRecord;

/// State of a carried message in its recipient's mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CarryOutcome {
    /// Unread.
    Waiting,
    /// Read by its recipient.
    Handled,
    /// Moved aside: its sender is not in the recipient's `allow_from`.
    Refused,
}

impl OfficeState {
    fn carry_outcome(&self, agent: &AgentName, file: &str) -> Result<CarryOutcome, OfficeError> {
        match self.locate(agent, file)? {
            Some(location) if self.paths.layout == Layout::Nanobot => {
                Ok(if location.in_inbox { CarryOutcome::Waiting } else { CarryOutcome::Handled })
            }
            Some(location) => match message_file::open(self.paths.layout, agent, &location.path, file) {
                Ok(message_file) if message_file.read => Ok(CarryOutcome::Handled),
                Err(gone) if gone.is_gone() => Ok(CarryOutcome::Handled),
                _ => Ok(CarryOutcome::Waiting),
            },
            None if self.paths.refused(agent).join(file).exists() => Ok(CarryOutcome::Refused),
            // Some programs delete mail that they have read.
            None => Ok(CarryOutcome::Handled),
        }
    }
}

impl AgentDir {
    /// Delivers a message of this agent to its recipient, once.
    fn carry(&self, mut message: Message, nonce: u32, again: bool) -> Result<Sent, OfficeError> {
        let layout = self.shared.paths.layout;
        message.from = self.me.clone();
        message.id = message_file::new_id(layout, message.sent_at, &self.me, nonce);
        let file = message_file::exact_name(layout, &message.id, message.sent_at, &self.me, nonce);
        let recipient = self.shared.recipient(&message.to)?;
        if message.kind == Kind::Task {
            let id = TaskId::parse(message.id.as_str())?;
            if again && let Some(record) = self.shared.finish_task(&message.to, &id, Some(&file))? {
                return Ok(record.sent(record.task.state));
            }
            let deadline = message.task.take().and_then(|task| task.deadline);
            return self.send_task(message, &recipient, deadline, None, Naming::Exact(nonce));
        }
        if message.kind == Kind::TaskUpdate {
            self.apply_update(&mut message)?;
        } else {
            let allowed = recipient.card.allow_from.allows(&self.me);
            may_write(Consent::DIRECTORY, &self.me, &message.to, allowed)?;
        }
        if !(again && self.was_carried(&message, &file)?) {
            self.shared.deliver(&mut message, Naming::Carried(nonce))?;
        }
        Ok(sent(&message, None))
    }

    /// Whether the message was delivered before, even if its recipient has read or deleted it since.
    fn was_carried(&self, message: &Message, file: &str) -> Result<bool, OfficeError> {
        let sent = |line: &LogLine| matches!(line, LogLine::Out { brief, .. } if brief.id == message.id);
        if self.shared.last_line(&self.me, &message.id, sent)?.is_some() {
            return Ok(true);
        }
        let delivered = self.shared.was_delivered(&message.to, file, &message.id)?;
        if delivered {
            // By a process that died before it logged it.
            self.shared.log_sent(message, file);
        }
        Ok(delivered)
    }

    /// Moves the record of a task to the state in the update, and gives an update for the task's owner the callback
    /// that the owner set. Idempotent.
    ///
    /// Either the agent reports on a task that it was given, or the other office ended one that the agent gave, because
    /// the connection of the two has ended.
    fn apply_update(&self, update: &mut Message) -> Result<(), OfficeError> {
        let Some(reported) = update.task.clone() else { return Err(OfficeError::invalid("an update of no task")) };
        {
            let _locked = self.shared.lock_agent(&self.me)?;
            if let Some(record) = self.shared.record(&self.me, &reported.id)? {
                update.callback = record.task.callback.clone();
                update.reply_to = Some(record.task.message_id.clone());
                return self.advance_record(record, reported.state, update);
            }
        }
        let _locked = self.shared.lock_agent(&update.to)?;
        let given = self.shared.record(&update.to, &reported.id)?.filter(|record| record.task.owner == self.me);
        match given {
            Some(record) if reported.state.is_terminal() => {
                update.reply_to = Some(record.task.message_id.clone());
                self.advance_record(record, reported.state, update)
            }
            _ => Err(OfficeError::invalid(format!("no task {} was given to {} here", reported.id, self.me))),
        }
    }

    /// Moves a record to this state. The caller holds the assignee's lock.
    fn advance_record(&self, mut record: TaskRecord, state: TaskState, update: &Message) -> Result<(), OfficeError> {
        if !record.advance(state, update) {
            return Ok(());
        }
        self.shared.write_record(&record, Wait::Synced)?;
        let assignee = &record.task.assignee;
        self.shared.write_current_tasks(assignee, self.shared.current_tasks(assignee)?)
    }

    /// Moves a message that cannot be carried to `refused/`, for a person to look at.
    fn refuse(&self, id: &MessageId) -> Result<(), OfficeError> {
        let mut index = self.ingest()?;
        let Some(name) = index.by_id(id).map(|(name, _)| name.clone()) else { return Ok(()) };
        let paths = &self.shared.paths;
        let (inbox, refused) = (paths.inbox(&self.me), paths.refused(&self.me));
        let moved: io::Result<()> = durable::make_dir(&refused, &self.shared.syncer).and_then(|()| {
            durable::move_into(&inbox.join(&name), &refused, &name, paths.layout.suffix())?;
            self.shared.syncer.sync(&refused)?;
            self.shared.syncer.sync(&inbox)
        });
        moved.context("could not move a refused message aside")?;
        index.known.remove(&name);
        Ok(())
    }
}

impl DirOffice {
    /// Returns the id and the file name of a message of `from` that is carried with this timestamp and nonce.
    pub fn carried_as(&self, from: &AgentName, at: Timestamp, nonce: u32) -> (MessageId, String) {
        let layout = self.shared.paths.layout;
        let id = message_file::new_id(layout, at, from, nonce);
        let file = message_file::exact_name(layout, &id, at, from, nonce);
        (id, file)
    }

    /// Returns the state of a message that was carried into this agent's mailbox.
    pub async fn carry_outcome(&self, agent: &AgentName, file: &str) -> Result<CarryOutcome, OfficeError> {
        let (shared, agent, file) = (self.shared.clone(), agent.clone(), file.to_owned());
        let outcome = tokio::task::spawn_blocking(move || shared.carry_outcome(&agent, &file));
        outcome.await.map_err(OfficeError::internal)?
    }
}

impl DirMailbox {
    /// Delivers a message of this agent, which another office accepted, to its recipient: durable when this returns,
    /// and there once, however often it is carried with the same `message.sent_at` and nonce. `again` says that it may
    /// have been carried before.
    pub async fn carry(&self, message: Message, nonce: u32, again: bool) -> Result<Sent, OfficeError> {
        self.run(move |agent_dir| agent_dir.carry(message, nonce, again)).await
    }

    /// Moves a message in this agent's mailbox to `refused/`, where it is kept and not shown.
    pub async fn refuse(&self, id: &MessageId) -> Result<(), OfficeError> {
        let id = id.clone();
        self.run(move |agent_dir| agent_dir.refuse(&id)).await
    }
}
