//! `POST /agents/me/rotate-key`: a new key for the caller.

use std::time::Duration;

use amb_core::doc::{RotateBody, Rotated};
use amb_core::{OfficeError, Timestamp};
use amb_store::to_micros;
use axum::extract::State;

use crate::app::App;
use crate::request::{ApiKey, Body, CallerWithKey, OkJson, Problem};

/// A new key for the caller
///
/// Only the current key is replaced: a key in its grace period is answered with 403 `old_key`. Where the answer was lost,
/// the old key goes on working for the grace period, but cannot be replaced again; the office's operator gives a new
/// one with `amb admin key NAME`.
#[utoipa::path(post, path = "/agents/me/rotate-key", tag = "agents", request_body = RotateBody,
    responses(
        (status = 200, description = "The new key works", body = Rotated),
        (status = 403, description = "`old_key`: the key that was shown is in its grace period; use the one that replaced it"),
    ))]
pub(crate) async fn rotate_key(
    State(app): State<App>,
    CallerWithKey(caller, shown): CallerWithKey,
    Body(body): Body<RotateBody>,
) -> Result<OkJson<Rotated>, Problem> {
    let now = Timestamp::now();
    let grace = body.grace_seconds.map_or(app.config.key_grace, |seconds| Duration::from_secs(seconds.into()));
    let until = match grace.is_zero() {
        true => None,
        // To the precision of the database, which later answers this time.
        false => Some(to_micros(now.checked_add(grace).map_err(OfficeError::internal)?)),
    };
    let key = ApiKey::fresh()?;
    app.store.rotate_key(&caller, shown, key.to_keep(), until, now).await?;
    if until.is_none() {
        app.hub.evict(caller.key);
    }
    Ok(OkJson(Rotated { api_key: key.reveal().to_owned(), previous_key_until: until }))
}
