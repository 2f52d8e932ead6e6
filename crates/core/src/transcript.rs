//! The shared record of one group chat, written by many processes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize, Serializer};

use crate::error::OfficeError;
use crate::limits::MAX_TRANSCRIPT_KEY_CHARS;
use crate::name::AgentName;
use crate::wire::transcript::whole_millis;

/// The key of a chat, such as `{channel}:{chat_id}`: 1–255 characters without control characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct TranscriptKey(Box<str>);

impl TranscriptKey {
    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TranscriptKey {
    type Err = OfficeError;

    fn from_str(text: &str) -> Result<Self, OfficeError> {
        if text.is_empty() || text.chars().count() > MAX_TRANSCRIPT_KEY_CHARS || text.contains(char::is_control) {
            return Err(OfficeError::invalid(format!(
                "a transcript's key has 1 to {MAX_TRANSCRIPT_KEY_CHARS} characters, such as feishu:oc_123"
            )));
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for TranscriptKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// One line of a group chat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Line {
    /// `user` for people, `assistant` for agents.
    #[cfg_attr(feature = "openapi", schema(max_length = 255, pattern = "^[^\\x00]*$"))]
    pub role: String,
    /// The text.
    #[cfg_attr(feature = "openapi", schema(max_length = 100000, pattern = "^[^\\x00]*$"))]
    pub content: String,
    /// The speaker, as named by the writer of the line.
    #[cfg_attr(feature = "openapi", schema(max_length = 255, pattern = "^[^\\x00]*$"))]
    pub sender: String,
    /// The agent that wrote the line, set by the office and ignored in a new line. A directory does not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<AgentName>,
    /// The chat's id of the message; a second line with the same id is the same line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 255, pattern = "^[^\\x00]*$"))]
    pub message_id: Option<String>,
    /// Milliseconds since 1970; set by the office if missing.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "millis")]
    pub ts: Option<f64>,
}

/// Whole milliseconds are written without a decimal point, as in the files.
fn millis<S: Serializer>(ts: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
    ts.and_then(whole_millis).serialize(to)
}
