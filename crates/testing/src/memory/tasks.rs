//! Tasks in memory.

use jiff::Timestamp;

use super::MemoryState;
use amb_core::Object;
use amb_core::error::{Code, OfficeError};
use amb_core::id::{MessageId, TaskId};
use amb_core::mailbox::Result;
use amb_core::message::{Kind, Message, Part, Priority};
use amb_core::name::AgentName;
use amb_core::route;
use amb_core::task::{self, Asked, Task, TaskRef, TaskState};

impl MemoryState {
    /// Opens the task that a message brings, or records why the office rejected it.
    pub(super) fn open_task(
        &mut self,
        message: &mut Message,
        deadline: Option<Timestamp>,
        parent: Option<TaskId>,
        reason: Option<String>,
        now: Timestamp,
    ) {
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
            canceled_by: None,
            created_at: now,
            updated_at: now,
        };
        self.tasks.insert(id.clone(), task);
        match reason {
            None => self.deliver(message.clone()),
            Some(reason) => {
                self.keep(message.clone(), false);
                self.update(&id, TaskState::Rejected, Some(reason), now);
                if let Some(task) = &mut message.task {
                    task.state = TaskState::Rejected;
                }
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
            .filter(|task| self.concerns(task, me))
            .ok_or_else(|| OfficeError::not_found(format!("no task {id} of yours; `amb task list` shows them")))?;
        if task.assignee != *me {
            return Err(OfficeError::new(Code::Forbidden, format!("only {} moves this task", task.assignee)));
        }
        if self.was_disconnected(&task.owner, me) {
            let detail = format!("the connection with {} has ended, and this task with it", task.owner);
            return Err(OfficeError::new(Code::NotConnected, detail));
        }
        let card = &self.agent(me)?.card;
        let asked = Asked {
            sender: &task.owner,
            assignee: me,
            allowed: card.allow_from.allows(&task.owner),
            card,
            current_tasks: self.current_tasks(me).len(),
            deadline: task.deadline,
        };
        let (state, reason) = task::decide_move(task.state, next, Some(task::decide(asked, now)))?;
        let refused = reason.map(|reason| reason.to_string());
        self.update(id, state, refused.clone().or(note), now);
        match refused {
            Some(reason) => Err(OfficeError::new(Code::Conflict, format!("the task was rejected: {reason}"))),
            None => Ok(self.tasks[id].clone()),
        }
    }

    /// Whether this agent gave a task or was given it. Only its owner sees an undelivered one.
    pub(super) fn concerns(&self, task: &Task, me: &AgentName) -> bool {
        let came = || self.mail.iter().any(|stored| stored.message.id == task.message_id && stored.delivered);
        task.owner == *me || (task.assignee == *me && came())
    }

    /// Ends the open tasks between two agents whose connection ends, and tells both.
    pub(super) fn end_tasks_between(&mut self, by: &AgentName, other: &AgentName, now: Timestamp) {
        let between = |task: &&Task| {
            !task.state.is_terminal()
                && ((task.owner == *by && task.assignee == *other) || (task.owner == *other && task.assignee == *by))
        };
        let open: Vec<Task> = self.tasks.values().filter(between).cloned().collect();
        for task in open {
            let state = task.state.ended_by_office();
            let note = format!("{by} ended the connection, and with it the tasks that were open");
            self.update(&task.id, state, Some(note.clone()), now);
            self.deliver(Message {
                id: MessageId::fresh(now),
                from: task.owner.clone(),
                from_person: false,
                to: task.assignee,
                sent_at: now,
                kind: Kind::TaskUpdate,
                session: task.session_id,
                subject: task.subject,
                parts: vec![Part::text(note)],
                priority: Priority::Normal,
                ttl: route::fresh(&task.owner).ttl,
                trace: vec![task.owner],
                task: Some(TaskRef { id: task.id, state, deadline: task.deadline, extra: Object::new() }),
                callback: None,
                reply_to: Some(task.message_id),
                correlation_id: None,
                metadata: Object::new(),
            });
        }
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
            from_person: false,
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
