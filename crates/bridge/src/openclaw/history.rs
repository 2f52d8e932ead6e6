//! Whether a session has seen a mail, and what its agent has answered: `sessions_history`.

use serde_json::{Value, json};

use super::Gateway;
use super::sessions_send::invoke;
use crate::runtime::{Trouble, Turn, TurnError};

/// What is left of a mail in a session.
#[derive(Debug, PartialEq)]
pub(super) enum Trace {
    /// Nothing: the session has not seen it, or so long ago that it is not shown.
    None,
    /// It has been read; nothing was said since.
    Seen,
    /// The last that the agent said to it.
    Answered(String),
}

/// The most messages of a session that are looked through.
pub(super) const LIMIT: u32 = 50;

/// Looks for a mail in its session. The session reads its own history; a gateway without that tool shows nothing. A
/// gateway that cannot say now (it is just starting, say) is an error: running the turn instead could make it two.
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

/// The messages of a history, oldest first.
pub(super) fn messages(history: &Value) -> &[Value] {
    history.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// What messages show of a mail with this id.
pub(super) fn trace(messages: &[Value], id: &str) -> Trace {
    // The frame around a mail names its id, which no other mail has; a body cannot imitate the attribute.
    let mark = format!("id=\"{id}\"");
    let role = |message: &Value, wanted: &str| message.get("role").and_then(Value::as_str) == Some(wanted);
    // What another session has sent is shown as if the agent had said it, but for its provenance.
    // A gateway that was restarted tells the agent itself to go on with what was cut off: that is no other question.
    let provenance = |message: &Value| message.pointer("/provenance/kind").and_then(Value::as_str).map(str::to_owned);
    let is_input = |message: &Value| match provenance(message).as_deref() {
        Some("internal_system") => false,
        Some(_) => true,
        None => role(message, "user"),
    };
    let asked = messages.iter().rposition(|message| is_input(message) && text(message).contains(&mark));
    let Some(asked) = asked else { return Trace::None };
    // What the agent says on its way to a tool is no answer: a turn that was cut off there has none.
    let last = messages[asked + 1..].iter().take_while(|message| !is_input(message)).last();
    match last.filter(|message| role(message, "assistant") && is_final(message)).map(text) {
        Some(text) if !text.trim().is_empty() => Trace::Answered(text),
        _ => Trace::Seen,
    }
}

/// Whether the turn ended with this message.
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
