//! `/agents/me/wake` and `/household/members/{name}/wake`: the state of wake-ups of an agent's clients.

use amb_core::wake::{WakeReport, WakeSessions};
use amb_core::{AgentName, Timestamp};
use axum::extract::State;
use axum::http::StatusCode;

use crate::app::App;
use crate::request::{Body, Caller, OkJson, Problem, Segment, path_name};

/// Reports the state of wake-ups of a client session of the caller
///
/// For the process that rings the client, when the state changes. Replaces what was reported of the same session; the office keeps eight
/// sessions of an agent, each for a day after its last report.
#[utoipa::path(put, path = "/agents/me/wake", operation_id = "report_wake", tag = "agents", request_body = WakeReport,
    responses((status = 204, description = "Kept")))]
pub(crate) async fn report(
    State(app): State<App>,
    Caller(caller): Caller,
    Body(report): Body<WakeReport>,
) -> Result<StatusCode, Problem> {
    report.check()?;
    let new = app.store.report_wake(&caller, report, Timestamp::now()).await?;
    app.metrics.wake_ups(new);
    app.stats.counters.wake_ups(new);
    app.watchers.hint_agent(caller.key);
    Ok(StatusCode::NO_CONTENT)
}

/// The state of wake-ups of the caller's clients
#[utoipa::path(get, path = "/agents/me/wake", operation_id = "wake", tag = "agents",
    responses((status = 200, description = "The sessions, the one that was reported last first", body = WakeSessions)))]
pub(crate) async fn wake(State(app): State<App>, Caller(caller): Caller) -> Result<OkJson<WakeSessions>, Problem> {
    let sessions = app.store.wake_sessions(&caller, &caller.name, Timestamp::now()).await?;
    Ok(OkJson(WakeSessions { sessions }))
}

/// The state of wake-ups of the clients of an agent of the household
///
/// For the household's person, and for the agent itself.
#[utoipa::path(get, path = "/household/members/{name}/wake", operation_id = "wake_of_member", tag = "household",
    params(("name" = AgentName, Path, description = "Which agent")),
    responses(
        (status = 200, description = "The sessions, the one that was reported last first", body = WakeSessions),
        (status = 403, description = "The caller is neither the agent nor the person of a household"),
        (status = 404, description = "No such agent in the household"),
    ))]
pub(crate) async fn wake_of_member(
    State(app): State<App>,
    Caller(caller): Caller,
    Segment(name): Segment,
) -> Result<OkJson<WakeSessions>, Problem> {
    let name = path_name(&name)?;
    let sessions = app.store.wake_sessions(&caller, &name, Timestamp::now()).await?;
    Ok(OkJson(WakeSessions { sessions }))
}
