//! Errors of the verbs: one sentence for each condition.

use std::time::Duration;

pub(crate) use amb_core::consent::not_connected;
use amb_core::doc::Group;
use amb_core::limits::{
    MAX_GROUP_MEMBERS, MAX_GROUPS, MAX_HOUSEHOLD_MACHINES, MAX_HOUSEHOLD_MEMBERS, MAX_WAITING_REQUESTS,
};
pub(crate) use amb_core::send::key_reused;
use amb_core::transcript::TranscriptKey;
use amb_core::{AgentName, Code, Draft, TaskId};

use crate::StoreError;
use crate::error::conflict;

/// PostgreSQL stores no NUL in text, so both backends refuse it.
pub(crate) fn check_text(what: &str, text: Option<&str>) -> Result<(), StoreError> {
    match text {
        Some(text) if text.contains('\0') => Err(StoreError::invalid(format!("{what} cannot contain a NUL character"))),
        _ => Ok(()),
    }
}

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

/// The error for a request to an agent that has blocked the caller.
pub(crate) fn request_refused(from: &AgentName, to: &AgentName) -> StoreError {
    let detail = format!("{to} accepts no connection requests from {from}; only {to} can change that");
    StoreError::new(Code::NotAllowed, detail)
}

pub(crate) fn connected_already(name: &AgentName) -> StoreError {
    conflict(format!("you and {name} are connected already; just send"))
}

pub(crate) fn asked_already(name: &AgentName) -> StoreError {
    conflict(format!("your request to {name} is waiting already; tell them its code"))
}

pub(crate) fn too_many_pending(most: u32) -> StoreError {
    let detail = format!("{most} of your requests wait for approval, which is the most; let one be answered first");
    // Another agent has to answer, or a code to expire: a retry within seconds is pointless.
    StoreError::new(Code::TooManyRequests, detail).retry_after(Duration::from_secs(60))
}

pub(crate) fn too_many_waiting(name: &AgentName) -> StoreError {
    let detail = format!(
        "{MAX_WAITING_REQUESTS} requests wait for {name}, which is the most; ask again when some are answered or have run out"
    );
    StoreError::new(Code::TooManyRequests, detail).retry_after(Duration::from_secs(60))
}

pub(crate) fn no_code() -> StoreError {
    StoreError::not_found("no request with this code is waiting; it may have been used already")
}

pub(crate) fn code_expired() -> StoreError {
    StoreError::new(Code::Gone, "this code's time is over; let the other agent ask again")
}

pub(crate) fn not_a_member() -> StoreError {
    StoreError::new(Code::Forbidden, "you are not in this session")
}

/// The error where a key may not replace or revoke the keys of its agent: it was replaced, or is no longer valid.
pub(crate) fn not_the_current_key(in_grace: bool) -> StoreError {
    if in_grace {
        let detail = "this key was replaced and works only until its grace period ends; use the key that replaced it";
        StoreError::new(Code::OldKey, detail)
    } else {
        StoreError::new(Code::Unauthorized, "this key has ended; use the one that replaced it, or register anew")
    }
}

pub(crate) fn no_household_token() -> StoreError {
    let detail = "this household token is not known here, or was revoked; `amb invite`, run by the household's person, gives a new one";
    StoreError::new(Code::Unauthorized, detail)
}

pub(crate) fn not_the_owners_token() -> StoreError {
    StoreError::new(Code::Forbidden, "only the owner's token makes the household's person, and this is a machine's")
}

pub(crate) fn person_is_there(name: &str) -> StoreError {
    conflict(format!("this household has its person already: {name}; use that person's key"))
}

pub(crate) fn household_is_full() -> StoreError {
    conflict(format!("the household has {MAX_HOUSEHOLD_MEMBERS} members, which is the most; remove one first"))
}

pub(crate) fn too_many_machines() -> StoreError {
    conflict(format!("the household has {MAX_HOUSEHOLD_MACHINES} machines, which is the most; revoke one first"))
}

pub(crate) fn you_in_no_household() -> StoreError {
    StoreError::not_found("you are in no household; `amb household add NAME` lets an agent in that has a key")
}

pub(crate) fn in_another_household() -> StoreError {
    conflict("you are in another household; leave it first: amb household remove, with your own name")
}

pub(crate) fn in_no_household(name: &AgentName) -> StoreError {
    StoreError::not_found(format!("{name} is in no household"))
}

pub(crate) fn not_the_person() -> StoreError {
    StoreError::new(Code::Forbidden, "only the household's person may do this; use the person's key")
}

pub(crate) fn no_machine() -> StoreError {
    StoreError::not_found(
        "the household has no such machine, or its token was revoked before; `amb household` lists them",
    )
}

pub(crate) fn owners_token_stays() -> StoreError {
    conflict(
        "this is the owner's token, which cannot be revoked; the office's operator replaces it: amb admin household --renew NAME",
    )
}

pub(crate) fn no_household_member(name: &AgentName) -> StoreError {
    StoreError::not_found(format!("{name} is not in your household; `amb household` lists who is"))
}

pub(crate) fn person_stays() -> StoreError {
    conflict("the person cannot leave the household; remove its agents, or delete the person's account")
}

pub(crate) fn person_is_not_paused() -> StoreError {
    conflict("the person is not paused; name one of the household's agents")
}

pub(crate) fn persons_key_stays() -> StoreError {
    StoreError::not_found("your own key is renewed where you use it: amb admin key")
}

pub(crate) fn paused_one_stays(by: &str) -> StoreError {
    conflict(format!("{by} paused you, and only {by} can take you out of the household; wait to be resumed"))
}

pub(crate) fn no_room_for_task(owner: &AgentName) -> StoreError {
    let detail = format!("{owner}, who gave this task, has no room for another copy of it; cancel it instead");
    StoreError::new(Code::OverQuota, detail)
}

pub(crate) fn no_household_task(id: &TaskId) -> StoreError {
    StoreError::not_found(format!("no task {id} was given to or by an agent of your household"))
}

pub(crate) fn no_household_session() -> StoreError {
    StoreError::not_found(
        "no agent of your household is in such a session; `amb inbox` and the dashboard list sessions",
    )
}

pub(crate) fn not_your_group() -> StoreError {
    let detail =
        "this conversation is of a group that none of your agents owns; take your agents out of the group instead";
    StoreError::new(Code::Forbidden, detail)
}

/// The note of tasks that end because an agent left the household.
pub(crate) fn left_the_household(who: &AgentName) -> String {
    format!("{who} left the household, and with it the tasks that were open")
}

pub(crate) fn no_task(id: &TaskId) -> StoreError {
    StoreError::not_found(format!("no task {id} was given to you or by you"))
}

/// The note of tasks that end with a connection. The same for a block, which the blocked agent is not told.
pub(crate) fn ended_the_connection(by: &AgentName) -> String {
    format!("{by} ended the connection, and with it the tasks that were open")
}

/// The note of tasks that end because an agent was deleted.
pub(crate) fn left_the_office(who: &AgentName) -> String {
    format!("{who} left the office")
}

pub(crate) fn task_after_the_connection(owner: &AgentName) -> StoreError {
    let detail =
        format!("the connection with {owner} has ended, and this task with it; nothing more can be done to it");
    StoreError::new(Code::NotConnected, detail)
}

pub(crate) fn own_request() -> StoreError {
    StoreError::new(Code::Forbidden, "this code is of your own request; the agent that you asked approves it")
}

pub(crate) fn not_the_assignee() -> StoreError {
    StoreError::new(Code::Forbidden, "only the agent that was asked to do a task moves it")
}

pub(crate) fn no_pending(name: &AgentName) -> StoreError {
    StoreError::not_found(format!("no request from {name} waits for you"))
}

pub(crate) fn not_blocked(name: &AgentName) -> StoreError {
    StoreError::not_found(format!("{name} is not blocked by you"))
}

pub(crate) fn no_connection(name: &AgentName) -> StoreError {
    StoreError::not_found(format!("no active connection with {name}"))
}

pub(crate) fn no_group(name: &AgentName) -> StoreError {
    StoreError::not_found(format!("no group {:?} that you are in or were invited to", name.as_str()))
}

/// Fails where a group is too large after an invitation.
pub(crate) fn check_members(group: &Group) -> Result<(), StoreError> {
    if group.members.len() <= MAX_GROUP_MEMBERS {
        return Ok(());
    }
    Err(conflict(format!(
        "{} has {MAX_GROUP_MEMBERS} members and invited agents, which is the most; remove one first",
        group.name
    )))
}

/// The error for one group more than an agent may be in; `who` is "you are" or "NAME is".
pub(crate) fn in_most_groups(who: &str) -> StoreError {
    conflict(format!("{who} in {MAX_GROUPS} groups, invitations included, which is the most; leave one first"))
}

pub(crate) fn blocked_by_oneself(target: &AgentName) -> StoreError {
    conflict(format!("you have blocked {target}; unblock it before you ask for a connection"))
}

pub(crate) fn not_the_owner() -> StoreError {
    StoreError::new(Code::Forbidden, "only the group's owner invites and removes")
}

pub(crate) fn no_member(group: &AgentName, agent: &AgentName) -> StoreError {
    StoreError::not_found(format!("{agent} is neither in {group} nor invited to it"))
}

pub(crate) fn remove_oneself(group: &AgentName) -> StoreError {
    StoreError::invalid(format!("to go out of {group} yourself, leave it"))
}

pub(crate) fn not_in_group(name: &AgentName) -> StoreError {
    StoreError::new(Code::Forbidden, format!("join {name} before you write to it"))
}

pub(crate) fn no_transcript(owner: Option<&AgentName>, key: &TranscriptKey) -> StoreError {
    let key = key.as_str();
    StoreError::not_found(match owner {
        None => format!("you have no transcript {key:?}; another agent's is read by naming its owner"),
        Some(owner) => format!("{owner} shares no transcript {key:?} with you"),
    })
}

pub(crate) fn share_with_oneself() -> StoreError {
    StoreError::new(Code::NotConnected, "an agent reads and writes its own transcripts; name another agent")
}

pub(crate) fn read_only_transcript(key: &TranscriptKey) -> StoreError {
    let detail = format!("you may read the transcript {:?} and not write to it; its owner can let you", key.as_str());
    StoreError::new(Code::Forbidden, detail)
}

pub(crate) fn file_is_there(path: &std::path::Path) -> StoreError {
    conflict(format!("{} is there already; name a new file, or replace this one with --force", path.display()))
}

/// Returns the invitation message.
pub(crate) fn invitation(group: &AgentName, to: &AgentName, from: &AgentName) -> Result<Draft, StoreError> {
    let text = format!("{from} invites you to the group {group}. Join it to get its mail and to write to it.");
    let mut draft = Draft::text(to.clone(), format!("Invitation to {group}"), text);
    draft.kind = "group_invitation".parse()?;
    draft.metadata.insert("group".to_owned(), group.as_str().into());
    Ok(draft)
}
