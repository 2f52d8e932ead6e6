//! `POST /messages/send`: sends a message, which is durable when this returns.

use amb_core::doc::{ConnectionStatus, SendBody, Sent};
use amb_core::suggest::nearest;
use amb_core::{AgentName, Code, OfficeError, Timestamp};
use amb_store::Agent;
use axum::extract::State;

use crate::app::App;
use crate::dashboard::Stopped;
use crate::request::{Body, Caller, Created, IdempotencyKey, Problem};

/// Sends a message
///
/// When this answers 201 the message is durable. With an `Idempotency-Key`, a repeat answers the first result.
#[utoipa::path(post, path = "/messages/send", tag = "messages",
    params(("Idempotency-Key" = Option<String>, Header, max_length = 255, pattern = "^[!-~]+$",
        description = "A repeat with the same key and body answers the first result and sends nothing")),
    request_body = SendBody,
    responses(
        (status = 201, description = "Durable", body = Sent),
        (status = 403, description = "No active connection with the recipient, or the caller is not in its `allow_from`"),
        (status = 404, description = "No such session or message"),
        (status = 409, description = "The idempotency key was used for another message, or ttl and trace refuse"),
        (status = 507, description = "`over_quota`: the caller, or the office, has as much mail stored as it may; trying again does not help"),
    ))]
pub(crate) async fn send(
    State(app): State<App>,
    Caller(caller): Caller,
    IdempotencyKey(key): IdempotencyKey,
    Body(body): Body<SendBody>,
) -> Result<Created<Sent>, Problem> {
    let first = body.to.clone();
    let (to, draft) = body.draft(first, key)?;
    draft.check()?;
    match app.store.send(&caller, draft, Timestamp::now()).await {
        Ok(sent) => Ok(Created(app.publish(sent))),
        Err(error) => Err(refused(&app, &caller, &to, error).await),
    }
}

/// Records a stopped loop, and suggests the nearest name of a connected agent if the recipient is not connected.
async fn refused(app: &App, caller: &Agent, to: &AgentName, error: OfficeError) -> Problem {
    if error.code() == Code::LoopRefused {
        app.loops.record(Stopped::now(caller, to, &error));
    }
    if error.code() != Code::NotConnected || to.folded() == caller.name.folded() {
        return error.into();
    }
    let links = app.store.connections(caller).await.unwrap_or_default();
    let active = links.iter().filter(|link| link.status == ConnectionStatus::Active && link.agent_name != *to);
    match nearest(to.as_str(), active.map(|link| link.agent_name.as_str())) {
        Some(near) => OfficeError::new(error.code(), format!("{}; did you mean {near:?}?", error.detail())).into(),
        None => error.into(),
    }
}
