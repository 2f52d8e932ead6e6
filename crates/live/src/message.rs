//! What goals send each other: core's wire format under the names that runtimes use, and its rendering for a model.

use amb_core::limits::MAX_ID_CHARS;
pub use amb_core::render::render_peer_messages_block;
use amb_core::wire::WireError;
use amb_core::wire::inbox::check_body;
pub use amb_core::wire::inbox::{
    INBOX_SUBJECT_PREFIX, InboxMessage, MAX_BODY_BYTES, MIN_BODY_CHARS, goal_of as goal_of_subject,
    subject_of as inbox_subject,
};

/// Why a payload is not a message.
#[derive(Debug, thiserror::Error)]
pub enum BadPayload {
    /// The bytes are no message.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The message breaks a bound that our senders keep.
    #[error("{0}")]
    Content(String),
}

/// Checks that a received message keeps the bounds of `send_to_peer`.
pub(crate) fn check(message: &InboxMessage) -> Result<(), BadPayload> {
    check_body(&message.body).map_err(|error| BadPayload::Content(error.to_string()))?;
    for (field, text) in [("from_agent_id", &message.from_agent_id), ("to_agent_id", &message.to_agent_id)] {
        if text.is_empty() || text.chars().count() > MAX_ID_CHARS {
            return Err(BadPayload::Content(format!("`{field}` has 1 to {MAX_ID_CHARS} characters")));
        }
    }
    Ok(())
}
