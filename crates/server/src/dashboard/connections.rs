//! `GET /dashboard/connections`: the connections of the household's agents, and the forms to change them.

use std::net::IpAddr;

use amb_core::doc::{ConnectionChange, ConnectionStatus, check_text};
use amb_core::limits::MAX_INTRO_CHARS;
use amb_core::stepping_in::ConnectionAct;
use amb_core::{AgentName, Code, OfficeError, Timestamp};
use amb_store::{Agent, ConnectionDecision, HouseholdConnection, WaitingRequest};
use askama::Template;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
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
    /// The form that asks for a connection, filled in as it was refused.
    form: ConnectionForm,
}

/// Connections in one state.
struct ConnectionList {
    id: &'static str,
    title: &'static str,
    links: Vec<HouseholdConnection>,
    /// The last path segment and the label of the form to change them.
    decide: Option<(&'static str, &'static str)>,
}

pub(super) async fn connections(State(app): State<App>, visitor: Visitor) -> Result<Response, PageError> {
    let frame = PageFrame::new(&visitor, "Connections", "Connections");
    render(&app, &visitor, frame, ConnectionForm::default()).await
}

async fn render(app: &App, visitor: &Visitor, frame: PageFrame, form: ConnectionForm) -> Result<Response, PageError> {
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
            // First, so that the code of a new request is below the form.
            ConnectionList {
                id: "asked",
                title: "Asked, not answered yet",
                links: with(ConnectionStatus::Pending).filter(|link| link.connection.outgoing).collect(),
                decide: None,
            },
            ConnectionList {
                id: "connected",
                title: "Connected",
                links: with(ConnectionStatus::Active).collect(),
                decide: Some(("revoke", "End")),
            },
            ConnectionList {
                id: "blocked",
                title: "Blocked",
                links: with(ConnectionStatus::Blocked).collect(),
                decide: Some(("unblock", "Unblock")),
            },
        ],
        names: members.into_iter().take(300).map(|member| member.name).collect(),
        frame,
        form,
    })
}

/// The fields of all forms of this page.
#[derive(Default, Deserialize)]
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

/// `POST /dashboard/connections/{what}`: decides on behalf of an agent of the household. A decision that is refused
/// shows the page again with the error.
pub(super) async fn decide(
    State(app): State<App>,
    Path(what): Path<String>,
    ClientAddress(address): ClientAddress,
    Posted(visitor, form): Posted<ConnectionForm>,
) -> Result<Response, PageError> {
    match act(&app, &visitor, &what, &form, address).await {
        Ok(did) => Ok(redirect(&format!("/dashboard/connections?done={}", did.as_str()))),
        Err(error) => {
            let (status, flash) = error.correctable()?;
            let frame = PageFrame::new(&visitor, "Connections", "Connections");
            let frame = frame.answering("/dashboard/connections", Some(flash));
            // The other forms of the page have an agent and a peer, too.
            let form = if what == "ask" { form } else { ConnectionForm::default() };
            Ok((status, render(&app, &visitor, frame, form).await?).into_response())
        }
    }
}

async fn act(
    app: &App,
    visitor: &Visitor,
    what: &str,
    form: &ConnectionForm,
    address: IpAddr,
) -> Result<ConnectionAct, PageError> {
    let now = Timestamp::now();
    let (agent, _) = app.store.member(visitor.household()?, &parse_name("For", &form.agent)?, now).await?;
    let change = |change: ConnectionChange| {
        let decision = ConnectionDecision::Change { peer: other(&agent, &form.peer)?, change };
        Ok::<_, PageError>(decision)
    };
    let (did, decision) = match what {
        "approve" => {
            app.limits.code(agent.key, address).await?;
            (ConnectionAct::Approved, ConnectionDecision::Approve { code: parse_code(&form.code)? })
        }
        "ask" => {
            let target = other(&agent, &form.peer)?;
            check_text("The greeting", &form.intro, MAX_INTRO_CHARS)?;
            app.limits.connect(agent.key).await?;
            let intro = Some(form.intro.trim().to_owned()).filter(|intro| !intro.is_empty());
            (ConnectionAct::Asked, ConnectionDecision::Ask(ask(app, target, intro, now)?))
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
    Ok(did)
}

/// Parses the name of the other side of a connection.
fn other(agent: &Agent, peer: &str) -> Result<AgentName, PageError> {
    match parse_name("With", peer)? {
        peer if peer == agent.name => Err(OfficeError::new(Code::Invalid, "name another agent").into()),
        peer => Ok(peer),
    }
}
