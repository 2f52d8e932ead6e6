//! What both backends say, so that they say the same.

use amb_core::doc::ConnectionStatus;
use amb_core::{AgentName, Code, Event};
use uuid::Uuid;

use crate::StoreError;
use crate::error::conflict;

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
