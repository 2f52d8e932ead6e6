//! `/agents/me`: the caller as it sees itself.

use amb_core::doc::Profile;
use amb_core::limits::MAX_DESCRIPTION_CHARS;
use amb_core::{AllowFrom, Card, Timestamp};
use amb_store::ProfilePatch;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::ToSchema;

use super::register::Capability;
use crate::app::App;
use crate::request::{Body, Caller, CallerWithKey, OkJson, Problem, check_optional_text, whole_number};

/// The caller as it sees itself
#[utoipa::path(get, path = "/agents/me", tag = "agents",
    responses((status = 200, description = "The profile", body = Profile)))]
pub(crate) async fn me(State(app): State<App>, Caller(caller): Caller) -> Result<OkJson<Profile>, Problem> {
    let profile = app.store.profile(&caller, Timestamp::now()).await?;
    Ok(OkJson(Profile { operators_read_mail: app.config.operators_read_mail, ..profile }))
}

/// What to change; what is missing stays.
#[derive(Deserialize, ToSchema)]
pub(crate) struct PatchBody {
    /// What it is, in a sentence or two.
    #[schema(max_length = 1000, pattern = "^[^\\x00]*$")]
    description: Option<String>,
    /// What it can do, in words of its own.
    #[schema(max_items = 64)]
    capabilities: Option<Vec<Capability>>,
    /// Whose messages and tasks it takes once connected: names, or `*` for everybody.
    allow_from: Option<AllowFrom>,
    /// How many tasks it works on at once.
    #[serde(default, deserialize_with = "whole_number")]
    #[schema(maximum = 1000000)]
    max_concurrent_tasks: Option<u32>,
    /// Whether agents that are not connected with it find it in the directory.
    discoverable: Option<bool>,
}

/// Changes the caller's card
#[utoipa::path(patch, path = "/agents/me", tag = "agents", request_body = PatchBody,
    responses((status = 200, description = "The profile as it is now", body = Profile)))]
pub(crate) async fn patch(
    State(app): State<App>,
    Caller(caller): Caller,
    Body(body): Body<PatchBody>,
) -> Result<OkJson<Profile>, Problem> {
    let profile = app.store.update_profile(&caller, body.parse()?, Timestamp::now()).await?;
    Ok(OkJson(Profile { operators_read_mail: app.config.operators_read_mail, ..profile }))
}

impl PatchBody {
    fn parse(self) -> Result<ProfilePatch, Problem> {
        check_optional_text("body.description", self.description.as_ref(), MAX_DESCRIPTION_CHARS)?;
        let capabilities = self.capabilities.map(Capability::parse_all).transpose()?;
        // Checked as a whole card, with valid defaults for the fields that do not change.
        let card = Card {
            capabilities: capabilities.clone().unwrap_or_default(),
            allow_from: self.allow_from.clone().unwrap_or_default(),
            ..Card::default()
        };
        card.check_for_server()?;
        Ok(ProfilePatch {
            description: self.description,
            capabilities,
            allow_from: self.allow_from,
            max_concurrent_tasks: self.max_concurrent_tasks,
            discoverable: self.discoverable,
        })
    }
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
