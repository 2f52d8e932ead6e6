//! `/transcripts/{key}`: shared records of group chats, for teams without a shared file system.

use std::time::Duration;

use amb_core::doc::{Appended, Lines, ShareBody, check_optional_text, check_text};
use amb_core::limits::{MAX_TRANSCRIPT_CHARS, MAX_TRANSCRIPT_LINES};
use amb_core::transcript::{Line, TranscriptKey};
use amb_core::{AgentName, OfficeError, Timestamp};
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};
use utoipa::IntoParams;

use super::events::{MAX_WAIT, subscribe};
use crate::app::App;
use crate::connection::Hangup;
use crate::request::{
    Body, Caller, CallerWithKey, Created, IdempotencyKey, OkJson, Params, Problem, Segment, check_range, cursor,
    key_ended,
};

/// How often a long poll looks for lines that another process appended.
const POLL: Duration = Duration::from_secs(1);
/// Maximum length of a line's sender, role or message id.
const MAX_WORD_CHARS: usize = 255;

fn parse_key(text: &str) -> Result<TranscriptKey, Problem> {
    text.parse().map_err(|bad: OfficeError| Problem::field("path.key", bad.detail()))
}

/// Adds a line to a group chat's record
///
/// A key belongs to its owner: two agents may each have a transcript of the same key. Without `owner` it is the caller's own,
/// made with its first line; with `owner` one that this agent shares. The office notes who wrote each line (`author`). A line
/// with a message id that is there already changes nothing.
#[utoipa::path(post, path = "/transcripts/{key}", tag = "transcripts", request_body = Line,
    params(("key" = String, Path, min_length = 1, max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]+$", description = "Which chat, such as feishu:oc_123"), OwnerQuery, IdempotencyKey),
    responses(
        (status = 201, description = "Durable", body = Appended),
        (status = 403, description = "The caller may only read it"),
        (status = 404, description = "The owner shares no such transcript with the caller"),
        (status = 409, description = "The idempotency key was used for something else"),
        (status = 507, description = "`over_quota`: the caller, or the office, has as much mail stored as it may; trying again does not help"),
    ))]
pub(crate) async fn append(
    State(app): State<App>,
    Caller(caller): Caller,
    Segment(key): Segment,
    Params(query): Params<OwnerQuery>,
    once: IdempotencyKey,
    Body(line): Body<Line>,
) -> Result<Created<Appended>, Problem> {
    let key = parse_key(&key)?;
    check_text("body.content", &line.content, MAX_TRANSCRIPT_CHARS)?;
    check_text("body.role", &line.role, MAX_WORD_CHARS)?;
    check_text("body.sender", &line.sender, MAX_WORD_CHARS)?;
    check_optional_text("body.message_id", line.message_id.as_ref(), MAX_WORD_CHARS)?;
    let caller = once.bind(caller, "transcripts", &(&query.owner, key.as_str(), &line))?;
    let appended = app.store.transcript_append(&caller, query.owner.as_ref(), &key, line, Timestamp::now()).await?;
    // An error means that nobody follows a transcript.
    let _ = app.transcripts.send(key);
    Ok(Created(appended))
}

/// Whose transcript.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct OwnerQuery {
    /// The agent that shares it; without it the caller's own is meant.
    #[serde(default, deserialize_with = "amb_core::doc::PlainName::plain")]
    owner: Option<AgentName>,
}

/// Which lines.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct LinesQuery {
    /// The agent that shares it; without it the caller's own is meant.
    #[serde(default, deserialize_with = "amb_core::doc::PlainName::plain")]
    owner: Option<AgentName>,
    /// At most this many.
    #[serde(default = "default_limit")]
    #[param(default = 20, minimum = 1, maximum = 1000)]
    limit: usize,
    /// The lines after this place, oldest first; without it the last ones.
    #[serde(default, deserialize_with = "cursor")]
    #[param(minimum = 0)]
    after: Option<u64>,
    /// With `after`: how many seconds to wait where there is no line yet.
    #[serde(default)]
    #[param(default = 0, minimum = 0, maximum = 60)]
    wait: u64,
}

fn default_limit() -> usize {
    amb_core::limits::DEFAULT_TRANSCRIPT_LINES
}

/// The last lines of a group chat's record, or those after a place
///
/// A wait ends with 401 when the caller's key does.
#[utoipa::path(get, path = "/transcripts/{key}", tag = "transcripts",
    params(("key" = String, Path, min_length = 1, max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]+$", description = "Which chat"), LinesQuery),
    responses(
        (status = 200, description = "The lines", body = Lines),
        (status = 404, description = "No such transcript of the caller's, or none that the owner shares with it"),
    ))]
pub(crate) async fn lines(
    State(app): State<App>,
    CallerWithKey(caller, api_key): CallerWithKey,
    Segment(key): Segment,
    hangup: Hangup,
    Params(query): Params<LinesQuery>,
) -> Result<OkJson<Lines>, Problem> {
    let key = parse_key(&key)?;
    check_range("query.limit", query.limit, 1..=MAX_TRANSCRIPT_LINES)?;
    check_range("query.wait", query.wait, 0..=MAX_WAIT)?;
    let owner = query.owner.as_ref();
    let Some(after) = query.after else {
        let lines = app.store.transcript_recent(&caller, owner, &key, query.limit).await?;
        return Ok(OkJson(Lines { lines }));
    };
    if query.wait == 0 {
        let lines = app.store.transcript_after(&caller, owner, &key, after, query.limit).await?;
        return Ok(OkJson(Lines { lines }));
    }
    // Subscribes so that the poll ends with its key and counts against the limit of subscribers. At the largest cursor,
    // because it does not read the agent's log.
    let guard = subscribe(&app, &caller, api_key, u64::MAX)?;
    let deadline = Instant::now() + Duration::from_secs(query.wait).min(app.config.max_wait);
    // Before the first read, so that no line is missed between it and the wait.
    let mut appended = app.transcripts.subscribe();
    loop {
        let lines = app.store.transcript_after(&caller, owner, &key, after, query.limit).await?;
        if !lines.is_empty() || Instant::now() >= deadline {
            return Ok(OkJson(Lines { lines }));
        }
        let next_read = deadline.min(Instant::now() + POLL);
        let hint = async {
            // An error is a lag: hints were lost, so the transcript is read.
            while let Ok(grown) = appended.recv().await {
                if grown == key {
                    break;
                }
            }
        };
        tokio::select! {
            () = hint => {}
            // Discards what was offered.
            () = guard.subscriber.notified() => drop(guard.subscriber.next(u64::MAX)),
            () = sleep_until(next_read) => {}
            () = app.closing.cancelled() => return Ok(OkJson(Lines { lines })),
            () = hangup.happened() => return Ok(OkJson(Lines { lines })),
        }
        if guard.subscriber.is_evicted() {
            return Err(key_ended().into());
        }
    }
}

/// Lets a connected agent read or write a transcript of the caller's
///
/// What is shared ends with the connection.
#[utoipa::path(post, path = "/transcripts/{key}/share", tag = "transcripts", request_body = ShareBody,
    params(("key" = String, Path, min_length = 1, max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]+$", description = "Which chat")),
    responses(
        (status = 204, description = "Done"),
        (status = 403, description = "No active connection with that agent"),
        (status = 404, description = "No such transcript of the caller's, or no such agent"),
    ))]
pub(crate) async fn share(
    State(app): State<App>,
    Caller(caller): Caller,
    Segment(key): Segment,
    Body(body): Body<ShareBody>,
) -> Result<StatusCode, Problem> {
    let key = parse_key(&key)?;
    app.store.transcript_share(&caller, &key, &body.agent_name, body.access).await?;
    Ok(StatusCode::NO_CONTENT)
}
