//! `POST /v1/chat/completions`: the response holds the answer.

use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::history::{self, HistoryMatch};
use super::{Gateway, agent_of, max_wait, outcome_of};
use crate::runtime::{FailureKind, Turn, TurnError, TurnOutcome};

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    message: ChatMessage,
}

#[derive(Deserialize)]
struct ChatMessage {
    content: Option<String>,
}

pub(super) async fn turn(gateway: &Gateway, turn: &Turn) -> Result<TurnOutcome, TurnError> {
    // The turn may have run although its response was lost, or may still be running.
    if turn.tried
        && let HistoryMatch::Answered(text) =
            history::find_message(gateway, turn, Instant::now() + max_wait(turn)).await?.trace
    {
        return Ok(outcome_of(Some(&text)));
    }
    let body = json!({
        "model": format!("openclaw/{}", agent_of(&turn.session_key)),
        "messages": [{ "role": "user", "content": turn.prompt }],
    });
    let request = gateway.post("/v1/chat/completions").header("x-openclaw-session-key", &turn.session_key);
    let completion: Completion = gateway.call(turn, request, &body).await?;
    let Some(choice) = completion.choices.first() else {
        return Err(TurnError::new(FailureKind::Failed, "the gateway's completion has no choice"));
    };
    Ok(outcome_of(choice.message.content.as_deref()))
}
