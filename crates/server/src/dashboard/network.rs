//! `GET /dashboard/network`: who talks with whom, as a picture, and stopped loops.

use std::collections::HashMap;

use amb_core::Timestamp;
use amb_store::ConversationQuery;
use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;

use super::frame::{PageError, PageFrame, page};
use super::html::{Html, presence};
use super::loops::Stopped;
use super::picture::{self, Edge, Node};
use super::session::Visitor;
use crate::app::App;
use crate::request::Params;

/// Conversations in the picture: the most recently active ones.
const CONVERSATIONS: u32 = 300;
/// Agents in the picture: those with the most messages.
const NODES: usize = 40;

#[derive(Deserialize)]
pub(super) struct NetworkQuery {
    #[serde(default)]
    agent: String,
}

#[derive(Template)]
#[template(path = "network.html")]
struct NetworkPage {
    frame: PageFrame,
    picture: Option<Html>,
    agent: String,
    /// Pairs of agents and the number of their messages, largest first.
    pairs: Vec<(String, String, u64)>,
    left_out: usize,
    loops: Vec<Stopped>,
}

pub(super) async fn network(
    State(app): State<App>,
    visitor: Visitor,
    Params(query): Params<NetworkQuery>,
) -> Result<Response, PageError> {
    let (household, now) = (visitor.household()?, Timestamp::now());
    let asked = ConversationQuery { limit: CONVERSATIONS, ..ConversationQuery::default() };
    let (lines, members) =
        tokio::try_join!(app.store.conversations(household, asked), app.store.members(household, now))?;
    let mut traffic: HashMap<(String, String), u64> = HashMap::new();
    let mut by_name: HashMap<String, u64> = HashMap::new();
    for line in &lines {
        // A group is one node, connected with one of its members.
        let first = line.between.first().map(ToString::to_string).unwrap_or_default();
        let second = line.group.clone().or_else(|| line.between.get(1).map(ToString::to_string)).unwrap_or_default();
        let pair = if first <= second { (first, second) } else { (second, first) };
        *by_name.entry(pair.0.clone()).or_default() += line.messages;
        *by_name.entry(pair.1.clone()).or_default() += line.messages;
        *traffic.entry(pair).or_default() += line.messages;
    }
    let known: HashMap<&str, &amb_store::Member> =
        members.iter().map(|member| (member.name.as_str(), member)).collect();
    let mut busiest: Vec<(String, u64)> = by_name.into_iter().collect();
    busiest.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let left_out = busiest.len().saturating_sub(NODES);
    busiest.truncate(NODES);
    // By name, so that the nodes keep their order while traffic changes.
    busiest.sort();
    let nodes: Vec<Node> = busiest
        .into_iter()
        .map(|(name, messages)| {
            let class = match known.get(name.as_str()) {
                None => "stranger",
                Some(member) if member.person => "person",
                Some(member) => presence(&member.presence.status),
            };
            Node { name, class, messages }
        })
        .collect();
    let place: HashMap<&str, usize> = nodes.iter().enumerate().map(|(at, node)| (node.name.as_str(), at)).collect();
    let mut edges: Vec<Edge> = traffic
        .iter()
        .filter_map(|((a, b), messages)| {
            Some(Edge { from: *place.get(a.as_str())?, to: *place.get(b.as_str())?, messages: *messages })
        })
        .collect();
    edges.sort_by_key(|edge| (edge.messages, edge.from, edge.to));
    let picked = (!query.agent.is_empty()).then_some(query.agent.as_str());
    let picture = (!nodes.is_empty()).then(|| picture::network(&nodes, &edges, picked));
    let mut pairs: Vec<(String, String, u64)> =
        traffic.into_iter().map(|((a, b), messages)| (a, b, messages)).collect();
    if let Some(name) = picked {
        pairs.retain(|(a, b, _)| a == name || b == name);
    }
    pairs.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| (&a.0, &a.1).cmp(&(&b.0, &b.1))));
    pairs.truncate(30);
    let loops = app.loops.of(&members);
    let agent = query.agent.chars().take(100).collect();
    let frame = PageFrame::new(&visitor, "Network", "Network");
    page(&NetworkPage { frame, picture, agent, pairs, left_out, loops })
}
