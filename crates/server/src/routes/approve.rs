//! `POST /connections/approve`: approves a request by its code.

use amb_core::doc::{ApproveBody, Connected};
use amb_core::{OfficeError, Timestamp};
use axum::extract::State;

use crate::app::App;
use crate::request::{Body, Caller, ClientAddress, IdempotencyKey, OkJson, Problem};

/// Longer texts are not looked up; real codes have six characters.
const MAX_CODE_CHARS: usize = 64;

/// Normalizes a verification code. Fails for a text that cannot be one.
pub(crate) fn parse_code(text: &str) -> Result<String, OfficeError> {
    let code = text.trim().to_ascii_uppercase();
    match code.is_empty() || code.chars().count() > MAX_CODE_CHARS || code.contains('\0') {
        true => Err(OfficeError::not_found("no request with this code waits; a code looks like XC-992")),
        false => Ok(code),
    }
}

/// Approves a request by its code
#[utoipa::path(post, path = "/connections/approve", tag = "connections", params(IdempotencyKey),
    request_body = ApproveBody,
    responses(
        (status = 200, description = "Connected", body = Connected),
        (status = 403, description = "The code is of the caller's own request"),
        (status = 404, description = "No request with this code waits for the caller"),
        (status = 409, description = "The idempotency key was used for something else"),
        (status = 410, description = "The code's time is over; ask for a new request"),
    ))]
pub(crate) async fn approve(
    State(app): State<App>,
    Caller(caller): Caller,
    ClientAddress(address): ClientAddress,
    once: IdempotencyKey,
    Body(body): Body<ApproveBody>,
) -> Result<OkJson<Connected>, Problem> {
    app.limits.code(caller.key, address).await?;
    let code = parse_code(&body.verification_code)?;
    let caller = once.bind(caller, "connections/approve", &code)?;
    let connected = app.store.approve_connection(&caller, &code, Timestamp::now()).await?;
    app.limits.refund_code(caller.key, address).await;
    Ok(OkJson(app.publish(connected)))
}
