//! `POST /tools/invoke` with `sessions_send`, for gateways that have nothing better.
//!
//! HTTP 200 says nothing here: `result.details.status` does.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::history::{self, Trace};
use super::{Gateway, agent_of, late, longest, refused, spoken};
use crate::runtime::{Outcome, Trouble, Turn, TurnError};

/// The longest between two looks into the history for an answer that comes after the wait.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
struct Invoked {
    #[serde(default)]
    result: Option<ToolResult>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct ToolResult {
    #[serde(default)]
    details: Value,
}

pub(super) async fn turn(gateway: &Gateway, turn: &Turn) -> Result<Outcome, TurnError> {
    let deadline = Instant::now() + longest(turn);
    if turn.tried {
        let recalled = history::recall(gateway, turn, deadline).await?;
        match recalled.trace {
            Trace::Answered(text) => return Ok(spoken(Some(&text))),
            // It is under way, or ended in silence: asking again would make it two.
            Trace::Seen if turn.repeat && !recalled.is_over => return late_answer(gateway, turn, deadline).await,
            Trace::Seen | Trace::None => {}
        }
    }
    // The caller's session must be another than the target, or the gateway takes it for an agent that talks to itself.
    let caller = format!("agent:{}:mailbox-bridge", agent_of(&turn.session_key));
    let arguments = json!({
        "sessionKey": turn.session_key,
        "message": turn.prompt,
        "timeoutSeconds": turn.timeout.as_secs().max(1),
    });
    let details = invoke(gateway, turn, &caller, "sessions_send", arguments).await?;
    let word = |name: &str| details.get(name).and_then(Value::as_str);
    let was_sent = details.get("sentBeforeError").and_then(Value::as_bool).unwrap_or(false);
    match word("status").unwrap_or_default() {
        "ok" => Ok(spoken(word("reply"))),
        "no_reply" => Ok(Outcome::NoReply),
        "accepted" | "timeout" | "queued" => late_answer(gateway, turn, deadline).await,
        "error" if was_sent => late_answer(gateway, turn, deadline).await,
        "forbidden" => Err(TurnError::new(Trouble::NotOffered, said(&details, "the gateway forbids sessions_send"))),
        _ => Err(TurnError::new(Trouble::Failed, said(&details, "sessions_send failed"))),
    }
}

fn said(details: &Value, otherwise: &str) -> String {
    let error = details.get("error").and_then(Value::as_str);
    error.map_or_else(|| otherwise.to_owned(), |error| format!("{otherwise}: {error}"))
}

pub(super) async fn invoke(
    gateway: &Gateway,
    turn: &Turn,
    caller: &str,
    tool: &str,
    arguments: Value,
) -> Result<Value, TurnError> {
    let body = json!({ "tool": tool, "sessionKey": caller, "args": arguments });
    // The channel keeps the gateway from starting a conversation of its own about the answer.
    let request = gateway.post("/tools/invoke").header("x-openclaw-message-channel", "webchat").json(&body);
    let answer = request.timeout(longest(turn)).send().await.map_err(|error| gateway.lost(error, turn.timeout))?;
    let status = answer.status();
    let text = answer.text().await.map_err(|error| gateway.lost(error, turn.timeout))?;
    if !status.is_success() {
        return Err(refused(status, &text));
    }
    let invoked: Invoked = serde_json::from_str(&text)
        .map_err(|error| TurnError::new(Trouble::Failed, format!("the gateway's answer makes no sense: {error}")))?;
    match (invoked.result, invoked.error) {
        (Some(result), _) => Ok(result.details),
        (None, error) => Err(TurnError::new(Trouble::Failed, format!("{tool} failed: {}", error.unwrap_or_default()))),
    }
}

/// The wait was over before the turn was: the answer will be in the session's history.
async fn late_answer(gateway: &Gateway, turn: &Turn, deadline: Instant) -> Result<Outcome, TurnError> {
    loop {
        match history::recall(gateway, turn, deadline).await.map(|recalled| recalled.trace) {
            Ok(Trace::Answered(text)) => return Ok(spoken(Some(&text))),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "no history to look in"),
        }
        let pause = (turn.timeout / 10).min(LOOK_AGAIN);
        if Instant::now() + pause > deadline {
            // If it comes later still, the next try finds it.
            return Err(late(turn.timeout));
        }
        sleep(pause).await;
    }
}
