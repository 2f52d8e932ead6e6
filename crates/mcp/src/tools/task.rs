//! `mailbox_task`: tasks that were given or taken, and their states.

use amb_core::limits::MAX_NOTE_CHARS;
use amb_core::mailbox::TaskFilter;
use amb_core::{AgentName, Callback, OfficeError, Task, TaskState, Timestamp};
use rmcp::model::{JsonObject, Tool};
use serde::{Deserialize, Serialize};

use super::{CallContext, Effect};
use crate::answer::ToolAnswer;
use crate::arguments::{filled, parse};
use crate::budget::{TextBudget, size};
use crate::schema::{answer, arguments, list, object, one_of, short, text};
use crate::show;
use crate::view::{UNTRUSTED, given_id, is_default, line, note, shown_id};

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum TaskAction {
    List,
    Accept,
    Reject,
    #[serde(alias = "start")]
    Working,
    Done,
    Fail,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskArguments {
    action: TaskAction,
    #[serde(default, deserialize_with = "filled")]
    task_id: Option<String>,
    #[serde(default, deserialize_with = "filled")]
    note: Option<String>,
}

pub(super) fn tool() -> Tool {
    let task = object(&[("id", text()), ("state", text())]);
    super::tool(
        "mailbox_task",
        "List open tasks, or move one given to you; its owner is told, with your note.",
        Effect::Adds,
        arguments(&[
            ("action!", one_of(&["list", "accept", "reject", "working", "done", "fail"])),
            ("task_id", text()),
            ("note", short(MAX_NOTE_CHARS, "progress, result or reason")),
        ]),
        answer(&[("tasks!", list(task))]),
    )
}

#[derive(Serialize)]
struct TasksShown {
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    tasks: Vec<TaskShown>,
    #[serde(skip_serializing_if = "is_default")]
    more_tasks: usize,
}

impl TasksShown {
    fn of(tasks: Vec<TaskShown>, more_tasks: usize) -> Self {
        Self { note: (!tasks.is_empty()).then_some(UNTRUSTED), tasks, more_tasks }
    }
}

#[derive(Serialize)]
pub(crate) struct TaskShown {
    pub(crate) id: String,
    pub(crate) owner: AgentName,
    pub(crate) assignee: AgentName,
    pub(crate) state: TaskState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<Timestamp>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) overdue: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
    /// Where the owner, who set it, wants the answer to go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) callback: Option<Callback>,
    message_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session_id: Option<String>,
}

impl TaskShown {
    pub(crate) fn of(task: &Task, me: &AgentName) -> Self {
        Self {
            id: shown_id(&task.id),
            owner: task.owner.clone(),
            assignee: task.assignee.clone(),
            state: task.state,
            subject: task.subject.as_deref().map(line),
            deadline: task.deadline,
            overdue: task.overdue,
            note: task.note.as_deref().map(note),
            callback: task.callback.clone().filter(|_| task.owner == *me),
            message_id: shown_id(&task.message_id),
            session_id: task.session_id.as_ref().map(shown_id),
        }
    }
}

pub(super) async fn call(call: &CallContext, arguments: Option<JsonObject>) -> Result<ToolAnswer, OfficeError> {
    let TaskArguments { action, task_id, note } = parse(arguments)?;
    let state = match action {
        TaskAction::List => return list_open(call).await,
        TaskAction::Accept => TaskState::Accepted,
        TaskAction::Reject => TaskState::Rejected,
        TaskAction::Working => TaskState::Working,
        TaskAction::Done => TaskState::Completed,
        TaskAction::Fail => TaskState::Failed,
    };
    let id = task_id
        .ok_or_else(|| OfficeError::invalid("task_id is missing; mailbox_task with action list names the open ones"))?;
    if let Some(chars) = note.as_ref().map(|note| note.chars().count()).filter(|chars| *chars > MAX_NOTE_CHARS) {
        return Err(OfficeError::too_large(format!("note has {chars} characters, at most {MAX_NOTE_CHARS}")));
    }
    let task = call.office.set_task_state(&given_id(&id)?, state, note).await?;
    if state.is_terminal() {
        call.seen.work.ended(&task.id, &task.message_id);
    }
    let text = format!("Task {} is {}; {} is told.", shown_id(&task.id), task.state, task.owner);
    ToolAnswer::new(text, &TasksShown::of(vec![TaskShown::of(&task, call.office.me())], 0))
}

async fn list_open(call: &CallContext) -> Result<ToolAnswer, OfficeError> {
    let me = call.office.me();
    let all = call.office.tasks(TaskFilter { open: true, ..TaskFilter::default() }).await?;
    let mut budget = TextBudget::new();
    let mut tasks = Vec::new();
    let mut text = String::from(if all.is_empty() { "No open tasks." } else { show::TASKS_HEAD });
    for task in &all {
        let task = TaskShown::of(task, me);
        let line = show::task(me, &task);
        if !budget.try_spend(size(&task).max(line.chars().count())) && !tasks.is_empty() {
            break;
        }
        text.push_str(&line);
        tasks.push(task);
    }
    let more = all.len() - tasks.len();
    if more > 0 {
        text.push_str(&format!("And {more} older tasks, not shown until newer ones have ended.\n"));
    }
    ToolAnswer::new(text, &TasksShown::of(tasks, more))
}
