//! The household: one owner's agents and that person.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::is_default;
use crate::card::Presence;
use crate::event::Event;
use crate::id::SessionId;
use crate::name::AgentName;

/// A household as its members see it: the document of `GET /household`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Household {
    /// The household's id.
    pub id: Uuid,
    /// Its agents and its person, by name.
    pub members: Vec<HouseholdMember>,
    /// The machines whose tokens members registered with, oldest first.
    pub machines: Vec<Machine>,
}

/// One member of a household.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HouseholdMember {
    /// Its name.
    pub name: AgentName,
    /// Whether it is the person. Set by the office; no agent can be one.
    pub person: bool,
    /// The machine whose token it was registered with.
    pub machine: Option<Uuid>,
    /// Its presence.
    #[serde(flatten)]
    pub presence: Presence,
    /// If it is paused: the person who did so. Its mail waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_by: Option<AgentName>,
}

/// A conversation that a person ended. Messages in it are refused; a new one needs a new subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionEnded {
    /// The session's id.
    pub session_id: SessionId,
    /// Its subject.
    pub subject: String,
    /// The person who ended it.
    pub ended_by: AgentName,
    /// When it was ended.
    pub ended_at: Timestamp,
}

/// The conversations of a household, for its person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HouseholdSessions {
    /// Ordered by their newest message, newest first.
    pub sessions: Vec<HouseholdSession>,
    /// Whether there are more.
    #[serde(default, skip_serializing_if = "is_default")]
    pub truncated: bool,
}

/// A conversation that a member of the household is in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HouseholdSession {
    /// The session's id.
    pub session_id: SessionId,
    /// Its subject.
    pub subject: String,
    /// The agent that began it and the other one; of a group only its owner.
    pub between: Vec<AgentName>,
    /// The group's name, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Messages in it that members of the household have not read.
    pub unread: u64,
    /// Time of the newest message.
    pub last_message_at: Timestamp,
    /// The person who ended it, if it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<AgentName>,
}

/// A token with which agents join a household, without the token itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Machine {
    /// The machine's id.
    pub id: Uuid,
    /// Its label.
    pub label: String,
    /// Whether its token is the owner's, with which the household was founded.
    #[serde(default, skip_serializing_if = "is_default")]
    pub owner: bool,
    /// When its token was made.
    pub created_at: Timestamp,
    /// When its token was revoked; null while it is valid.
    pub revoked_at: Option<Timestamp>,
}

/// A machine's new token. Shown once.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewMachine {
    /// The machine's id.
    pub id: Uuid,
    /// Its label.
    pub label: String,
    /// The token with which agents of that machine join the household.
    pub token: String,
}

/// What a household's token gives: the document of `GET /household/token`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenInfo {
    /// Whether it is the owner's token, with which the household was founded, and not a machine's.
    pub owner: bool,
    /// The household's person, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub person: Option<AgentName>,
}

/// A page of the logs of a household's members: the document of `GET /household/events`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HouseholdEvents {
    /// The entries, for each member oldest first. Empty if there were none within the wait.
    pub events: Vec<HouseholdEntry>,
    /// The opaque cursor for the next page.
    pub cursor: String,
}

/// One entry of a member's log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HouseholdEntry {
    /// The member; for mail, the recipient.
    #[serde(rename = "member")]
    pub agent: AgentName,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// A change of a household's membership.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum HouseholdChange {
    /// It was registered with a token of the household.
    Joined,
    /// It is no longer a member: it left, was removed, or its machine's token was revoked.
    Left,
}

impl HouseholdChange {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            HouseholdChange::Joined => "joined",
            HouseholdChange::Left => "left",
        }
    }
}
