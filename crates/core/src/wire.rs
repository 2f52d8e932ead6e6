//! The files and payloads of other systems: read leniently, written strictly, with exactly the fields that the format's
//! own description names.
//!
//! | module | format |
//! |---|---|
//! | [`nanobot`] | message file `.msg.json` |
//! | [`registry`] | `_registry.json` beside those mailboxes |
//! | [`chipset`] | mail file `.json` with sorted keys |
//! | [`transcript`] | one line of a transcript, JSONL |
//! | [`inbox`] | what live peers send: `InboxMessage`, bare or in an event envelope |
//! | [`stamp`], [`filename`] | the timestamps of all of them, in fields and in file names |

use std::borrow::Cow;

pub mod chipset;
pub mod filename;
pub mod inbox;
mod json;
pub mod nanobot;
mod parts;
pub mod registry;
pub mod stamp;
pub mod transcript;

#[cfg(test)]
mod testing;

pub use stamp::Stamp;

use crate::error::OfficeError;
use crate::id::MessageId;

/// Why bytes do not parse. Names the field, so that the author of the file can fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Not JSON at all, or cut off.
    #[error("not JSON: {0}")]
    NotJson(String),
    /// JSON of another type than an object.
    #[error("a JSON object was expected, not {0}")]
    NotAnObject(&'static str),
    /// A field that is missing or malformed.
    #[error("field {field:?} {problem}")]
    Field {
        /// The field, with dots between levels.
        field: Cow<'static, str>,
        /// What is wrong with it.
        problem: String,
    },
}

impl WireError {
    /// The error for a malformed field.
    pub fn field(field: impl Into<Cow<'static, str>>, problem: impl Into<String>) -> Self {
        Self::Field { field: field.into(), problem: problem.into() }
    }

    pub(crate) fn missing(field: &'static str) -> Self {
        Self::field(field, "is missing")
    }
}

impl From<WireError> for OfficeError {
    fn from(error: WireError) -> Self {
        Self::invalid(error.to_string())
    }
}

/// The UUID namespace of [`id_from`]; it must never change.
const FILE_SPACE: uuid::Uuid = uuid::Uuid::from_u128(0x3b0d_94c1_58e7_5f20_8a6b_c0d9_1e72_44af);

/// The id of a message that has none of its own: the text if it is a valid id, else its hash, so that the same file
/// always has the same id.
pub(crate) fn id_from(text: &str) -> MessageId {
    MessageId::parse(text).unwrap_or_else(|_| uuid::Uuid::new_v5(&FILE_SPACE, text.as_bytes()).into())
}

/// Serializes into a buffer of this initial capacity.
pub(crate) fn compact(value: &impl serde::Serialize, capacity: usize) -> Result<Vec<u8>, WireError> {
    let mut out = Vec::with_capacity(capacity);
    serde_json::to_writer(&mut out, value).map_err(|error| WireError::NotJson(error.to_string()))?;
    Ok(out)
}

/// Like [`compact`], indented by two spaces and ended with a newline, for files that people read and diff.
pub(crate) fn pretty(value: &impl serde::Serialize, capacity: usize) -> Result<Vec<u8>, WireError> {
    let mut out = Vec::with_capacity(capacity);
    serde_json::to_writer_pretty(&mut out, value).map_err(|error| WireError::NotJson(error.to_string()))?;
    out.push(b'\n');
    Ok(out)
}
