//! Whether a session's history contains a message, and what the agent answered: by `chat.history` of the gateway's own
//! protocol, else by the tool `sessions_history`, which shows less of long answers.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::connection::GatewayConnection;
use super::sessions_send::invoke;
use super::{Gateway, timed_out};
use crate::runtime::{FailureKind, Turn, TurnError};

/// A message in a session's history.
#[derive(Debug, PartialEq)]
pub(super) enum HistoryMatch {
    /// Not in the session's last [`LIMIT`] entries.
    None,
    /// The message, without an answer.
    Seen,
    /// The message and the agent's last answer to it.
    Answered(String),
}

/// A message in its session, and whether an answer may still come.
#[derive(Debug, PartialEq)]
pub(super) struct HistoryResult {
    pub(super) trace: HistoryMatch,
    /// Whether nothing runs in the session that could still answer. Only the gateway's own protocol tells.
    pub(super) is_over: bool,
}

/// The most entries of a session that are searched, which is the most that a gateway returns. A turn may have many:
/// each tool call is one.
const LIMIT: u32 = 1_000;
/// The most characters of an entry that are requested; without a request a gateway returns 8,000.
const MAX_CHARS: u32 = 500_000;
/// How soon a session with a running turn is checked again.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// After this uptime a restarted gateway has resumed interrupted turns, which it does some seconds after it accepts
/// connections.
const RESUME_TIME: Duration = Duration::from_secs(60);
/// What the gateway appends to, or puts in place of, text that it does not return.
const CUTS: [&str; 4] = [
    "\n...(truncated)...",
    "\n…(truncated)…",
    "[chat.history omitted: message too large]",
    "[sessions_history omitted: message too large]",
];
/// Appended to an answer of which the gateway returns only the beginning.
pub(super) const CUT: &str =
    "[cut: the gateway shows no more of this answer than its beginning; the whole of it is in the agent's session]";

/// Searches the session's history for a message, and waits while a turn runs there that may answer it: a restarted
/// gateway resumes interrupted turns by itself. A gateway that cannot tell yet, for example while it starts, is an
/// error: running the turn instead could run it twice.
pub(super) async fn find_message(
    gateway: &Gateway,
    turn: &Turn,
    deadline: Instant,
) -> Result<HistoryResult, TurnError> {
    let found = match GatewayConnection::open(gateway).await {
        Ok(mut connection) => {
            let found = find_message_over(&mut connection, turn, deadline).await;
            connection.close().await;
            found?
        }
        Err(error) if error.kind == FailureKind::Unreachable => return Err(error),
        Err(error) => {
            tracing::debug!(%error, "no connection to the gateway; asking its tool for the history");
            None
        }
    };
    match found {
        Some(found) => Ok(found),
        None => Ok(HistoryResult { trace: find_by_tool(gateway, turn).await?, is_over: false }),
    }
}

/// The same over an open connection; `None` where the gateway offers no history. Does not wait for a run under the
/// turn's own key, since that can be joined.
pub(super) async fn find_message_over(
    connection: &mut GatewayConnection,
    turn: &Turn,
    deadline: Instant,
) -> Result<Option<HistoryResult>, TurnError> {
    let mut is_idle = false;
    loop {
        let Some(found) = fetch(connection, &turn.session_key, deadline).await? else { return Ok(None) };
        let about = |name: &str| found.pointer(&format!("/sessionInfo/{name}"));
        let is_active = about("hasActiveRun").and_then(Value::as_bool).unwrap_or(false);
        let runs = about("activeRunIds").and_then(Value::as_array);
        let is_ours = runs.is_some_and(|runs| runs.iter().any(|run| run.as_str() == Some(&turn.key)));
        let is_last_look = Instant::now() + POLL_INTERVAL > deadline;
        match trace(messages(&found), turn.mail.id.as_str()) {
            // The run goes on, so what was said so far is not the answer.
            HistoryMatch::Seen | HistoryMatch::Answered(_) if is_ours => {
                return Ok(Some(HistoryResult { trace: HistoryMatch::Seen, is_over: false }));
            }
            HistoryMatch::None => return Ok(Some(HistoryResult { trace: HistoryMatch::None, is_over: !is_active })),
            trace @ HistoryMatch::Answered(_) if !is_active => return Ok(Some(HistoryResult { trace, is_over: true })),
            // Read twice: the messages are read before the runs, so an answer may have come in between.
            HistoryMatch::Seen if !is_active && (is_last_look || is_idle && connection.uptime() >= RESUME_TIME) => {
                return Ok(Some(HistoryResult { trace: HistoryMatch::Seen, is_over: true }));
            }
            HistoryMatch::Seen | HistoryMatch::Answered(_) if is_last_look => return Err(timed_out(turn.timeout)),
            HistoryMatch::Seen | HistoryMatch::Answered(_) => sleep(POLL_INTERVAL).await,
        }
        is_idle = !is_active;
    }
}

/// The history by the gateway's own protocol; `None` where it shows none.
async fn fetch(
    connection: &mut GatewayConnection,
    session_key: &str,
    deadline: Instant,
) -> Result<Option<Value>, TurnError> {
    let whole = json!({ "sessionKey": session_key, "limit": LIMIT, "maxChars": MAX_CHARS });
    // Older gateways reject the parameter for longer texts.
    for asked in [whole, json!({ "sessionKey": session_key, "limit": LIMIT })] {
        let id = connection.ask("chat.history", asked).await?;
        match connection.answer(&[&id], deadline).await?.said {
            Ok(found) => return Ok(Some(found)),
            Err(error) => tracing::debug!(%error, "no history to look in"),
        }
    }
    Ok(None)
}

/// The whole of an answer of which only the beginning is known, where the history has it.
pub(super) async fn whole_answer(connection: &mut GatewayConnection, turn: &Turn, deadline: Instant) -> Option<String> {
    let found = fetch(connection, &turn.session_key, deadline).await.ok()??;
    match trace(messages(&found), turn.mail.id.as_str()) {
        HistoryMatch::Answered(text) => Some(text),
        HistoryMatch::Seen | HistoryMatch::None => None,
    }
}

/// Searches the session's history by a tool. The session reads its own history; a gateway without that tool shows
/// nothing.
pub(super) async fn find_by_tool(gateway: &Gateway, turn: &Turn) -> Result<HistoryMatch, TurnError> {
    let arguments = json!({ "sessionKey": turn.session_key, "limit": LIMIT });
    match invoke(gateway, turn, &turn.session_key, "sessions_history", arguments).await {
        Ok(details) => Ok(trace(messages(&details), turn.mail.id.as_str())),
        Err(error) if matches!(error.kind, FailureKind::NotOffered | FailureKind::Refused | FailureKind::Failed) => {
            tracing::debug!(%error, "no history to look in");
            Ok(HistoryMatch::None)
        }
        Err(error) => Err(error),
    }
}

/// The text, with a note where the gateway has cut it.
fn mark_cut(text: String) -> String {
    let trimmed = text.trim_end();
    match CUTS.iter().find_map(|cut| trimmed.strip_suffix(cut)) {
        Some(beginning) => format!("{beginning}\n{CUT}"),
        None => text,
    }
}

fn messages(history: &Value) -> &[Value] {
    history.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// What these entries show of a message with this id.
fn trace(messages: &[Value], id: &str) -> HistoryMatch {
    // The frame around a message names its id, which is unique; a body cannot imitate the attribute.
    let mark = format!("id=\"{id}\"");
    let role = |message: &Value, wanted: &str| message.get("role").and_then(Value::as_str) == Some(wanted);
    // What another session sent is shown as if the agent had said it; only its provenance differs. A restarted gateway
    // tells the agent to resume what was interrupted: that is not another question either.
    let provenance = |message: &Value| message.pointer("/provenance/kind").and_then(Value::as_str).map(str::to_owned);
    let is_input = |message: &Value| match provenance(message).as_deref() {
        Some("internal_system") => false,
        Some(_) => true,
        None => role(message, "user"),
    };
    let asked = messages.iter().rposition(|message| is_input(message) && text(message).contains(&mark));
    let Some(asked) = asked else { return HistoryMatch::None };
    // Text before a tool call is no answer: a turn that was interrupted there has none.
    let last = messages[asked + 1..].iter().take_while(|message| !is_input(message)).last();
    match last.filter(|message| role(message, "assistant") && is_final(message)).map(text) {
        Some(text) if !text.trim().is_empty() => HistoryMatch::Answered(mark_cut(text)),
        _ => HistoryMatch::Seen,
    }
}

/// Whether the turn ended with this entry.
fn is_final(message: &Value) -> bool {
    let parts = message.get("content").and_then(Value::as_array).into_iter().flatten();
    let mut kinds = parts.filter_map(|part| part.get("type")?.as_str());
    let stopped = message.get("stopReason").and_then(Value::as_str);
    !kinds.any(|kind| kind == "toolCall") && !matches!(stopped, Some("toolUse" | "error" | "aborted"))
}

fn text(message: &Value) -> String {
    match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let texts: Vec<&str> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
            texts.join("\n")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_belongs_to_the_mail_before_it() {
        let user = |id: &str| json!({ "role": "user", "content": [{ "type": "text", "text": format!("<mail-1 id=\"{id}\">") }] });
        let says = |text: &str| json!({ "role": "assistant", "content": [{ "type": "text", "text": text }] });
        let calls = json!({ "role": "assistant", "content": [{ "type": "toolCall", "name": "read" }] });
        let messages = [user("m-1"), calls.clone(), says("first"), user("m-2"), calls, user("m-3"), says("third")];
        assert_eq!(trace(&messages, "m-1"), HistoryMatch::Answered("first".into()));
        assert_eq!(trace(&messages, "m-2"), HistoryMatch::Seen);
        assert_eq!(trace(&messages, "m-3"), HistoryMatch::Answered("third".into()));
        assert_eq!(trace(&messages, "m-"), HistoryMatch::None);
        let cut_off = json!({ "role": "assistant", "stopReason": "toolUse",
            "content": [{ "type": "text", "text": "let me look" }, { "type": "toolCall", "name": "read" }] });
        assert_eq!(trace(&[user("m-1"), cut_off], "m-1"), HistoryMatch::Seen, "on its way to a tool");
    }

    #[test]
    fn an_agent_that_goes_on_after_a_restart_answers_the_mail_before_it() {
        let mail = json!({ "role": "user", "content": "<mail-1 id=\"m-1\">" });
        let recovery = json!({ "role": "user", "content": "[System] Your previous turn was interrupted",
            "provenance": { "kind": "internal_system", "sourceTool": "main_session_restart_recovery" } });
        let says =
            json!({ "role": "assistant", "stopReason": "stop", "content": [{ "type": "text", "text": "first" }] });
        assert_eq!(trace(&[mail.clone(), recovery.clone()], "m-1"), HistoryMatch::Seen);
        assert_eq!(trace(&[mail, recovery, says], "m-1"), HistoryMatch::Answered("first".into()));
    }

    #[test]
    fn what_the_gateway_does_not_show_is_said_to_be_cut() {
        for text in ["begin\n...(truncated)...", "begin\n…(truncated)…", "[chat.history omitted: message too large]"]
        {
            let shown = mark_cut(text.to_owned());
            assert!(shown.ends_with(CUT) && !shown.contains("truncated") && !shown.contains("omitted"), "{shown}");
        }
        assert_eq!(mark_cut("it was (truncated) by me".into()), "it was (truncated) by me");
    }

    #[test]
    fn a_mail_forwarded_by_another_session_is_no_answer() {
        let forwarded = |id: &str| {
            json!({ "role": "assistant", "content": format!("<mail-1 id=\"{id}\">"),
                "provenance": { "kind": "inter_session", "sourceTool": "sessions_send" } })
        };
        let says = json!({ "role": "assistant", "content": [{ "type": "text", "text": "first" }] });
        let messages = [forwarded("m-1"), says, forwarded("m-2")];
        assert_eq!(trace(&messages, "m-1"), HistoryMatch::Answered("first".into()));
        assert_eq!(trace(&messages, "m-2"), HistoryMatch::Seen);
    }
}
