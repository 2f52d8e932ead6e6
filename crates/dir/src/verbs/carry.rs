//! Delivers mail that another office accepted, with its time, ttl and trace unchanged.
//!
//! The carrier chooses a moment and a number, writes them down, and then carries. The message's id and the one name that its
//! file can have follow from them, so that carrying it again after a crash delivers nothing twice.

use std::io;

use amb_core::consent::may_write;
use amb_core::doc::Sent;
use amb_core::task::TaskRef;
use amb_core::{AgentName, Consent, Kind, Message, MessageId, OfficeError, TaskId, Timestamp};

use crate::files::durable::{self, Wait};
use crate::files::failure::Doing;
use crate::files::layout::Layout;
use crate::files::message_file;
use crate::log::LogLine;
use crate::office::{AgentDir, DirMailbox, DirOffice, OfficeState};
use crate::verbs::deliver::Naming;
use crate::verbs::send::sent;
use crate::verbs::tasks::TaskRecord;

/// State of a message that was carried into a mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CarryOutcome {
    /// It lies there unread.
    Waiting,
    /// Its recipient has taken it.
    Handled,
    /// Its sender is not in the recipient's `allow_from`; it was moved aside.
    Refused,
}

impl OfficeState {
    fn carry_outcome(&self, agent: &AgentName, file: &str) -> Result<CarryOutcome, OfficeError> {
        match self.locate(agent, file)? {
            Some(place) if self.paths.layout == Layout::Nanobot => {
                Ok(if place.in_inbox { CarryOutcome::Waiting } else { CarryOutcome::Handled })
            }
            Some(place) => match message_file::open(self.paths.layout, agent, &place.path, file) {
                Ok(message_file) if message_file.read => Ok(CarryOutcome::Handled),
                Err(gone) if gone.is_gone() => Ok(CarryOutcome::Handled),
                _ => Ok(CarryOutcome::Waiting),
            },
            None if self.paths.refused(agent).join(file).exists() => Ok(CarryOutcome::Refused),
            // Some programs remove what they have taken.
            None => Ok(CarryOutcome::Handled),
        }
    }
}

impl AgentDir {
    /// Puts a message of this agent's into its recipient's mailbox, once.
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
            return self.send_task(message, &recipient, deadline, None, Naming::Exact { nonce });
        }
        if message.kind == Kind::TaskUpdate {
            self.take_over(&mut message)?;
        } else {
            let heard = recipient.card.allow_from.allows(&self.me);
            may_write(Consent::DIRECTORY, &self.me, &message.to, heard)?;
        }
        if !(again && self.was_carried(&message, &file)?) {
            self.shared.deliver(&mut message, Naming::Carried { nonce })?;
        }
        Ok(sent(&message, None))
    }

    /// Whether the message was put there before, though its recipient may have taken or removed it since.
    fn was_carried(&self, message: &Message, file: &str) -> Result<bool, OfficeError> {
        let sent = |line: &LogLine| matches!(line, LogLine::Out { brief, .. } if brief.id == message.id);
        if self.shared.last_line(&self.me, &message.id, sent)?.is_some() {
            return Ok(true);
        }
        let delivered = self.shared.was_delivered(&message.to, file, &message.id)?;
        if delivered {
            // By a process that died before logging it.
            self.shared.note_sent(message, file);
        }
        Ok(delivered)
    }

    /// Brings the record of a task between the two to where the update says it is, and gives an update to the task's owner the
    /// callback that the owner set. Idempotent.
    ///
    /// The agent reports on a task that it was given; or the other office ended one that the agent gave, since the
    /// connection of the two has ended.
    fn take_over(&self, update: &mut Message) -> Result<(), OfficeError> {
        let Some(said) = update.task.clone() else { return Err(OfficeError::invalid("an update of no task")) };
        {
            let _locked = self.shared.lock_agent(&self.me)?;
            if let Some(record) = self.shared.record(&self.me, &said.id)? {
                update.callback = record.task.callback.clone();
                update.reply_to = Some(record.task.message_id.clone());
                return self.bring_along(record, &said, update);
            }
        }
        let _locked = self.shared.lock_agent(&update.to)?;
        let given = self.shared.record(&update.to, &said.id)?.filter(|record| record.task.owner == self.me);
        match given {
            Some(record) if said.state.is_terminal() => {
                update.reply_to = Some(record.task.message_id.clone());
                self.bring_along(record, &said, update)
            }
            _ => Err(OfficeError::invalid(format!("no task {} was given to {} here", said.id, self.me))),
        }
    }

    /// Moves a record as an update says. The caller holds the assignee's lock.
    fn bring_along(&self, mut record: TaskRecord, said: &TaskRef, update: &Message) -> Result<(), OfficeError> {
        if record.task.state.path_to(said.state).is_empty() {
            return Ok(());
        }
        record.task.state = said.state;
        record.task.note = Some(update.text()).filter(|text| !text.is_empty());
        record.task.updated_at = update.sent_at.max(record.task.updated_at);
        self.shared.keep_record(&record, Wait::Synced)?;
        let assignee = &record.task.assignee;
        self.shared.write_tasks_of(assignee, self.shared.current_tasks(assignee)?)
    }

    /// Moves a message that cannot be carried on out of the mailbox, to be looked at by a person.
    fn refuse(&self, id: &MessageId) -> Result<(), OfficeError> {
        let mut index = self.ingest()?;
        let Some(name) = index.by_id(id).map(|(name, _)| name.clone()) else { return Ok(()) };
        let paths = &self.shared.paths;
        let (inbox, refused) = (paths.inbox(&self.me), paths.refused(&self.me));
        let moved: io::Result<()> = durable::make_dir(&refused, &self.shared.syncer).and_then(|()| {
            durable::move_into(&inbox.join(&name), &refused, &name, paths.suffix())?;
            self.shared.syncer.sync(&refused)?;
            self.shared.syncer.sync(&inbox)
        });
        moved.doing("could not move a refused message aside")?;
        index.known.remove(&name);
        Ok(())
    }
}

impl DirOffice {
    /// The id and the name of the file that a message of `from` gets when it is carried with these two.
    pub fn carried_as(&self, from: &AgentName, at: Timestamp, nonce: u32) -> (MessageId, String) {
        let layout = self.shared.paths.layout;
        let id = message_file::new_id(layout, at, from, nonce);
        let file = message_file::exact_name(layout, &id, at, from, nonce);
        (id, file)
    }

    /// What has become of a message that was carried into this agent's mailbox.
    pub async fn carry_outcome(&self, agent: &AgentName, file: &str) -> Result<CarryOutcome, OfficeError> {
        let (shared, agent, file) = (self.shared.clone(), agent.clone(), file.to_owned());
        let carry_outcome = tokio::task::spawn_blocking(move || shared.carry_outcome(&agent, &file));
        carry_outcome.await.map_err(OfficeError::internal)?
    }
}

impl DirMailbox {
    /// Puts a message of this agent's, which another office accepted, into its recipient's mailbox: durable when this
    /// returns, and there once, however often it is carried with the same moment (`message.sent_at`) and number. Say
    /// `again` where it may have been carried before.
    pub async fn carry(&self, message: Message, nonce: u32, again: bool) -> Result<Sent, OfficeError> {
        self.run(move |agent_dir| agent_dir.carry(message, nonce, again)).await
    }

    /// Puts a message that came to this agent aside, where it is kept and not shown.
    pub async fn refuse(&self, id: &MessageId) -> Result<(), OfficeError> {
        let id = id.clone();
        self.run(move |agent_dir| agent_dir.refuse(&id)).await
    }
}
