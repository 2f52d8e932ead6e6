//! Whether a session's history contains a message, and what the agent answered: by `chat.history` of the gateway's own protocol,
//! else by the tool `sessions_history`, which shows less of long answers.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::connection::GatewayConnection;
use super::sessions_send::invoke;
use super::{Gateway, late};
use crate::runtime::{Trouble, Turn, TurnError};

/// What a session's history shows of a message.
#[derive(Debug, PartialEq)]
pub(super) enum Trace {
    /// Nothing: the session has not seen it, or too long ago.
    None,
    /// The message, without an answer.
    Seen,
    /// The message and the agent's last answer to it.
    Answered(String),
}

/// What is known about a message in its session.
#[derive(Debug, PartialEq)]
pub(super) struct Recalled {
    pub(super) trace: Trace,
    /// Whether nothing runs in the session that could still answer. Only the gateway's own protocol tells.
    pub(super) is_over: bool,
}

/// The most entries of a session that are searched, which is the most that a gateway returns. A turn may have many: each tool
/// call is one.
const LIMIT: u32 = 1_000;
/// The most characters of an entry that are requested; without a request a gateway returns 8,000.
const MAX_CHARS: u32 = 500_000;
/// How soon a session with a running turn is checked again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// After this uptime a gateway has resumed the turns that its restart interrupted, which it does some seconds after it accepts
/// connections.
const SETTLED: Duration = Duration::from_secs(60);
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

/// Searches the session's history for a message, and waits while a turn runs there that may answer it: a restarted gateway
/// resumes interrupted turns by itself. A gateway that cannot tell yet, for example while it starts, is an error: running the
/// turn instead could run it twice.
pub(super) async fn recall(gateway: &Gateway, turn: &Turn, deadline: Instant) -> Result<Recalled, TurnError> {
    let recalled = match GatewayConnection::open(gateway).await {
        Ok(mut connection) => {
            let recalled = remembered(&mut connection, turn, deadline).await;
            connection.close().await;
            recalled?
        }
        Err(error) if error.trouble == Trouble::Unreachable => return Err(error),
        Err(error) => {
            tracing::debug!(%error, "no connection to the gateway; asking its tool for the history");
            None
        }
    };
    match recalled {
        Some(recalled) => Ok(recalled),
        None => Ok(Recalled { trace: look(gateway, turn).await?, is_over: false }),
    }
}

/// The same over an open connection; `None` where the gateway shows no history. Does not wait for the run of the turn's own key,
/// since that can be joined.
pub(super) async fn remembered(
    connection: &mut GatewayConnection,
    turn: &Turn,
    deadline: Instant,
) -> Result<Option<Recalled>, TurnError> {
    let mut is_idle = false;
    loop {
        let Some(found) = shown(connection, &turn.session_key, deadline).await? else { return Ok(None) };
        let about = |name: &str| found.pointer(&format!("/sessionInfo/{name}"));
        let is_active = about("hasActiveRun").and_then(Value::as_bool).unwrap_or(false);
        let runs = about("activeRunIds").and_then(Value::as_array);
        let is_ours = runs.is_some_and(|runs| runs.iter().any(|run| run.as_str() == Some(&turn.key)));
        let is_last_look = Instant::now() + LOOK_AGAIN > deadline;
        match trace(messages(&found), turn.mail.id.as_str()) {
            // The run goes on, so what was said so far is not the answer.
            Trace::Seen | Trace::Answered(_) if is_ours => {
                return Ok(Some(Recalled { trace: Trace::Seen, is_over: false }));
            }
            Trace::None => return Ok(Some(Recalled { trace: Trace::None, is_over: !is_active })),
            trace @ Trace::Answered(_) if !is_active => return Ok(Some(Recalled { trace, is_over: true })),
            // Read twice: the messages are read before the runs, so an answer may have come in between.
            Trace::Seen if !is_active && (is_last_look || is_idle && connection.uptime() >= SETTLED) => {
                return Ok(Some(Recalled { trace: Trace::Seen, is_over: true }));
            }
            Trace::Seen | Trace::Answered(_) if is_last_look => return Err(late(turn.timeout)),
            Trace::Seen | Trace::Answered(_) => sleep(LOOK_AGAIN).await,
        }
        is_idle = !is_active;
    }
}

/// The history by the gateway's own protocol; `None` where it shows none.
async fn shown(
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
    let found = shown(connection, &turn.session_key, deadline).await.ok()??;
    match trace(messages(&found), turn.mail.id.as_str()) {
        Trace::Answered(text) => Some(text),
        Trace::Seen | Trace::None => None,
    }
}

/// Searches the session's history by a tool. The session reads its own history; a gateway without that tool shows nothing.
pub(super) async fn look(gateway: &Gateway, turn: &Turn) -> Result<Trace, TurnError> {
    let arguments = json!({ "sessionKey": turn.session_key, "limit": LIMIT });
    match invoke(gateway, turn, &turn.session_key, "sessions_history", arguments).await {
        Ok(details) => Ok(trace(messages(&details), turn.mail.id.as_str())),
        Err(error) if matches!(error.trouble, Trouble::NotOffered | Trouble::Refused | Trouble::Failed) => {
            tracing::debug!(%error, "no history to look in");
            Ok(Trace::None)
        }
        Err(error) => Err(error),
    }
}

/// The text, with a note where the gateway has cut it.
fn marked(text: String) -> String {
    let trimmed = text.trim_end();
    match CUTS.iter().find_map(|cut| trimmed.strip_suffix(cut)) {
        Some(beginning) => format!("{beginning}\n{CUT}"),
        None => text,
    }
}

/// The entries of a history, oldest first.
fn messages(history: &Value) -> &[Value] {
    history.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// What these entries show of a message with this id.
fn trace(messages: &[Value], id: &str) -> Trace {
    // The frame around a message names its id, which is unique; a body cannot imitate the attribute.
    let mark = format!("id=\"{id}\"");
    let role = |message: &Value, wanted: &str| message.get("role").and_then(Value::as_str) == Some(wanted);
    // What another session sent is shown as if the agent had said it; only its provenance differs. A restarted gateway tells the
    // agent to resume what was interrupted: that is not another question either.
    let provenance = |message: &Value| message.pointer("/provenance/kind").and_then(Value::as_str).map(str::to_owned);
    let is_input = |message: &Value| match provenance(message).as_deref() {
        Some("internal_system") => false,
        Some(_) => true,
        None => role(message, "user"),
    };
    let asked = messages.iter().rposition(|message| is_input(message) && text(message).contains(&mark));
    let Some(asked) = asked else { return Trace::None };
    // Text before a tool call is no answer: a turn that was interrupted there has none.
    let last = messages[asked + 1..].iter().take_while(|message| !is_input(message)).last();
    match last.filter(|message| role(message, "assistant") && is_final(message)).map(text) {
        Some(text) if !text.trim().is_empty() => Trace::Answered(marked(text)),
        _ => Trace::Seen,
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
        assert_eq!(trace(&messages, "m-1"), Trace::Answered("first".into()));
        assert_eq!(trace(&messages, "m-2"), Trace::Seen);
        assert_eq!(trace(&messages, "m-3"), Trace::Answered("third".into()));
        assert_eq!(trace(&messages, "m-"), Trace::None);
        let cut_off = json!({ "role": "assistant", "stopReason": "toolUse",
            "content": [{ "type": "text", "text": "let me look" }, { "type": "toolCall", "name": "read" }] });
        assert_eq!(trace(&[user("m-1"), cut_off], "m-1"), Trace::Seen, "on its way to a tool");
    }

    #[test]
    fn an_agent_that_goes_on_after_a_restart_answers_the_mail_before_it() {
        let mail = json!({ "role": "user", "content": "<mail-1 id=\"m-1\">" });
        let recovery = json!({ "role": "user", "content": "[System] Your previous turn was interrupted",
            "provenance": { "kind": "internal_system", "sourceTool": "main_session_restart_recovery" } });
        let says =
            json!({ "role": "assistant", "stopReason": "stop", "content": [{ "type": "text", "text": "first" }] });
        assert_eq!(trace(&[mail.clone(), recovery.clone()], "m-1"), Trace::Seen);
        assert_eq!(trace(&[mail, recovery, says], "m-1"), Trace::Answered("first".into()));
    }

    #[test]
    fn what_the_gateway_does_not_show_is_said_to_be_cut() {
        for text in ["begin\n...(truncated)...", "begin\n…(truncated)…", "[chat.history omitted: message too large]"]
        {
            let shown = marked(text.to_owned());
            assert!(shown.ends_with(CUT) && !shown.contains("truncated") && !shown.contains("omitted"), "{shown}");
        }
        assert_eq!(marked("it was (truncated) by me".into()), "it was (truncated) by me");
    }

    #[test]
    fn a_mail_forwarded_by_another_session_is_no_answer() {
        let forwarded = |id: &str| {
            json!({ "role": "assistant", "content": format!("<mail-1 id=\"{id}\">"),
                "provenance": { "kind": "inter_session", "sourceTool": "sessions_send" } })
        };
        let says = json!({ "role": "assistant", "content": [{ "type": "text", "text": "first" }] });
        let messages = [forwarded("m-1"), says, forwarded("m-2")];
        assert_eq!(trace(&messages, "m-1"), Trace::Answered("first".into()));
        assert_eq!(trace(&messages, "m-2"), Trace::Seen);
    }
}
