//! `GET /events`: the log of a mailbox by long poll, for clients without a WebSocket.

use std::time::Duration;

use amb_core::event::EventPage;
use amb_core::limits::MAX_EVENTS;
use amb_core::{Code, Cursor, Entry, OfficeError};
use amb_store::{Agent, KeyHash};
use axum::extract::State;
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};
use utoipa::IntoParams;

use crate::app::App;
use crate::connection::Hangup;
use crate::hub::SubscriberGuard;
use crate::request::{CallerWithKey, OkJson, Params, Problem, check_range, cursor, key_ended};

/// Maximum of `wait`, in seconds.
pub(super) const MAX_WAIT: u64 = 60;

/// From where, and how long to wait.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventsQuery {
    /// The cursor of the last entry seen; 0 is the beginning. Without it the answer is empty and has the end's cursor. One
    /// beyond the end is of a database that was restored since: what may not have been seen is then sent again.
    #[serde(default, deserialize_with = "cursor")]
    #[param(minimum = 0)]
    since: Option<u64>,
    /// The `since` of the poll whose answer ended with this one's `since`. Says that this answer arrived, so that its mail is
    /// `delivered`. Without it only the process that gave the answer knows, which behind a proxy may be another one.
    #[serde(default, deserialize_with = "cursor")]
    #[param(minimum = 0)]
    previous: Option<u64>,
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
    100
}

/// What happened to the caller after a cursor
///
/// A wait ends with 401 when the caller's key does.
#[utoipa::path(get, path = "/events", tag = "events", params(EventsQuery),
    responses((status = 200, description = "A page of the log; empty when nothing happened in time", body = EventPage)))]
pub(crate) async fn events(
    State(app): State<App>,
    CallerWithKey(caller, key): CallerWithKey,
    hangup: Hangup,
    Params(query): Params<EventsQuery>,
) -> Result<OkJson<EventPage>, Problem> {
    check_range("query.wait", query.wait, 0..=MAX_WAIT)?;
    check_range("query.limit", query.limit, 1..=MAX_EVENTS)?;
    let respond = |events: Vec<Entry>, after: u64, cursor: u64| {
        // The response to a client that has disconnected is not delivered, so it is not remembered.
        if !hangup.has_happened() {
            app.deliveries.poll_answered(caller.key, after, cursor);
        }
        Ok(OkJson(EventPage { events, cursor: Cursor::from(cursor) }))
    };
    let Some(requested) = query.since else {
        let head = app.store.event_head(caller.key).await?;
        return respond(Vec::new(), head, head);
    };
    let since = app.resume(&caller, requested).await?;
    // A cursor beyond the end is from before a restore: this log has no entries up to it.
    let previous = query.previous.filter(|_| since == requested);
    app.deliveries.poll_continued(&caller, previous, requested);
    let guard = match query.wait {
        0 => None,
        // Before the first read, so that no entry is missed between it and the wait.
        _ => Some(subscribe(&app, &caller, key, since)?),
    };
    let deadline = Instant::now() + Duration::from_secs(query.wait).min(app.config.max_wait);
    loop {
        let events = app.store.events(caller.key, since, query.limit).await?;
        if let Some(last) = events.last() {
            let cursor = last.cursor.as_number().unwrap_or(since);
            return respond(events, since, cursor);
        }
        let Some(SubscriberGuard { subscriber, .. }) = &guard else { return respond(events, since, since) };
        let notified = tokio::select! {
            notified = timeout_at(deadline, subscriber.notified()) => notified.is_ok(),
            () = app.closing.cancelled() => false,
            () = hangup.happened() => false,
        };
        if subscriber.is_evicted() {
            return Err(key_ended().into());
        }
        if !notified {
            return respond(events, since, since);
        }
    }
}

/// Subscribes to the agent's log. All subscribers of an agent count against one limit.
pub(super) fn subscribe<'a>(
    app: &'a App,
    caller: &Agent,
    key: KeyHash,
    cursor: u64,
) -> Result<SubscriberGuard<'a>, OfficeError> {
    let Some(guard) = app.hub.subscribe(caller.key, key, app.config.ws_per_agent) else {
        return Err(OfficeError::new(Code::TooManyRequests, "too many listeners of this agent"));
    };
    guard.subscriber.set_cursor(cursor);
    Ok(guard)
}
