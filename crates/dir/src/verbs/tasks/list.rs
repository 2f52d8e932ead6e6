//! Lists tasks and logs those that are overdue.

use std::collections::HashSet;

use amb_core::mailbox::{TaskFilter, no_task};
use amb_core::task::is_overdue;
use amb_core::{Kind, OfficeError, Task, TaskId, Timestamp};

use super::record::TaskRecord;
use crate::files::durable::Wait;
use crate::files::failure::Doing;
use crate::log::LogLine;
use crate::office::AgentDir;

impl AgentDir {
    /// Tasks that the agent gave or was given, newest first.
    pub(crate) fn tasks(&self, filter: &TaskFilter) -> Result<Vec<Task>, OfficeError> {
        let waiting = self.waiting_tasks()?;
        let ended = !filter.open;
        let mut records = Vec::new();
        if filter.owned != Some(true) {
            records = self.shared.records(&self.me, ended)?;
        }
        if filter.owned != Some(false) {
            for pointer in self.shared.pointers(&self.me, ended)? {
                // One that the agent gave itself is there already. Two agents may have tasks of the same id.
                let is_known =
                    |TaskRecord { task, .. }: &TaskRecord| task.id == pointer.id && task.assignee == pointer.assignee;
                if !records.iter().any(is_known) {
                    records.extend(self.shared.record(&pointer.assignee, &pointer.id)?);
                }
            }
        }
        self.finish_tasks(&records, &waiting);
        let shown = records.into_iter().filter(|record| record.is_shown_to(&self.me)).map(|record| record.task);
        let mut tasks: Vec<Task> = shown.filter(|task| filter.wants(&self.me, task)).collect();
        tasks.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        Ok(tasks.into_iter().map(|task| self.task_shown(task)).collect())
    }

    /// One task that the agent gave or was given, without a look at its others.
    pub(crate) fn task(&self, id: &TaskId) -> Result<Task, OfficeError> {
        let waiting = self.waiting_tasks()?;
        let mut found = self.shared.record(&self.me, id)?;
        if found.is_none()
            && let Some(pointer) = self.shared.pointer_to(&self.me, id)?
        {
            found = self.shared.record(&pointer.assignee, &pointer.id)?;
        }
        let record = found.filter(|record| record.is_shown_to(&self.me)).ok_or_else(|| no_task(id))?;
        self.finish_tasks(std::slice::from_ref(&record), &waiting);
        Ok(self.task_shown(record.task))
    }

    /// The files of unread tasks. Tasks and updates of other programs become known by being noticed.
    fn waiting_tasks(&self) -> Result<HashSet<String>, OfficeError> {
        let index = self.ingest()?;
        let unread = index.known.iter().filter(|(_, known)| known.is_unread() && known.brief.kind == Kind::Task);
        Ok(unread.map(|(file, _)| file.clone()).collect())
    }

    /// Does what a process left undone without a note, as after a power cut: an update that waits in its record, a pointer
    /// that its owner lacks, the message of a task that has ended among those that wait.
    fn finish_tasks(&self, records: &[TaskRecord], waiting: &HashSet<String>) {
        for record in records {
            let task = &record.task;
            let is_done = || match task.assignee == self.me {
                true if task.state.is_terminal() && waiting.contains(&record.file) => Ok(false),
                true => self.shared.is_pointed_to(record),
                false => Ok(true),
            };
            let finished = match record.outgoing.is_none() && is_done().unwrap_or(true) {
                true => continue,
                false => self.shared.finish_task(&task.assignee, &task.id, None),
            };
            // One owner's trouble, such as a mailbox that cannot be written to, hides nobody else's tasks.
            if let Err(error) = finished {
                tracing::warn!(%error, id = %task.id, owner = %task.owner, "the owner of a task could not be told");
            }
        }
    }

    /// Enters in the log, once each, the open tasks of the agent's whose deadline has passed; returns when the next one
    /// will pass.
    pub(crate) fn note_overdue(&self) -> Result<Option<Timestamp>, OfficeError> {
        let now = self.shared.now();
        let mut next: Option<Timestamp> = None;
        let mut open = self.shared.records(&self.me, false)?;
        for pointer in self.shared.pointers(&self.me, false)? {
            let record = self.shared.record(&pointer.assignee, &pointer.id)?;
            match record {
                Some(record) if record.task.state.is_terminal() => self.shared.end_pointer(&self.me, &pointer)?,
                Some(record) => open.push(record),
                None => {}
            }
        }
        for record in open {
            let Some(deadline) = record.task.deadline else { continue };
            if record.told_overdue.contains(&self.me) {
                continue;
            }
            if is_overdue(record.task.state, Some(deadline), now) {
                self.log_overdue(&record)?;
            } else if deadline >= now && !record.task.state.is_terminal() {
                next = Some(next.map_or(deadline, |next| next.min(deadline)));
            }
        }
        Ok(next)
    }

    fn log_overdue(&self, seen: &TaskRecord) -> Result<(), OfficeError> {
        let _locked = self.shared.lock_agent(&seen.task.assignee)?;
        let Some(mut record) = self.shared.record(&seen.task.assignee, &seen.task.id)? else { return Ok(()) };
        if record.told_overdue.contains(&self.me) || record.task.state.is_terminal() {
            return Ok(());
        }
        self.shared.make_state(&self.me)?;
        let id = &record.task.id;
        // A process may have logged it and died before it could say so in the record.
        let told = |line: &LogLine| matches!(line, LogLine::Overdue { task } if task.id == *id);
        if self.shared.last_line(&self.me, id, told)?.is_none() {
            let task = Box::new(self.task_shown(record.task.clone()));
            let log = self.shared.log(&self.me);
            log.write()
                .and_then(|mut writer| writer.add(&[LogLine::Overdue { task }]))
                .doing("could not add to the log")?;
        }
        record.told_overdue.push(self.me.clone());
        self.shared.keep_record(&record, Wait::Cached)
    }
}
