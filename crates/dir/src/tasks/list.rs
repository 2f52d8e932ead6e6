//! Listing tasks, and noticing those that are overdue.

use amb_core::office::TaskFilter;
use amb_core::task::is_overdue;
use amb_core::{OfficeError, Task, Timestamp};

use super::record::Record;
use crate::durable::Wait;
use crate::failure::Doing;
use crate::log::Line;
use crate::office::Desk;

impl Desk {
    /// Tasks that the agent gave or was given, newest first.
    pub(crate) fn tasks(&self, filter: &TaskFilter) -> Result<Vec<Task>, OfficeError> {
        // Tasks and updates of other programs become known by being noticed.
        drop(self.notice()?);
        let ended = !filter.open;
        let mut tasks = Vec::new();
        if filter.owned != Some(true) {
            tasks.extend(self.told(self.shared.records(&self.me, ended)?)?);
        }
        if filter.owned != Some(false) {
            for pointer in self.shared.pointers(&self.me, ended)? {
                let record = self.shared.record(&pointer.assignee, &pointer.id)?;
                // One that the agent gave itself is there already. Two agents may have tasks of the same id.
                let is_known = |known: &Task| known.id == pointer.id && known.assignee == pointer.assignee;
                if !tasks.iter().any(is_known) {
                    tasks.extend(self.told(record.into_iter().collect())?);
                }
            }
        }
        tasks.retain(|task| filter.wants(&self.me, task));
        tasks.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        Ok(tasks.into_iter().map(|task| self.task_shown(task)).collect())
    }

    /// The tasks of these records. An update that waits in one of them, as after a power cut, is delivered.
    fn told(&self, records: Vec<Record>) -> Result<Vec<Task>, OfficeError> {
        for record in records.iter().filter(|record| record.outgoing.is_some()) {
            self.shared.finish_task(&record.task.assignee, &record.task.id, None)?;
        }
        Ok(records.into_iter().map(|record| record.task).collect())
    }

    /// Enters in the log, once each, the open tasks of the agent's whose deadline has passed; answers when the next one
    /// will pass.
    pub(crate) fn note_overdue(&self) -> Result<Option<Timestamp>, OfficeError> {
        let now = self.shared.now();
        let mut next: Option<Timestamp> = None;
        let mut open = self.shared.records(&self.me, false)?;
        for pointer in self.shared.pointers(&self.me, false)? {
            let record = self.shared.record(&pointer.assignee, &pointer.id)?;
            match record {
                Some(record) if record.task.state.is_terminal() => self.shared.end_pointer(&self.me, &pointer.id)?,
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
                self.tell_overdue(&record)?;
            } else if deadline >= now && !record.task.state.is_terminal() {
                next = Some(next.map_or(deadline, |next| next.min(deadline)));
            }
        }
        Ok(next)
    }

    fn tell_overdue(&self, seen: &Record) -> Result<(), OfficeError> {
        let _locked = self.shared.lock_agent(&seen.task.assignee)?;
        let Some(mut record) = self.shared.record(&seen.task.assignee, &seen.task.id)? else { return Ok(()) };
        if record.told_overdue.contains(&self.me) || record.task.state.is_terminal() {
            return Ok(());
        }
        self.shared.make_state(&self.me)?;
        let id = &record.task.id;
        let text = serde_json::to_string(id).map_err(OfficeError::internal)?;
        let log = self.shared.log(&self.me);
        // It may have been told by a process that died before it could say so in the record.
        let told = |line: &Line| matches!(line, Line::Overdue { task } if task.id == *id);
        if log.find_last(&text, told).doing("could not read the log")?.is_none() {
            let task = Box::new(self.task_shown(record.task.clone()));
            log.write()
                .and_then(|mut writer| writer.add(&[Line::Overdue { task }]))
                .doing("could not add to the log")?;
        }
        record.told_overdue.push(self.me.clone());
        self.shared.keep_record(&record, Wait::Cached)
    }
}
