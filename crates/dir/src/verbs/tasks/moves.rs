//! Moves a task and sends the update to its owner.

use amb_core::limits::MAX_NOTE_CHARS;
use amb_core::task::{self, Asked, Decision, TaskRef};
use amb_core::{Code, Kind, Message, Object, OfficeError, Part, Priority, Task, TaskId, TaskState};

use super::record::{PendingUpdate, TaskRecord};
use crate::files::durable::{Wait, nonce};
use crate::files::message_file;
use crate::journal::{Intent, JournalEntry};
use crate::log::LogLine;
use crate::office::{AgentDir, OfficeState};
use crate::verbs::deliver::Naming;

/// A task that has moved.
struct MovedTask {
    record: TaskRecord,
    /// Present while steps are left to do.
    entry: Option<JournalEntry>,
    /// Set if the office rejected it instead.
    refused: Option<OfficeError>,
}

impl AgentDir {
    /// Moves a task of the agent to another state.
    pub(crate) fn set_task_state(
        &self,
        id: &TaskId,
        next: TaskState,
        note: Option<String>,
    ) -> Result<Task, OfficeError> {
        if note.as_ref().is_some_and(|note| note.chars().count() > MAX_NOTE_CHARS) {
            return Err(OfficeError::invalid(format!("a note has at most {MAX_NOTE_CHARS} characters")));
        }
        // Creates the record of a task that another program has just put into the mailbox.
        drop(self.ingest()?);
        self.restore_record(id)?;
        let moved = {
            let _locked = self.shared.lock_agent(&self.me)?;
            self.move_locked(id, next, note)?
        };
        // The task has moved; failures from here on are retried by the next recovery.
        match self.ack_task_message(&moved.record) {
            Ok(()) => moved.entry.into_iter().for_each(JournalEntry::done),
            Err(error) => tracing::warn!(%error, %id, "the task has ended, but acknowledging its message failed"),
        }
        if let Err(error) = self.shared.update_registry(Wait::Cached) {
            tracing::warn!(%error, %id, "the task has moved, but writing the registry failed; retrying at the next heartbeat");
        }
        match moved.refused {
            Some(refused) => Err(refused),
            None => Ok(self.redact_task(moved.record.task)),
        }
    }

    fn move_locked(&self, id: &TaskId, next: TaskState, note: Option<String>) -> Result<MovedTask, OfficeError> {
        let record = self.shared.record(&self.me, id)?.filter(|record| record.is_visible_to(&self.me));
        let Some(mut record) = record else {
            let given = self.shared.pointers(&self.me, true)?;
            return Err(match given.into_iter().find(|pointer| pointer.id == *id) {
                Some(pointer) => {
                    OfficeError::new(Code::Forbidden, format!("only {} moves this task", pointer.assignee))
                }
                None => OfficeError::not_found(format!("no task {id} of yours; `amb task list` shows them")),
            });
        };
        self.shared.deliver_pending_update(&mut record)?;
        let taking_on = match record.task.state.takes_on(next) {
            true => Some(self.decide_taking_on(&record)?),
            false => None,
        };
        let (state, reason) = task::decide_move(record.task.state, next, taking_on)?;
        record.by_office |= reason.is_some();
        let note = reason.as_ref().map(ToString::to_string).or(note);
        let entry = self.shared.change(&mut record, state, note)?;
        let refused = reason.map(|why| OfficeError::new(Code::Conflict, format!("the task was rejected: {why}")));
        Ok(MovedTask { record, entry, refused })
    }

    /// Whether the agent may take this task on.
    fn decide_taking_on(&self, record: &TaskRecord) -> Result<Decision, OfficeError> {
        let (current, card) = (self.shared.current_tasks(&self.me)?, self.card()?);
        let asked = Asked {
            sender: &record.task.owner,
            assignee: &self.me,
            allowed: card.allow_from.allows(&record.task.owner),
            card: &card,
            current_tasks: current.iter().filter(|current| **current != record.task.id).count(),
            deadline: record.task.deadline,
        };
        Ok(task::decide(asked, self.shared.now()))
    }
}

impl OfficeState {
    /// Changes a task durably and sends the update. The caller holds the assignee's lock.
    ///
    /// Succeeds once the record is written, since the task has moved: later steps that fail are in the record and the
    /// journal entry, for the next reader.
    fn change(
        &self,
        record: &mut TaskRecord,
        state: TaskState,
        note: Option<String>,
    ) -> Result<Option<JournalEntry>, OfficeError> {
        self.apply_change(record, state, note);
        let (assignee, id) = (record.task.assignee.clone(), record.task.id.clone());
        let entry = self.begin(&Intent::Task { assignee: assignee.clone(), id, file: None });
        // Written with the update before it is sent, and without it afterwards: a crash in between loses nothing.
        self.write_record(record, Wait::Synced)?;
        let delivered = self.deliver_update(record);
        let rest = delivered.and_then(|()| self.write_current_tasks(&assignee, self.current_tasks(&assignee)?));
        if let Err(error) = rest {
            let task = &record.task;
            tracing::warn!(%error, id = %task.id, owner = %task.owner, "the task has moved, but notifying its owner failed");
            return Ok(None);
        }
        Ok(entry)
    }

    /// Changes the record only, and stores the update in it.
    pub(super) fn apply_change(&self, record: &mut TaskRecord, state: TaskState, note: Option<String>) {
        let now = self.next_stamp();
        record.task.state = state;
        record.task.note = note;
        record.task.updated_at = now;
        record.task.overdue = false;
        let (task, nonce) = (&record.task, nonce() as u32);
        let mut trace = record.trace.clone();
        trace.push(task.assignee.clone());
        let message = Message {
            id: message_file::new_id(self.paths.layout, now, &task.assignee, nonce),
            from: task.assignee.clone(),
            from_person: false,
            to: task.owner.clone(),
            sent_at: now,
            kind: Kind::TaskUpdate,
            session: task.session_id.clone(),
            subject: task.subject.clone(),
            parts: vec![Part::text(task.note.clone().unwrap_or_else(|| format!("task is {state}")))],
            priority: Priority::Normal,
            // An update costs no hop.
            ttl: record.ttl,
            trace,
            task: Some(TaskRef {
                id: record.sent_as.clone().unwrap_or_else(|| task.id.clone()),
                state,
                deadline: task.deadline,
                extra: Object::new(),
            }),
            callback: task.callback.clone(),
            reply_to: Some(task.message_id.clone()),
            correlation_id: record.correlation_id.clone(),
            metadata: Object::new(),
        };
        record.outgoing = Some(PendingUpdate { message, nonce });
    }

    /// Delivers the pending update that a process left in a record, unless it was delivered.
    pub(super) fn deliver_pending_update(&self, record: &mut TaskRecord) -> Result<(), OfficeError> {
        let Some(PendingUpdate { message, nonce }) = &record.outgoing else { return Ok(()) };
        let name = message_file::exact_name(self.paths.layout, &message.id, message.sent_at, &message.from, *nonce);
        if self.was_delivered(&message.to, &name, &message.id)? {
            record.outgoing = None;
            return self.write_record(record, Wait::Cached);
        }
        self.deliver_update(record)
    }

    /// Delivers the update in the record, and removes it from there.
    pub(super) fn deliver_update(&self, record: &mut TaskRecord) -> Result<(), OfficeError> {
        let Some(outgoing) = record.outgoing.take() else { return Ok(()) };
        let PendingUpdate { mut message, nonce } = outgoing.clone();
        let naming = match record.is_visible_to(&message.from) {
            true => Naming::Exact(nonce),
            false => Naming::Unlogged(nonce),
        };
        if let Err(error) = self.deliver(&mut message, naming) {
            record.outgoing = Some(outgoing);
            return Err(error);
        }
        self.write_record(record, Wait::Cached)
    }
}

impl AgentDir {
    /// Notifies the owner of a task that the office rejected when it was found.
    pub(crate) fn finish_rejection(&self, id: &TaskId) -> Result<(), OfficeError> {
        let _locked = self.shared.lock_agent(&self.me)?;
        match self.shared.record(&self.me, id)? {
            Some(mut record) => self.shared.deliver_pending_update(&mut record),
            None => Ok(()),
        }
    }

    /// Whether a task update is about a task that this agent gave to its sender. Applies the reported state, which
    /// other programs do not write into the record.
    pub(crate) fn is_expected_update(&self, update: &Message) -> Result<bool, OfficeError> {
        let Some(reported) = &update.task else { return Ok(false) };
        let Some(pointer) = self.shared.pointer_for_update(update)? else { return Ok(false) };
        // Our own agents' records are never behind their updates, so this moves only those of other programs, whose
        // clocks may be behind or in whole seconds. Only for repeated progress does the time decide which is newer.
        let moved = |mut record: TaskRecord| {
            let is_newer = record.task.state != reported.state || record.task.updated_at < update.sent_at;
            (is_newer && record.advance(reported.state, update)).then_some(record)
        };
        let record = || self.shared.record(&update.from, &pointer.id);
        // Locked only if it moves, so that other updates can be read on a read-only disk.
        if record()?.and_then(moved).is_none() {
            return Ok(true);
        }
        let _locked = self.shared.lock_agent(&update.from)?;
        if let Some(record) = record()?.and_then(moved) {
            self.shared.write_record(&record, Wait::Synced)?;
        }
        Ok(true)
    }

    /// Rebuilds a lost record from the message that brought the task.
    fn restore_record(&self, id: &TaskId) -> Result<(), OfficeError> {
        if self.shared.record(&self.me, id)?.is_some() {
            return Ok(());
        }
        let brings_task = |line: &LogLine| match line {
            LogLine::In { brief, .. } => brief.task.as_ref() == Some(id) && brief.kind == Kind::Task,
            _ => false,
        };
        let line = self.shared.last_line(&self.me, id, brings_task)?;
        if let Some(LogLine::In { f, brief, .. }) = line
            && let Some(found) = self.shared.load(&self.me, &f, &brief)?
        {
            self.open_found_task(&found.message, &f)?;
        }
        Ok(())
    }

    /// Returns the task as this agent may see it: with the callback only if this agent set it.
    pub(super) fn redact_task(&self, mut task: Task) -> Task {
        if task.owner != self.me {
            task.callback = None;
        }
        task.overdue = task::is_overdue(task.state, task.deadline, self.shared.now());
        task
    }
}
