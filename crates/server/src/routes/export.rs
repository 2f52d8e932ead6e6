//! `GET /export`: all mail of the caller, page by page.

use amb_core::Timestamp;
use amb_core::doc::Exported;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;
use crate::request::{Caller, OkJson, Params, Problem, parse_optional_id};

/// Messages in one page.
const PAGE: u32 = 200;

/// Which page.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ExportParams {
    /// The last message of the page before.
    #[param(value_type = Option<Uuid>)]
    after: Option<String>,
    /// Only what was sent at or after this moment.
    since: Option<Timestamp>,
}

/// The caller's mail, sent and received, session by session
#[utoipa::path(get, path = "/export", tag = "messages", params(ExportParams),
    responses(
        (status = 200, description = "A page; empty at the end", body = Exported),
        (status = 404, description = "`after` is no message of the caller's"),
    ))]
pub(crate) async fn export(
    State(app): State<App>,
    Caller(caller): Caller,
    Params(query): Params<ExportParams>,
) -> Result<OkJson<Exported>, Problem> {
    let after = parse_optional_id("query.after", query.after.as_deref())?;
    let query = amb_store::ExportQuery { after, since: query.since, limit: PAGE };
    Ok(OkJson(Exported { messages: app.store.export(&caller, query).await? }))
}
