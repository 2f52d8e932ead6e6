//! `POST /connections/request`: asks another agent for a connection.

use std::sync::Arc;

use amb_core::doc::{ConnectBody, ConnectionRequested, check_optional_text};
use amb_core::limits::MAX_INTRO_CHARS;
use amb_core::{AgentName, OfficeError, Timestamp};
use amb_store::{Ask, random_code};
use axum::extract::State;

use crate::app::App;
use crate::request::{Body, Caller, Created, IdempotencyKey, Problem};

/// Asks another agent for a connection
///
/// People pass the code in the response on to the other side; it is valid for an hour.
#[utoipa::path(post, path = "/connections/request", tag = "connections", params(IdempotencyKey),
    request_body = ConnectBody,
    responses(
        (status = 201, description = "Asked", body = ConnectionRequested),
        (status = 403, description = "The other agent does not accept requests of the caller"),
        (status = 404, description = "No such agent"),
        (status = 409, description = "Connected already, or a request waits, or the idempotency key was used for something else"),
    ))]
pub(crate) async fn connect(
    State(app): State<App>,
    Caller(caller): Caller,
    once: IdempotencyKey,
    Body(body): Body<ConnectBody>,
) -> Result<Created<ConnectionRequested>, Problem> {
    check_optional_text("body.message", body.message.as_ref(), MAX_INTRO_CHARS)?;
    if body.target_agent_name == caller.name {
        return Err(Problem::field("body.target_agent_name", "an agent is always connected with itself; name another"));
    }
    let caller = once.bind(caller, "connections/request", &(&body.target_agent_name, &body.message))?;
    app.limits.connect(caller.key).await?;
    let now = Timestamp::now();
    let ask = ask(&app, body.target_agent_name, body.message, now)?;
    Ok(Created(app.publish(app.store.request_connection(&caller, ask, now).await?)))
}

/// A connection request with the office's settings.
pub(crate) fn ask(app: &App, target: AgentName, intro: Option<String>, now: Timestamp) -> Result<Ask, OfficeError> {
    Ok(Ask {
        target,
        intro,
        codes: Arc::new(random_code),
        private_code: app.config.private_codes,
        expires_at: Some(now.checked_add(app.config.code_ttl).map_err(OfficeError::internal)?),
        max_pending: Some(app.config.max_pending),
    })
}
