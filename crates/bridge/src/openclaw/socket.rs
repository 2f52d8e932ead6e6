//! The gateway's WebSocket: `agent` with the message's id as idempotency key, then `agent.wait`.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::connection::{GatewayConnection, GatewayError};
use super::history::{self, HistoryMatch, HistoryResult};
use super::{Gateway, max_wait, outcome_of, timed_out};
use crate::runtime::{FailureKind, Turn, TurnError, TurnOutcome};

/// The longest that one `agent.wait` waits.
const WAIT_MS: u128 = 60_000;
/// How soon a run in the gateway's queue is polled again.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long to wait for the whole answer where `agent.wait` returned only the beginning.
const WHOLE_ANSWER_WAIT: Duration = Duration::from_secs(2);
/// `agent.wait` returns 4,095 UTF-16 units of an answer, trimmed, and then this.
const WAIT_CUTS: char = '…';
/// From this length on, an answer with that ending counts as cut.
const CUT_FROM: usize = 3_000;

pub(super) async fn turn(gateway: &Gateway, turn: &Turn) -> Result<TurnOutcome, TurnError> {
    let deadline = Instant::now() + max_wait(turn);
    let mut connection = GatewayConnection::open(gateway).await?;
    let ended = run(&mut connection, turn, deadline).await;
    connection.close().await;
    match ended {
        Err(error) if error.kind == FailureKind::Timeout => Err(timed_out(turn.timeout)),
        ended => ended,
    }
}

async fn run(connection: &mut GatewayConnection, turn: &Turn, deadline: Instant) -> Result<TurnOutcome, TurnError> {
    // A restarted gateway has forgotten the run, while the history still has its answer.
    if turn.tried
        && let Some(HistoryMatch::Answered(text)) =
            history::find_message_over(connection, turn, deadline).await?.map(|found| found.trace)
    {
        return Ok(outcome_of(Some(&text)));
    }
    // A repeat of the same key joins the running turn, or returns its result.
    let begin = json!({
        "message": turn.prompt, "sessionKey": turn.session_key, "idempotencyKey": turn.key, "deliver": false,
    });
    let agent = connection.ask("agent", begin.clone()).await?;
    let begun = connection.answer(&[&agent], deadline).await?.said.map_err(turn_error)?;
    if let Some(ended) = run_result(&begun) {
        return ended;
    }
    loop {
        let left = deadline.saturating_duration_since(Instant::now()).as_millis().min(WAIT_MS);
        if left == 0 {
            return Err(timed_out(turn.timeout));
        }
        let wait = connection.ask("agent.wait", json!({ "runId": turn.key, "timeoutMs": left })).await?;
        // `agent` responds a second time at the end of the run, with the whole answer.
        let answer = connection.answer(&[&agent, &wait], deadline).await?;
        let said = answer.said.map_err(turn_error)?;
        match run_result(&said) {
            Some(Ok(TurnOutcome::Reply(text))) if answer.id == wait && may_be_cut(&text) => {
                return Ok(whole_answer(connection, turn, &agent, begin, text).await);
            }
            Some(Ok(TurnOutcome::NoReply)) if !mentions_reply(&said) => {
                // The response of `agent` may have no text where that of `agent.wait` has it.
                if answer.id == wait {
                    return Ok(answer_in_history(connection, turn).await);
                }
            }
            Some(ended) => return ended,
            // For a run in the gateway's queue the call returns at once.
            None => sleep(POLL_INTERVAL).await,
        }
    }
}

fn turn_error(why: GatewayError) -> TurnError {
    match why.is_transient() {
        true => TurnError::new(FailureKind::Lost, format!("the gateway takes no turn for this session now: {why}")),
        false => failed(why.to_string()),
    }
}

fn failed(why: String) -> TurnError {
    TurnError::new(FailureKind::Failed, format!("the turn failed: {why}"))
}

fn may_be_cut(text: &str) -> bool {
    text.ends_with(WAIT_CUTS) && text.encode_utf16().count() >= CUT_FROM
}

/// The whole of a long answer: from the second response of `agent`; where another connection began the run, from the
/// gateway's memory; else from the session's history. Where none has it, the beginning with a note.
async fn whole_answer(
    connection: &mut GatewayConnection,
    turn: &Turn,
    agent: &str,
    begin: Value,
    beginning: String,
) -> TurnOutcome {
    let found = |said: Result<Value, GatewayError>| match run_result(&said.ok()?)? {
        Ok(TurnOutcome::Reply(text)) if !may_be_cut(&text) || text.len() > beginning.len() => {
            Some(TurnOutcome::Reply(text))
        }
        _ => None,
    };
    if let Ok(answer) = connection.answer(&[agent], Instant::now() + WHOLE_ANSWER_WAIT).await
        && let Some(whole) = found(answer.said)
    {
        return whole;
    }
    if let Ok(again) = connection.ask("agent", begin).await
        && let Ok(answer) = connection.answer(&[&again], Instant::now() + WHOLE_ANSWER_WAIT).await
        && let Some(whole) = found(answer.said)
    {
        return whole;
    }
    let start: String = beginning.chars().take(100).collect();
    match history::whole_answer(connection, turn, Instant::now() + WHOLE_ANSWER_WAIT).await {
        // A run may end in several messages, of which the history's last is only one.
        Some(text) if text.starts_with(&start) && text.len() >= beginning.trim_end_matches(WAIT_CUTS).len() => {
            TurnOutcome::Reply(text)
        }
        _ => TurnOutcome::Reply(format!("{beginning}\n{}", history::CUT)),
    }
}

/// The answer of a run whose end was reported without a word on its answer: the history has it where there is one.
async fn answer_in_history(connection: &mut GatewayConnection, turn: &Turn) -> TurnOutcome {
    match history::find_message_over(connection, turn, Instant::now() + WHOLE_ANSWER_WAIT).await {
        Ok(Some(HistoryResult { trace: HistoryMatch::Answered(text), .. })) => outcome_of(Some(&text)),
        _ => TurnOutcome::NoReply,
    }
}

/// Whether the payload of an ended run says that there is a reply, or none.
fn mentions_reply(payload: &Value) -> bool {
    let is_silent = matches!(payload["status"].as_str(), Some("no_reply" | "silent"));
    is_silent
        || payload.get("terminalReply").is_some_and(|closing| !closing.is_null())
        || payload.get("result").is_some()
}

/// The result of the run; `None` while it is running.
fn run_result(payload: &Value) -> Option<Result<TurnOutcome, TurnError>> {
    let word = |name: &str| payload.get(name).and_then(Value::as_str);
    let why = || word("error").or_else(|| word("summary")).unwrap_or("no reason given").to_owned();
    match word("status").unwrap_or_default() {
        "ok" | "completed" => Some(Ok(outcome_of(reply(payload).as_deref()))),
        "no_reply" | "silent" => Some(Ok(TurnOutcome::NoReply)),
        "error" | "failed" => Some(Err(failed(why()))),
        // The gateway shuts down; whether the run ends with it is unknown.
        "timeout" if word("timeoutPhase") == Some("gateway_draining") => {
            Some(Err(TurnError::new(FailureKind::Lost, "the gateway is going down")))
        }
        // The run's own timeout; the end of one `agent.wait` has none of these fields.
        "timeout" if payload.get("endedAt").is_some_and(Value::is_number) || word("stopReason").is_some() => {
            Some(Err(TurnError::new(FailureKind::Failed, format!("the gateway ended the turn: {}", why()))))
        }
        // accepted, in_flight, pending, or the timeout of this one wait
        _ => None,
    }
}

/// The agent's text: all of it where the gateway returns the run's result, else `terminalReply`.
fn reply(payload: &Value) -> Option<String> {
    let closing = payload.get("terminalReply").or_else(|| payload.pointer("/result/meta/terminalReply"));
    let field = |name: &str| closing.and_then(|closing| closing.get(name)).and_then(Value::as_str);
    if field("disposition") == Some("silent") {
        return None;
    }
    let payloads = payload.pointer("/result/payloads").and_then(Value::as_array);
    let texts: Vec<&str> = payloads.into_iter().flatten().filter_map(|part| part.get("text")?.as_str()).collect();
    match texts.is_empty() {
        false => Some(texts.join("\n\n")),
        true => field("text").map(str::to_owned),
    }
}

/// Checks that the gateway accepts the connection.
pub(super) async fn greet(gateway: &Gateway) -> Result<(), TurnError> {
    GatewayConnection::open(gateway).await?.close().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replied(payload: Value) -> Option<TurnOutcome> {
        run_result(&payload).map(|ended| ended.unwrap())
    }

    #[test]
    fn a_run_that_goes_on_has_not_ended() {
        for status in ["accepted", "in_flight", "pending", "timeout"] {
            assert!(run_result(&json!({ "runId": "m", "status": status })).is_none(), "{status}");
        }
    }

    #[test]
    fn the_whole_result_counts_more_than_its_beginning() {
        let payload = json!({ "status": "ok", "result": {
            "payloads": [{ "text": "one" }, { "mediaUrl": "x" }, { "text": "two" }],
            "meta": { "terminalReply": { "disposition": "visible", "text": "one…" } } } });
        assert_eq!(replied(payload), Some(TurnOutcome::Reply("one\n\ntwo".into())));
        let waited = json!({ "status": "ok", "terminalReply": { "disposition": "visible", "text": "one" } });
        assert_eq!(replied(waited), Some(TurnOutcome::Reply("one".into())));
    }

    #[test]
    fn silence_is_no_reply() {
        for closing in [json!({ "disposition": "silent" }), json!({ "disposition": "empty" })] {
            assert_eq!(replied(json!({ "status": "ok", "terminalReply": closing })), Some(TurnOutcome::NoReply));
        }
        assert_eq!(replied(json!({ "status": "ok" })), Some(TurnOutcome::NoReply));
    }

    #[test]
    fn what_failed_for_good_is_told_from_what_may_go_on() {
        let trouble = |payload: Value| run_result(&payload).unwrap().unwrap_err().kind;
        assert_eq!(trouble(json!({ "status": "error", "error": "no model" })), FailureKind::Failed);
        assert_eq!(trouble(json!({ "status": "timeout", "endedAt": 17 })), FailureKind::Failed);
        assert_eq!(trouble(json!({ "status": "timeout", "timeoutPhase": "gateway_draining" })), FailureKind::Lost);
    }
}
