//! `POST /connections/approve`: approves a request by its code.

use amb_core::doc::Connected;
use amb_core::{OfficeError, Timestamp};
use axum::extract::State;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::body::Body;
use crate::caller::{Caller, ClientAddress};
use crate::idempotency::IdempotencyKey;
use crate::problem::Problem;
use crate::reply::OkJson;

/// Which request to approve.
#[derive(Deserialize, ToSchema)]
pub(crate) struct ApproveBody {
    /// The code that the other side told.
    #[schema(example = "XC-992")]
    verification_code: String,
}

/// Longer texts are no code and are not looked up; the true ones have six characters.
const MAX_CODE_CHARS: usize = 64;

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
    app.limits.code(&*app.store, caller.key, address).await?;
    let code = body.verification_code.trim().to_ascii_uppercase();
    if code.chars().count() > MAX_CODE_CHARS || code.contains('\0') {
        return Err(OfficeError::not_found("no request with this code waits; a code looks like XC-992").into());
    }
    let caller = once.of(caller, "connections/approve", &code)?;
    let connected = app.store.approve_connection(&caller, &code, Timestamp::now()).await?;
    app.limits.right_code(&*app.store, caller.key, address).await;
    Ok(OkJson(app.publish(connected)))
}
