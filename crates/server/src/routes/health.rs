//! `GET /health…`: liveness, and readiness to accept mail.

use std::time::Duration;

use amb_core::doc::{Health, MountView};
use amb_core::{Code, OfficeError};
use axum::extract::State;

use crate::app::App;
use crate::mounts;
use crate::request::{OkJson, Problem};

/// How long the database may take to answer before it counts as unavailable.
const READY_TIMEOUT: Duration = Duration::from_secs(2);

fn ok(mounts: Vec<MountView>, operators_read_mail: bool) -> Health {
    Health { status: "ok".into(), version: env!("CARGO_PKG_VERSION").into(), mounts, operators_read_mail }
}

/// Whether the office is there and can take mail
#[utoipa::path(get, path = "/health", tag = "health", security(()), responses(
    (status = 200, description = "It is", body = Health),
    (status = 503, description = "It is there, but its database is not"),
))]
pub(crate) async fn health(state: State<App>) -> Result<OkJson<Health>, Problem> {
    ready(state).await
}

/// Whether the process is alive
#[utoipa::path(get, path = "/health/live", tag = "health", security(()), responses(
    (status = 200, description = "It is", body = Health),
))]
pub(crate) async fn live() -> OkJson<Health> {
    OkJson(ok(Vec::new(), false))
}

/// Whether the office can take mail
#[utoipa::path(get, path = "/health/ready", tag = "health", security(()), responses(
    (status = 200, description = "It can", body = Health),
    (status = 503, description = "Not now: the database is gone, its disk is full, or the office is closing"),
))]
pub(crate) async fn ready(State(app): State<App>) -> Result<OkJson<Health>, Problem> {
    if app.closing.is_cancelled() {
        return Err(OfficeError::unavailable("the office is closing").into());
    }
    match tokio::time::timeout(READY_TIMEOUT, app.store.ready()).await {
        Ok(Ok(())) => Ok(OkJson(ok(mounts::views(&app.mounts), app.config.operators_read_mail))),
        // The error says what is wrong, such as a full disk.
        Ok(Err(error)) if error.code() == Code::Unavailable => Err(error.into()),
        Ok(Err(error)) => Err(OfficeError::unavailable("the database does not answer").caused_by(error).into()),
        Err(_) => Err(OfficeError::unavailable("the database does not answer in time").into()),
    }
}
