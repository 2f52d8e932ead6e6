//! The life of a task in memory.

use jiff::Timestamp;

use super::State;
use crate::Object;
use crate::card::Card;
use crate::error::{Code, OfficeError};
use crate::id::{MessageId, TaskId};
use crate::message::{Kind, Message, Part, Priority};
use crate::name::AgentName;
use crate::office::Result;
use crate::route;
use crate::task::{self, Asked, Decision, Task, TaskRef, TaskState};

impl State {
    /// Opens the task that a message brings. Answers why it was rejected, if it was.
    pub(super) fn open_task(
        &mut self,
        message: &mut Message,
        deadline: Option<Timestamp>,
        parent: Option<TaskId>,
        card: &Card,
        now: Timestamp,
    ) -> Option<String> {
        let asked = Asked {
            sender: &message.from,
            assignee: &message.to,
            card,
            current_tasks: self.current_tasks(&message.to).len(),
            deadline,
        };
        let decision = task::decide(asked, now);
        // The id of a task is the id of the message that brought it.
        let id = TaskId::parse(message.id.as_str()).unwrap_or_else(|_| TaskId::fresh(now));
        message.task = Some(TaskRef { id: id.clone(), state: TaskState::Pending, deadline, extra: Object::new() });
        let task = Task {
            id: id.clone(),
            owner: message.from.clone(),
            assignee: message.to.clone(),
            state: TaskState::Pending,
            subject: message.subject.clone(),
            message_id: message.id.clone(),
            session_id: message.session.clone(),
            parent,
            deadline,
            overdue: false,
            note: None,
            callback: message.callback.clone(),
            created_at: now,
            updated_at: now,
        };
        self.tasks.insert(id.clone(), task);
        match decision {
            Decision::Accept => {
                self.deliver(message.clone());
                None
            }
            Decision::Reject(reason) => {
                // Its recipient need not see what the office has already answered.
                self.keep(message.clone(), Some(now));
                let reason = reason.to_string();
                self.update(&id, TaskState::Rejected, Some(reason.clone()), now);
                if let Some(task) = &mut message.task {
                    task.state = TaskState::Rejected;
                }
                Some(reason)
            }
        }
    }

    /// Moves a task for its assignee.
    pub(super) fn move_task(
        &mut self,
        me: &AgentName,
        id: &TaskId,
        next: TaskState,
        note: Option<String>,
        now: Timestamp,
    ) -> Result<Task> {
        let task = self
            .tasks
            .get(id)
            .filter(|task| task.assignee == *me || task.owner == *me)
            .ok_or_else(|| OfficeError::not_found(format!("no task {id} of yours; `amb task list` shows them")))?;
        if task.assignee != *me {
            return Err(OfficeError::new(Code::Forbidden, format!("only {} moves this task", task.assignee)));
        }
        let path = task.state.path_to(next);
        if path.is_empty() {
            task.state.check_move(next)?;
        }
        if path.contains(&TaskState::Accepted) {
            let asked = Asked {
                sender: &task.owner,
                assignee: me,
                card: &self.agent(me)?.card,
                current_tasks: self.current_tasks(me).len(),
                deadline: task.deadline,
            };
            if let Decision::Reject(reason) = task::decide(asked, now) {
                self.update(id, TaskState::Rejected, Some(reason.to_string()), now);
                return Err(OfficeError::new(Code::Conflict, format!("the task was rejected: {reason}")));
            }
        }
        self.update(id, next, note, now);
        Ok(self.tasks[id].clone())
    }

    /// Changes a task and tells its owner.
    fn update(&mut self, id: &TaskId, state: TaskState, note: Option<String>, now: Timestamp) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.state = state;
        task.note = note;
        task.updated_at = now;
        let task = task.clone();
        let Some(brought) = self.mail.iter().find(|stored| stored.message.id == task.message_id) else { return };
        let hop = route::task_update(&brought.message, &task.assignee);
        let text = task.note.clone().unwrap_or_else(|| format!("task is {state}"));
        let correlation_id = brought.message.correlation_id.clone();
        self.deliver(Message {
            id: MessageId::fresh(now),
            from: task.assignee,
            to: task.owner,
            sent_at: now,
            kind: Kind::TaskUpdate,
            session: task.session_id,
            subject: task.subject,
            parts: vec![Part::text(text)],
            priority: Priority::Normal,
            ttl: hop.ttl,
            trace: hop.trace,
            task: Some(TaskRef { id: task.id, state, deadline: task.deadline, extra: Object::new() }),
            callback: task.callback,
            reply_to: Some(task.message_id),
            correlation_id,
            metadata: Object::new(),
        });
    }
}
