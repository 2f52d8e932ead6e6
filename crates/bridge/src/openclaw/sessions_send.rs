//! `POST /tools/invoke` with `sessions_send`, for gateways that have nothing better.
//!
//! HTTP 200 says nothing here: `result.details.status` does.

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{Gateway, PATIENCE, agent_of, refused, spoken};
use crate::runtime::{Outcome, Trouble, Turn, TurnError};

/// How often the history is asked for an answer that came after the wait.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_secs(2);

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
    let deadline = Instant::now() + turn.timeout;
    let before = history(gateway, turn).await.map(|messages| messages.len()).unwrap_or(0);
    let arguments = json!({
        "sessionKey": turn.session_key,
        "message": turn.prompt,
        "timeoutSeconds": turn.timeout.as_secs(),
    });
    let details = invoke(gateway, turn, "sessions_send", arguments).await?;
    let word = |name: &str| details.get(name).and_then(Value::as_str);
    match word("status").unwrap_or_default() {
        "ok" => Ok(spoken(word("reply"))),
        "no_reply" => Ok(Outcome::NoReply),
        "accepted" | "timeout" | "queued" => late_answer(gateway, turn, before, deadline).await,
        "forbidden" => Err(TurnError::new(Trouble::Unauthorized, said(&details, "the gateway forbids sessions_send"))),
        _ => Err(TurnError::new(Trouble::Failed, said(&details, "sessions_send failed"))),
    }
}

fn said(details: &Value, otherwise: &str) -> String {
    let error = details.get("error").and_then(Value::as_str);
    error.map_or_else(|| otherwise.to_owned(), |error| format!("{otherwise}: {error}"))
}

async fn invoke(gateway: &Gateway, turn: &Turn, tool: &str, arguments: Value) -> Result<Value, TurnError> {
    // The caller's session must be another than the target, or the gateway takes it for an agent that talks to itself;
    // and the channel keeps it from starting a conversation of its own about the answer.
    let body = json!({
        "tool": tool,
        "sessionKey": format!("agent:{}:mailbox-bridge", agent_of(&turn.session_key)),
        "args": arguments,
    });
    let request = gateway.post("/tools/invoke").header("x-openclaw-message-channel", "webchat").json(&body);
    let answer = request.timeout(turn.timeout + PATIENCE).send().await.map_err(|error| gateway.lost(error))?;
    let status = answer.status();
    let text = answer.text().await.map_err(|error| gateway.lost(error))?;
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
async fn late_answer(gateway: &Gateway, turn: &Turn, before: usize, deadline: Instant) -> Result<Outcome, TurnError> {
    loop {
        if let Ok(messages) = history(gateway, turn).await {
            let spoken_since = messages.iter().skip(before).rev().find_map(|message| assistant(message));
            if let Some(text) = spoken_since {
                return Ok(spoken(Some(&text)));
            }
        }
        if Instant::now() >= deadline + PATIENCE {
            return Err(TurnError::new(Trouble::Timeout, "the agent did not answer in time"));
        }
        sleep(LOOK_AGAIN).await;
    }
}

async fn history(gateway: &Gateway, turn: &Turn) -> Result<Vec<Value>, TurnError> {
    let details =
        invoke(gateway, turn, "sessions_history", json!({ "sessionKey": turn.session_key, "limit": 50 })).await?;
    Ok(details.get("messages").and_then(Value::as_array).cloned().unwrap_or_default())
}

/// The text of a message that the agent said.
fn assistant(message: &Value) -> Option<String> {
    if message.get("role")?.as_str()? != "assistant" {
        return None;
    }
    match message.get("content")? {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let texts: Vec<&str> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
            (!texts.is_empty()).then(|| texts.join("\n"))
        }
        _ => None,
    }
}
