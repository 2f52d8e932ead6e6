//! Messages of clients over a WebSocket, and the answers to them.

use axum::extract::ws::{Message, Utf8Bytes};
use serde::Deserialize;
use serde_json::json;

/// A message of a client.
#[derive(Debug, PartialEq)]
pub(super) enum ClientFrame {
    /// Answered with a pong.
    Ping,
    /// The key, and the cursor to continue from.
    Auth { api_key: String, since: Option<u64> },
    /// Anything else, with the reason why it is refused.
    Unknown(&'static str),
}

#[derive(Deserialize)]
struct FrameFields<'a> {
    #[serde(rename = "type", borrow)]
    kind: std::borrow::Cow<'a, str>,
    api_key: Option<String>,
    since: Option<serde_json::Value>,
}

/// Parses a message of a client.
pub(super) fn read(text: &str) -> ClientFrame {
    match serde_json::from_str::<FrameFields<'_>>(text) {
        Err(_) => ClientFrame::Unknown("a message is a JSON object with a type: ping or auth"),
        Ok(form) => match (&*form.kind, form.api_key) {
            ("ping", _) => ClientFrame::Ping,
            ("auth", Some(api_key)) => match form.since {
                None => ClientFrame::Auth { api_key, since: None },
                Some(since) => match since.as_u64() {
                    Some(since) => ClientFrame::Auth { api_key, since: Some(since) },
                    None => ClientFrame::Unknown(
                        "since is the cursor of an event, a whole number; leave it out to begin now",
                    ),
                },
            },
            ("auth", None) => ClientFrame::Unknown("auth needs an api_key"),
            _ => ClientFrame::Unknown("the types of messages are ping and auth; everything else is done over HTTP"),
        },
    }
}

/// `{"type":"pong"}`.
pub(super) fn pong() -> Message {
    Message::Text(Utf8Bytes::from_static(r#"{"type":"pong"}"#))
}

/// What was wrong with a message; the socket stays open.
pub(super) fn error(detail: &str) -> Message {
    Message::Text(json!({"type": "error", "code": "invalid", "detail": detail}).to_string().into())
}

/// The answer to a first message with a good key.
pub(super) fn authenticated(name: &str, cursor: u64) -> Message {
    Message::Text(json!({"type": "authenticated", "agent_name": name, "cursor": cursor}).to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_ping_and_authenticate_and_the_rest_is_answered_with_an_error() {
        assert_eq!(read(r#"{"type":"ping"}"#), ClientFrame::Ping);
        let auth = read(r#"{"type":"auth","api_key":"k","since":7}"#);
        assert_eq!(auth, ClientFrame::Auth { api_key: "k".into(), since: Some(7) });
        assert_eq!(
            read(r#"{"type":"auth","api_key":"k","since":null}"#),
            ClientFrame::Auth { api_key: "k".into(), since: None }
        );
        for odd in [r#""7""#, "-1", "1.5", "true"] {
            let ClientFrame::Unknown(why) = read(&format!(r#"{{"type":"auth","api_key":"k","since":{odd}}}"#)) else {
                panic!("{odd} is no cursor");
            };
            assert!(why.contains("since"), "{why}");
        }
        for odd in ["", "ping", "[]", r#"{"type":"auth"}"#, r#"{"type":7}"#, r#"{"type":"send"}"#] {
            assert!(matches!(read(odd), ClientFrame::Unknown(_)), "{odd}");
        }
    }
}
