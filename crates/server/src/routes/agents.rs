//! `GET /agents` and `GET /agents/{name}`: the directory.

use amb_core::doc::{AgentEntry, Agents};
use amb_core::{AgentName, Timestamp};
use amb_store::AgentsPage;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;
use crate::request::{Caller, OkJson, Params, Problem, Segment, check_range, default_limit, fit_page, path_name};

/// Maximum number of agents in one page.
const MAX_AGENTS: u32 = 1_000;

/// Which page.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AgentsQuery {
    /// Only names after this one: the `next` of the page before.
    #[serde(default, deserialize_with = "amb_core::doc::PlainName::plain")]
    after: Option<AgentName>,
    /// At most this many.
    #[serde(default = "default_limit::<500>")]
    #[param(default = 500, minimum = 1, maximum = 1000)]
    limit: u32,
}

/// Everybody the caller may know of
///
/// That is itself, those it is connected with, and those that are discoverable, unless they blocked it.
#[utoipa::path(get, path = "/agents", tag = "agents", params(AgentsQuery),
    responses((status = 200, description = "A page of the directory", body = Agents)))]
pub(crate) async fn agents(
    State(app): State<App>,
    Caller(caller): Caller,
    Params(query): Params<AgentsQuery>,
) -> Result<OkJson<Agents>, Problem> {
    check_range("query.limit", query.limit, 1..=MAX_AGENTS)?;
    let page = AgentsPage { after: query.after, limit: query.limit };
    let agents = app.store.agents(&caller, page, Timestamp::now()).await?;
    let full = agents.len() >= query.limit as usize;
    let (agents, truncated) = fit_page(agents);
    let next = agents.last().filter(|_| full || truncated).map(|last| last.name.clone());
    Ok(OkJson(Agents { agents, next }))
}

/// One agent that the caller may know of
#[utoipa::path(get, path = "/agents/{name}", tag = "agents",
    params(("name" = AgentName, Path, description = "Whose card")),
    responses(
        (status = 200, description = "Its card and presence", body = AgentEntry),
        (status = 404, description = "No such agent, or none that the caller may see"),
    ))]
pub(crate) async fn agent(
    State(app): State<App>,
    Caller(caller): Caller,
    Segment(name): Segment,
) -> Result<OkJson<AgentEntry>, Problem> {
    let name = path_name(&name)?;
    Ok(OkJson(app.store.agent(&caller, &name, Timestamp::now()).await?))
}
