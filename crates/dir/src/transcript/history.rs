//! Where the history of a chat can be had when no transcript was kept.

use amb_core::OfficeError;
use amb_core::transcript::{Line, TranscriptKey};
use async_trait::async_trait;

/// A source of a chat's history other than the transcript: the chat service itself, mostly.
#[async_trait]
pub trait HistorySource: Send + Sync {
    /// The last `limit` lines of the chat, oldest first, each message once.
    async fn recent(&self, key: &TranscriptKey, limit: usize) -> Result<Vec<Line>, OfficeError>;
}
