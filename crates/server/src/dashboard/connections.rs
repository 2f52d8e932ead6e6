//! `GET /dashboard/connections`: the connections of the household's agents, and the forms to change them.

use amb_core::doc::{ConnectionChange, ConnectionStatus, check_text};
use amb_core::limits::MAX_INTRO_CHARS;
use amb_core::stepping_in::ConnectionAct;
use amb_core::{AgentName, Code, OfficeError, Timestamp};
use amb_store::{Agent, ConnectionDecision, HouseholdConnection, WaitingRequest};
use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use serde::Deserialize;

use super::frame::{PageError, PageFrame, page, redirect};
use super::session::{Posted, Visitor};
use super::write::parse_name;
use crate::app::App;
use crate::request::ClientAddress;
use crate::routes::approve::parse_code;
use crate::routes::connect::ask;

/// Connections on the page: those that changed last.
const SHOWN: u32 = 200;

#[derive(Template)]
#[template(path = "connections.html")]
struct ConnectionsPage {
    frame: PageFrame,
    requests: Vec<WaitingRequest>,
    parts: Vec<ConnectionList>,
    names: Vec<AgentName>,
}

/// Connections in one state.
struct ConnectionList {
    title: &'static str,
    links: Vec<HouseholdConnection>,
    /// The last path segment and the label of the form to change them.
    decide: Option<(&'static str, &'static str)>,
    id: &'static str,
}

pub(super) async fn connections(State(app): State<App>, visitor: Visitor) -> Result<Response, PageError> {
    let (household, now) = (visitor.household()?, Timestamp::now());
    let (needs, links, members) = tokio::try_join!(
        app.store.needs(household, now),
        app.store.links(household, now, SHOWN),
        app.store.members(household, now)
    )?;
    let with = |status: ConnectionStatus| links.iter().filter(move |link| link.connection.status == status).cloned();
    page(&ConnectionsPage {
        requests: needs.requests,
        parts: vec![
            ConnectionList {
                id: "asked",
                title: "Asked, not answered yet",
                links: with(ConnectionStatus::Pending).filter(|link| link.connection.outgoing).collect(),
                decide: None,
            // First, so that the code of a new request is below the form.
            },
            ConnectionList {
                title: "Blocked",
                links: with(ConnectionStatus::Blocked).collect(),
                decide: Some(("unblock", "Unblock")),
            },
        ],
        names: members.into_iter().take(300).map(|member| member.name).collect(),
        frame: PageFrame::new(&visitor, "Connections", "Connections"),
    })
}
                id: "connected",
                title: "Connected",
                links: with(ConnectionStatus::Active).collect(),
                decide: Some(("revoke", "End")),
            },
            ConnectionList {
                id: "blocked",

/// The fields of all forms of this page.
#[derive(Deserialize)]
pub(super) struct ConnectionForm {
    /// The agent of the household that the person acts for.
    #[serde(default)]
    agent: String,
    /// The other agent.
    #[serde(default)]
    peer: String,
    #[serde(default)]
    code: String,
    #[serde(default)]
    intro: String,
}

/// `POST /dashboard/connections/{what}`: decides on behalf of an agent of the household.
pub(super) async fn decide(
    State(app): State<App>,
    Path(what): Path<String>,
    ClientAddress(address): ClientAddress,
    Posted(visitor, form): Posted<ConnectionForm>,
) -> Result<Response, PageError> {
    let now = Timestamp::now();
    let (agent, _) = app.store.member(visitor.household()?, &parse_name(&form.agent)?, now).await?;
    let change = |change: ConnectionChange| {
        let decision = ConnectionDecision::Change { peer: other(&agent, &form.peer)?, change };
        Ok::<_, PageError>(decision)
    };
    let (did, decision) = match what.as_str() {
        "approve" => {
            app.limits.code(agent.key, address).await?;
            (ConnectionAct::Approved, ConnectionDecision::Approve { code: parse_code(&form.code)? })
        }
        "ask" => {
            let target = other(&agent, &form.peer)?;
            check_text("The greeting", &form.intro, MAX_INTRO_CHARS)?;
            app.limits.connect(agent.key).await?;
            let intro = Some(form.intro.trim().to_owned()).filter(|intro| !intro.is_empty());
            (ConnectionAct::Asked, ConnectionDecision::Ask(ask(&app, target, intro, now)?))
        }
        "reject" => (ConnectionAct::Rejected, change(ConnectionChange::Reject)?),
        "revoke" => (ConnectionAct::Revoked, change(ConnectionChange::Revoke)?),
        "block" => (ConnectionAct::Blocked, change(ConnectionChange::Block)?),
        "unblock" => (ConnectionAct::Unblocked, change(ConnectionChange::Unblock)?),
        _ => return Err(PageError::not_found("there is no such decision")),
    };
    let person = &visitor.viewer.agent;
    app.publish(app.store.decide_connection(person, &agent.name, decision, now).await?);
    if did == ConnectionAct::Approved {
        app.limits.refund_code(agent.key, address).await;
    }
    tracing::info!(person = %person.name, agent = %agent.name, what, "decided about a connection");
    Ok(redirect(&format!("/dashboard/connections?done={}", did.as_str())))
}

/// Parses the name of the other side of a connection.
fn other(agent: &Agent, peer: &str) -> Result<AgentName, PageError> {
    match parse_name(peer)? {
        peer if peer == agent.name => Err(OfficeError::new(Code::Invalid, "name another agent").into()),
        peer => Ok(peer),
    }
}
