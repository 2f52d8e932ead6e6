//! `/tasks`: listing tasks and changing their state. A task is created by sending a message of kind `task`.

use amb_core::doc::{Chain, StateBody, Tasks, check_optional_text};
use amb_core::limits::{MAX_NOTE_CHARS, MAX_TASKS};
use amb_core::mailbox::TaskFilter;
use amb_core::{Code, OfficeError, Task, TaskId, TaskState, Timestamp};
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;
use crate::request::{
    Body, Caller, IdempotencyKey, OkJson, Params, Problem, Segment, boolean, check_range, default_limit, fit_page,
    optional_boolean, parse_id,
};

/// Which tasks. All conditions hold together.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct TasksQuery {
    /// Only tasks that the caller gave (true) or was given (false).
    #[serde(default, deserialize_with = "optional_boolean")]
    owned: Option<bool>,
    /// Only tasks in this state.
    #[param(inline)]
    state: Option<TaskState>,
    /// Only tasks that have not ended.
    #[serde(default, deserialize_with = "boolean")]
    #[param(default = false)]
    open: bool,
    /// At most this many.
    #[serde(default = "default_limit::<100>")]
    #[param(default = 100, minimum = 1, maximum = 500)]
    limit: u32,
}

/// Tasks that the caller gave or was given, newest first
#[utoipa::path(get, path = "/tasks", tag = "tasks", params(TasksQuery),
    responses((status = 200, description = "The tasks", body = Tasks)))]
pub(crate) async fn tasks(
    State(app): State<App>,
    Caller(caller): Caller,
    Params(query): Params<TasksQuery>,
) -> Result<OkJson<Tasks>, Problem> {
    check_range("query.limit", query.limit, 1..=MAX_TASKS)?;
    let filter = TaskFilter { owned: query.owned, state: query.state, open: query.open };
    let (tasks, truncated) = fit_page(app.store.tasks(&caller, filter, query.limit).await?);
    Ok(OkJson(Tasks { tasks, truncated }))
}

fn task_id(text: &str) -> Result<TaskId, Problem> {
    parse_id("path.task_id", text)
}

/// One task that the caller gave or was given
#[utoipa::path(get, path = "/tasks/{task_id}", tag = "tasks",
    params(("task_id" = Uuid, Path, description = "Which task")),
    responses(
        (status = 200, description = "The task", body = Task),
        (status = 404, description = "No such task of the caller's"),
    ))]
pub(crate) async fn task(
    State(app): State<App>,
    Caller(caller): Caller,
    Segment(id): Segment,
) -> Result<OkJson<Task>, Problem> {
    Ok(OkJson(app.store.task(&caller, &task_id(&id)?).await?))
}

/// The chain of delegation of a task
///
/// The tasks of which it is a piece, the first giver's first, then itself, then its own pieces. Of tasks that the caller
/// neither gave nor was given, the id and the state.
#[utoipa::path(get, path = "/tasks/{task_id}/chain", tag = "tasks",
    params(("task_id" = Uuid, Path, description = "Which task")),
    responses(
        (status = 200, description = "The chain", body = Chain),
        (status = 404, description = "No such task of the caller's"),
    ))]
pub(crate) async fn chain(
    State(app): State<App>,
    Caller(caller): Caller,
    Segment(id): Segment,
) -> Result<OkJson<Chain>, Problem> {
    let (tasks, truncated) = fit_page(app.store.task_chain(&caller, &task_id(&id)?).await?);
    Ok(OkJson(Chain { tasks, truncated }))
}

/// Moves a task that was given to the caller, and tells its owner
///
/// Taking one on is decided by the office first: where quota or deadline forbid it the task is rejected, its owner is
/// told, and the answer is 409 with the reason.
#[utoipa::path(post, path = "/tasks/{task_id}/state", tag = "tasks", request_body = StateBody,
    params(("task_id" = Uuid, Path, description = "Which task"), IdempotencyKey),
    responses(
        (status = 200, description = "The task as it is now", body = Task),
        (status = 403, description = "It is assigned to another agent, or the connection with its owner has ended"),
        (status = 404, description = "No such task of the caller's"),
        (status = 409, description = "A task does not move from where it is to there, or was rejected by quota or deadline"),
    ))]
pub(crate) async fn set_state(
    State(app): State<App>,
    Caller(caller): Caller,
    Segment(id): Segment,
    once: IdempotencyKey,
    Body(body): Body<StateBody>,
) -> Result<OkJson<Task>, Problem> {
    check_optional_text("body.note", body.note.as_ref(), MAX_NOTE_CHARS)?;
    let caller = once.bind(caller, "tasks/state", &(&id, body.state, &body.note))?;
    let moved = app.store.set_task_state(&caller, &task_id(&id)?, body.state, body.note, Timestamp::now()).await?;
    let task = app.publish(moved);
    match (body.state, &task.note) {
        (TaskState::Accepted | TaskState::Working | TaskState::Completed | TaskState::Failed, Some(reason))
            if task.state == TaskState::Rejected =>
        {
            Err(OfficeError::new(Code::Conflict, format!("the task was rejected: {reason}")).into())
        }
        _ => Ok(OkJson(task)),
    }
}
