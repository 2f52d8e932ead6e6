//! `GET /sessions/{session_id}/history`: a page of a session.

use amb_core::Timestamp;
use amb_core::doc::History;
use amb_core::limits::{DEFAULT_HISTORY, MAX_HISTORY};
use amb_core::mailbox::HistoryPage;
use axum::extract::State;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;
use crate::request::{Caller, Params, Problem, Segment, check_range, default_limit, parse_id, parse_optional_id};
use crate::response_cache::CachedRequest;

/// Which page.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct HistoryQuery {
    /// How many messages.
    #[serde(default = "default_limit::<{ DEFAULT_HISTORY }>")]
    #[param(default = 3, minimum = 1, maximum = 50)]
    limit: u32,
    /// Only messages before this one: the last of the page before.
    #[param(value_type = Option<Uuid>)]
    before: Option<String>,
}

/// A page of a session
///
/// Messages come newest first, and those that came to the caller are marked as read.
#[utoipa::path(get, path = "/sessions/{session_id}/history", tag = "messages",
    params(("session_id" = Uuid, Path, description = "Which thread"), HistoryQuery),
    responses(
        (status = 200, description = "The page", body = History),
        (status = 403, description = "The caller is not in this thread"),
        (status = 404, description = "No such thread, or `before` is not in it"),
    ))]
pub(crate) async fn history(
    State(app): State<App>,
    Caller(caller): Caller,
    method: Method,
    uri: Uri,
    Segment(session): Segment,
    Params(query): Params<HistoryQuery>,
) -> Result<Response, Problem> {
    if method == Method::HEAD {
        return Ok(no_head());
    }
    let request = CachedRequest::new(&app, &caller, &uri);
    if let Some(response) = request.cached() {
        return Ok(response);
    }
    let session = parse_id("path.session_id", &session)?;
    check_range("query.limit", query.limit, 1..=MAX_HISTORY)?;
    let before = parse_optional_id("query.before", query.before.as_deref())?;
    let page = HistoryPage { limit: query.limit, before };
    let history = app.store.history(&caller, &session, page, Timestamp::now()).await?;
    // If messages were marked as read, the version has changed already.
    let cacheable = history.entries.is_empty();
    Ok(request.respond(&app.publish(history), cacheable))
}

/// The response to `HEAD`, which would mark messages as read without showing them.
fn no_head() -> Response {
    let detail = "a history is read by GET, which marks what it shows as read";
    let mut response = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail).into_response();
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET"));
    response
}
