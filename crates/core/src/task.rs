//! The states of a task, and the office's part of accepting one.
//!
//! ```text
//! pending ──► accepted ──► working ──► completed
//!    │            │            │
//!    ▼            └──► failed ◄┘
//! rejected
//! ```

use std::fmt;
use std::str::FromStr;

use jiff::{Span, SpanRelativeTo, Timestamp, Unit};
use serde::{Deserialize, Serialize};

use crate::Object;
use crate::card::Card;
use crate::error::OfficeError;
use crate::id::{MessageId, SessionId, TaskId};
use crate::message::Callback;
use crate::name::AgentName;

/// Parses a deadline as people and models write it: an instant (`2026-12-01T12:00:00Z`), or a duration from `now`
/// (`90m`, `2h`, `1h 30m`, `3d`).
pub fn parse_deadline(text: &str, now: Timestamp) -> Result<Timestamp, OfficeError> {
    if let Ok(moment) = text.parse() {
        return Ok(moment);
    }
    let wrong =
        || OfficeError::invalid(format!("a deadline is 2026-12-01T12:00:00Z, or from now 90m, 2h, 3d; not {text:?}"));
    let span: Span = text.parse().map_err(|_| wrong())?;
    let span = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| wrong())?;
    if span.is_negative() {
        return Err(wrong());
    }
    let at = now.checked_add(span).map_err(|_| wrong())?;
    // Some readers of the files do not parse finer fractions.
    at.round(Unit::Microsecond).map_err(|_| wrong())
}

/// The state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Sent, not decided yet.
    #[default]
    Pending,
    /// Accepted; it counts against the agent's quota.
    Accepted,
    /// Being worked on.
    Working,
    /// Done. Terminal.
    Completed,
    /// Not completed. Terminal.
    Failed,
    /// Not accepted. Terminal.
    Rejected,
}

impl TaskState {
    /// All states.
    pub const ALL: [TaskState; 6] = [
        TaskState::Pending,
        TaskState::Accepted,
        TaskState::Working,
        TaskState::Completed,
        TaskState::Failed,
        TaskState::Rejected,
    ];

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            TaskState::Pending => "pending",
            TaskState::Accepted => "accepted",
            TaskState::Working => "working",
            TaskState::Completed => "completed",
            TaskState::Failed => "failed",
            TaskState::Rejected => "rejected",
        }
    }

    /// Whether no other state can follow.
    pub fn is_terminal(self) -> bool {
        matches!(self, TaskState::Completed | TaskState::Failed | TaskState::Rejected)
    }

    /// Whether it counts against the assignee's quota.
    pub fn is_current(self) -> bool {
        matches!(self, TaskState::Accepted | TaskState::Working)
    }

    /// Checks that `next` may follow this state.
    pub fn check_move(self, next: TaskState) -> Result<(), IllegalMove> {
        use TaskState::*;
        match (self, next) {
            (Pending, Accepted | Rejected)
            | (Accepted, Working | Failed)
            // Progress may be reported more than once.
            | (Working, Working | Completed | Failed) => Ok(()),
            _ => Err(IllegalMove { from: self, to: next }),
        }
    }

    /// The states from here to `next`, including those that the agent skipped: one that reports only "done" has
    /// accepted and worked. Empty if there is no path.
    pub fn path_to(self, next: TaskState) -> Vec<TaskState> {
        use TaskState::*;
        match (self, next) {
            (Pending, Working) => vec![Accepted, Working],
            (Pending, Completed) => vec![Accepted, Working, Completed],
            (Pending, Failed) => vec![Accepted, Failed],
            (Accepted, Completed) => vec![Working, Completed],
            _ if self.check_move(next).is_ok() => vec![next],
            _ => Vec::new(),
        }
    }

    /// Whether the path to `next` accepts the task, which the office decides first ([`decide`]).
    pub fn takes_on(self, next: TaskState) -> bool {
        self.path_to(next).contains(&TaskState::Accepted)
    }

    /// The final state of an open task that the office ends, because a connection or one of the agents is gone.
    pub fn ended_by_office(self) -> TaskState {
        if self == TaskState::Pending { TaskState::Rejected } else { TaskState::Failed }
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for TaskState {
    type Err = OfficeError;

    fn from_str(text: &str) -> Result<Self, OfficeError> {
        TaskState::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            OfficeError::invalid(format!(
                "a task is pending, accepted, working, completed, failed or rejected, not {text:?}"
            ))
        })
    }
}

/// A transition that the state machine does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a task that is {from} cannot become {to}{}", if .from.is_terminal() { "; it has ended" } else { "" })]
pub struct IllegalMove {
    /// The current state.
    pub from: TaskState,
    /// The requested state.
    pub to: TaskState,
}

/// The task as a message carries it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskRef {
    /// The task's id.
    pub id: TaskId,
    /// Its state when the message was sent.
    pub state: TaskState,
    /// When it must be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// Fields of other systems, kept as they are.
    #[serde(flatten)]
    pub extra: Object,
}

/// A task as the office knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Task {
    /// The task's id.
    pub id: TaskId,
    /// The agent that gave it and gets all updates.
    pub owner: AgentName,
    /// The agent that shall do it; only this one changes its state.
    pub assignee: AgentName,
    /// Its state.
    pub state: TaskState,
    /// Its subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The message that carried it.
    pub message_id: MessageId,
    /// The session in which it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The task that this one was delegated from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<TaskId>,
    /// When it must be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// Whether the deadline passed while it was open.
    #[serde(default)]
    pub overdue: bool,
    /// The note of the last change: progress, result or reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Where the answer shall go. Shown to the owner only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<Callback>,
    /// The person who canceled it, set by the office.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canceled_by: Option<AgentName>,
    /// When it was sent.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// Whether an open task is past its deadline.
pub fn is_overdue(state: TaskState, deadline: Option<Timestamp>, now: Timestamp) -> bool {
    !state.is_terminal() && deadline.is_some_and(|deadline| deadline < now)
}

/// The office's decision about a task, before the agent itself decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The agent may accept it.
    Accept,
    /// The agent may not accept it; the sender gets the reason.
    Reject(RejectReason),
}

/// Why the office rejects a task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RejectReason {
    /// The sender is not in `allow_from`.
    #[error("unauthorized: {} does not take tasks from {}", .assignee.quoted(), .sender.quoted())]
    Unauthorized {
        /// Who sent it.
        sender: AgentName,
        /// The agent that was asked.
        assignee: AgentName,
    },
    /// The quota is full.
    #[error("quota: {}", over_quota(*.current, *.max))]
    Quota {
        /// Number of current tasks.
        current: u32,
        /// Maximum number of current tasks.
        max: u32,
    },
    /// The deadline has passed.
    #[error("deadline: {deadline} has passed")]
    Deadline {
        /// The deadline.
        deadline: Timestamp,
    },
}

fn over_quota(current: u32, max: u32) -> String {
    match max {
        0 => "this agent takes no tasks; send it a message instead".into(),
        _ => format!("{current} of {max} tasks are under way; try again when one has ended"),
    }
}

/// The facts for the decision.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Who sent the task.
    pub sender: &'a AgentName,
    /// Who is asked to do it.
    pub assignee: &'a AgentName,
    /// Whether the assignee's `allow_from` contains the sender, by the office's rule for the case of names.
    pub allowed: bool,
    /// The card of that agent.
    pub card: &'a Card,
    /// Number of tasks that it has accepted and not ended, without this one.
    pub current_tasks: usize,
    /// The task's deadline.
    pub deadline: Option<Timestamp>,
}

/// The office's part of acceptance: the sender is in `allow_from`, the quota is not full, the deadline has not passed.
pub fn decide(asked: Asked<'_>, now: Timestamp) -> Decision {
    let Asked { sender, assignee, allowed, card, current_tasks, deadline } = asked;
    let current = u32::try_from(current_tasks).unwrap_or(u32::MAX);
    if !allowed {
        return Decision::Reject(RejectReason::Unauthorized { sender: sender.clone(), assignee: assignee.clone() });
    }
    if current >= card.max_concurrent_tasks {
        return Decision::Reject(RejectReason::Quota { current, max: card.max_concurrent_tasks });
    }
    match deadline {
        Some(deadline) if deadline < now => Decision::Reject(RejectReason::Deadline { deadline }),
        _ => Decision::Accept,
    }
}

/// Returns the state of a task after its assignee moves it to `next`: that one, or rejected with the reason.
/// `taking_on` is the office's decision, required if [`TaskState::takes_on`].
pub fn decide_move(
    from: TaskState,
    next: TaskState,
    taking_on: Option<Decision>,
) -> Result<(TaskState, Option<RejectReason>), IllegalMove> {
    if from.path_to(next).is_empty() {
        return Err(IllegalMove { from, to: next });
    }
    match taking_on {
        Some(Decision::Reject(reason)) if from.takes_on(next) => Ok((TaskState::Rejected, Some(reason))),
        _ => Ok((next, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_says_what_the_sender_can_do() {
        let said = |current, max| RejectReason::Quota { current, max }.to_string();
        assert_eq!(said(2, 2), "quota: 2 of 2 tasks are under way; try again when one has ended");
        assert_eq!(said(0, 0), "quota: this agent takes no tasks; send it a message instead");
    }

    #[test]
    fn a_deadline_is_a_moment_or_a_span_from_now() {
        let now: Timestamp = "2026-12-01T12:00:00.123456789Z".parse().unwrap();
        let at = |text: &str| parse_deadline(text, now).map(|at| at.to_string());
        assert_eq!(at("2026-12-02T00:00:00Z").unwrap(), "2026-12-02T00:00:00Z");
        assert_eq!(at("90m").unwrap(), "2026-12-01T13:30:00.123457Z");
        assert_eq!(at("1h 30m").unwrap(), at("90m").unwrap());
        assert_eq!(at("3d").unwrap(), "2026-12-04T12:00:00.123457Z");
        for bad in ["", "soon", "-2h", "2h ago", "5", "99999999999h", "2 months"] {
            assert!(at(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn every_move_is_legal_or_not_as_the_table_says() {
        use TaskState::*;
        let legal = [
            (Pending, Accepted),
            (Pending, Rejected),
            (Accepted, Working),
            (Accepted, Failed),
            (Working, Working),
            (Working, Completed),
            (Working, Failed),
        ];
        for from in TaskState::ALL {
            for to in TaskState::ALL {
                assert_eq!(from.check_move(to).is_ok(), legal.contains(&(from, to)), "{from} to {to}");
            }
        }
    }

    #[test]
    fn terminal_states_never_change() {
        for from in TaskState::ALL.into_iter().filter(|state| state.is_terminal()) {
            assert!(TaskState::ALL.into_iter().all(|to| from.check_move(to).is_err() && from.path_to(to).is_empty()));
        }
    }

    #[test]
    fn a_path_is_made_of_legal_moves_and_ends_where_it_should() {
        for from in TaskState::ALL {
            for to in TaskState::ALL {
                let mut at = from;
                for step in from.path_to(to) {
                    at.check_move(step).unwrap();
                    at = step;
                }
                assert!(from.path_to(to).is_empty() || at == to, "{from} to {to}");
            }
        }
        assert_eq!(TaskState::Pending.path_to(TaskState::Completed).len(), 3);
    }

    #[test]
    fn the_office_checks_sender_quota_and_deadline() {
        let now = Timestamp::from_second(1_000).unwrap();
        let (sender, assignee) = ("coder".parse().unwrap(), "researcher".parse().unwrap());
        let card = Card { max_concurrent_tasks: 2, ..Card::default() };
        let (allowed, deadline) = (true, Some(now));
        let asked = Asked { sender: &sender, assignee: &assignee, allowed, card: &card, current_tasks: 1, deadline };
        assert_eq!(decide(asked, now), Decision::Accept, "the last moment of the deadline still counts");

        let reasons = [
            (Asked { allowed: false, ..asked }, "unauthorized"),
            (Asked { current_tasks: 2, ..asked }, "quota"),
            (Asked { deadline: Some(Timestamp::from_second(999).unwrap()), ..asked }, "deadline"),
        ];
        for (asked, word) in reasons {
            match decide(asked, now) {
                Decision::Reject(reason) => assert!(reason.to_string().starts_with(word), "{reason}"),
                Decision::Accept => panic!("accepted in spite of {word}"),
            }
        }
    }

    #[test]
    fn a_move_that_accepts_a_task_needs_the_offices_decision() {
        use TaskState::*;
        let full = || Some(Decision::Reject(RejectReason::Quota { current: 1, max: 1 }));
        let (state, reason) = decide_move(Pending, Completed, full()).unwrap();
        assert_eq!((state, reason.is_some()), (Rejected, true));
        assert_eq!(decide_move(Pending, Accepted, Some(Decision::Accept)), Ok((Accepted, None)));
        assert_eq!(decide_move(Working, Completed, full()), Ok((Completed, None)), "it was accepted before");
        assert_eq!(decide_move(Completed, Working, None), Err(IllegalMove { from: Completed, to: Working }));
    }

    #[test]
    fn only_an_open_task_is_overdue() {
        let at = |second| Timestamp::from_second(second).unwrap();
        assert!(is_overdue(TaskState::Working, Some(at(1)), at(2)));
        assert!(!is_overdue(TaskState::Working, Some(at(2)), at(2)));
        assert!(!is_overdue(TaskState::Completed, Some(at(1)), at(2)));
        assert!(!is_overdue(TaskState::Pending, None, at(2)));
    }
}
