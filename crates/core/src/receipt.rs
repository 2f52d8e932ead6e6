//! What one recipient did with a message. Each state is reported only once it is true.

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

/// A message's way to one recipient.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Receipt {
    /// Whose mailbox.
    pub recipient: AgentName,
    /// How far it has come.
    pub state: ReceiptState,
    /// When it was durable there.
    pub queued_at: Timestamp,
    /// When it was handed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<Timestamp>,
    /// When a client of the recipient's was first rung for it, as that client's wake-up reported. Nobody is known to have
    /// seen it, so `state` does not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rung_at: Option<Timestamp>,
    /// When it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_at: Option<Timestamp>,
}

impl Receipt {
    /// The receipt of these moments.
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

    /// With the moment at which a client was rung for it.
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
