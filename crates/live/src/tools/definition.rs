//! The tools as a model is shown them, and called with the JSON it writes.

use serde_json::{Map, Value, json};

use super::{PeerContext, SendError, SendToPeer, list_peers, send_to_peer};

/// A tool's name, what it is for, and the JSON schema of its arguments.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    /// Its name.
    pub name: &'static str,
    /// What it is for, for the model.
    pub description: &'static str,
    /// The schema of its arguments.
    pub input_schema: Value,
}

/// Both tools.
pub fn definitions() -> [ToolDefinition; 2] {
    [
        ToolDefinition {
            name: "list_peers",
            description: "List the other agents that are live. Use it before send_to_peer to learn valid `to` names.",
            input_schema: json!({"type": "object", "properties": {}, "additionalProperties": false}),
        },
        ToolDefinition {
            name: "send_to_peer",
            description: "Send a message to every live goal of a peer. Your plain output is not visible to peers; this is. \
                          `*` reaches all peers and is expensive.",
            input_schema: json!({
                "type": "object",
                "properties": {
                    "to": {"type": "string", "description": "agent_id from list_peers, or *"},
                    "message": {"type": "string", "description": "up to 64 KB"},
                    "correlation_id": {"type": "string", "format": "uuid", "description": "repeat a peer's to answer it"},
                    "durable": {"type": "boolean", "description": "leave it in the peer's mailbox if it is not live"},
                },
                "required": ["to", "message"],
                "additionalProperties": false,
            }),
        },
    ]
}

/// Calls a tool by name. `None` where there is no such tool.
pub async fn call(context: &PeerContext, tool: &str, arguments: &Value) -> Option<Result<Value, SendError>> {
    Some(match tool {
        "list_peers" => Ok(json!(list_peers(context))),
        "send_to_peer" => match parse_arguments(arguments) {
            Ok(send) => send_to_peer(context, &send).await.map(|report| json!(report)),
            Err(error) => Err(error),
        },
        _ => return None,
    })
}

fn parse_arguments(arguments: &Value) -> Result<SendToPeer, SendError> {
    let nothing = Map::new();
    let fields = match arguments {
        Value::Object(fields) => fields,
        Value::Null => &nothing,
        _ => return Err(SendError::BadArgument("the arguments are not a JSON object".into())),
    };
    let text = |name: &str| match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(SendError::BadArgument(format!("`{name}` is not text"))),
    };
    if let Some(unknown) =
        fields.keys().find(|name| !["to", "message", "correlation_id", "durable"].contains(&name.as_str()))
    {
        let unknown: String = unknown.chars().take(100).collect();
        return Err(SendError::BadArgument(format!("`{unknown}` is not an argument of send_to_peer")));
    }
    let durable = match fields.get("durable") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(durable)) => *durable,
        Some(_) => return Err(SendError::BadArgument("`durable` is not true or false".into())),
    };
    Ok(SendToPeer {
        to: text("to")?.unwrap_or_default(),
        message: text("message")?.unwrap_or_default(),
        correlation_id: text("correlation_id")?,
        durable,
    })
}
