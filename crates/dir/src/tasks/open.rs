//! Opening a task: when it is sent, or when it is found in the mailbox because another program sent it.

use amb_core::doc::Sent;
use amb_core::message::NO_SUBJECT;
use amb_core::task::{self, Asked, Decision, TaskRef};
use amb_core::{Card, Kind, Message, Object, OfficeError, Task, TaskId, TaskState, Timestamp};

use super::record::Record;
use crate::durable::Wait;
use crate::layout::Layout;
use crate::office::Desk;
use crate::people::Recipient;
use crate::post::Naming;
use crate::send::sent;

impl Desk {
    /// Sends a task, or rejects it in the recipient's name.
    pub(crate) fn send_task(
        &self,
        mut message: Message,
        recipient: &Recipient,
        deadline: Option<Timestamp>,
        parent: Option<TaskId>,
        naming: Naming,
    ) -> Result<Sent, OfficeError> {
        let id = TaskId::parse(message.id.as_str())?;
        message.task = Some(TaskRef { id, state: TaskState::Pending, deadline, extra: Object::new() });
        if let Some(parent) = &parent
            && let Some(task) = &mut message.task
        {
            task.extra.insert("parent".into(), parent.as_str().into());
        }
        let _locked = self.shared.lock_agent(&message.to)?;
        let reason = self.rejection(&message, &recipient.card, recipient.foreign_tasks)?;
        let file = match &reason {
            None => self.shared.deliver(&mut message, naming)?,
            // Its recipient need not see what the office has already answered.
            Some(_) => self.shared.deliver_put_away(&mut message, naming)?,
        };
        // From here on the task is sent. A record that cannot be kept is made again when the message is noticed.
        let mut record = new_record(&message, file, parent);
        let kept = match &reason {
            None => self.shared.keep_record(&record, Wait::Synced).and_then(|()| self.shared.point_to(&record.task)),
            Some(reason) => {
                record.by_office = true;
                if let Some(task) = &mut message.task {
                    task.state = TaskState::Rejected;
                }
                self.change(&mut record, TaskState::Rejected, Some(reason.clone()))
                    .and_then(|()| self.shared.point_to(&record.task))
            }
        };
        match (kept, &reason) {
            (Ok(()), _) => {}
            (Err(error), None) => {
                tracing::warn!(%error, id = %message.id, "the task is sent, but its record could not be kept")
            }
            // Without its record and update, a rejection would be a silent loss.
            (Err(error), Some(_)) => return Err(error),
        }
        Ok(sent(&message, reason))
    }

    /// Why the office rejects this task, if it does. The caller holds the assignee's lock.
    fn rejection(&self, message: &Message, card: &Card, foreign: usize) -> Result<Option<String>, OfficeError> {
        let asked = Asked {
            sender: &message.from,
            assignee: &message.to,
            card,
            current_tasks: self.shared.current_tasks(&message.to)?.len().max(foreign),
            deadline: message.task.as_ref().and_then(|task| task.deadline),
        };
        Ok(match task::decide(asked, self.shared.now()) {
            Decision::Accept => None,
            Decision::Reject(reason) => Some(reason.to_string()),
        })
    }

    /// The record of a task whose message was found in the mailbox, made and decided if it has none.
    pub(crate) fn open_task_found(&self, message: &Message, file: &str) -> Result<Option<Record>, OfficeError> {
        let Some(task) = &message.task else { return Ok(None) };
        if let Some(record) = self.shared.record(&self.me, &task.id)? {
            return Ok(Some(record));
        }
        let _locked = self.shared.lock_agent(&self.me)?;
        if let Some(record) = self.shared.record(&self.me, &task.id)? {
            return Ok(Some(record));
        }
        let parent = task.extra.get("parent").and_then(|parent| TaskId::parse(parent.as_str()?).ok());
        let mut record = new_record(message, file.to_owned(), parent);
        let reason = self.rejection(message, &self.card()?, 0)?;
        match reason {
            None => self.shared.keep_record(&record, Wait::Synced)?,
            Some(reason) => {
                tracing::info!(task = %record.task.id, from = %message.from, reason, "a task was rejected");
                record.by_office = true;
                self.decide_change(&mut record, TaskState::Rejected, Some(reason));
                self.shared.keep_record(&record, Wait::Synced)?;
            }
        }
        self.shared.point_to(&record.task)?;
        Ok(Some(record))
    }

    /// The agent's own card, wherever it stands.
    pub(crate) fn card(&self) -> Result<Card, OfficeError> {
        if let Some(registered) = self.shared.registered(&self.me)? {
            return Ok(registered.card);
        }
        Ok(match self.shared.paths.layout {
            Layout::Nanobot => self.shared.registry_entry(&self.me)?.map(|entry| entry.card).unwrap_or_default(),
            Layout::Chipset => Card::default(),
        })
    }
}

/// The record of a task that has just been sent.
fn new_record(message: &Message, file: String, parent: Option<TaskId>) -> Record {
    debug_assert_eq!(message.kind, Kind::Task);
    let task = message.task.clone();
    Record {
        task: Task {
            // A message of kind task always has one by now.
            id: task.as_ref().map_or_else(|| TaskId::fresh(message.sent_at), |task| task.id.clone()),
            owner: message.from.clone(),
            assignee: message.to.clone(),
            state: TaskState::Pending,
            subject: Some(message.subject.clone().unwrap_or_else(|| NO_SUBJECT.into())),
            message_id: message.id.clone(),
            session_id: message.session.clone(),
            parent,
            deadline: task.and_then(|task| task.deadline),
            overdue: false,
            note: None,
            callback: message.callback.clone(),
            created_at: message.sent_at,
            updated_at: message.sent_at,
        },
        file,
        ttl: message.ttl,
        trace: message.trace.clone(),
        correlation_id: message.correlation_id.clone(),
        by_office: false,
        told_overdue: Vec::new(),
        outgoing: None,
    }
}
