//! `transcript_recent`: the last words of a group chat.

use amb_core::OfficeError;
use amb_core::limits::DEFAULT_TRANSCRIPT_LINES;
use amb_core::transcript::TranscriptKey;
use rmcp::model::{JsonObject, Tool};
use serde::{Deserialize, Serialize};

use super::{Desk, Effect};
use crate::answer::Answer;
use crate::arguments::{count, parse};
use crate::schema::{answer, arguments, between, hint, list, object, text};
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

pub(super) fn tool() -> Tool {
    let said = object(&[("role!", text()), ("sender!", text()), ("content!", text())]);
    super::tool(
        "transcript_recent",
        "The last lines of a group chat's shared record.",
        Effect::Reads,
        arguments(&[("key!", hint("such as feishu:oc_123")), ("limit", between(1, MOST))]),
        answer(&[("lines!", list(said))]),
    )
}

#[derive(Serialize)]
struct Recent {
    lines: Vec<LineShown>,
    note: &'static str,
}

#[derive(Serialize)]
struct LineShown {
    role: String,
    sender: String,
    content: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
}

pub(super) async fn call(desk: &Desk, arguments: Option<JsonObject>) -> Result<Answer, OfficeError> {
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
    Answer::new(text, &Recent { lines, note: UNTRUSTED })
}
