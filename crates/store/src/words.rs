//! What both backends say, so that they say the same.

use amb_core::doc::ConnectionStatus;
use amb_core::{AgentName, Card, Code, Event};
use uuid::Uuid;

use crate::StoreError;
use crate::error::conflict;
use crate::types::NewAgent;

/// PostgreSQL keeps no NUL in text, so neither backend does.
pub(crate) fn check_text(what: &str, text: Option<&str>) -> Result<(), StoreError> {
    match text {
        Some(text) if text.contains('\0') => Err(StoreError::invalid(format!("{what} cannot contain a NUL character"))),
        _ => Ok(()),
    }
}

pub(crate) fn check_card(card: &Card) -> Result<(), StoreError> {
    check_text("description", Some(&card.description))
}

/// Whether everything in a new agent can be kept.
pub(crate) fn check_agent(new: &NewAgent) -> Result<(), StoreError> {
    check_text("owner_contact", new.owner_contact.as_deref())?;
    check_card(&new.card)
}

/// How often a new code is tried when one is taken. With 676,000 codes this is enough unless nearly all wait.
pub(crate) const CODE_TRIES: usize = 64;

pub(crate) fn no_code_left() -> StoreError {
    StoreError::unavailable("nearly every code is in use; try again when requests have run out")
}

pub(crate) fn name_taken(name: &AgentName) -> StoreError {
    conflict(format!("the name {:?} is taken; choose another", name.as_str()))
}

pub(crate) fn connect_to_oneself() -> StoreError {
    StoreError::invalid("an agent needs no connection with itself; name another")
}

pub(crate) fn no_agent(name: &AgentName) -> StoreError {
    StoreError::not_found(format!("no agent {:?}; check the spelling", name.as_str()))
}

pub(crate) fn not_heard(name: &AgentName) -> StoreError {
    StoreError::new(Code::NotAllowed, format!("{name} does not want to hear from you"))
}

pub(crate) fn connected_already(name: &AgentName) -> StoreError {
    conflict(format!("you and {name} are connected already; just send"))
}

pub(crate) fn asked_already(name: &AgentName) -> StoreError {
    conflict(format!("your request to {name} is waiting already; tell them its code"))
}

pub(crate) fn too_many_pending(most: u32) -> StoreError {
    let detail = format!("{most} of your requests wait for approval, which is the most; let one be answered first");
    StoreError::new(Code::TooManyRequests, detail)
}

pub(crate) fn no_code() -> StoreError {
    StoreError::not_found("no request with this code is waiting; it may have been used already")
}

pub(crate) fn code_expired() -> StoreError {
    StoreError::new(Code::Gone, "this code's time is over; let the other agent ask again")
}

pub(crate) fn not_connected(name: &AgentName) -> StoreError {
    let detail = format!("no active connection with {name}; ask for one, and send when it is approved");
    StoreError::new(Code::NotConnected, detail)
}

pub(crate) fn not_a_member() -> StoreError {
    StoreError::new(Code::Forbidden, "you are not in this session")
}

pub(crate) fn not_both_members(name: &AgentName) -> StoreError {
    StoreError::new(Code::Forbidden, format!("this session is not one between you and {name}"))
}

pub(crate) fn key_reused() -> StoreError {
    conflict("this idempotency key was used for another message; a new message needs a new key")
}

pub(crate) fn changed(id: Uuid, agent: &AgentName, status: ConnectionStatus) -> Event {
    Event::ConnectionChanged { connection_id: id.into(), agent: agent.clone(), status }
}
