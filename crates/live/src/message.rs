//! Stand-in until core's wire format lands.

use amb_core::{GoalId, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Subject prefix.
pub const INBOX_SUBJECT_PREFIX: &str = "agent.inbox";
/// Fewest characters.
pub const MIN_BODY_CHARS: usize = 1;
/// Most bytes.
pub const MAX_BODY_BYTES: usize = 64 * 1024;

/// A message between goals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InboxMessage {
    /// From.
    pub from_agent_id: String,
    /// From goal.
    pub from_goal_id: GoalId,
    /// To.
    pub to_agent_id: String,
    /// Body.
    pub body: String,
    /// When.
    pub sent_at: Timestamp,
    /// Correlation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<Uuid>,
}

/// Why bytes are not a message.
#[derive(Debug, thiserror::Error)]
#[error("not an inbox message: {0}")]
pub struct BadPayload(String);

pub(crate) fn encode(message: &InboxMessage) -> Result<Vec<u8>, BadPayload> {
    serde_json::to_vec(message).map_err(|bad| BadPayload(bad.to_string()))
}

pub(crate) fn decode(bytes: &[u8]) -> Result<InboxMessage, BadPayload> {
    #[derive(Deserialize)]
    struct Envelope {
        payload: InboxMessage,
    }
    serde_json::from_slice(bytes).or_else(|bad| {
        let Envelope { payload } = serde_json::from_slice(bytes).map_err(|_| BadPayload(bad.to_string()))?;
        Ok(payload)
    })
}

/// The subject of a goal's inbox.
pub fn inbox_subject(goal: GoalId) -> String {
    format!("{INBOX_SUBJECT_PREFIX}.{goal}")
}

/// The goal that a subject addresses.
pub fn goal_of_subject(subject: &str) -> Option<GoalId> {
    subject.strip_prefix(INBOX_SUBJECT_PREFIX)?.strip_prefix('.')?.parse().ok()
}

/// What peers sent, as one block for a model; `None` where they sent nothing. No body can imitate the frame.
pub fn render_peer_messages_block(messages: &[InboxMessage]) -> Option<String> {
    amb_core::render::render_peer_messages(messages.iter().map(|message| amb_core::render::PeerMessage {
        from: &message.from_agent_id,
        sent_at: message.sent_at,
        correlation_id: message.correlation_id.as_ref().map(|id| id as &dyn std::fmt::Display),
        body: &message.body,
    }))
}
