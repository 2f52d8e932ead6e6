//! Who may write to whom: one rule for every office.
//!
//! 1. Members of one household may write to each other.
//! 2. Other agents of a server may after a request that was approved. In a directory, being registered there is enough.
//! 3. A block by either ends both.
//! 4. The recipient's `allow_from` holds in every case. A task from a sender whom it leaves out is rejected, not
//!    refused ([`task::decide`](crate::task::decide)).

use crate::error::{Code, OfficeError};
use crate::name::AgentName;

/// What an office knows about two agents. The order of the two does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Consent {
    /// Both are members of one household.
    pub same_household: bool,
    /// They have an active connection, or the office has no connections.
    pub connected: bool,
    /// One of them blocked the other.
    pub blocked: bool,
}

impl Consent {
    /// Agents of one directory: only `allow_from` decides there.
    pub const DIRECTORY: Self = Self { same_household: false, connected: true, blocked: false };

    /// Whether the two may write to each other, apart from the recipient's `allow_from`.
    pub fn is_given(self) -> bool {
        !self.blocked && (self.same_household || self.connected)
    }

    /// Whether a message is marked as sent by the person of the recipient's household.
    pub fn marks_person(self, sender_is_person: bool) -> bool {
        sender_is_person && self.same_household
    }

    /// Returns an error unless consent is given.
    ///
    /// # Errors
    /// `not_connected`; the same for a block, so that a blocked agent does not learn of it.
    pub fn check(self, to: &AgentName) -> Result<(), OfficeError> {
        if self.is_given() { Ok(()) } else { Err(not_connected(to)) }
    }
}

/// Checks whether `from` may send `to` a message that is not a task. `allowed` says whether the recipient's
/// `allow_from` contains the sender.
///
/// # Errors
/// `not_connected` without consent, `not_allowed` where `allow_from` does not contain the sender.
pub fn may_write(consent: Consent, from: &AgentName, to: &AgentName, allowed: bool) -> Result<(), OfficeError> {
    consent.check(to)?;
    if allowed { Ok(()) } else { Err(not_allowed(from, to)) }
}

/// The error for two agents with neither an active connection nor a household in common.
pub fn not_connected(to: &AgentName) -> OfficeError {
    let detail = format!("no active connection with {}; ask for one, and send when it is approved", to.quoted());
    OfficeError::new(Code::NotConnected, detail)
}

/// The error for a sender that is not in the recipient's `allow_from`.
pub fn not_allowed(from: &AgentName, to: &AgentName) -> OfficeError {
    let (from, to) = (from.quoted(), to.quoted());
    let detail = format!("{to} does not take mail from {from}; only {to} can change that, by its allow_from");
    OfficeError::new(Code::NotAllowed, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_household_or_a_connection_is_consent_and_a_block_ends_both() {
        for same_household in [false, true] {
            for connected in [false, true] {
                let consent = Consent { same_household, connected, blocked: false };
                assert_eq!(consent.is_given(), same_household || connected);
                assert!(!Consent { blocked: true, ..consent }.is_given());
            }
        }
        assert!(Consent::DIRECTORY.is_given());
    }

    #[test]
    fn allow_from_holds_in_every_case() {
        let (ann, ben) = ("ann".parse().unwrap(), "ben".parse().unwrap());
        let home = Consent { same_household: true, ..Consent::default() };
        assert!(may_write(home, &ann, &ben, true).is_ok());
        assert_eq!(may_write(home, &ann, &ben, false).unwrap_err().code(), Code::NotAllowed);
        assert_eq!(may_write(Consent::default(), &ann, &ben, true).unwrap_err().code(), Code::NotConnected);
    }
}
