//! `POST /messages/ack`, `/rung`, `/claim`, `/release` and `/renew`: how consumers handle messages.

use std::time::Duration;

use amb_core::Timestamp;
use amb_core::doc::{Acknowledged, ClaimBody, Claimed, IdsBody, RenewBody};
use amb_core::mailbox::ClaimRequest;
use axum::extract::State;
use axum::http::StatusCode;

use crate::app::App;
use crate::request::{Body, Caller, OkJson, Problem, check_range};

/// Maximum number of messages claimed by one request.
const MAX_CLAIM: u32 = 100;
/// Longest lease: a day, in seconds.
const MAX_LEASE: u32 = 24 * 60 * 60;

/// Marks messages that came to the caller as read
#[utoipa::path(post, path = "/messages/ack", tag = "messages", request_body = IdsBody,
    responses(
        (status = 200, description = "Marked; a message acknowledged twice is no error", body = Acknowledged),
        (status = 404, description = "One of them did not come to the caller; none was marked"),
    ))]
pub(crate) async fn ack(
    State(app): State<App>,
    Caller(caller): Caller,
    Body(body): Body<IdsBody>,
) -> Result<OkJson<Acknowledged>, Problem> {
    let acknowledged = app.publish(app.store.ack(&caller, &body.message_ids, Timestamp::now()).await?);
    Ok(OkJson(Acknowledged { acknowledged }))
}

/// Tells the senders that a client of the caller's was rung for these messages
///
/// Their receipts get `rung_at`, once, while the message is unread; `state` stays as it is.
#[utoipa::path(post, path = "/messages/rung", tag = "messages", request_body = IdsBody,
    responses(
        (status = 204, description = "Noted; what was read, or rung for before, stays as it is"),
        (status = 404, description = "One of them did not come to the caller; none was marked"),
    ))]
pub(crate) async fn rung(
    State(app): State<App>,
    Caller(caller): Caller,
    Body(body): Body<IdsBody>,
) -> Result<StatusCode, Problem> {
    app.publish(app.store.rung(&caller, &body.message_ids, Timestamp::now()).await?);
    Ok(StatusCode::NO_CONTENT)
}

fn lease(seconds: Option<u32>) -> Result<Duration, Problem> {
    let seconds = seconds.unwrap_or(300);
    check_range("body.lease_seconds", seconds, 1..=MAX_LEASE)?;
    Ok(Duration::from_secs(seconds.into()))
}

/// Takes unread messages that no other consumer of the caller's holds
///
/// They come back after the lease unless acknowledged or released.
#[utoipa::path(post, path = "/messages/claim", tag = "messages", request_body = ClaimBody,
    responses((status = 200, description = "Taken", body = Claimed)))]
pub(crate) async fn claim(
    State(app): State<App>,
    Caller(caller): Caller,
    Body(body): Body<ClaimBody>,
) -> Result<OkJson<Claimed>, Problem> {
    let limit = body.limit.unwrap_or(1);
    check_range("body.limit", limit, 1..=MAX_CLAIM)?;
    let request = ClaimRequest {
        limit: limit as usize,
        urgent_first: body.urgent_first.unwrap_or_default(),
        lease: lease(body.lease_seconds)?,
    };
    Ok(OkJson(Claimed { messages: app.publish(app.store.claim(&caller, request, Timestamp::now()).await?) }))
}

/// Gives claimed messages back
#[utoipa::path(post, path = "/messages/release", tag = "messages", request_body = IdsBody,
    responses(
        (status = 204, description = "They can be claimed again"),
        (status = 404, description = "One of them did not come to the caller"),
    ))]
pub(crate) async fn release(
    State(app): State<App>,
    Caller(caller): Caller,
    Body(body): Body<IdsBody>,
) -> Result<StatusCode, Problem> {
    app.store.release(&caller, &body.message_ids).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Keeps claimed messages from other consumers for longer
///
/// Those whose lease has run out, or that were read or given back, stay as they are.
#[utoipa::path(post, path = "/messages/renew", tag = "messages", request_body = RenewBody,
    responses(
        (status = 204, description = "Those that are still held have the new lease"),
        (status = 404, description = "One of them did not come to the caller"),
    ))]
pub(crate) async fn renew(
    State(app): State<App>,
    Caller(caller): Caller,
    Body(body): Body<RenewBody>,
) -> Result<StatusCode, Problem> {
    let lease = lease(body.lease_seconds)?;
    app.store.renew(&caller, &body.message_ids, lease, Timestamp::now()).await?;
    Ok(StatusCode::NO_CONTENT)
}
