//! `GET /household/events`: the logs of all members of a household, for its person.
//!
//! Each member's log has its own place in the cursor. Reading here is not a delivery: receipts say what the agents
//! themselves got.

use std::time::Duration;

use amb_core::doc::{HouseholdEntry, HouseholdEvents};
use amb_core::{Code, OfficeError};
use amb_store::HouseholdCursor;
use axum::extract::State;
use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout_at};
use utoipa::IntoParams;

use super::events::{MAX_WAIT, subscribe};
use crate::app::App;
use crate::connection::Hangup;
use crate::request::{CallerWithKey, OkJson, Params, Problem, check_range, key_ended};

/// Maximum of `last`.
const MAX_LAST: u64 = 1_000;
/// Maximum entries shown of a member who joined since the last page.
const LAST_OF_NEW: u64 = 50;
/// How long hints are collected before the logs are read again.
const DEBOUNCE: Duration = Duration::from_millis(250);
/// How often the logs are read without a hint, which may be lost.
const POLL: Duration = Duration::from_secs(5);

/// From where, and how long to wait.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct HouseholdEventsQuery {
    /// The cursor of the page before. Without it the page begins `last` entries before the end of each log.
    since: Option<String>,
    /// Without `since`: how many entries of each member.
    #[serde(default)]
    #[param(default = 0, minimum = 0, maximum = 1000)]
    last: u64,
    /// How many seconds to wait where nothing has happened yet.
    #[serde(default)]
    #[param(default = 0, minimum = 0, maximum = 60)]
    wait: u64,
}

/// What happens to the members of the caller's household
///
/// For the household's person: what was sent to each member, and what else each is told. Marks nothing as delivered or read. A
/// wait ends with 401 when the caller's key does.
#[utoipa::path(get, path = "/household/events", operation_id = "household_events", tag = "household",
    params(HouseholdEventsQuery),
    responses(
        (status = 200, description = "A page; empty when nothing happened in time", body = HouseholdEvents),
        (status = 403, description = "The caller is not the person of a household"),
    ))]
pub(crate) async fn events(
    State(app): State<App>,
    CallerWithKey(caller, key): CallerWithKey,
    hangup: Hangup,
    Params(query): Params<HouseholdEventsQuery>,
) -> Result<OkJson<HouseholdEvents>, Problem> {
    check_range("query.wait", query.wait, 0..=MAX_WAIT)?;
    check_range("query.last", query.last, 0..=MAX_LAST)?;
    let Some(household) = app.store.viewer(&caller).await?.household else {
        let detail = "only the household's person sees what all of it does; use the person's key";
        return Err(OfficeError::new(Code::Forbidden, detail).into());
    };
    let bad = || Problem::field("query.since", "must be the cursor of a page before");
    let mut cursor = match &query.since {
        Some(text) => parse(text).ok_or_else(bad)?,
        None => HouseholdCursor::default(),
    };
    let last = if query.since.is_some() { LAST_OF_NEW } else { query.last };
    let wait = if query.since.is_some() { query.wait } else { 0 };
    // Before the first read, so that no entry is missed between it and the wait.
    let (guard, watching) = match wait {
        0 => (None, None),
        _ => (
            Some(subscribe(&app, &caller, key, app.store.event_head(caller.key).await?)?),
            Some(app.watchers.watch().ok_or_else(too_many)?),
        ),
    };
    let deadline = Instant::now() + Duration::from_secs(wait).min(app.config.max_wait);
    loop {
        let found = app.store.household_events(household, cursor, last).await?;
        cursor = found.cursor;
        let (Some(guard), Some(watching)) = (&guard, &watching) else { return Ok(page(found.events, &cursor)) };
        if !found.events.is_empty() {
            return Ok(page(found.events, &cursor));
        }
        watching.watcher.set_members(found.members);
        let hint = async {
            tokio::select! {
                () = watching.watcher.notified() => sleep(DEBOUNCE).await,
                () = sleep(POLL) => {}
                () = guard.subscriber.notified() => {}
            }
        };
        let again = tokio::select! {
            hinted = timeout_at(deadline, hint) => hinted.is_ok(),
            () = app.closing.cancelled() => false,
            () = hangup.happened() => false,
        };
        if guard.subscriber.is_evicted() {
            return Err(key_ended().into());
        }
        if !again {
            return Ok(page(Vec::new(), &cursor));
        }
    }
}

fn too_many() -> OfficeError {
    OfficeError::new(Code::TooManyRequests, "too many look at their households at once; try again later")
}

/// Parses a cursor: the key of the member that was read last, then each member's key and the number of its last entry.
fn parse(text: &str) -> Option<HouseholdCursor> {
    let (behind, rest) = text.split_once('.')?;
    let places = rest.split('.').filter(|place| !place.is_empty()).map(|place| {
        let (agent, number) = place.split_once('-')?;
        Some((agent.parse().ok()?, number.parse().ok()?))
    });
    Some(HouseholdCursor { behind: behind.parse().ok()?, of: places.collect::<Option<_>>()? })
}

fn page(events: Vec<HouseholdEntry>, cursor: &HouseholdCursor) -> OkJson<HouseholdEvents> {
    let places: Vec<String> = cursor.of.iter().map(|(agent, number)| format!("{agent}-{number}")).collect();
    OkJson(HouseholdEvents { events, cursor: format!("{}.{}", cursor.behind, places.join(".")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_the_round_trip() {
        let cursor = HouseholdCursor {
            behind: "7".parse().unwrap(),
            of: [("3", 12), ("40", 0)].map(|(a, n)| (a.parse().unwrap(), n)).into(),
        };
        let text = page(Vec::new(), &cursor).0.cursor;
        assert_eq!(text, "7.3-12.40-0");
        assert_eq!(parse(&text), Some(cursor));
        assert_eq!(parse("0."), Some(HouseholdCursor::default()));
        for wrong in ["", "x", "7.3", "7.3-", "7.a-1", "1-2.3-4"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
