//! The messages of the Agent Client Protocol that a bridge needs.
//!
//! Written by hand instead of with the crate `agent-client-protocol` (5.0.0), which bounds neither its queues nor its
//! lines and turns on `serde_json/preserve_order` for the whole binary: ARCHITECTURE.md has the facts. What is sent is
//! strict; what is received is read leniently, since agents add fields and kinds of updates.

use serde_json::{Value, json};

/// The protocol version that the bridge asks for.
pub(super) const VERSION: u64 = 1;

/// JSON-RPC: no such method.
pub(super) const METHOD_NOT_FOUND: i64 = -32601;
/// JSON-RPC: invalid parameters. Some agents return it for a session that they do not know.
pub(super) const INVALID_PARAMS: i64 = -32602;
/// The agent requires authentication first.
pub(super) const AUTH_REQUIRED: i64 = -32000;
/// There is no such session.
pub(super) const NOT_FOUND: i64 = -32002;

/// An error that the agent returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RpcError {
    pub(super) code: i64,
    /// Its message and data, in one line.
    pub(super) message: String,
}

/// One line from the agent.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RpcMessage {
    Response { id: u64, result: Result<Value, RpcError> },
    Request { id: Value, method: String, params: Value },
    Notification { method: String, params: Value },
}

/// Parses a line. `None` where it is not a message of the protocol.
pub(super) fn parse(line: &[u8]) -> Option<RpcMessage> {
    let mut value: Value = serde_json::from_slice(line).ok()?;
    let object = value.as_object_mut()?;
    let id = object.remove("id").filter(|id| !id.is_null());
    let params = object.remove("params").unwrap_or(Value::Null);
    match (object.remove("method"), id) {
        (Some(Value::String(method)), Some(id)) => Some(RpcMessage::Request { id, method, params }),
        (Some(Value::String(method)), None) => Some(RpcMessage::Notification { method, params }),
        (None, Some(id)) => {
            let result = match (object.remove("error"), object.remove("result")) {
                (Some(error), _) if !error.is_null() => Err(parse_error(&error)),
                (_, Some(result)) => Ok(result),
                _ => Ok(Value::Null),
            };
            Some(RpcMessage::Response { id: id.as_u64()?, result })
        }
        _ => None,
    }
}

fn parse_error(error: &Value) -> RpcError {
    let message = error.get("message").and_then(Value::as_str).unwrap_or("an error without a message");
    let message = match error.get("data") {
        Some(Value::String(data)) => format!("{message}: {data}"),
        Some(data @ (Value::Object(_) | Value::Array(_))) => format!("{message}: {data}"),
        _ => message.to_owned(),
    };
    RpcError { code: error.get("code").and_then(Value::as_i64).unwrap_or_default(), message }
}

pub(super) fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

pub(super) fn notification(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

pub(super) fn response(id: &Value, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

/// The response to a request for a method that the bridge does not offer.
pub(super) fn not_offered(id: &Value, method: &str) -> Value {
    json!({
        "jsonrpc": "2.0", "id": id,
        "error": { "code": METHOD_NOT_FOUND, "message": format!("Method not found: {method}") },
    })
}

/// Offers the agent no client capabilities: no files, no terminals. It works under its own rules.
pub(super) fn initialize() -> Value {
    json!({
        "protocolVersion": VERSION,
        "clientCapabilities": { "fs": { "readTextFile": false, "writeTextFile": false }, "terminal": false },
        "clientInfo": { "name": "amb", "title": "Agent Mailbox", "version": env!("CARGO_PKG_VERSION") },
    })
}

pub(super) fn prompt(session: &str, text: &str) -> Value {
    json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_apart_and_garbage_is_none() {
        let response = parse(br#"{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}"#);
        assert_eq!(response, Some(RpcMessage::Response { id: 3, result: Ok(json!({"stopReason": "end_turn"})) }));
        let failed = parse(br#"{"id":4,"error":{"code":-32000,"message":"Authentication required","data":{"a":1}}}"#);
        let error = RpcError { code: AUTH_REQUIRED, message: "Authentication required: {\"a\":1}".into() };
        assert_eq!(failed, Some(RpcMessage::Response { id: 4, result: Err(error) }));
        let asked = parse(br#"{"id":"x","method":"session/request_permission","params":{}}"#);
        assert!(matches!(asked, Some(RpcMessage::Request { .. })), "{asked:?}");
        assert!(matches!(parse(br#"{"method":"session/update"}"#), Some(RpcMessage::Notification { .. })));
        for garbage in ["", "Loading ...", "[1]", "{}", "\"text\"", "{\"id\":\"ours is a number\",\"result\":1}"] {
            assert_eq!(parse(garbage.as_bytes()), None, "{garbage}");
        }
    }
}
