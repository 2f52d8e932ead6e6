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

/// One who gets a message.
#[derive(Debug, Clone, Copy)]
pub struct Addressee {
    pub(crate) agent: AgentKey,
    /// Whether the sender is the person of this agent's household. Only the office says so, by [`Consent::marks_person`].
    ///
    /// [`Consent::marks_person`]: amb_core::consent::Consent::marks_person
    pub(crate) from_person: bool,
}

/// Columns to insert for a message; JSON is text already.
#[derive(Debug)]
pub struct Columns<'a> {
    pub(crate) id: Uuid,
    pub(crate) sender: i64,
    /// To whom it is charged: its sender, unless the office wrote it in that one's name.
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
    /// The columns of a message that its sender pays for.
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
            content: message.content_to_keep(),
            parts: json_of(message.parts.as_ref())?,
            metadata: message.metadata_json()?,
        })
    }

    /// What it counts where so many agents get it.
    pub(crate) fn stored(&self, copies: usize) -> Stored {
        let json = [&self.parts, &self.metadata, &self.callback];
        let bytes = self.content.len() + json.into_iter().flatten().map(String::len).sum::<usize>();
        Stored::message(copies, bytes)
    }
}
