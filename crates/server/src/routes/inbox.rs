//! `GET /inbox`: the caller's threads and who wants to connect.

use amb_core::Timestamp;
use amb_core::doc::Inbox;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::answers::Asked;
use crate::app::App;
use crate::caller::Caller;
use crate::problem::Problem;
use crate::query::{Params, boolean};

/// What to show.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct InboxQuery {
    /// Only threads with something unread.
    #[serde(default, deserialize_with = "boolean")]
    #[param(default = false)]
    unread_only: bool,
}

/// The caller's threads and who wants to connect
///
/// Threads come newest first, each with its last three messages. Nothing is marked as read.
#[utoipa::path(
    get,
    path = "/inbox",
    tag = "messages",
    params(InboxQuery),
    security(("key" = []), ("bearer" = [])),
    responses((status = 200, description = "The inbox", body = Inbox))
)]
pub(crate) async fn inbox(
    State(app): State<App>,
    Caller(caller): Caller,
    uri: Uri,
    Params(query): Params<InboxQuery>,
) -> Result<Response, Problem> {
    let asked = Asked::new(&app, &caller, &uri);
    if let Some(answer) = asked.again() {
        return Ok(answer);
    }
    let inbox = app.store.inbox(&caller, query.unread_only, Timestamp::now()).await?;
    // A request runs out of time by itself.
    let lasting = inbox.pending_connections.is_empty();
    Ok(asked.answer(&inbox, lasting))
}
