//! Whether a session has seen a mail, and what its agent has answered: `sessions_history`.

use serde_json::{Value, json};

use super::Gateway;
use super::sessions_send::invoke;
use crate::runtime::{Turn, TurnError};

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

/// Looks for a mail in its session. The session reads its own history, which no gateway forbids.
pub(super) async fn look(gateway: &Gateway, turn: &Turn) -> Result<Trace, TurnError> {
    let arguments = json!({ "sessionKey": turn.session_key, "limit": 50 });
    let details = invoke(gateway, turn, &turn.session_key, "sessions_history", arguments).await?;
    let messages = details.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    Ok(trace(messages, turn.mail.id.as_str()))
}

fn trace(messages: &[Value], id: &str) -> Trace {
    // The frame around a mail names its id, which no other mail has; a body cannot imitate the attribute.
    let mark = format!("id=\"{id}\"");
    let role = |message: &Value, wanted: &str| message.get("role").and_then(Value::as_str) == Some(wanted);
    // What another session has sent is shown as if the agent had said it, but for its provenance.
    let is_input = |message: &Value| role(message, "user") || message.pointer("/provenance/kind").is_some();
    let asked = messages.iter().rposition(|message| is_input(message) && text(message).contains(&mark));
    let Some(asked) = asked else { return Trace::None };
    let said = messages[asked + 1..].iter().take_while(|message| !is_input(message));
    let said = said.filter(|message| role(message, "assistant")).map(text);
    match said.filter(|text| !text.trim().is_empty()).last() {
        Some(text) => Trace::Answered(text),
        None => Trace::Seen,
    }
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
