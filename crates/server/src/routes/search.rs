//! `GET /search`: words in the caller's own mail.

use amb_core::doc::Hits;
use amb_core::limits::MAX_SUBJECT_CHARS;
use amb_core::mailbox::SearchQuery;
use amb_core::{AgentName, Timestamp};
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;
use crate::caller::Caller;
use crate::problem::Problem;
use crate::query::{Params, check_range, default_limit};
use crate::reply::{OkJson, fitting};
use crate::text;

/// Most hits in one answer.
const MAX_HITS: u32 = 100;
/// Longest question.
const MAX_QUESTION_CHARS: usize = 1_000;

/// What to look for. All conditions hold together.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct SearchParams {
    /// Words, and "phrases in quotes".
    #[serde(default)]
    #[param(max_length = 1000, pattern = "^[^\\x00]*$")]
    q: String,
    /// Only from this agent.
    #[serde(default, deserialize_with = "crate::body::some_plain_name")]
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
    Params(question): Params<SearchParams>,
) -> Result<OkJson<Hits>, Problem> {
    text::check("query.q", &question.q, MAX_QUESTION_CHARS)?;
    text::check_some("query.subject", question.subject.as_ref(), MAX_SUBJECT_CHARS)?;
    check_range("query.limit", question.limit, 1..=MAX_HITS)?;
    let query = SearchQuery {
        text: question.q,
        from: question.from,
        subject: question.subject,
        after: question.after,
        before: question.before,
        limit: Some(question.limit),
    };
    let (hits, truncated) = fitting(app.store.search(&caller, query).await?);
    Ok(OkJson(Hits { hits, truncated }))
}
