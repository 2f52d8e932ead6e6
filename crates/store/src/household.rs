//! The household as both backends decide about it.

use amb_core::doc::HouseholdMember;
use amb_core::limits::{HEARTBEAT_TIMEOUT, MAX_HOUSEHOLD_MEMBERS};
use amb_core::{Presence, Status, Timestamp};
use uuid::Uuid;

use crate::error::Result;
use crate::types::Join;
use crate::{row, words};

/// A token that is good.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Token {
    pub(crate) id: i64,
    pub(crate) household: i64,
    pub(crate) owner: bool,
}

impl Token {
    /// The token that was shown, if one may join with it in this way.
    pub(crate) fn for_joining(found: Option<Self>, join: Join) -> Result<Self> {
        let token = found.ok_or_else(words::no_household_token)?;
        if join.person && !token.owner { Err(words::not_the_owners_token()) } else { Ok(token) }
    }

    /// A place in its household, if there is one left. `person` is the one that the household has.
    pub(crate) fn seat(self, join: Join, person: Option<(i64, String)>, members: u32) -> Result<Seat> {
        match &person {
            Some((_, name)) if join.person => return Err(words::person_is_there(name)),
            _ if members >= MAX_HOUSEHOLD_MEMBERS => return Err(words::household_is_full()),
            _ => {}
        }
        Ok(Seat { token: self, as_person: join.person, person })
    }
}

/// A place in a household for a new agent.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) token: Token,
    pub(crate) as_person: bool,
    /// The person that the household has, who is told.
    pub(crate) person: Option<(i64, String)>,
}

/// A member as a backend reads it.
#[derive(Debug)]
pub(crate) struct MemberRow {
    pub(crate) name: String,
    pub(crate) person: bool,
    pub(crate) machine: Option<Uuid>,
    pub(crate) last_seen: Option<Timestamp>,
    pub(crate) here: Option<bool>,
    /// Tasks under way.
    pub(crate) current: Vec<Uuid>,
}

impl MemberRow {
    /// The member as others see it.
    pub(crate) fn shown(self, now: Timestamp) -> Result<HouseholdMember> {
        let claimed = if self.here.unwrap_or(false) { Status::Idle } else { Status::Offline };
        let current = self.current.into_iter().map(Into::into).collect();
        Ok(HouseholdMember {
            name: row::name(&self.name)?,
            person: self.person,
            machine: self.machine,
            presence: Presence::at(now, claimed, self.last_seen, current, HEARTBEAT_TIMEOUT),
        })
    }
}
