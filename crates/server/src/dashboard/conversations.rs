//! `GET /dashboard/conversations`: the list, with search and filters.

use amb_core::{AgentName, MessageId, Timestamp};
use amb_store::{ConversationLine, ConversationQuery, MAX_COUNTED, SaidLine};
use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;

use super::frame::{PageError, PageFrame, page};
use super::html::segment;
use super::session::Visitor;
use crate::app::App;
use crate::request::Params;

/// Conversations on a page.
const PAGE: u32 = 40;
/// Messages shown of a search.
const HITS: u32 = 20;
/// Maximum length of a search, in characters.
const MAX_QUERY: usize = 200;

#[derive(Deserialize)]
pub(super) struct ListQuery {
    #[serde(default)]
    q: String,
    #[serde(default)]
    agent: String,
    #[serde(default)]
    with: String,
    #[serde(default)]
    unread: String,
    before: Option<MessageId>,
}

#[derive(Template)]
#[template(path = "conversations.html")]
struct ConversationsPage {
    frame: PageFrame,
    q: String,
    agent: String,
    unread: bool,
    names: Vec<AgentName>,
    hits: Option<Vec<SaidLine>>,
    list_title: String,
    lines: Vec<ConversationLine>,
    filtered: bool,
    next: Option<String>,
}

impl ConversationsPage {
    fn count(&self, messages: &u64) -> String {
        match *messages {
            1 => "1 message".to_owned(),
            many if many >= u64::from(MAX_COUNTED) => format!("{MAX_COUNTED}+ messages"),
            many => format!("{many} messages"),
        }
    }
}

pub(super) async fn conversations(
    State(app): State<App>,
    visitor: Visitor,
    Params(asked): Params<ListQuery>,
) -> Result<Response, PageError> {
    let household = visitor.household()?;
    let text: String = asked.q.trim().chars().filter(|c| *c != '\0').take(MAX_QUERY).collect();
    let name = |text: &str| AgentName::parse_plain(text.trim()).ok();
    let query = ConversationQuery {
        agent: name(&asked.agent),
        with: name(&asked.with),
        unread: asked.unread == "1",
        subject: (!text.is_empty()).then(|| text.clone()),
        before: asked.before.clone(),
        limit: PAGE + 1,
    };
    let filtered = query.agent.is_some() || query.unread || query.subject.is_some();
    let list_title = match (&query.agent, &query.with) {
        (Some(agent), Some(with)) => format!("{agent} with {with}"),
        (Some(agent), None) => format!("With {agent}"),
        _ if query.subject.is_some() => "Subjects with these words".to_owned(),
        _ => "All conversations".to_owned(),
    };
    let hits = async {
        match text.is_empty() || asked.before.is_some() {
            true => Ok(None),
            false => app.store.find_said(household, &text, HITS).await.map(Some),
        }
    };
    let (mut lines, hits, members) = tokio::try_join!(
        app.store.conversations(household, query),
        hits,
        app.store.members(household, Timestamp::now())
    )?;
    let more = lines.len() > PAGE as usize;
    lines.truncate(PAGE as usize);
    let next = lines.last().filter(|_| more).map(|last| {
        let (q, agent, with) = (segment(&text), segment(&asked.agent), segment(&asked.with));
        let unread = if asked.unread == "1" { "1" } else { "" };
        format!("/dashboard/conversations?q={q}&agent={agent}&with={with}&unread={unread}&before={}", last.last.id)
    });
    page(&ConversationsPage {
        frame: PageFrame::new(&visitor, "Conversations", "Conversations"),
        q: text,
        agent: asked.agent.chars().take(100).collect(),
        unread: asked.unread == "1",
        names: members.into_iter().take(200).map(|member| member.name).collect(),
        hits,
        list_title,
        lines,
        filtered,
        next,
    })
}
