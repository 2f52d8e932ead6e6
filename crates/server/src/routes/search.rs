//! `GET /search`: full-text search in the caller's own mail.

use amb_core::doc::{Hits, check_optional_text, check_text};
use amb_core::limits::MAX_SUBJECT_CHARS;
use amb_core::mailbox::SearchQuery;
use amb_core::{AgentName, Timestamp};
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;
use crate::request::{Caller, OkJson, Params, Problem, check_range, default_limit, fit_page};

/// Maximum number of hits in one response.
const MAX_HITS: u32 = 100;
/// Maximum length of the query.
const MAX_QUERY_CHARS: usize = 1_000;

/// What to look for. All conditions hold together.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct SearchParams {
    /// Words, and "phrases in quotes".
    #[serde(default)]
    #[param(max_length = 1000, pattern = "^[^\\x00]*$")]
    q: String,
    /// Only from this agent.
    #[serde(default, deserialize_with = "amb_core::doc::PlainName::plain")]
    from: Option<AgentName>,
    /// Only in sessions whose subject has these words.
    #[param(max_length = 255, pattern = "^[^\\x00]*$")]
    subject: Option<String>,
    /// Only at or after this moment.
    after: Option<Timestamp>,
    /// Only before this moment.
    before: Option<Timestamp>,
    /// At most this many.
    #[serde(default = "default_limit::<20>")]
    #[param(default = 20, minimum = 1, maximum = 100)]
    limit: u32,
}

/// Looks through the caller's own mail, newest first
#[utoipa::path(get, path = "/search", tag = "messages", params(SearchParams),
    responses((status = 200, description = "What was found", body = Hits)))]
pub(crate) async fn search(
    State(app): State<App>,
    Caller(caller): Caller,
    Params(query): Params<SearchParams>,
) -> Result<OkJson<Hits>, Problem> {
    check_text("query.q", &query.q, MAX_QUERY_CHARS)?;
    check_optional_text("query.subject", query.subject.as_ref(), MAX_SUBJECT_CHARS)?;
    check_range("query.limit", query.limit, 1..=MAX_HITS)?;
    let query = SearchQuery {
        text: query.q,
        from: query.from,
        subject: query.subject,
        after: query.after,
        before: query.before,
        limit: Some(query.limit),
    };
    let (hits, truncated) = fit_page(app.store.search(&caller, query).await?);
    Ok(OkJson(Hits { hits, truncated }))
}
