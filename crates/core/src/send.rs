//! Decides a send from facts that the office looked up.
//!
//! Every office looks the facts up in its own way, calls [`decide`], and writes the result. A refused send changes
//! nothing. Repeats under an idempotency key are recognised before.

use jiff::Timestamp;

use crate::card::Card;
use crate::consent::{Consent, may_write};
use crate::draft::check_copies;
use crate::error::{Code, OfficeError};
use crate::id::MessageId;
use crate::message::{Kind, Message};
use crate::name::AgentName;
use crate::quota::{Quotas, Usage};
use crate::route::{self, Hop};
use crate::task::{self, Asked, Decision, RejectReason, TaskState};

/// What an office knows about a send. `S` is the office's type for a session.
#[derive(Debug, Clone)]
pub struct Facts<'a, S> {
    /// The authenticated sender.
    pub from: &'a AgentName,
    /// The recipient's name as it is registered.
    pub to: &'a AgentName,
    /// What it is for.
    pub kind: &'a Kind,
    /// For a task: when it must be done.
    pub deadline: Option<Timestamp>,
    /// Whether a program sends it by itself.
    pub automatic: bool,
    /// Facts about the recipient.
    pub recipient: Recipient<'a>,
    /// The message that the draft answers or passes on.
    pub parent: Parent<'a>,
    /// ttl and trace, if another office has decided them.
    pub settled: Option<Hop>,
    /// The session that the draft names.
    pub session: NamedSession<S>,
    /// The session of the message that it answers, if the recipient is in it too.
    pub answered: Option<S>,
    /// Whether it has a subject by which a session can be found or created.
    pub has_subject: bool,
    /// Stored amounts and quotas; `None` if the office has no quotas.
    pub storage: Option<Storage>,
    /// When it was sent.
    pub now: Timestamp,
}

/// The recipient of a message.
#[derive(Debug, Clone, Copy)]
pub enum Recipient<'a> {
    /// An agent.
    Agent {
        /// The consent between the two.
        consent: Consent,
        /// Its card.
        card: &'a Card,
        /// Whether its `allow_from` contains the sender.
        allowed: bool,
        /// The number of its current tasks; used for a task only.
        current_tasks: usize,
    },
    /// A group that the sender has joined.
    Group {
        /// The number of members who get it.
        copies: usize,
        /// Bytes of one copy as JSON.
        size: usize,
    },
}

/// The message that a draft answers or passes on.
#[derive(Debug, Clone, Copy)]
pub enum Parent<'a> {
    /// None.
    None,
    /// One that the sender neither sent nor received, as far as the office knows.
    Unknown(&'a MessageId),
    /// The draft answers it.
    Answers {
        /// The message.
        message: &'a Message,
        /// Whether it was sent to the group that the draft goes to: an answer to the group is a reply, not a relay.
        in_group: bool,
    },
    /// The draft passes it on.
    PassesOn(&'a Message),
}

/// The session that a draft names.
#[derive(Debug, Clone)]
pub enum NamedSession<S> {
    /// None.
    None,
    /// One that does not exist.
    Missing,
    /// One that is not between the sender and the recipient.
    Other,
    /// One between the two, or of the group.
    Shared(S),
}

/// Stored amounts and their limits.
#[derive(Debug, Clone, Copy)]
pub struct Storage {
    /// The limits.
    pub quotas: Quotas,
    /// What the sender has stored.
    pub sender: Usage,
    /// What all agents have stored.
    pub office: Usage,
    /// What this would add.
    pub more: Usage,
}

/// A send that is accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct Accepted<S> {
    /// Its ttl and trace.
    pub hop: Hop,
    /// Its session.
    pub session: SessionChoice<S>,
    /// For a task: its first state, and the reason if the office rejects it. A rejected task is not delivered; its
    /// sender gets an update.
    pub task: Option<(TaskState, Option<RejectReason>)>,
}

/// The session that a message belongs to.
#[derive(Debug, Clone, PartialEq)]
pub enum SessionChoice<S> {
    /// This one.
    Existing(S),
    /// The one of its subject, created if missing.
    OfSubject,
}

/// Decides a send.
///
/// # Errors
/// The first of these that holds: `invalid` for mail to oneself in a household (else `not_connected`), `not_connected`
/// or `not_allowed` by [`may_write`], `invalid` for a task to a group, `too_large` for too many copies, `over_quota`,
/// `not_found` for the message that it names, `loop_refused`, `not_found` or `forbidden` for the session that it names,
/// `invalid` without session and subject.
pub fn decide<S>(facts: Facts<'_, S>) -> Result<Accepted<S>, OfficeError> {
    let Facts { from, to, kind, recipient, .. } = facts;
    match recipient {
        // An agent is in its own household, but a session has two sides. In a directory it may leave itself a note.
        Recipient::Agent { consent, .. } if from == to && !consent.connected => return Err(to_oneself(consent)),
        // A task from a sender outside `allow_from` is rejected as a task, not refused.
        Recipient::Agent { consent, allowed, .. } => may_write(consent, from, to, allowed || *kind == Kind::Task)?,
        Recipient::Group { .. } if *kind == Kind::Task => {
            return Err(OfficeError::invalid("a task is done by one agent; send it to a member, not to the group"));
        }
        Recipient::Group { copies, size } => check_copies(size, copies)?,
    }
    if let Some(Storage { quotas, sender, office, more }) = facts.storage {
        quotas.check(sender, office, more)?;
    }
    let hop = hop(&facts)?;
    let session = match (facts.session, facts.answered) {
        (NamedSession::Shared(session), _) | (NamedSession::None, Some(session)) => SessionChoice::Existing(session),
        (NamedSession::Missing, _) => return Err(no_session()),
        (NamedSession::Other, _) => return Err(not_in_session(to)),
        (NamedSession::None, None) if facts.has_subject => SessionChoice::OfSubject,
        (NamedSession::None, None) => return Err(no_subject()),
    };
    let task = match recipient {
        Recipient::Agent { card, allowed, current_tasks, .. } if *kind == Kind::Task => {
            let asked = Asked { sender: from, assignee: to, allowed, card, current_tasks, deadline: facts.deadline };
            Some(match task::decide(asked, facts.now) {
                Decision::Accept => (TaskState::Pending, None),
                Decision::Reject(reason) => (TaskState::Rejected, Some(reason)),
            })
        }
        _ => None,
    };
    Ok(Accepted { hop, session, task })
}

fn hop<S>(facts: &Facts<'_, S>) -> Result<Hop, OfficeError> {
    if let Some(settled) = &facts.settled {
        return Ok(settled.clone());
    }
    Ok(match facts.parent {
        Parent::None => route::fresh(facts.from),
        Parent::Unknown(id) => return Err(no_message(id)),
        Parent::Answers { message, in_group } => {
            let to = if in_group { &message.from } else { facts.to };
            route::reply(message, facts.from, to, facts.automatic)?
        }
        Parent::PassesOn(message) => route::relay(message, facts.from, facts.to)?,
    })
}

fn to_oneself(consent: Consent) -> OfficeError {
    let code = if consent.same_household { Code::Invalid } else { Code::NotConnected };
    OfficeError::new(code, "an agent cannot write to itself; name another agent")
}

/// The error for a message that does not exist or that the caller may not see, which look the same.
pub fn no_message(id: &MessageId) -> OfficeError {
    OfficeError::not_found(format!("no message {id} came to you or was sent by you"))
}

/// The error for a message that was not delivered to the caller, where having sent it is not enough.
pub fn not_delivered(id: &MessageId) -> OfficeError {
    OfficeError::not_found(format!("no message {id} came to you"))
}

/// The error for a session that does not exist.
pub fn no_session() -> OfficeError {
    OfficeError::not_found("no such session; `inbox` lists yours")
}

/// The error for a draft with neither a session nor a subject.
pub fn no_subject() -> OfficeError {
    OfficeError::invalid("say a subject, or the session_id or reply_to to continue")
}

/// The error for a session that is not between the two.
pub fn not_in_session(to: &AgentName) -> OfficeError {
    OfficeError::new(Code::Forbidden, format!("this session is not one between you and {}", to.quoted()))
}

/// The error for an idempotency key that was used for another request.
pub fn key_reused() -> OfficeError {
    OfficeError::new(Code::Conflict, "this idempotency key was used for another message; a new message needs a new key")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Two {
        ann: AgentName,
        ben: AgentName,
        card: Card,
    }

    fn two() -> Two {
        Two { ann: "ann".parse().unwrap(), ben: "ben".parse().unwrap(), card: Card::default() }
    }

    fn facts<'a>(two: &'a Two, kind: &'a Kind) -> Facts<'a, u8> {
        Facts {
            from: &two.ann,
            to: &two.ben,
            kind,
            deadline: None,
            automatic: false,
            recipient: Recipient::Agent {
                consent: Consent { connected: true, ..Consent::default() },
                card: &two.card,
                allowed: true,
                current_tasks: 0,
            },
            parent: Parent::None,
            settled: None,
            session: NamedSession::None,
            answered: None,
            has_subject: true,
            storage: None,
            now: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_plain_message_gets_fresh_hops_and_the_session_of_its_subject() {
        let two = two();
        let accepted = decide(facts(&two, &Kind::Message)).unwrap();
        assert_eq!(accepted, Accepted { hop: route::fresh(&two.ann), session: SessionChoice::OfSubject, task: None });
    }

    #[test]
    fn mail_to_oneself_is_allowed_only_in_directories() {
        let two = two();
        let to_ann = |consent| {
            let recipient = Recipient::Agent { consent, card: &two.card, allowed: true, current_tasks: 0 };
            decide(Facts { to: &two.ann, recipient, ..facts(&two, &Kind::Message) })
        };
        assert!(to_ann(Consent::DIRECTORY).is_ok());
        let household = Consent { same_household: true, ..Consent::default() };
        for (consent, code) in [(household, Code::Invalid), (Consent::default(), Code::NotConnected)] {
            let refused = to_ann(consent).unwrap_err();
            assert_eq!(refused.code(), code);
            assert_eq!(refused.detail(), "an agent cannot write to itself; name another agent");
        }
    }

    #[test]
    fn a_sender_outside_allow_from_is_refused_and_its_task_rejected() {
        let two = two();
        let not_allowed = |kind| {
            let consent = Consent { connected: true, ..Consent::default() };
            let recipient = Recipient::Agent { consent, card: &two.card, allowed: false, current_tasks: 0 };
            Facts { recipient, ..facts(&two, kind) }
        };
        assert_eq!(decide(not_allowed(&Kind::Message)).unwrap_err().code(), Code::NotAllowed);
        let (state, reason) = decide(not_allowed(&Kind::Task)).unwrap().task.unwrap();
        assert_eq!(state, TaskState::Rejected);
        assert!(matches!(reason, Some(RejectReason::Unauthorized { .. })));
    }

    #[test]
    fn a_session_is_the_named_one_or_that_of_the_answered_message_or_of_the_subject() {
        let two = two();
        let choice = |session, answered, has_subject| {
            let facts = Facts { session, answered, has_subject, ..facts(&two, &Kind::Message) };
            decide(facts).map(|accepted| accepted.session).map_err(|error| error.code())
        };
        assert_eq!(choice(NamedSession::Shared(1), Some(2), true), Ok(SessionChoice::Existing(1)));
        assert_eq!(choice(NamedSession::None, Some(2), true), Ok(SessionChoice::Existing(2)));
        assert_eq!(choice(NamedSession::None, None, true), Ok(SessionChoice::OfSubject));
        assert_eq!(choice(NamedSession::None, None, false), Err(Code::Invalid));
        assert_eq!(choice(NamedSession::Missing, Some(2), true), Err(Code::NotFound));
        assert_eq!(choice(NamedSession::Other, Some(2), true), Err(Code::Forbidden));
    }

    #[test]
    fn a_group_message_is_no_task_and_limited_in_size() {
        let two = two();
        let to_group = |kind, copies, size| {
            let facts = Facts { recipient: Recipient::Group { copies, size }, ..facts(&two, kind) };
            decide(facts).map_err(|error| error.code())
        };
        assert!(to_group(&Kind::Message, 3, 100).is_ok());
        assert_eq!(to_group(&Kind::Task, 3, 100).unwrap_err(), Code::Invalid);
        assert_eq!(to_group(&Kind::Message, 1_000, 1 << 30).unwrap_err(), Code::TooLarge);
    }

    #[test]
    fn a_hop_decided_by_another_office_is_kept() {
        let two = two();
        let settled = Hop { ttl: 0, trace: vec![two.ben.clone(), two.ann.clone()] };
        let unknown = "m".parse().unwrap();
        let facts = facts(&two, &Kind::Message);
        let carried = Facts { settled: Some(settled.clone()), parent: Parent::Unknown(&unknown), ..facts.clone() };
        assert_eq!(decide(carried).unwrap().hop, settled);
        let sent = Facts { parent: Parent::Unknown(&unknown), ..facts };
        assert_eq!(decide(sent).unwrap_err().code(), Code::NotFound);
    }
}
