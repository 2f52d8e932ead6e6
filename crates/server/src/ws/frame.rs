//! Messages of WebSocket clients, and the replies to them.

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
    /// Anything else, with the text of the error.
    Invalid(&'static str),
}

#[derive(Deserialize)]
struct FrameFields<'a> {
    #[serde(rename = "type", borrow)]
    kind: std::borrow::Cow<'a, str>,
    api_key: Option<String>,
    since: Option<serde_json::Value>,
}

/// Parses a message of a client.
pub(super) fn parse(text: &str) -> ClientFrame {
    let Ok(FrameFields { kind, api_key, since }) = serde_json::from_str(text) else {
        return ClientFrame::Invalid("a message is a JSON object with a type: ping or auth");
    };
    match (&*kind, api_key, since.map(|since| since.as_u64())) {
        ("ping", ..) => ClientFrame::Ping,
        ("auth", None, _) => ClientFrame::Invalid("auth needs an api_key"),
        ("auth", _, Some(None)) => {
            ClientFrame::Invalid("since is the cursor of an event, a whole number; leave it out to begin now")
        }
        ("auth", Some(api_key), since) => ClientFrame::Auth { api_key, since: since.flatten() },
        _ => ClientFrame::Invalid("the types of messages are ping and auth; everything else is done over HTTP"),
    }
}

/// `{"type":"pong"}`.
pub(super) fn pong() -> Message {
    Message::Text(Utf8Bytes::from_static(r#"{"type":"pong"}"#))
}

/// The reply to an invalid message; the socket stays open.
pub(super) fn error(detail: &str) -> Message {
    Message::Text(json!({"type": "error", "code": "invalid", "detail": detail}).to_string().into())
}

/// The reply to an `auth` message with a valid key.
pub(super) fn authenticated(name: &str, cursor: u64) -> Message {
    Message::Text(json!({"type": "authenticated", "agent_name": name, "cursor": cursor}).to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_ping_and_authenticate_and_the_rest_is_answered_with_an_error() {
        assert_eq!(parse(r#"{"type":"ping"}"#), ClientFrame::Ping);
        let auth = parse(r#"{"type":"auth","api_key":"k","since":7}"#);
        assert_eq!(auth, ClientFrame::Auth { api_key: "k".into(), since: Some(7) });
        assert_eq!(
            parse(r#"{"type":"auth","api_key":"k","since":null}"#),
            ClientFrame::Auth { api_key: "k".into(), since: None }
        );
        for odd in [r#""7""#, "-1", "1.5", "true"] {
            let ClientFrame::Invalid(why) = parse(&format!(r#"{{"type":"auth","api_key":"k","since":{odd}}}"#)) else {
                panic!("{odd} is no cursor");
            };
            assert!(why.contains("since"), "{why}");
        }
        for odd in ["", "ping", "[]", r#"{"type":"auth"}"#, r#"{"type":7}"#, r#"{"type":"send"}"#] {
            assert!(matches!(parse(odd), ClientFrame::Invalid(_)), "{odd}");
        }
    }
}
