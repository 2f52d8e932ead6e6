//! `GET /household/events`: what happens to everybody of a household, for its person.
//!
//! The page is read from the members' own logs, each from a place of its own. Looking at them is no delivery: receipts say what
//! the agents themselves got.

use std::collections::BTreeMap;
use std::time::Duration;

use amb_core::doc::{HouseholdEntry, HouseholdEvents};
use amb_core::draft::json_len;
use amb_core::limits::{MAX_EVENTS, MAX_PAGE_BYTES};
use amb_core::{Code, OfficeError, Timestamp};
use amb_store::{AgentKey, HouseholdKey, Member};
use axum::extract::State;
use serde::Deserialize;
use tokio::time::{Instant, sleep_until, timeout_at};
use utoipa::IntoParams;

use super::events::{MAX_WAIT, subscribe};
use crate::app::App;
use crate::caller::{CallerWithKey, key_ended};
use crate::hangup::Hangup;
use crate::problem::Problem;
use crate::query::Params;
use crate::reply::Found;

/// Entries of one member in a page: who does much does not hide the others.
const EACH: usize = 50;
/// The most entries of each member that `last` asks for, and that are shown of a member who joined since the last page.
const MAX_LAST: u64 = 1_000;
const LAST_OF_NEW: u64 = 50;
/// How long changes are gathered before the logs are read again.
const GATHER: Duration = Duration::from_millis(250);
/// How often the logs are read without a hint, which may be lost.
const BEAT: Duration = Duration::from_secs(5);

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
#[utoipa::path(
    get,
    path = "/household/events",
    operation_id = "household_events",
    tag = "household",
    params(HouseholdEventsQuery),
    security(("key" = []), ("bearer" = [])),
    responses(
        (status = 200, description = "A page; empty when nothing happened in time", body = HouseholdEvents),
        (status = 403, description = "The caller is not the person of a household"),
    )
)]
pub(crate) async fn events(
    State(app): State<App>,
    CallerWithKey(caller, key): CallerWithKey,
    hangup: Hangup,
    Params(query): Params<HouseholdEventsQuery>,
) -> Result<Found<HouseholdEvents>, Problem> {
    if query.wait > MAX_WAIT {
        return Err(Problem::field("query.wait", format!("must be 0 to {MAX_WAIT}")));
    }
    if query.last > MAX_LAST {
        return Err(Problem::field("query.last", format!("must be 0 to {MAX_LAST}")));
    }
    let Some(household) = app.store.viewer(&caller).await?.household else {
        let detail = "only the household's person sees what all of it does; use that one's key";
        return Err(OfficeError::new(Code::Forbidden, detail).into());
    };
    let bad = || Problem::field("query.since", "must be the cursor of a page before");
    let mut places = match &query.since {
        Some(text) => Places::parse(text).ok_or_else(bad)?,
        None => Places::default(),
    };
    let begin = if query.since.is_some() { LAST_OF_NEW } else { query.last };
    let wait = if query.since.is_some() { query.wait } else { 0 };
    let guard = match wait {
        0 => None,
        // Before the first look, so that nothing falls between it and the waiting.
        _ => Some(subscribe(&app, &caller, key, app.store.event_head(caller.key).await?)?),
    };
    let members = app.store.members(household, Timestamp::now()).await?;
    let watching = match wait {
        0 => None,
        _ => Some(app.watchers.watch(&members).ok_or_else(too_many)?),
    };
    let deadline = Instant::now() + Duration::from_secs(wait).min(app.config.max_wait);
    loop {
        let events = look(&app, household, begin, &mut places).await?;
        let (Some(guard), Some(watching)) = (&guard, &watching) else { return Ok(places.page(events)) };
        if !events.is_empty() {
            return Ok(places.page(events));
        }
        let hint = async {
            tokio::select! {
                () = watching.watcher.woken() => sleep_until(Instant::now() + GATHER).await,
                () = sleep_until(Instant::now() + BEAT) => {}
                () = guard.subscriber.woken() => {}
            }
        };
        let again = tokio::select! {
            woken = timeout_at(deadline, hint) => woken.is_ok(),
            () = app.closing.cancelled() => false,
            () = hangup.happened() => false,
        };
        if guard.subscriber.is_evicted() {
            return Err(key_ended().into());
        }
        if !again {
            return Ok(places.page(events));
        }
    }
}

fn too_many() -> OfficeError {
    OfficeError::new(Code::TooManyRequests, "too many look at their households at once; try again later")
}

/// Reads on in the logs of the members, each for a while, until the page is full.
async fn look(
    app: &App,
    household: HouseholdKey,
    begin: u64,
    places: &mut Places,
) -> Result<Vec<HouseholdEntry>, OfficeError> {
    let mut members = app.store.members(household, Timestamp::now()).await?;
    members.sort_by_key(|member| member.key);
    places.keep(&members);
    // Before any is read: those whom a full page does not reach have their place too, and miss nothing until the next.
    for member in &members {
        if !places.of.contains_key(&member.key) {
            let place = app.store.event_head(member.key).await?.saturating_sub(begin);
            places.of.insert(member.key, place);
        }
    }
    // Where the last page was full, those behind it come first.
    let first = members.iter().position(|member| member.key > places.behind).unwrap_or(0);
    members.rotate_left(first);
    let (mut events, mut bytes) = (Vec::new(), 0);
    for member in members {
        let since = places.of.get(&member.key).copied().unwrap_or_default();
        let entries = app.store.events(member.key, since, EACH).await?;
        for entry in entries {
            bytes += json_len(&entry.event);
            if events.len() >= MAX_EVENTS || (bytes > MAX_PAGE_BYTES && !events.is_empty()) {
                places.behind = member.key;
                return Ok(events);
            }
            places.of.insert(member.key, entry.cursor.as_number().unwrap_or(since));
            events.push(HouseholdEntry { agent: member.name.clone(), event: entry.event });
        }
    }
    Ok(events)
}

/// How far each member's log was read: the cursor of a page, which means something to this office alone.
#[derive(Debug, Default, PartialEq)]
struct Places {
    /// The member at whose log the last page was full.
    behind: AgentKey,
    of: BTreeMap<AgentKey, u64>,
}

impl Places {
    fn parse(text: &str) -> Option<Self> {
        let (behind, rest) = text.split_once('.')?;
        let places = rest.split('.').filter(|place| !place.is_empty()).map(|place| {
            let (agent, number) = place.split_once('-')?;
            Some((agent.parse().ok()?, number.parse().ok()?))
        });
        Some(Self { behind: behind.parse().ok()?, of: places.collect::<Option<_>>()? })
    }

    /// Forgets who is in the household no longer.
    fn keep(&mut self, members: &[Member]) {
        self.of.retain(|agent, _| members.iter().any(|member| member.key == *agent));
    }

    fn page(&self, events: Vec<HouseholdEntry>) -> Found<HouseholdEvents> {
        let places: Vec<String> = self.of.iter().map(|(agent, number)| format!("{agent}-{number}")).collect();
        Found(HouseholdEvents { events, cursor: format!("{}.{}", self.behind, places.join(".")) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_was_given() {
        let places = Places {
            behind: "7".parse().unwrap(),
            of: [("3", 12), ("40", 0)].map(|(a, n)| (a.parse().unwrap(), n)).into(),
        };
        let text = places.page(Vec::new()).0.cursor;
        assert_eq!(text, "7.3-12.40-0");
        assert_eq!(Places::parse(&text), Some(places));
        assert_eq!(Places::parse("0."), Some(Places::default()));
        for wrong in ["", "x", "7.3", "7.3-", "7.a-1", "1-2.3-4"] {
            assert_eq!(Places::parse(wrong), None, "{wrong}");
        }
    }
}
