//! `GET /dashboard`: the agents, what needs a person, and the last messages.

use amb_core::{Status, Timestamp};
use amb_store::{Member, Needs, SaidLine};
use askama::Template;
use axum::extract::State;
use axum::response::Response;

use super::frame::{PageError, PageFrame, page, redirect};
use super::html::several;
use super::session::Visitor;
use crate::app::App;

/// Agents shown; all are at `/dashboard/agents`.
const SHOWN: usize = 24;
/// Messages shown.
const SAID: u32 = 30;

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: PageFrame,
    counts: String,
    members: Vec<Member>,
    /// Members that are not the person.
    agent_count: usize,
    shown: usize,
    needs: Needs,
    need_count: usize,
    said: Vec<SaidLine>,
}

pub(super) async fn overview(State(app): State<App>, visitor: Visitor) -> Result<Response, PageError> {
    if visitor.viewer.household.is_none() {
        return Ok(redirect("/dashboard/health"));
    }
    let (household, now) = (visitor.household()?, Timestamp::now());
    let (members, mut needs, said) = tokio::try_join!(
        app.store.members(household, now),
        app.store.needs(household, now),
        app.store.said(household, SAID)
    )?;
    // Unread mail of a paused agent is intended.
    needs.unread.retain(|(agent, _)| !members.iter().any(|member| member.name == *agent && member.paused_by.is_some()));
    let agent_count = members.iter().filter(|member| !member.person).count();
    let here = members.iter().filter(|member| !member.person && member.presence.status != Status::Offline);
    let unread: u64 = members.iter().filter(|member| !member.person).map(|member| member.unread).sum();
    let counts = format!("{}, {} here, {unread} unread", several(agent_count, "agent"), here.count());
    let need_count = needs.requests.len() + needs.tasks.len() + needs.unwoken.len() + needs.unread.len();
    let members = by_activity(members);
    let frame = PageFrame::new(&visitor, "Overview", "Overview");
    page(&OverviewPage { frame, counts, members, agent_count, shown: SHOWN, needs, need_count, said })
}

/// Sorts members: busy, then idle, then offline ones by when they were last seen.
pub(super) fn by_activity(mut members: Vec<Member>) -> Vec<Member> {
    members.sort_by_key(|member| {
        let rank = match member.presence.status {
            Status::Busy => 0,
            Status::Idle => 1,
            _ => 2,
        };
        (member.person, rank, std::cmp::Reverse(member.unread), std::cmp::Reverse(member.presence.last_seen))
    });
    members
}
