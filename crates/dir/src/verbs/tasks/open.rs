//! Opens a task: when it is sent, or when it is found in the mailbox because another program sent it.

use amb_core::doc::Sent;
use amb_core::limits::MAX_SUBJECT_CHARS;
use amb_core::message::NO_SUBJECT;
use amb_core::task::{self, Asked, Decision, TaskRef};
use amb_core::{Card, Kind, Message, Object, OfficeError, Task, TaskId, TaskState, Timestamp};

use super::record::{PARENT, SENT_AS, TaskRecord};
use crate::files::message_file;
use crate::journal::{Intent, JournalEntry};
use crate::office::AgentDir;
use crate::registry::presence::RecipientCard;
use crate::verbs::deliver::Naming;

impl AgentDir {
    /// Sends a task, or rejects it in the recipient's name.
    pub(crate) fn send_task(
        &self,
        mut message: Message,
        recipient: &RecipientCard,
        deadline: Option<Timestamp>,
        parent: Option<TaskId>,
        naming: Naming,
    ) -> Result<Sent, OfficeError> {
        let id = TaskId::parse(message.id.as_str())?;
        message.task = Some(TaskRef { id, state: TaskState::Pending, deadline, extra: Object::new() });
        if let (Some(parent), Some(task)) = (parent, &mut message.task) {
            task.extra.insert(PARENT.into(), parent.as_str().into());
        }
        let _locked = self.shared.lock_agent(&message.to)?;
        let reason = self.rejection(&message, &recipient.card, recipient.foreign_tasks)?;
        let id = apply_decision(&mut message, reason.as_deref())?;
        // The rename decides: from then on the task is sent, or rejected if its file says so.
        let (file, entry) = self.shared.deliver_task(&mut message, naming)?;
        let to = message.to.clone();
        let record = new_record(&message, file.clone());
        match self.shared.finish_task_locked(&to, &id, || Ok(Some((message, file)))) {
            Ok(finished) => {
                entry.into_iter().for_each(JournalEntry::done);
                Ok(finished.unwrap_or(record).sent(TaskState::Pending))
            }
            // Without record, update and journal entry, a rejection would be lost silently.
            Err(error) if reason.is_some() && entry.is_none() => Err(error),
            Err(error) => {
                tracing::warn!(%error, %id, "the task is sent, but writing its record failed; retrying at the next ingest");
                let rejected = reason.is_some().then_some(TaskState::Rejected);
                Ok(Sent { reason, ..record.sent(rejected.unwrap_or(TaskState::Pending)) })
            }
        }
    }

    /// Returns why the office rejects this task, if it does. The caller holds the assignee's lock.
    fn rejection(&self, message: &Message, card: &Card, foreign: usize) -> Result<Option<String>, OfficeError> {
        let asked = Asked {
            sender: &message.from,
            assignee: &message.to,
            allowed: card.allow_from.allows(&message.from),
            card,
            current_tasks: self.shared.current_tasks(&message.to)?.len().max(foreign),
            deadline: message.task.as_ref().and_then(|task| task.deadline),
        };
        Ok(match task::decide(asked, self.shared.now()) {
            Decision::Accept => None,
            Decision::Reject(reason) => Some(reason.to_string()),
        })
    }

    /// Returns the record of a task whose message was found in the mailbox. Creates and decides it if it is missing.
    pub(crate) fn open_found_task(&self, message: &Message, file: &str) -> Result<Option<TaskRecord>, OfficeError> {
        if let Some(record) = self.shared.record_for(&self.me, message, file)? {
            return Ok(Some(record));
        }
        let _locked = self.shared.lock_agent(&self.me)?;
        if let Some(record) = self.shared.record_for(&self.me, message, file)? {
            return Ok(Some(record));
        }
        let mut message = message.clone();
        let Some(sent_as) = message.task.as_ref().map(|task| task.id.clone()) else { return Ok(None) };
        if self.shared.record(&self.me, &sent_as)?.is_some() {
            // Other programs' ids are not unique.
            let id = message_file::disambiguated_task_id(&sent_as, &message, file);
            tracing::info!(%sent_as, %id, from = %message.from, "another task has this id already");
            if let Some(task) = &mut message.task {
                task.id = id;
                task.extra.insert(SENT_AS.into(), sent_as.as_str().into());
            }
        }
        let reason = self.rejection(&message, &self.card()?, 0)?;
        let id = apply_decision(&mut message, reason.as_deref())?;
        if let Some(reason) = &reason {
            tracing::info!(task = %id, from = %message.from, reason, "a task was rejected");
        }
        let entry = self.shared.begin(&Intent::Task { assignee: self.me.clone(), id: id.clone(), file: None });
        match self.shared.finish_task_locked(&self.me, &id, || Ok(Some((message, file.to_owned())))) {
            Ok(record) => {
                entry.into_iter().for_each(JournalEntry::done);
                Ok(record)
            }
            // The record decides. A failure to notify the owner must not fail the reader; the next recovery retries it.
            Err(error) => match self.shared.record(&self.me, &id)? {
                Some(record) => {
                    tracing::warn!(%error, %id, owner = %record.task.owner, "notifying the owner of a task failed");
                    Ok(Some(record))
                }
                None => Err(error),
            },
        }
    }

    /// Returns the agent's own card, from its state or the registry.
    pub(crate) fn card(&self) -> Result<Card, OfficeError> {
        Ok(self.shared.recipient_card(&self.me)?.map(|known| known.card).unwrap_or_default())
    }
}

/// Writes the office's decision into a task's message. Returns the task's id.
fn apply_decision(message: &mut Message, reason: Option<&str>) -> Result<TaskId, OfficeError> {
    let Some(task) = &mut message.task else { return Err(OfficeError::invalid("a message of no task")) };
    task.state = TaskState::Pending;
    if let Some(reason) = reason {
        task.state = TaskState::Rejected;
        task.extra.insert(message_file::REASON.into(), reason.into());
    }
    Ok(task.id.clone())
}

/// Returns the record of a new task.
pub(super) fn new_record(message: &Message, file: String) -> TaskRecord {
    debug_assert_eq!(message.kind, Kind::Task);
    let task = message.task.clone();
    let named = |key: &str| task.as_ref().and_then(|task| TaskId::parse(task.extra.get(key)?.as_str()?).ok());
    let (parent, sent_as) = (named(PARENT), named(SENT_AS));
    TaskRecord {
        task: Task {
            // A task message always has a task by now.
            id: task.as_ref().map_or_else(|| TaskId::fresh(message.sent_at), |task| task.id.clone()),
            owner: message.from.clone(),
            assignee: message.to.clone(),
            state: TaskState::Pending,
            // Other programs may write a subject of any length.
            subject: Some(message.subject.as_deref().unwrap_or(NO_SUBJECT).chars().take(MAX_SUBJECT_CHARS).collect()),
            message_id: message.id.clone(),
            session_id: message.session.clone(),
            parent,
            deadline: task.and_then(|task| task.deadline),
            overdue: false,
            note: None,
            callback: message.callback.clone(),
            canceled_by: None,
            created_at: message.sent_at,
            updated_at: message.sent_at,
        },
        mark: Some(message_file::fingerprint(message, &file)),
        file,
        ttl: message.ttl,
        trace: message.trace.clone(),
        correlation_id: message.correlation_id.clone(),
        by_office: false,
        undelivered: false,
        sent_as,
        told_overdue: Vec::new(),
        outgoing: None,
    }
}
