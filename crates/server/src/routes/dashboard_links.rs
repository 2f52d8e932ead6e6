//! `POST /dashboard/links`: a one-time link that signs a browser in.

use amb_core::doc::DashboardLink;
use amb_core::{Code, OfficeError, Timestamp};
use amb_store::{KeyHash, SignIn};
use axum::extract::State;
use axum::http::HeaderMap;

use crate::app::App;
use crate::dashboard::{LINK_TTL, origin};
use crate::request::{CallerWithKey, Created, Problem, new_secret};

/// A link that signs a browser in to the dashboard, once
///
/// For the person of a household, and for the office's operator. The browser stays signed in for a week, or until the key ends
/// that the link was made with.
#[utoipa::path(post, path = "/dashboard/links", tag = "agents",
    responses(
        (status = 201, description = "Open it within five minutes", body = DashboardLink),
        (status = 403, description = "The caller is neither the person of a household nor the operator"),
        (status = 422, description = "The request has no `Host`"),
    ))]
pub(crate) async fn dashboard_link(
    State(app): State<App>,
    CallerWithKey(caller, key): CallerWithKey,
    headers: HeaderMap,
) -> Result<Created<DashboardLink>, Problem> {
    let viewer = app.store.viewer(&caller).await?;
    if viewer.household.is_none() && !viewer.operator {
        let detail =
            "the dashboard is for the person of a household, and for the office's operator; sign in with their key";
        return Err(OfficeError::new(Code::Forbidden, detail).into());
    }
    let origin = origin(&app, &headers)?;
    let now = Timestamp::now();
    let expires_at = now.checked_add(LINK_TTL).map_err(OfficeError::internal)?;
    let secret = new_secret()?;
    let link = SignIn { hash: KeyHash::of(&secret), until: expires_at };
    app.store.open_link(&caller, key, link, now).await?;
    Ok(Created(DashboardLink { url: format!("{origin}/dashboard/sign-in?link={secret}"), expires_at }))
}
