//! `POST /tools/invoke` with `sessions_send`, for gateways that offer nothing better.
//!
//! HTTP 200 does not mean success here: `result.details.status` tells.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::history::{self, HistoryMatch};
use super::{Gateway, agent_of, max_wait, outcome_of, timed_out};
use crate::runtime::{FailureKind, Turn, TurnError, TurnOutcome};

/// The longest interval between reads of the history while an answer is awaited.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
struct Invoked {
    result: Option<ToolResult>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct ToolResult {
    #[serde(default)]
    details: Value,
}

pub(super) async fn turn(gateway: &Gateway, turn: &Turn) -> Result<TurnOutcome, TurnError> {
    let deadline = Instant::now() + max_wait(turn);
    if turn.tried {
        let found = history::find_message(gateway, turn, deadline).await?;
        match found.trace {
            HistoryMatch::Answered(text) => return Ok(outcome_of(Some(&text))),
            // The turn is running, or ended without an answer: asking again would run it twice.
            HistoryMatch::Seen if turn.repeat && !found.is_over => {
                return wait_for_answer(gateway, turn, deadline).await;
            }
            HistoryMatch::Seen | HistoryMatch::None => {}
        }
    }
    // The caller's session must differ from the target, or the gateway takes it for an agent that talks to itself.
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
        "ok" => Ok(outcome_of(word("reply"))),
        "no_reply" => Ok(TurnOutcome::NoReply),
        "accepted" | "timeout" | "queued" => wait_for_answer(gateway, turn, deadline).await,
        "error" if was_sent => wait_for_answer(gateway, turn, deadline).await,
        "forbidden" => {
            Err(TurnError::new(FailureKind::NotOffered, error_text(&details, "the gateway forbids sessions_send")))
        }
        _ => Err(TurnError::new(FailureKind::Failed, error_text(&details, "sessions_send failed"))),
    }
}

fn error_text(details: &Value, otherwise: &str) -> String {
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
    // This channel keeps the gateway from starting a conversation of its own about the answer.
    let request = gateway.post("/tools/invoke").header("x-openclaw-message-channel", "webchat");
    let invoked: Invoked = gateway.call(turn, request, &body).await?;
    match (invoked.result, invoked.error) {
        (Some(result), _) => Ok(result.details),
        (None, error) => {
            Err(TurnError::new(FailureKind::Failed, format!("{tool} failed: {}", error.unwrap_or_default())))
        }
    }
}

/// Waits for an answer that was not ready in time and will appear in the session's history.
async fn wait_for_answer(gateway: &Gateway, turn: &Turn, deadline: Instant) -> Result<TurnOutcome, TurnError> {
    loop {
        match history::find_message(gateway, turn, deadline).await.map(|found| found.trace) {
            Ok(HistoryMatch::Answered(text)) => return Ok(outcome_of(Some(&text))),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "no history to look in"),
        }
        let pause = (turn.timeout / 10).min(POLL_INTERVAL);
        if Instant::now() + pause > deadline {
            // If it comes later still, the retry finds it.
            return Err(timed_out(turn.timeout));
        }
        sleep(pause).await;
    }
}
