//! Bodies that runtimes, not models, act on: JSON objects with a `type`.

use amb_core::{MessageId, Object, SessionId};
use serde::{Deserialize, Serialize};

/// A structured body. [`Protocol::parse`] returns `None` for plain text.
///
/// ```
/// use amb_live::Protocol;
/// let body = Protocol::parse(r#"{"type":"shutdown_request","reason":"budget"}"#).unwrap();
/// assert_eq!(body, Protocol::ShutdownRequest { reason: Some("budget".into()), extra: Default::default() });
/// assert_eq!(body.to_body(), r#"{"type":"shutdown_request","reason":"budget"}"#);
/// assert_eq!(Protocol::parse("please shut down"), None);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Protocol {
    /// Asks the peer to end its run.
    ShutdownRequest {
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Fields of other systems, kept.
        #[serde(flatten)]
        extra: Object,
    },
    /// Answers such a request.
    ShutdownResponse {
        /// Which request: its correlation id.
        request_id: String,
        /// Whether the peer ends its run.
        approved: bool,
        /// Why not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Fields of other systems, kept.
        #[serde(flatten)]
        extra: Object,
    },
    /// Lays a plan before the peer.
    PlanApprovalRequest {
        /// Names the request in the answer.
        request_id: String,
        /// The plan.
        plan: String,
        /// Fields of other systems, kept.
        #[serde(flatten)]
        extra: Object,
    },
    /// Answers a plan.
    PlanApprovalResponse {
        /// Which request.
        request_id: String,
        /// Whether the plan may be carried out.
        approved: bool,
        /// What to change.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        feedback: Option<String>,
        /// Fields of other systems, kept.
        #[serde(flatten)]
        extra: Object,
    },
    /// The sender has finished what it was asked to do.
    Done {
        /// In one line.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<String>,
        /// The result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<String>,
        /// Fields of other systems, kept.
        #[serde(flatten)]
        extra: Object,
    },
    /// A hint: durable mail arrived for the agent.
    NewMail {
        /// Which message.
        message_id: MessageId,
        /// Its session.
        session_id: SessionId,
        /// The session's subject.
        subject: String,
        /// How the text begins.
        preview: String,
        /// Fields of other systems, kept.
        #[serde(flatten)]
        extra: Object,
    },
    /// A hint: mail was unread when the goal started.
    UnreadMail {
        /// How many messages.
        unread: u64,
        /// Fields of other systems, kept.
        #[serde(flatten)]
        extra: Object,
    },
}

impl Protocol {
    /// Parses a structured body; `None` for anything else.
    pub fn parse(body: &str) -> Option<Self> {
        let body = body.trim();
        // Nearly every body is prose, recognised by its first byte.
        if !body.starts_with('{') {
            return None;
        }
        serde_json::from_str(body).ok()
    }

    /// The text to send.
    pub fn to_body(&self) -> String {
        // Maps with text keys only: this cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structured_bodies_keep_their_shape_and_unknown_fields() {
        for body in [
            r#"{"type":"shutdown_request"}"#,
            r#"{"type":"shutdown_request","reason":"budget","by":"lead"}"#,
            r#"{"type":"shutdown_response","request_id":"r1","approved":false,"reason":"busy"}"#,
            r#"{"type":"plan_approval_request","request_id":"r2","plan":"1. read\n2. write"}"#,
            r#"{"type":"plan_approval_response","request_id":"r2","approved":true}"#,
            r#"{"type":"done","summary":"all green","x":[1,2]}"#,
            r#"{"type":"new_mail","message_id":"m","session_id":"s","subject":"Plan","preview":"hi"}"#,
            r#"{"type":"unread_mail","unread":3}"#,
        ] {
            let parsed = Protocol::parse(body).unwrap_or_else(|| panic!("{body}"));
            assert_eq!(parsed.to_body(), body);
        }
    }

    #[test]
    fn anything_else_is_plain_text() {
        for body in ["", "hello", "{", "[1]", r#"{"type":"dance"}"#, r#"{"type":"shutdown_response"}"#, r#"{"a":1}"#] {
            assert_eq!(Protocol::parse(body), None, "{body}");
        }
    }
}
