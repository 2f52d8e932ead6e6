//! `GET /dashboard/groups`: groups and transcripts. `GET /dashboard/transcripts/{owner}/{key}`: one transcript.

use amb_core::doc::Group;
use amb_core::render::visible;
use amb_core::transcript::TranscriptKey;
use amb_core::{AgentName, Timestamp};
use amb_store::TranscriptLine;
use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use serde::Deserialize;

use super::frame::{PageError, PageFrame, page};
use super::html::{Html, line, segment};
use super::markdown::formatted;
use super::session::Visitor;
use super::write::parse_name;
use crate::app::App;
use crate::request::{Params, Problem};

/// Transcripts on the page.
const TRANSCRIPTS: u32 = 200;
/// Lines of a transcript on a page.
const LINES: u32 = 60;
/// Characters of a line that are shown.
const MAX_LINE: usize = 2_000;

#[derive(Template)]
#[template(path = "groups.html")]
struct GroupsPage {
    frame: PageFrame,
    groups: Vec<Group>,
    transcripts: Vec<TranscriptLine>,
}

impl GroupsPage {
    fn at(&self, transcript: &TranscriptLine) -> String {
        format!("/dashboard/transcripts/{}/{}", transcript.owner, segment(transcript.key.as_str()))
    }
}

pub(super) async fn groups(State(app): State<App>, visitor: Visitor) -> Result<Response, PageError> {
    let household = visitor.household()?;
    let (groups, transcripts) =
        tokio::try_join!(app.store.member_groups(household), app.store.transcripts(household, TRANSCRIPTS))?;
    page(&GroupsPage { frame: PageFrame::new(&visitor, "Groups", "Groups and transcripts"), groups, transcripts })
}

/// A line, ready for the template.
struct ShownLine {
    number: u64,
    author: String,
    /// The sender that the author named, if it is not the author.
    sender: Option<String>,
    at: Option<Timestamp>,
    body: Html,
}

#[derive(Template)]
#[template(path = "transcript.html")]
struct TranscriptPage {
    frame: PageFrame,
    owner: AgentName,
    key: String,
    lines: Vec<ShownLine>,
    older: Option<String>,
    newer: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct TranscriptQuery {
    before: Option<u64>,
}

pub(super) async fn transcript(
    State(app): State<App>,
    visitor: Visitor,
    Path((owner, key)): Path<(String, String)>,
    Params(query): Params<TranscriptQuery>,
) -> Result<Response, PageError> {
    let owner = parse_name("The owner", &owner)?;
    let key: TranscriptKey = key.parse().map_err(|_| Problem::field("path.key", "is no key of a transcript"))?;
    let lines = app.store.transcript_lines(visitor.household()?, &owner, &key, query.before, LINES).await?;
    let at = format!("/dashboard/transcripts/{owner}/{}", segment(key.as_str()));
    let older = lines.first().filter(|first| first.number > 1).map(|first| format!("{at}?before={}", first.number));
    let lines = lines
        .into_iter()
        .map(|numbered| {
            let author = numbered.line.author.as_ref().map(ToString::to_string).unwrap_or_default();
            let sender =
                Some(numbered.line.sender.to_string()).filter(|sender| !sender.is_empty() && *sender != author);
            ShownLine {
                number: numbered.number,
                sender: sender.map(|sender| line(&sender, 80)),
                author,
                at: numbered.line.ts.and_then(|ts| Timestamp::from_millisecond(ts as i64).ok()),
                body: formatted(visible::clip(&numbered.line.content, MAX_LINE).0),
            }
        })
        .collect();
    page(&TranscriptPage {
        frame: PageFrame::new(&visitor, "Groups", line(key.as_str(), 60)),
        owner,
        key: line(key.as_str(), 200),
        lines,
        older,
        newer: query.before.is_some().then_some(at),
    })
}
