//! Receipts: how far a message has come with one recipient. A state is reported only once it is true.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::name::AgentName;

/// How far a message has come. Ordered: `Read` is the farthest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReceiptState {
    /// Durable in the recipient's mailbox.
    Queued,
    /// Handed to the recipient's process.
    Delivered,
    /// Fetched or acknowledged by the recipient.
    Read,
}

/// The receipt of a message for one recipient.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Receipt {
    /// The recipient.
    pub recipient: AgentName,
    /// How far it has come.
    pub state: ReceiptState,
    /// When it became durable in the mailbox.
    pub queued_at: Timestamp,
    /// When it was handed to the recipient's process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<Timestamp>,
    /// When a client of the recipient was first rung for it. `state` does not change, since the client may not have
    /// seen it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rung_at: Option<Timestamp>,
    /// When it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_at: Option<Timestamp>,
}

impl Receipt {
    /// The receipt with these times.
    pub fn of(
        recipient: AgentName,
        queued_at: Timestamp,
        delivered_at: Option<Timestamp>,
        read_at: Option<Timestamp>,
    ) -> Self {
        let state = match (delivered_at, read_at) {
            (_, Some(_)) => ReceiptState::Read,
            (Some(_), None) => ReceiptState::Delivered,
            (None, None) => ReceiptState::Queued,
        };
        Self { recipient, state, queued_at, delivered_at, rung_at: None, read_at }
    }

    /// Sets when a client was rung for it.
    pub fn rung(self, rung_at: Option<Timestamp>) -> Self {
        Self { rung_at, ..self }
    }

    /// Its progress in one word: that of its state, or `rung` between delivered and read.
    pub fn word(&self) -> &'static str {
        match self.state {
            ReceiptState::Read => "read",
            _ if self.rung_at.is_some() => "rung",
            ReceiptState::Delivered => "delivered",
            ReceiptState::Queued => "queued",
        }
    }

    /// When it reached that state.
    pub fn since(&self) -> Timestamp {
        self.read_at.or(self.rung_at).or(self.delivered_at).unwrap_or(self.queued_at)
    }
}
