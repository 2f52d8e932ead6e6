//! Stepping in: how a household's person intervenes in its agents, their conversations and their tasks.
//!
//! Only the person may, and only where a member of the household is concerned. Each act is idempotent, and is recorded
//! in the log of everybody concerned with the person's name, which the office adds and no sender can forge.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::consent::Consent;
use crate::error::{Code, OfficeError};
use crate::id::SessionId;
use crate::limits::MAX_REASSIGNMENTS;
use crate::name::AgentName;
use crate::task::{Decision, Task, TaskState};

/// An intervention of a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SteppedIn {
    /// The person, set by the office.
    pub by: AgentName,
    /// When. Missing in entries of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// The act.
    #[serde(flatten)]
    pub act: Act,
}

/// What the person did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "act", rename_all = "snake_case")]
pub enum Act {
    /// Paused an agent: its mail is accepted and waits.
    Paused {
        /// The agent.
        agent: AgentName,
    },
    /// Resumed a paused agent.
    Resumed {
        /// The agent.
        agent: AgentName,
    },
    /// Ended a conversation: it accepts no more messages.
    SessionEnded {
        /// The session's id.
        session_id: SessionId,
        /// Its subject.
        subject: String,
    },
    /// Canceled a task.
    TaskCanceled {
        /// The task as it is now.
        task: Task,
    },
    /// Gave a task to another agent.
    TaskReassigned {
        /// The task as it is now.
        task: Task,
        /// The previous assignee.
        from: AgentName,
    },
    /// Decided about a connection on behalf of an agent.
    Connection {
        /// The agent.
        agent: AgentName,
        /// The other agent.
        with: AgentName,
        /// The decision.
        did: ConnectionAct,
    },
    /// Gave an agent a new key; its previous ones are no longer valid.
    KeyRenewed {
        /// The agent.
        agent: AgentName,
    },
}

/// A person's decision about a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ConnectionAct {
    /// Requested it.
    Asked,
    /// Approved the other side's request.
    Approved,
    /// Rejected the other side's request.
    Rejected,
    /// Ended it.
    Revoked,
    /// Blocked the other side.
    Blocked,
    /// Lifted the block.
    Unblocked,
}

impl ConnectionAct {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::Revoked => "revoked",
            Self::Blocked => "blocked",
            Self::Unblocked => "unblocked",
        }
    }
}

impl fmt::Display for SteppedIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = &self.by;
        match &self.act {
            Act::Paused { agent } => write!(f, "{by} paused {agent}"),
            Act::Resumed { agent } => write!(f, "{by} resumed {agent}"),
            Act::SessionEnded { subject, .. } => write!(f, "{by} ended the conversation {subject:?}"),
            Act::TaskCanceled { task } => write!(f, "{by} canceled the task {:?}", subject(task)),
            Act::Connection { agent, with, did } => {
                write!(
                    f,
                    "{by} {} the connection of {agent} with {with}",
                    match did {
                        ConnectionAct::Asked => "asked for",
                        did => did.as_str(),
                    }
                )
            }
            Act::KeyRenewed { agent } => write!(f, "{by} gave {agent} a new key"),
            Act::TaskReassigned { task, from } => {
                write!(f, "{by} gave the task {:?} of {from} to {}", subject(task), task.assignee)
            }
        }
    }
}

fn subject(task: &Task) -> &str {
    task.subject.as_deref().unwrap_or(task.id.as_str())
}

/// Returns an error for a conversation that a person ended.
///
/// # Errors
/// `gone`.
pub fn check_open(ended_by: Option<&str>) -> Result<(), OfficeError> {
    let Some(by) = ended_by else { return Ok(()) };
    let detail =
        format!("{by} ended this conversation; if there is something new to say, start another with a new subject");
    Err(OfficeError::new(Code::Gone, detail))
}

/// Returns the state in which a canceled task ends; `None` if it was canceled before.
///
/// # Errors
/// `illegal_move` for a task that ended in another way.
pub fn decide_cancel(state: TaskState, canceled_before: bool) -> Result<Option<TaskState>, OfficeError> {
    match state.is_terminal() {
        true if canceled_before => Ok(None),
        true => Err(has_ended(state)),
        false => Ok(Some(state.ended_by_office())),
    }
}

/// The facts that decide whether a task can be given to another agent.
#[derive(Debug, Clone)]
pub struct Reassignment<'a> {
    /// The state of the task.
    pub state: TaskState,
    /// The agent that gave it.
    pub owner: &'a AgentName,
    /// The current assignee.
    pub from: &'a AgentName,
    /// The new assignee.
    pub to: &'a AgentName,
    /// How often it was reassigned before.
    pub moved: u32,
    /// The consent between owner and new assignee.
    pub consent: Consent,
    /// Whether the office lets the new assignee accept it.
    pub taking_on: Decision,
}

/// Returns whether the task is reassigned; `false` if that agent has it already.
///
/// # Errors
/// `illegal_move` for a task that has ended, `conflict` if the owner could not have given it to the new assignee.
pub fn decide_reassign(asked: Reassignment<'_>) -> Result<bool, OfficeError> {
    let Reassignment { state, owner, from, to, moved, consent, taking_on } = asked;
    if state.is_terminal() {
        return Err(has_ended(state));
    }
    if from == to {
        return Ok(false);
    }
    let conflict = |detail: String| Err(OfficeError::new(Code::Conflict, detail));
    if owner == to {
        return conflict(format!("{to} gave this task itself; name another agent"));
    }
    if !consent.is_given() {
        return conflict(format!(
            "{owner}, who gave this task, may not write to {to}; name another agent, or connect the two first"
        ));
    }
    if moved >= MAX_REASSIGNMENTS {
        return conflict(format!("this task was given to another agent {moved} times; cancel it and send a new one"));
    }
    match taking_on {
        Decision::Accept => Ok(true),
        Decision::Reject(reason) => conflict(format!("{to} cannot have this task: {reason}")),
    }
}

fn has_ended(state: TaskState) -> OfficeError {
    OfficeError::new(Code::IllegalMove, format!("this task is {state} already, and what has ended does not change"))
}

/// The note of a task that a person canceled.
pub fn canceled_note(by: &AgentName, note: Option<&str>) -> String {
    match note.filter(|note| !note.is_empty()) {
        Some(note) => format!("canceled by {by}: {note}"),
        None => format!("canceled by {by}"),
    }
}

/// The note to the previous assignee of a task that a person reassigned.
pub fn reassigned_note(by: &AgentName, to: &AgentName) -> String {
    format!("{by} gave this task to {to}; stop working on it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::RejectReason;

    #[test]
    fn an_ended_conversation_says_who_ended_it_and_what_to_do() {
        assert!(check_open(None).is_ok());
        let refused = check_open(Some("ann")).unwrap_err();
        assert_eq!(refused.code(), Code::Gone);
        assert!(refused.detail().contains("ann ended") && refused.detail().contains("new subject"), "{refused}");
    }

    #[test]
    fn an_open_task_is_canceled_once_and_an_ended_one_stays() {
        use TaskState::*;
        for (state, ends) in [(Pending, Rejected), (Accepted, Failed), (Working, Failed)] {
            assert_eq!(decide_cancel(state, false).unwrap(), Some(ends));
        }
        for state in [Completed, Failed, Rejected] {
            assert_eq!(decide_cancel(state, true).unwrap(), None, "again");
            assert_eq!(decide_cancel(state, false).unwrap_err().code(), Code::IllegalMove);
        }
    }

    #[test]
    fn a_task_is_reassigned_to_agents_that_its_owner_could_give_it_to() {
        let [owner, from, to] = ["owner", "from", "to"].map(|name| name.parse::<AgentName>().unwrap());
        let asked_after = |moved, state, to, given, taking_on| {
            let consent = Consent { connected: given, ..Consent::default() };
            let asked = Reassignment { state, owner: &owner, from: &from, to, moved, consent, taking_on };
            decide_reassign(asked).map_err(|error| error.code())
        };
        let asked = |state, to, given, taking_on| asked_after(0, state, to, given, taking_on);
        let full = || Decision::Reject(RejectReason::Quota { current: 1, max: 1 });
        assert_eq!(asked(TaskState::Working, &to, true, Decision::Accept), Ok(true));
        assert_eq!(asked(TaskState::Working, &from, true, full()), Ok(false), "again");
        assert_eq!(asked(TaskState::Completed, &to, true, Decision::Accept), Err(Code::IllegalMove));
        assert_eq!(asked(TaskState::Pending, &owner, true, Decision::Accept), Err(Code::Conflict));
        assert_eq!(asked(TaskState::Pending, &to, false, Decision::Accept), Err(Code::Conflict));
        assert_eq!(asked(TaskState::Pending, &to, true, full()), Err(Code::Conflict));
        let often = |moved, to| asked_after(moved, TaskState::Pending, to, true, Decision::Accept);
        assert_eq!(often(MAX_REASSIGNMENTS - 1, &to), Ok(true));
        assert_eq!(often(MAX_REASSIGNMENTS, &to), Err(Code::Conflict), "the number of reassignments is limited");
        assert_eq!(often(MAX_REASSIGNMENTS, &from), Ok(false), "a repeat is not another reassignment");
    }

    #[test]
    fn decisions_on_behalf_of_an_agent_are_described() {
        let [by, agent, with] = ["ann", "coder", "friend"].map(|name| name.parse::<AgentName>().unwrap());
        let act = Act::Connection { agent: agent.clone(), with, did: ConnectionAct::Asked };
        let json = serde_json::json!({"act": "connection", "agent": "coder", "with": "friend", "did": "asked"});
        assert_eq!(serde_json::to_value(&act).unwrap(), json);
        let act = SteppedIn { by: by.clone(), at: None, act };
        assert_eq!(act.to_string(), "ann asked for the connection of coder with friend");
        let act = SteppedIn { by, at: None, act: Act::KeyRenewed { agent } };
        assert_eq!(act.to_string(), "ann gave coder a new key");
    }

    #[test]
    fn an_act_is_one_flat_object_in_a_log() {
        let at = Some("2026-11-18T07:00:00Z".parse().unwrap());
        let acted = SteppedIn { by: "ann".parse().unwrap(), at, act: Act::Paused { agent: "coder".parse().unwrap() } };
        assert_eq!(acted.to_string(), "ann paused coder");
        let entry = crate::Entry { event: crate::Event::SteppedIn(acted), cursor: 7.into() };
        let json = serde_json::json!({
            "type": "stepped_in", "by": "ann", "at": "2026-11-18T07:00:00Z", "act": "paused", "agent": "coder", "cursor": 7
        });
        assert_eq!(serde_json::to_value(&entry).unwrap(), json);
        assert_eq!(serde_json::from_value::<crate::Entry>(json.clone()).unwrap(), entry);
        let mut before = json;
        before.as_object_mut().unwrap().remove("at");
        let crate::Event::SteppedIn(acted) = serde_json::from_value::<crate::Entry>(before).unwrap().event else {
            panic!("an act without a time parses")
        };
        assert_eq!(acted.at, None);
    }
}
