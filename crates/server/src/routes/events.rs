//! `GET /events`: the log of a mailbox by long poll, for clients without a socket.

use std::time::Duration;

use amb_core::event::EventPage;
use amb_core::limits::MAX_EVENTS;
use amb_core::{Code, Cursor, OfficeError};
use axum::extract::State;
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};
use utoipa::IntoParams;

use crate::app::App;
use crate::caller::{CallerWithKey, key_ended};
use crate::hangup::Hangup;
use crate::problem::Problem;
use crate::query::{Params, place};
use crate::reply::Found;

/// Entries in a page unless told otherwise.
const DEFAULT_LIMIT: usize = 100;

/// Longest wait that can be asked for, in seconds.
const MAX_WAIT: u64 = 60;

/// From where, and how long to wait.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventsQuery {
    /// The cursor of the last entry seen; 0 is the beginning. Without it the answer is empty and has the end's cursor. One
    /// beyond the end is of a database that was restored since: what may not have been seen is then sent again.
    #[serde(default, deserialize_with = "place")]
    #[param(minimum = 0)]
    since: Option<u64>,
    /// How many seconds to wait where nothing has happened yet.
    #[serde(default)]
    #[param(default = 0, minimum = 0, maximum = 60)]
    wait: u64,
    /// At most this many entries.
    #[serde(default = "default_limit")]
    #[param(default = 100, minimum = 1, maximum = 500)]
    limit: usize,
}

fn default_limit() -> usize {
    DEFAULT_LIMIT
}

/// What happened to the caller after a cursor
///
/// A wait ends with 401 when the caller's key does.
#[utoipa::path(
    get,
    path = "/events",
    tag = "events",
    params(EventsQuery),
    security(("key" = []), ("bearer" = [])),
    responses((status = 200, description = "A page of the log; empty when nothing happened in time", body = EventPage))
)]
pub(crate) async fn events(
    State(app): State<App>,
    CallerWithKey(caller, key): CallerWithKey,
    hangup: Hangup,
    Params(query): Params<EventsQuery>,
) -> Result<Found<EventPage>, Problem> {
    if query.wait > MAX_WAIT {
        return Err(Problem::field("query.wait", format!("must be 0 to {MAX_WAIT}")));
    }
    if !(1..=MAX_EVENTS).contains(&query.limit) {
        return Err(Problem::field("query.limit", format!("must be 1 to {MAX_EVENTS}")));
    }
    // Before the first look, so that nothing falls between it and the waiting.
    let Some(ticket) = app.hub.sit(caller.key, Some(key), app.config.ws_per_agent) else {
        return Err(OfficeError::new(Code::TooManyRequests, "too many listeners of this agent").into());
    };
    let empty = |cursor: u64| {
        app.deliveries.offer(caller.key, cursor, cursor);
        Ok(Found(EventPage { events: Vec::new(), cursor: Cursor::from(cursor) }))
    };
    let Some(named) = query.since else { return empty(app.store.event_head(caller.key).await?) };
    app.deliveries.came_back(&caller, named);
    let since = app.resume(&caller, named).await?;
    ticket.seat.is_at(since);
    let deadline = Instant::now() + Duration::from_secs(query.wait).min(app.config.max_wait);
    loop {
        let events = app.store.events(caller.key, since, query.limit).await?;
        if let Some(last) = events.last() {
            let cursor = last.cursor.clone();
            app.deliveries.offer(caller.key, since, cursor.as_number().unwrap_or(since));
            return Ok(Found(EventPage { events, cursor }));
        }
        let woken = tokio::select! {
            woken = timeout_at(deadline, ticket.seat.woken()) => woken.is_ok(),
            () = app.closing.cancelled() => false,
            () = hangup.happened() => false,
        };
        if ticket.seat.is_evicted() {
            return Err(key_ended().into());
        }
        if !woken {
            return empty(since);
        }
    }
}
