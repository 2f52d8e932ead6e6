//! Lists tasks, and logs overdue ones.

use std::collections::HashSet;

use amb_core::mailbox::{TaskFilter, no_task};
use amb_core::task::is_overdue;
use amb_core::{Kind, OfficeError, Task, TaskId, Timestamp};

use super::record::TaskRecord;
use crate::files::durable::Wait;
use crate::log::LogLine;
use crate::office::AgentDir;

impl AgentDir {
    /// Returns the tasks that the agent gave or was given, newest first.
    pub(crate) fn tasks(&self, filter: &TaskFilter) -> Result<Vec<Task>, OfficeError> {
        let unread = self.unread_tasks()?;
        let ended = !filter.open;
        let mut records = Vec::new();
        if filter.owned != Some(true) {
            records = self.shared.records(&self.me, ended)?;
        }
        if filter.owned != Some(false) {
            for pointer in self.shared.pointers(&self.me, ended)? {
                // A task that the agent gave itself is already there. Two agents may have tasks of the same id.
                let is_known =
                    |TaskRecord { task, .. }: &TaskRecord| task.id == pointer.id && task.assignee == pointer.assignee;
                if !records.iter().any(is_known) {
                    records.extend(self.shared.record(&pointer.assignee, &pointer.id)?);
                }
            }
        }
        self.finish_records(&records, &unread);
        let visible = records.into_iter().filter(|record| record.is_visible_to(&self.me)).map(|record| record.task);
        let mut tasks: Vec<Task> = visible.filter(|task| filter.wants(&self.me, task)).collect();
        tasks.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        Ok(tasks.into_iter().map(|task| self.redact_task(task)).collect())
    }

    /// Returns one task that the agent gave or was given, without reading the others.
    pub(crate) fn task(&self, id: &TaskId) -> Result<Task, OfficeError> {
        let unread = self.unread_tasks()?;
        let mut found = self.shared.record(&self.me, id)?;
        if found.is_none()
            && let Some(pointer) = self.shared.pointer_to(&self.me, id)?
        {
            found = self.shared.record(&pointer.assignee, &pointer.id)?;
        }
        let record = found.filter(|record| record.is_visible_to(&self.me)).ok_or_else(|| no_task(id))?;
        self.finish_records(std::slice::from_ref(&record), &unread);
        Ok(self.redact_task(record.task))
    }

    /// Returns the files of unread tasks. Ingests mail first, which finds tasks and updates of other programs.
    fn unread_tasks(&self) -> Result<HashSet<String>, OfficeError> {
        let index = self.ingest()?;
        let unread = index.known.iter().filter(|(_, known)| known.is_unread() && known.brief.kind == Kind::Task);
        Ok(unread.map(|(file, _)| file.clone()).collect())
    }

    /// Finishes steps that a process left undone without a journal entry, as after a power cut: a pending update, a
    /// missing pointer, an unread message of a task that has ended.
    fn finish_records(&self, records: &[TaskRecord], unread: &HashSet<String>) {
        for record in records {
            let task = &record.task;
            let is_done = || match task.assignee == self.me {
                true if task.state.is_terminal() && unread.contains(&record.file) => Ok(false),
                true => self.shared.has_pointer(record),
                false => Ok(true),
            };
            let finished = match record.outgoing.is_none() && is_done().unwrap_or(true) {
                true => continue,
                false => self.shared.finish_task(&task.assignee, &task.id, None),
            };
            // One owner's failure, such as a mailbox that cannot be written to, must not hide other tasks.
            if let Err(error) = finished {
                tracing::warn!(%error, id = %task.id, owner = %task.owner, "notifying the owner of a task failed");
            }
        }
    }

    /// Logs, once each, the agent's open tasks whose deadline has passed. Returns the next deadline.
    pub(crate) fn log_overdue_tasks(&self) -> Result<Option<Timestamp>, OfficeError> {
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
        let id = &record.task.id;
        // A process may have logged it and died before it updated the record.
        let logged = |line: &LogLine| matches!(line, LogLine::Overdue { task } if task.id == *id);
        if self.shared.last_line(&self.me, id, logged)?.is_none() {
            let task = Box::new(self.redact_task(record.task.clone()));
            self.shared.append_log(&self.me, &[LogLine::Overdue { task }])?;
        }
        record.told_overdue.push(self.me.clone());
        self.shared.write_record(&record, Wait::Cached)
    }
}
