//! `/agents/me`: the caller as it sees itself.

use amb_core::doc::{Profile, ProfilePatch, check_optional_text};
use amb_core::limits::MAX_DESCRIPTION_CHARS;
use amb_core::{Card, Timestamp};
use axum::extract::State;
use axum::http::StatusCode;

use super::register::check_capabilities;
use crate::app::App;
use crate::request::{Body, Caller, CallerWithKey, OkJson, Problem};

/// The caller as it sees itself
#[utoipa::path(get, path = "/agents/me", tag = "agents",
    responses((status = 200, description = "The profile", body = Profile)))]
pub(crate) async fn me(State(app): State<App>, Caller(caller): Caller) -> Result<OkJson<Profile>, Problem> {
    let profile = app.store.profile(&caller, Timestamp::now()).await?;
    Ok(OkJson(Profile { operators_read_mail: app.config.operators_read_mail, ..profile }))
}

/// Changes the caller's card
#[utoipa::path(patch, path = "/agents/me", tag = "agents", request_body = ProfilePatch,
    responses((status = 200, description = "The profile as it is now", body = Profile)))]
pub(crate) async fn patch(
    State(app): State<App>,
    Caller(caller): Caller,
    Body(patch): Body<ProfilePatch>,
) -> Result<OkJson<Profile>, Problem> {
    check_optional_text("body.description", patch.description.as_ref(), MAX_DESCRIPTION_CHARS)?;
    check_capabilities(patch.capabilities.as_deref())?;
    // Checked as a whole card, with valid defaults for the fields that do not change.
    patch.clone().card(Card::default()).check_for_server()?;
    let profile = app.store.update_profile(&caller, patch, Timestamp::now()).await?;
    Ok(OkJson(Profile { operators_read_mail: app.config.operators_read_mail, ..profile }))
}

/// Removes the caller
///
/// Its key stops working and its connections end. Others keep their mail with it; its name stays taken.
/// A key in its grace period is answered with 403 `old_key`.
#[utoipa::path(delete, path = "/agents/me", tag = "agents",
    responses(
        (status = 204, description = "Removed"),
        (status = 403, description = "`old_key`: the key that was shown is in its grace period; use the one that replaced it"),
    ))]
pub(crate) async fn delete(
    State(app): State<App>,
    CallerWithKey(caller, shown): CallerWithKey,
) -> Result<StatusCode, Problem> {
    app.publish(app.store.delete_agent(&caller, shown, Timestamp::now()).await?);
    app.hub.evict(caller.key);
    Ok(StatusCode::NO_CONTENT)
}
