//! `GET /messages` and `GET /messages/{message_id}`: mail and its receipts.

use amb_core::doc::{MessagePage, MessageWithReceipts};
use amb_core::{AgentName, CorrelationId, Kind, Timestamp};
use amb_store::MessageQuery;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;
use crate::request::{
    Caller, OkJson, Params, Problem, Segment, boolean, check_range, cursor, default_limit, parse_id, parse_optional_id,
};

/// Maximum number of messages in one page.
const MAX_PAGE: u32 = 100;

/// Which messages. All conditions hold together.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct MessagesQuery {
    /// Only what was not read.
    #[serde(default, deserialize_with = "boolean")]
    #[param(default = false)]
    unread: bool,
    /// Only what a consumer of the caller's holds now and has not acknowledged.
    #[serde(default, deserialize_with = "boolean")]
    #[param(default = false)]
    claimed: bool,
    /// Only in this session.
    #[param(value_type = Option<Uuid>)]
    session_id: Option<String>,
    /// Only from this agent.
    #[serde(default, deserialize_with = "amb_core::doc::PlainName::plain")]
    from: Option<AgentName>,
    /// Only of this kind.
    kind: Option<Kind>,
    /// Only with this correlation id.
    correlation_id: Option<CorrelationId>,
    /// The `next` of the page before.
    #[serde(default, deserialize_with = "cursor")]
    #[param(minimum = 0)]
    before: Option<u64>,
    /// At most this many.
    #[serde(default = "default_limit::<20>")]
    #[param(default = 20, minimum = 1, maximum = 100)]
    limit: u32,
}

/// Messages that came to the caller, newest first
///
/// Marks nothing as read.
#[utoipa::path(get, path = "/messages", tag = "messages", params(MessagesQuery),
    responses((status = 200, description = "A page", body = MessagePage)))]
pub(crate) async fn messages(
    State(app): State<App>,
    Caller(caller): Caller,
    Params(query): Params<MessagesQuery>,
) -> Result<OkJson<MessagePage>, Problem> {
    check_range("query.limit", query.limit, 1..=MAX_PAGE)?;
    let query = MessageQuery {
        unread: query.unread,
        claimed_at: query.claimed.then(Timestamp::now),
        session: parse_optional_id("query.session_id", query.session_id.as_deref())?,
        from: query.from,
        kind: query.kind,
        correlation_id: query.correlation_id,
        before: query.before,
        limit: query.limit,
    };
    Ok(OkJson(app.store.messages(&caller, query).await?))
}

/// One message that the caller sent or received, with its receipts
#[utoipa::path(get, path = "/messages/{message_id}", tag = "messages",
    params(("message_id" = Uuid, Path, description = "Which message")),
    responses(
        (status = 200, description = "The message, whole", body = MessageWithReceipts),
        (status = 404, description = "No such message of the caller's"),
    ))]
pub(crate) async fn message(
    State(app): State<App>,
    Caller(caller): Caller,
    Segment(id): Segment,
) -> Result<OkJson<MessageWithReceipts>, Problem> {
    let id = parse_id("path.message_id", &id)?;
    Ok(OkJson(app.store.message(&caller, &id).await?))
}
