//! `transcript_recent` and `transcript_append`: the shared record of a group chat.

use amb_core::OfficeError;
use amb_core::limits::DEFAULT_TRANSCRIPT_LINES;
use amb_core::render::fence::attribute;
use amb_core::transcript::{Line, TranscriptKey};
use rmcp::model::{JsonObject, Tool};
use serde::{Deserialize, Serialize};

use super::{Desk, Effect};
use crate::answer::Answer;
use crate::arguments::{count, filled, parse};
use crate::schema::{answer, arguments, flag, hint, list, object, text, upto};
use crate::show;
use crate::view::{UNTRUSTED, line, seen};

/// Lines in one answer at most: more would crowd out everything else a model has in mind.
const MOST: u32 = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    key: String,
    #[serde(default, deserialize_with = "count")]
    limit: Option<u32>,
}

pub(super) fn recent_tool() -> Tool {
    let said = object(&[("sender!", text()), ("content!", text())]);
    super::tool(
        "transcript_recent",
        "The last lines of a group chat's shared record.",
        Effect::Reads,
        arguments(&[("key!", hint("such as feishu:oc_123")), ("limit", upto(MOST, DEFAULT_TRANSCRIPT_LINES as u32))]),
        answer(&[("lines!", list(said))]),
    )
}

pub(super) fn append_tool() -> Tool {
    super::tool(
        "transcript_append",
        "Add a line to that record; one with the same message_id is there once.",
        Effect::Adds,
        arguments(&[
            ("key!", text()),
            ("content!", text()),
            ("sender", hint("default: you")),
            ("role", hint("user or assistant (default)")),
            ("message_id", text()),
        ]),
        answer(&[("appended!", flag())]),
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AppendArguments {
    key: String,
    content: String,
    #[serde(default, deserialize_with = "filled")]
    sender: Option<String>,
    #[serde(default, deserialize_with = "filled")]
    role: Option<String>,
    #[serde(default, deserialize_with = "filled")]
    message_id: Option<String>,
}

pub(super) async fn append(desk: &Desk, arguments: Option<JsonObject>) -> Result<Answer, OfficeError> {
    let AppendArguments { key, content, sender, role, message_id } = parse(arguments)?;
    let key: TranscriptKey = key.trim().parse()?;
    if content.trim().is_empty() {
        return Err(OfficeError::invalid("content is empty; say what was said"));
    }
    let line = Line {
        role: role.unwrap_or_else(|| "assistant".into()),
        content,
        sender: sender.unwrap_or_else(|| desk.office.me().to_string()),
        author: None,
        message_id,
        ts: None,
    };
    desk.office.transcript_append(&key, line).await?;
    Answer::new(format!("Added to {}.", attribute(key.as_str())), &serde_json::json!({"appended": true}))
}

#[derive(Serialize)]
struct Recent {
    note: &'static str,
    lines: Vec<LineShown>,
}

#[derive(Serialize)]
struct LineShown {
    role: String,
    sender: String,
    content: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
}

pub(super) async fn recent(desk: &Desk, arguments: Option<JsonObject>) -> Result<Answer, OfficeError> {
    let Arguments { key, limit } = parse(arguments)?;
    let key: TranscriptKey = key.trim().parse()?;
    let limit = match limit {
        None => DEFAULT_TRANSCRIPT_LINES,
        Some(limit @ 1..=MOST) => limit as usize,
        Some(limit) => return Err(OfficeError::invalid(format!("limit is 1 to {MOST}, not {limit}"))),
    };
    let lines = desk.office.transcript_recent(&key, limit).await?;
    let text = show::transcript(&key, &lines, desk.office.me());
    let lines = lines
        .iter()
        .map(|said| LineShown {
            role: line(&said.role),
            sender: line(&said.sender),
            content: seen(&said.content),
            ts: said.ts,
        })
        .collect();
    Answer::new(text, &Recent { note: UNTRUSTED, lines })
}
