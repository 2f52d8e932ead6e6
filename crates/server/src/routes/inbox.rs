//! `GET /inbox`: the caller's sessions and who wants to connect.

use amb_core::Timestamp;
use amb_core::doc::Inbox;
use amb_core::limits::MAX_INBOX_SESSIONS;
use amb_store::InboxPage;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;
use crate::request::{Caller, Params, Problem, boolean, check_range, default_limit, parse_optional_id};
use crate::response_cache::CachedRequest;

/// What to show.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct InboxQuery {
    /// Only sessions with something unread.
    #[serde(default, deserialize_with = "boolean")]
    #[param(default = false)]
    unread_only: bool,
    /// At most this many sessions.
    #[serde(default = "default_limit::<{ MAX_INBOX_SESSIONS }>")]
    #[param(default = 500, minimum = 1, maximum = 500)]
    limit: u32,
    /// Only sessions after this one: the `next` of the page before.
    #[param(value_type = Option<Uuid>)]
    before: Option<String>,
}

/// The caller's sessions and who wants to connect
///
/// Sessions come newest first, each with its last three messages; what is long in those is cut, and `truncated` says so. A
/// page has at most 4 MiB; where there are more sessions, `next` is what to give as `before`. Nothing is marked as read.
#[utoipa::path(get, path = "/inbox", tag = "messages", params(InboxQuery),
    responses(
        (status = 200, description = "The inbox", body = Inbox),
        (status = 404, description = "`before` is no thread of the caller's"),
    ))]
pub(crate) async fn inbox(
    State(app): State<App>,
    Caller(caller): Caller,
    uri: Uri,
    Params(query): Params<InboxQuery>,
) -> Result<Response, Problem> {
    let request = CachedRequest::new(&app, &caller, &uri);
    if let Some(response) = request.cached() {
        return Ok(response);
    }
    check_range("query.limit", query.limit, 1..=MAX_INBOX_SESSIONS)?;
    let before = parse_optional_id("query.before", query.before.as_deref())?;
    let page = InboxPage { unread_only: query.unread_only, limit: query.limit, before };
    let inbox = app.store.inbox_page(&caller, page, Timestamp::now()).await?;
    // A connection request expires without a new version.
    let cacheable = inbox.pending_connections.is_empty();
    Ok(request.respond(&inbox, cacheable))
}
