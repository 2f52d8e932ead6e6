//! Stepping in: what a household's person does to its agents, their conversations and their tasks.

use amb_core::doc::{
    AgentEntry, CancelBody, HouseholdSession, HouseholdSessions, ReassignBody, SessionEnded, Tasks, check_optional_text,
};
use amb_core::limits::{MAX_NOTE_CHARS, MAX_TASKS};
use amb_core::{AgentName, Code, OfficeError, Task, TaskState, Timestamp};
use amb_store::{Agent, ConversationLine, ConversationQuery, HouseholdKey};
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;
use crate::request::{
    Body, Caller, IdempotencyKey, OkJson, Params, Problem, Segment, boolean, fit_page, parse_id, path_name,
};

/// Maximum number of tasks of each state in a response with all states.
const MAX_OF_STATE: u32 = 100;
/// Maximum number of sessions in one response.
const MAX_SESSIONS: u32 = 100;

/// Pauses an agent of the household
///
/// For the household's person. Mail to the agent is accepted and waits: nothing is pushed to it, its long polls stay empty and its
/// claims get nothing, until it is resumed. A repeat changes nothing.
#[utoipa::path(post, path = "/household/members/{name}/pause", tag = "household",
    params(("name" = AgentName, Path, description = "Which agent")),
    responses(
        (status = 200, description = "The agent, paused", body = AgentEntry),
        (status = 403, description = "The caller is not the person of a household"),
        (status = 404, description = "This agent is not in the household"),
        (status = 409, description = "It is the person"),
    ))]
pub(crate) async fn pause(
    State(app): State<App>,
    Caller(caller): Caller,
    Segment(name): Segment,
) -> Result<OkJson<AgentEntry>, Problem> {
    set_paused(&app, &caller, &name, true).await
}

/// Resumes a paused agent
///
/// For the household's person. What waited arrives at once, in order. A repeat changes nothing.
#[utoipa::path(post, path = "/household/members/{name}/resume", tag = "household",
    params(("name" = AgentName, Path, description = "Which agent")),
    responses(
        (status = 200, description = "The agent, which gets its mail again", body = AgentEntry),
        (status = 403, description = "The caller is not the person of a household"),
        (status = 404, description = "This agent is not in the household"),
        (status = 409, description = "It is the person"),
    ))]
pub(crate) async fn resume(
    State(app): State<App>,
    Caller(caller): Caller,
    Segment(name): Segment,
) -> Result<OkJson<AgentEntry>, Problem> {
    set_paused(&app, &caller, &name, false).await
}

async fn set_paused(app: &App, caller: &Agent, name: &str, paused: bool) -> Result<OkJson<AgentEntry>, Problem> {
    let name = path_name(name)?;
    app.publish(app.store.set_paused(caller, &name, paused, Timestamp::now()).await?);
    Ok(OkJson(app.store.agent(caller, &name, Timestamp::now()).await?))
}

/// Ends a conversation
///
/// For the person of a household that a member of it belongs to; of a group's conversation, that the group's owner belongs to. What
/// is sent in it from now on is refused with 410 `gone`, by its subject too: another conversation needs a new one. Its open tasks
/// are canceled. A repeat changes nothing.
#[utoipa::path(post, path = "/sessions/{session_id}/end", tag = "household",
    params(("session_id" = Uuid, Path, description = "Which thread")),
    responses(
        (status = 200, description = "Ended, now or before", body = SessionEnded),
        (status = 403, description = "The caller is not the person of a household, or the group is another's"),
        (status = 404, description = "No such session of the household's"),
    ))]
pub(crate) async fn end_session(
    State(app): State<App>,
    Caller(caller): Caller,
    Segment(id): Segment,
) -> Result<OkJson<SessionEnded>, Problem> {
    let id = parse_id("path.session_id", &id)?;
    Ok(OkJson(app.publish(app.store.end_session(&caller, &id, Timestamp::now()).await?)))
}

/// Cancels a task of the household
///
/// For the person of a household of which a member gave it or was given it. Both sides are told who did it, by an update and by
/// `canceled_by`. A repeat changes nothing.
#[utoipa::path(post, path = "/tasks/{task_id}/cancel", tag = "household", request_body = CancelBody,
    params(("task_id" = Uuid, Path, description = "Which task"), IdempotencyKey),
    responses(
        (status = 200, description = "The task, rejected where it was pending, else failed", body = Task),
        (status = 403, description = "The caller is not the person of a household"),
        (status = 404, description = "No such task of the household's"),
        (status = 409, description = "It has ended otherwise"),
    ))]
pub(crate) async fn cancel_task(
    State(app): State<App>,
    Caller(caller): Caller,
    Segment(id): Segment,
    once: IdempotencyKey,
    Body(body): Body<CancelBody>,
) -> Result<OkJson<Task>, Problem> {
    check_optional_text("body.note", body.note.as_ref(), MAX_NOTE_CHARS)?;
    let caller = once.bind(caller, "tasks/cancel", &(&id, &body.note))?;
    let id = parse_id("path.task_id", &id)?;
    Ok(OkJson(app.publish(app.store.cancel_task(&caller, &id, body.note, Timestamp::now()).await?)))
}

/// Gives a task of the household to another member
///
/// For the person of a household of which a member gave it or was given it. The new assignee gets it as new mail of its owner's with
/// the original text, the one before is told to stop, and the owner's callback stays. It is pending again; a deadline that has
/// passed is dropped. A repeat changes nothing.
#[utoipa::path(post, path = "/tasks/{task_id}/reassign", tag = "household", request_body = ReassignBody,
    params(("task_id" = Uuid, Path, description = "Which task"), IdempotencyKey),
    responses(
        (status = 200, description = "The task, with its new assignee", body = Task),
        (status = 403, description = "The caller is not the person of a household"),
        (status = 404, description = "No such task of the household's, or no such member"),
        (status = 409, description = "It has ended, or its owner may not write to the new assignee, or that one has too many tasks, or it was given on 32 times"),
        (status = 410, description = "The conversation of its owner and the new assignee with this subject was ended"),
        (status = 507, description = "Its owner has no room for another copy"),
    ))]
pub(crate) async fn reassign_task(
    State(app): State<App>,
    Caller(caller): Caller,
    Segment(id): Segment,
    once: IdempotencyKey,
    Body(body): Body<ReassignBody>,
) -> Result<OkJson<Task>, Problem> {
    let caller = once.bind(caller, "tasks/reassign", &(&id, &body.to))?;
    let id = parse_id("path.task_id", &id)?;
    Ok(OkJson(app.publish(app.store.reassign_task(&caller, &id, &body.to, Timestamp::now()).await?)))
}

/// Returns the household whose person the caller is.
async fn household_of(app: &App, caller: &Agent) -> Result<HouseholdKey, OfficeError> {
    let detail = "only the household's person may do this; use the person's key";
    app.store.viewer(caller).await?.household.ok_or_else(|| OfficeError::new(Code::Forbidden, detail))
}

/// Which tasks of the household.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct HouseholdTasksQuery {
    /// Only tasks that have not ended.
    #[serde(default, deserialize_with = "boolean")]
    #[param(default = false)]
    open: bool,
    /// Only tasks in this state; then the 500 that changed last.
    #[param(inline)]
    state: Option<TaskState>,
}

/// The tasks of the household, whoever gave them
///
/// For the household's person: those that its members gave or were given, of each state the 100 that changed last. `truncated` says that there are more.
#[utoipa::path(get, path = "/household/tasks", operation_id = "household_tasks", tag = "household",
    params(HouseholdTasksQuery),
    responses(
        (status = 200, description = "The one that changed last first", body = Tasks),
        (status = 403, description = "The caller is not the person of a household"),
    ))]
pub(crate) async fn tasks(
    State(app): State<App>,
    Caller(caller): Caller,
    Params(query): Params<HouseholdTasksQuery>,
) -> Result<OkJson<Tasks>, Problem> {
    let household = household_of(&app, &caller).await?;
    let each = if query.state.is_some() { MAX_TASKS } else { MAX_OF_STATE };
    let mut lanes = app.store.board(household, query.state, each).await?;
    lanes.retain(|lane| !query.open || !lane.state.is_terminal());
    let more = lanes.iter().any(|lane| lane.count > lane.tasks.len() as u64);
    let mut tasks: Vec<Task> = lanes.into_iter().flat_map(|lane| lane.tasks).collect();
    tasks.sort_by_key(|task| std::cmp::Reverse(task.updated_at));
    let (tasks, cut) = fit_page(tasks);
    Ok(OkJson(Tasks { tasks, truncated: more || cut }))
}

/// The conversations of the household, whoever is in them
///
/// For the household's person: the 100 in which something was said last. `truncated` says that there are more.
#[utoipa::path(get, path = "/household/sessions", tag = "household",
    responses(
        (status = 200, description = "The one with the newest message first", body = HouseholdSessions),
        (status = 403, description = "The caller is not the person of a household"),
    ))]
pub(crate) async fn sessions(
    State(app): State<App>,
    Caller(caller): Caller,
) -> Result<OkJson<HouseholdSessions>, Problem> {
    let household = household_of(&app, &caller).await?;
    let query = ConversationQuery { limit: MAX_SESSIONS + 1, ..ConversationQuery::default() };
    let mut lines = app.store.conversations(household, query).await?;
    let more = lines.len() > MAX_SESSIONS as usize;
    lines.truncate(MAX_SESSIONS as usize);
    let session = |line: ConversationLine| HouseholdSession {
        session_id: line.id,
        subject: line.subject,
        between: line.between,
        group: line.group,
        unread: line.unread,
        last_message_at: line.last.at,
        ended_by: line.ended_by,
    };
    let (sessions, cut) = fit_page(lines.into_iter().map(session).collect());
    Ok(OkJson(HouseholdSessions { sessions, truncated: more || cut }))
}
