//! `GET /dashboard/agents`: all agents of the household. `GET /dashboard/agents/{name}`: the details of one.

use amb_core::{AgentName, Quotas, Timestamp};
use amb_store::{ConversationLine, ConversationQuery, HouseholdConnection, Member, MemberDetails};
use askama::Template;
use axum::extract::State;
use axum::response::Response;

use super::frame::{Flash, PageError, PageFrame, page};
use super::overview::by_activity;
use super::session::{Posted, Visitor};
use super::write::parse_name;
use crate::app::App;
use crate::request::{ApiKey, Params, Segment};

/// Agents on a page.
const PAGE: usize = 100;
/// Conversations shown with an agent.
const TALKS: u32 = 8;

#[derive(serde::Deserialize)]
pub(super) struct MembersQuery {
    #[serde(default)]
    page: usize,
}

#[derive(Template)]
#[template(path = "agents.html")]
struct MembersPage {
    frame: PageFrame,
    members: Vec<Member>,
    total: usize,
    next: Option<usize>,
    previous: Option<usize>,
}

pub(super) async fn agents(
    State(app): State<App>,
    visitor: Visitor,
    Params(query): Params<MembersQuery>,
) -> Result<Response, PageError> {
    let members = by_activity(app.store.members(visitor.household()?, Timestamp::now()).await?);
    let total = members.len();
    let from = query.page.saturating_mul(PAGE).min(total);
    page(&MembersPage {
        frame: PageFrame::new(&visitor, "Agents", "Agents"),
        members: members.into_iter().skip(from).take(PAGE).collect(),
        total,
        next: (from + PAGE < total).then(|| query.page + 1),
        previous: query.page.checked_sub(1),
    })
}

#[derive(Template)]
#[template(path = "agent.html")]
struct AgentPage {
    frame: PageFrame,
    details: MemberDetails,
    talks: Vec<ConversationLine>,
    links: Vec<HouseholdConnection>,
    quotas: Quotas,
    allow_from: String,
    /// A new key, shown once.
    new_key: Option<String>,
}

pub(super) async fn agent(
    State(app): State<App>,
    visitor: Visitor,
    Segment(name): Segment,
) -> Result<Response, PageError> {
    let name = parse_name("The name", &name)?;
    render(&app, &visitor, frame(&visitor, &name), &name, None).await
}

fn frame(visitor: &Visitor, name: &AgentName) -> PageFrame {
    PageFrame::new(visitor, "Agents", name.to_string())
}

async fn render(
    app: &App,
    visitor: &Visitor,
    frame: PageFrame,
    name: &AgentName,
    new_key: Option<String>,
) -> Result<Response, PageError> {
    let (household, now) = (visitor.household()?, Timestamp::now());
    let (_, details) = app.store.member(household, name, now).await?;
    let talks = ConversationQuery { agent: Some(name.clone()), limit: TALKS, ..ConversationQuery::default() };
    let (talks, mut links) =
        tokio::try_join!(app.store.conversations(household, talks), app.store.links(household, now, 500))?;
    links.retain(|link| link.agent == *name);
    let allow_from = match details.member.card.allow_from.0.as_slice() {
        [] => "nobody".to_owned(),
        names if names.iter().any(|name| name == "*") => "everybody who may write to it".to_owned(),
        names => names.join(", "),
    };
    page(&AgentPage { frame, details, talks, links, quotas: app.config.quotas, allow_from, new_key })
}

#[derive(serde::Deserialize)]
pub(super) struct KeyForm {
    /// The beginning of the key to replace, so that a repeated form does not end the key that it gave.
    #[serde(default)]
    key: String,
}

/// `POST /dashboard/agents/{name}/key`: a new key, shown once. All earlier keys of the agent end at once.
pub(super) async fn new_key(
    State(app): State<App>,
    Segment(name): Segment,
    Posted(visitor, form): Posted<KeyForm>,
) -> Result<Response, PageError> {
    let name = parse_name("The name", &name)?;
    let at = format!("/dashboard/agents/{name}");
    let (_, details) = app.store.member(visitor.household()?, &name, Timestamp::now()).await?;
    if form.key != details.key_prefix {
        let text = format!(
            "{name} has another key since this form was opened, so nothing has changed. If that key is lost, make a new one."
        );
        let frame = frame(&visitor, &name).answering(at, Some(Flash { bad: true, text }));
        return render(&app, &visitor, frame, &name, None).await;
    }
    let key = ApiKey::fresh()?;
    let renewed = app.store.renew_key(&visitor.viewer.agent, &name, key.to_keep(), Timestamp::now()).await?;
    let agent = app.publish(renewed);
    app.hub.evict(agent.key);
    tracing::info!(person = %visitor.viewer.agent.name, agent = %agent.name, "gave an agent a new key");
    let frame = frame(&visitor, &name).answering(at, None);
    render(&app, &visitor, frame, &name, Some(key.reveal().to_owned())).await
}
