//! `transcript_recent` and `transcript_append`: the shared record of a group chat.

use amb_core::limits::{DEFAULT_TRANSCRIPT_LINES, MAX_TRANSCRIPT_CHARS, MAX_TRANSCRIPT_LINES};
use amb_core::render::fence::attribute;
use amb_core::render::size::{clip_shown, shown_chars};
use amb_core::transcript::{Line, TranscriptKey};
use amb_core::{AgentName, OfficeError};
use rmcp::model::{JsonObject, Tool};
use serde::{Deserialize, Serialize};

use super::{CallContext, Effect};
use crate::answer::ToolAnswer;
use crate::arguments::{count, filled, parse};
use crate::budget::{ITEMS_CHARS, TextBudget, size};
use crate::schema::{answer, arguments, counting, flag, hint, limited, list, object, text, upto, whole};
use crate::show;
use crate::view::{UNTRUSTED, is_default, line, visible_text};

/// The most lines in one result: more would crowd out the model's context.
const MAX_LINES: u32 = 200;

/// The most lines that may be skipped: as far as an office goes back.
const MAX_SKIPPED: u32 = MAX_TRANSCRIPT_LINES as u32 - MAX_LINES;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecentArguments {
    key: String,
    #[serde(default, deserialize_with = "filled")]
    owner: Option<String>,
    #[serde(default, deserialize_with = "count")]
    limit: Option<u32>,
    #[serde(default, deserialize_with = "count")]
    skip: Option<u32>,
    #[serde(default, deserialize_with = "count")]
    offset: Option<u32>,
}

pub(super) fn recent_tool() -> Tool {
    let said = object(&[("sender", text()), ("author", text()), ("content", text())]);
    super::tool(
        "transcript_recent",
        "The last lines of a group chat's shared record.",
        Effect::Reads,
        arguments(&[
            ("key!", hint("such as feishu:oc_123")),
            ("owner", hint("who shares it; default: you")),
            ("limit", upto(MAX_LINES, DEFAULT_TRANSCRIPT_LINES as u32)),
            ("skip", counting("newest lines to pass over")),
            ("offset", whole()),
        ]),
        answer(&[("lines!", list(said)), ("next", text())]),
    )
}

pub(super) fn append_tool() -> Tool {
    super::tool(
        "transcript_append",
        "Add a line to that record; one with the same message_id is there once.",
        Effect::Adds,
        arguments(&[
            ("key!", text()),
            ("owner", text()),
            ("content!", limited(MAX_TRANSCRIPT_CHARS)),
            ("sender", hint("default: you")),
            ("role", hint("user or assistant (default)")),
            ("message_id", text()),
        ]),
        answer(&[("appended!", flag())]),
    )
}

fn owner_of(owner: Option<String>, call: &CallContext) -> Result<Option<AgentName>, OfficeError> {
    let owner = owner.map(|owner| owner.trim().parse()).transpose()?;
    Ok(owner.filter(|owner| owner != call.office.me()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AppendArguments {
    key: String,
    #[serde(default, deserialize_with = "filled")]
    owner: Option<String>,
    content: String,
    #[serde(default, deserialize_with = "filled")]
    sender: Option<String>,
    #[serde(default, deserialize_with = "filled")]
    role: Option<String>,
    #[serde(default, deserialize_with = "filled")]
    message_id: Option<String>,
}

pub(super) async fn append(call: &CallContext, arguments: Option<JsonObject>) -> Result<ToolAnswer, OfficeError> {
    let AppendArguments { key, owner, content, sender, role, message_id } = parse(arguments)?;
    let key: TranscriptKey = key.trim().parse()?;
    if content.trim().is_empty() {
        return Err(OfficeError::invalid("content is empty; say what was said"));
    }
    let chars = content.chars().count();
    if chars > MAX_TRANSCRIPT_CHARS {
        return Err(OfficeError::too_large(format!("content has {chars} characters, at most {MAX_TRANSCRIPT_CHARS}")));
    }
    let line = Line {
        role: role.unwrap_or_else(|| "assistant".into()),
        content,
        sender: sender.unwrap_or_else(|| call.office.me().to_string()),
        author: None,
        message_id,
        ts: None,
    };
    match owner_of(owner, call)? {
        Some(owner) => call.office.transcript_append_to(&owner, &key, line).await?,
        None => call.office.transcript_append(&key, line).await?,
    }
    ToolAnswer::new(format!("Added to {}.", attribute(key.as_str())), &serde_json::json!({"appended": true}))
}

#[derive(Serialize)]
struct TranscriptShown {
    note: &'static str,
    lines: Vec<LineShown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize)]
struct LineShown {
    role: String,
    /// The sender as the line names it.
    sender: String,
    /// The agent that wrote the line, where the office knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    author: Option<AgentName>,
    content: String,
    #[serde(skip_serializing_if = "is_default")]
    more_chars: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
}

impl LineShown {
    fn of(said: &Line, more_chars: usize) -> Self {
        Self {
            role: line(&said.role),
            sender: line(&said.sender),
            author: said.author.clone(),
            content: visible_text(&said.content),
            more_chars,
            ts: said.ts,
        }
    }
}

pub(super) async fn recent(call: &CallContext, arguments: Option<JsonObject>) -> Result<ToolAnswer, OfficeError> {
    let RecentArguments { key, owner, limit, skip, offset } = parse(arguments)?;
    let key: TranscriptKey = key.trim().parse()?;
    let within = |name: &str, value: Option<u32>, usual: u32, least: u32, most: u32| match value.unwrap_or(usual) {
        value if (least..=most).contains(&value) => Ok(value as usize),
        value => Err(OfficeError::invalid(format!("{name} is {least} to {most}, not {value}"))),
    };
    let limit = within("limit", limit, DEFAULT_TRANSCRIPT_LINES as u32, 1, MAX_LINES)?;
    let skip = within("skip", skip, 0, 0, MAX_SKIPPED)?;
    let mut lines = match owner_of(owner, call)? {
        Some(owner) => call.office.transcript_recent_of(&owner, &key, limit + skip).await?,
        None => call.office.transcript_recent(&key, limit + skip).await?,
    };
    lines.truncate(lines.len().saturating_sub(skip));
    let passed = offset.unwrap_or(0) as usize;
    if let Some(newest) = lines.last_mut().filter(|_| passed > 0) {
        let at = newest.content.char_indices().nth(passed).map_or(newest.content.len(), |(at, _)| at);
        newest.content.drain(..at);
    }
    let (lines, more) = fit(lines);
    let mut next = Vec::new();
    if let Some(left) = more.chars {
        let offset = passed + lines.last().map_or(0, |line| line.content.chars().count());
        next.push(format!(
            "The newest was cut, {left} characters more: call transcript_recent with skip={skip} and offset={offset}."
        ));
    }
    if more.lines > 0 {
        let skip = skip + lines.len();
        next.push(format!("{} older lines did not fit: call transcript_recent with skip={skip}.", more.lines));
    }
    let mut text = show::transcript(&key, &lines, call.office.me());
    for line in &next {
        text.push_str(line);
        text.push('\n');
    }
    let newest = lines.len().saturating_sub(1);
    let cut = |at: usize| if at == newest { more.chars.unwrap_or(0) } else { 0 };
    let lines = lines.iter().enumerate().map(|(at, said)| LineShown::of(said, cut(at))).collect();
    ToolAnswer::new(text, &TranscriptShown { note: UNTRUSTED, lines, next: (!next.is_empty()).then(|| next.join(" ")) })
}

/// What did not fit.
struct More {
    /// Older lines.
    lines: usize,
    /// Characters of the newest line, where it alone is too long.
    chars: Option<usize>,
}

/// The newest lines that fit into one result, oldest first; the newest is cut where it alone is too long.
fn fit(mut lines: Vec<Line>) -> (Vec<Line>, More) {
    let mut budget = TextBudget::new();
    let frame = |line: &Line| size(&LineShown::of(&Line { content: String::new(), ..line.clone() }, 1));
    let mut chars = None;
    if let Some(newest) = lines.last_mut() {
        let (start, left) = clip_shown(&newest.content, ITEMS_CHARS.saturating_sub(frame(newest)));
        chars = Some(left).filter(|left| *left > 0);
        newest.content.truncate(start.len());
    }
    let cost = |line: &Line| frame(line) + shown_chars(&line.content);
    let fits =
        lines.iter().rev().take_while(|line| budget.try_spend(cost(line))).count().max(usize::from(!lines.is_empty()));
    let older = lines.len() - fits;
    (lines.split_off(older), More { lines: older, chars })
}
