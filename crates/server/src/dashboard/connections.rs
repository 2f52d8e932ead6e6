//! `GET /dashboard/connections`: with whom the agents of the household may talk; and what the person decides about it.

use std::sync::Arc;

use amb_core::doc::{ConnectionChange, ConnectionStatus};
use amb_core::stepping_in::ConnectionAct;
use amb_core::{AgentName, Code, OfficeError, Timestamp};
use amb_store::{Agent, Ask, ConnectionDecision, HouseholdConnection, WaitingRequest, random_code};
use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use serde::Deserialize;

use super::frame::{PageError, PageFrame, onward, page};
use super::session::{Posted, Visitor};
use super::write::name;
use crate::app::App;
use crate::caller::ClientAddress;

/// Connections on the page: those that changed last.
const SHOWN: u32 = 200;
/// Longest greeting with a request.
const MAX_INTRO: usize = 500;
/// Longer texts are no code.
const MAX_CODE: usize = 64;

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
    /// What can be done with them, and what that is called.
    decide: Option<(&'static str, &'static str)>,
}

pub(super) async fn connections(State(app): State<App>, visitor: Visitor) -> Result<Response, PageError> {
    let (household, now) = (visitor.household()?, Timestamp::now());
    let (needs, links, members) = tokio::try_join!(
        app.store.needs(household, now),
        app.store.links(household, SHOWN),
        app.store.members(household, now)
    )?;
    let with = |status: ConnectionStatus| links.iter().filter(move |link| link.connection.status == status).cloned();
    page(&ConnectionsPage {
        requests: needs.requests,
        parts: vec![
            ConnectionList {
                title: "Connected",
                links: with(ConnectionStatus::Active).collect(),
                decide: Some(("revoke", "End")),
            },
            ConnectionList {
                title: "Asked, not answered yet",
                links: with(ConnectionStatus::Pending).filter(|link| link.connection.outgoing).collect(),
                decide: None,
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

/// What a form of this page says.
#[derive(Deserialize)]
pub(super) struct ConnectionForm {
    /// The agent of the household in whose name this is.
    #[serde(default)]
    agent: String,
    /// The other one.
    #[serde(default)]
    peer: String,
    #[serde(default)]
    code: String,
    #[serde(default)]
    intro: String,
}

/// `POST /dashboard/connections/{what}`: decides in the name of an agent of the household.
pub(super) async fn decide(
    State(app): State<App>,
    Path(what): Path<String>,
    ClientAddress(address): ClientAddress,
    Posted(visitor, form): Posted<ConnectionForm>,
) -> Result<Response, PageError> {
    let now = Timestamp::now();
    let (agent, _) = app.store.member(visitor.household()?, &name(&form.agent)?, now).await?;
    let change = |change: ConnectionChange| {
        let decision = ConnectionDecision::Change { peer: other(&agent, &form.peer)?, change };
        Ok::<_, PageError>(decision)
    };
    let (did, decision) = match what.as_str() {
        "approve" => {
            app.limits.code(&*app.store, agent.key, address).await?;
            let code = form.code.trim().to_ascii_uppercase();
            if code.is_empty() || code.chars().count() > MAX_CODE || code.contains('\0') {
                return Err(PageError::not_found("no request with this code waits; a code looks like XC-992"));
            }
            (ConnectionAct::Approved, ConnectionDecision::Approve { code })
        }
        "ask" => (ConnectionAct::Asked, ask(&app, &agent, &form, now).await?),
        "reject" => (ConnectionAct::Rejected, change(ConnectionChange::Reject)?),
        "revoke" => (ConnectionAct::Revoked, change(ConnectionChange::Revoke)?),
        "block" => (ConnectionAct::Blocked, change(ConnectionChange::Block)?),
        "unblock" => (ConnectionAct::Unblocked, change(ConnectionChange::Unblock)?),
        _ => return Err(PageError::not_found("there is no such decision")),
    };
    let person = &visitor.viewer.agent;
    app.publish(app.store.decide_connection(person, &agent.name, decision, now).await?);
    if did == ConnectionAct::Approved {
        app.limits.right_code(&*app.store, agent.key, address).await;
    }
    tracing::info!(person = %person.name, agent = %agent.name, what, "decided about a connection");
    Ok(onward(&format!("/dashboard/connections?done={}", did.as_str())))
}

/// The other side of a connection.
fn other(agent: &Agent, peer: &str) -> Result<AgentName, PageError> {
    match name(peer)? {
        peer if peer == agent.name => Err(OfficeError::new(Code::Invalid, "name another agent").into()),
        peer => Ok(peer),
    }
}

async fn ask(app: &App, agent: &Agent, form: &ConnectionForm, now: Timestamp) -> Result<ConnectionDecision, PageError> {
    let target = other(agent, &form.peer)?;
    crate::text::check("The greeting", &form.intro, MAX_INTRO)?;
    app.limits.connect(&*app.store, agent.key).await?;
    Ok(ConnectionDecision::Ask(Ask {
        codes: Arc::new(random_code),
        private_code: app.config.private_codes,
        expires_at: Some(now.checked_add(app.config.code_ttl).map_err(OfficeError::internal)?),
        max_pending: Some(app.config.max_pending),
        ..Ask::new(target, Some(form.intro.trim().to_owned()).filter(|intro| !intro.is_empty()))
    }))
}
