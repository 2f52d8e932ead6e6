//! `POST /agents/me/heartbeat` and `/leave`: presence.

use amb_core::Timestamp;
use axum::extract::State;
use axum::http::StatusCode;

use crate::app::App;
use crate::request::{Caller, Problem};

/// Records a heartbeat
///
/// Every call with a key is one, and so is an open WebSocket; this one does nothing else.
#[utoipa::path(post, path = "/agents/me/heartbeat", tag = "agents",
    responses((status = 204, description = "Noted")))]
pub(crate) async fn heartbeat(State(app): State<App>, Caller(caller): Caller) -> Result<StatusCode, Problem> {
    app.store.seen(&[caller.key], Timestamp::now()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Sets the caller offline until its next request
#[utoipa::path(post, path = "/agents/me/leave", tag = "agents",
    responses((status = 204, description = "Offline; mail waits")))]
pub(crate) async fn leave(State(app): State<App>, Caller(caller): Caller) -> Result<StatusCode, Problem> {
    app.heartbeats.remove(caller.key);
    app.store.leave(&caller, Timestamp::now()).await?;
    Ok(StatusCode::NO_CONTENT)
}
