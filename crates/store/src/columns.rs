//! Columns to insert for a message, the same for both databases.

use std::borrow::Cow;

use amb_core::Timestamp;
use amb_core::route::Hop;
use uuid::Uuid;

use crate::error::Result;
use crate::outgoing::{OutgoingMessage, json_of, trace_json};
use crate::quota::Stored;
use crate::row::{kind_text, rank};
use crate::types::{Agent, AgentKey};

/// A recipient of a message.
#[derive(Debug, Clone, Copy)]
pub struct Addressee {
    pub(crate) agent: AgentKey,
    /// Whether the sender is the person of this agent's household; decided only by [`Consent::marks_person`].
    ///
    /// [`Consent::marks_person`]: amb_core::consent::Consent::marks_person
    pub(crate) from_person: bool,
}

/// Columns to insert for a message; JSON is serialized.
#[derive(Debug)]
pub struct Columns<'a> {
    pub(crate) id: Uuid,
    pub(crate) sender: i64,
    /// The agent that is charged for it: its sender, unless the office wrote it in the sender's name.
    pub(crate) payer: i64,
    pub(crate) at: Timestamp,
    pub(crate) priority: i16,
    pub(crate) ttl: u8,
    pub(crate) kind: Option<&'a str>,
    pub(crate) trace: Option<String>,
    pub(crate) reply_to: Option<Uuid>,
    pub(crate) correlation_id: Option<&'a str>,
    pub(crate) task: Option<String>,
    pub(crate) callback: Option<String>,
    pub(crate) content: Cow<'a, str>,
    pub(crate) parts: Option<String>,
    pub(crate) metadata: Option<String>,
}

impl<'a> Columns<'a> {
    /// Returns the columns of a message that is charged to its sender.
    pub(crate) fn new(caller: &Agent, message: &'a OutgoingMessage, hop: &Hop, task: Option<String>) -> Result<Self> {
        Ok(Self {
            id: message.id,
            sender: caller.key.0,
            payer: caller.key.0,
            at: message.at,
            priority: rank(message.priority),
            ttl: hop.ttl,
            kind: kind_text(&message.kind),
            trace: trace_json(hop)?,
            reply_to: message.reply_to(),
            correlation_id: message.correlation_id.as_ref().map(|id| id.as_str()),
            task,
            callback: json_of(message.callback.as_ref())?,
            content: message.content_to_store(),
            parts: json_of(message.parts.as_ref())?,
            metadata: message.metadata_json()?,
        })
    }

    /// Returns the storage that it takes with so many recipients.
    pub(crate) fn stored(&self, copies: usize) -> Stored {
        let json = [&self.parts, &self.metadata, &self.callback];
        let bytes = self.content.len() + json.into_iter().flatten().map(String::len).sum::<usize>();
        Stored::message(copies, bytes)
    }
}
