//! The gateway's WebSocket: `agent` with the mail's id as idempotency key, then `agent.wait`.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::history::{self, Trace};
use super::line::{Line, Refusal};
use super::{Gateway, late, longest, spoken};
use crate::runtime::{Outcome, Trouble, Turn, TurnError};

/// The longest that one `agent.wait` waits.
const WAIT_MS: u128 = 60_000;
/// How soon a run that waits in the gateway's queue is asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// How long to wait for the whole answer where `agent.wait` has given only the beginning.
const WHOLE: Duration = Duration::from_secs(2);
/// `agent.wait` shows 4,095 UTF-16 units of an answer without white space at their end, and then this.
const WAIT_CUTS: char = '…';
/// An answer that ends so is taken for a cut one from this length on.
const CUT_FROM: usize = 3_000;

pub(super) async fn turn(gateway: &Gateway, turn: &Turn) -> Result<Outcome, TurnError> {
    let deadline = Instant::now() + longest(turn);
    let mut line = Line::open(gateway).await?;
    let ended = follow(&mut line, turn, deadline).await;
    line.close().await;
    match ended {
        Err(error) if error.trouble == Trouble::Timeout => Err(late(turn.timeout)),
        ended => ended,
    }
}

async fn follow(line: &mut Line, turn: &Turn, deadline: Instant) -> Result<Outcome, TurnError> {
    // The gateway may have forgotten the run, as it does when it is restarted, while the history still has its end.
    if turn.tried
        && let Some(Trace::Answered(text)) = history::remembered(line, turn, deadline).await?.map(|found| found.trace)
    {
        return Ok(spoken(Some(&text)));
    }
    // A repeat of the same key joins the run that there is, or answers with what came of it.
    let begin = json!({
        "message": turn.prompt, "sessionKey": turn.session_key, "idempotencyKey": turn.key, "deliver": false,
    });
    let agent = line.ask("agent", begin.clone()).await?;
    let begun = line.answer(&[&agent], deadline).await?.said.map_err(refused)?;
    if let Some(ended) = ended(&begun) {
        return ended;
    }
    loop {
        let left = deadline.saturating_duration_since(Instant::now()).as_millis().min(WAIT_MS);
        if left == 0 {
            return Err(late(turn.timeout));
        }
        let wait = line.ask("agent.wait", json!({ "runId": turn.key, "timeoutMs": left })).await?;
        // `agent` answers a second time at the run's end, with all of it.
        let answer = line.answer(&[&agent, &wait], deadline).await?;
        let said = answer.said.map_err(refused)?;
        match ended(&said) {
            Some(Ok(Outcome::Reply(text))) if answer.id == wait && may_be_cut(&text) => {
                return Ok(whole_answer(line, turn, &agent, begin, text).await);
            }
            Some(ended) => return ended,
            // A run in the gateway's queue is answered for at once, not after a wait.
            None => sleep(ASK_AGAIN).await,
        }
    }
}

fn refused(why: Refusal) -> TurnError {
    match why.is_passing() {
        true => TurnError::new(Trouble::Lost, format!("the gateway takes no turn for this session now: {why}")),
        false => failed(why.to_string()),
    }
}

fn failed(why: String) -> TurnError {
    TurnError::new(Trouble::Failed, format!("the turn failed: {why}"))
}

fn may_be_cut(text: &str) -> bool {
    text.ends_with(WAIT_CUTS) && text.encode_utf16().count() >= CUT_FROM
}

/// The whole of a long answer: from the run's own end; where another line began the run, from the gateway's memory; else
/// from the session's history. Where none of them has it, the beginning with a note.
async fn whole_answer(line: &mut Line, turn: &Turn, agent: &str, begin: Value, beginning: String) -> Outcome {
    let found = |said: Result<Value, Refusal>| match ended(&said.ok()?)? {
        Ok(Outcome::Reply(text)) if !may_be_cut(&text) || text.len() > beginning.len() => Some(Outcome::Reply(text)),
        _ => None,
    };
    if let Ok(answer) = line.answer(&[agent], Instant::now() + WHOLE).await
        && let Some(whole) = found(answer.said)
    {
        return whole;
    }
    if let Ok(again) = line.ask("agent", begin).await
        && let Ok(answer) = line.answer(&[&again], Instant::now() + WHOLE).await
        && let Some(whole) = found(answer.said)
    {
        return whole;
    }
    let start: String = beginning.chars().take(100).collect();
    match history::whole_answer(line, turn, Instant::now() + WHOLE).await {
        // A run may end in several messages, of which the history's last is only one.
        Some(text) if text.starts_with(&start) && text.len() >= beginning.trim_end_matches(WAIT_CUTS).len() => {
            Outcome::Reply(text)
        }
        _ => Outcome::Reply(format!("{beginning}\n{}", history::CUT)),
    }
}

/// What came of the run, unless it is still under way.
fn ended(payload: &Value) -> Option<Result<Outcome, TurnError>> {
    let word = |name: &str| payload.get(name).and_then(Value::as_str);
    let why = || word("error").or_else(|| word("summary")).unwrap_or("no reason given").to_owned();
    match word("status").unwrap_or_default() {
        "ok" | "completed" => Some(Ok(spoken(reply(payload).as_deref()))),
        "no_reply" | "silent" => Some(Ok(Outcome::NoReply)),
        "error" | "failed" => Some(Err(failed(why()))),
        // The gateway goes down, and the run with it or not.
        "timeout" if word("timeoutPhase") == Some("gateway_draining") => {
            Some(Err(TurnError::new(Trouble::Lost, "the gateway is going down")))
        }
        // The run's own time-out; a mere end of the wait has no such marks.
        "timeout" if payload.get("endedAt").is_some_and(Value::is_number) || word("stopReason").is_some() => {
            Some(Err(TurnError::new(Trouble::Failed, format!("the gateway ended the turn: {}", why()))))
        }
        // accepted, in_flight, pending, timeout of the wait alone
        _ => None,
    }
}

/// The agent's words: all of them where the gateway shows the run's result, else what `terminalReply` has.
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

/// Whether the gateway lets the bridge in this way.
pub(super) async fn greet(gateway: &Gateway) -> Result<(), TurnError> {
    Line::open(gateway).await?.close().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replied(payload: Value) -> Option<Outcome> {
        ended(&payload).map(|ended| ended.unwrap())
    }

    #[test]
    fn a_run_that_goes_on_has_not_ended() {
        for status in ["accepted", "in_flight", "pending", "timeout"] {
            assert!(ended(&json!({ "runId": "m", "status": status })).is_none(), "{status}");
        }
    }

    #[test]
    fn the_whole_result_counts_more_than_its_beginning() {
        let payload = json!({ "status": "ok", "result": {
            "payloads": [{ "text": "one" }, { "mediaUrl": "x" }, { "text": "two" }],
            "meta": { "terminalReply": { "disposition": "visible", "text": "one…" } } } });
        assert_eq!(replied(payload), Some(Outcome::Reply("one\n\ntwo".into())));
        let waited = json!({ "status": "ok", "terminalReply": { "disposition": "visible", "text": "one" } });
        assert_eq!(replied(waited), Some(Outcome::Reply("one".into())));
    }

    #[test]
    fn silence_is_no_reply() {
        for closing in [json!({ "disposition": "silent" }), json!({ "disposition": "empty" })] {
            assert_eq!(replied(json!({ "status": "ok", "terminalReply": closing })), Some(Outcome::NoReply));
        }
        assert_eq!(replied(json!({ "status": "ok" })), Some(Outcome::NoReply));
    }

    #[test]
    fn what_failed_for_good_is_told_from_what_may_go_on() {
        let trouble = |payload: Value| ended(&payload).unwrap().unwrap_err().trouble;
        assert_eq!(trouble(json!({ "status": "error", "error": "no model" })), Trouble::Failed);
        assert_eq!(trouble(json!({ "status": "timeout", "endedAt": 17 })), Trouble::Failed);
        assert_eq!(trouble(json!({ "status": "timeout", "timeoutPhase": "gateway_draining" })), Trouble::Lost);
    }
}
