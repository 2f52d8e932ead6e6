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
    /// Which household.
    pub id: Uuid,
    /// Its agents and its person, by name.
    pub members: Vec<HouseholdMember>,
    /// The machines whose tokens members were registered with, the first one first.
    pub machines: Vec<Machine>,
}

/// One member of a household.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HouseholdMember {
    /// Its name.
    pub name: AgentName,
    /// Whether it is the person. The office marks it so; no agent can be.
    pub person: bool,
    /// The machine whose token it was registered with.
    pub machine: Option<Uuid>,
    /// Whether it is there.
    #[serde(flatten)]
    pub presence: Presence,
    /// The person who paused it, where it is paused: its mail waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_by: Option<AgentName>,
}

/// A conversation that a person ended. What is sent in it is refused; another needs a new subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionEnded {
    /// Which session.
    pub session_id: SessionId,
    /// Its subject.
    pub subject: String,
    /// The person.
    pub ended_by: AgentName,
    /// When.
    pub ended_at: Timestamp,
}

/// The conversations of a household, for its person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HouseholdSessions {
    /// The one with the newest message first.
    pub sessions: Vec<HouseholdSession>,
}

/// A conversation that a member of the household is in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HouseholdSession {
    /// Which session.
    pub session_id: SessionId,
    /// Its subject.
    pub subject: String,
    /// Who began it, and the other side; of a group its owner alone.
    pub between: Vec<AgentName>,
    /// The group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Messages in it that members of the household have not read.
    pub unread: u64,
    /// When something was said last.
    pub last_message_at: Timestamp,
    /// The person who ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<AgentName>,
}

/// A token with which agents join a household, without the token itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Machine {
    /// Which machine.
    pub id: Uuid,
    /// What its owner calls it.
    pub label: String,
    /// Whether its token is the owner's: the one that the household was founded with.
    #[serde(default, skip_serializing_if = "is_default")]
    pub owner: bool,
    /// When its token was made.
    pub created_at: Timestamp,
    /// When its token was taken back; null while it is good.
    pub revoked_at: Option<Timestamp>,
}

/// A machine's new token. Shown once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewMachine {
    /// Which machine.
    pub id: Uuid,
    /// What its owner calls it.
    pub label: String,
    /// The token with which agents of that machine join the household.
    pub token: String,
}

/// A page of what happens to the members of a household: the document of `GET /household/events`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HouseholdEvents {
    /// What happened, of each member oldest first. Empty when nothing did in time.
    pub events: Vec<HouseholdEntry>,
    /// Where to go on; opaque.
    pub cursor: String,
}

/// One thing that happened to a member of a household.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HouseholdEntry {
    /// The member; for mail, to whom it came.
    #[serde(rename = "member")]
    pub agent: AgentName,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What became of a member of a household.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum HouseholdChange {
    /// It was registered with a token of the household.
    Joined,
    /// It is no member any more: it left, was removed, or its machine's token was taken back.
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
