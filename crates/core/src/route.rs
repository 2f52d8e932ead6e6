//! How loops end and natural replies still pass: ttl and trace.
//!
//! Every hop costs 1 ttl and appends the sender to the trace, the first hop too. *Relaying* is refused at ttl 0 or when
//! the target is already in the trace. *Replying* goes back, not round, so the trace is not asked; but it costs 1 ttl,
//! so two agents that answer each other automatically stop after three messages. A *task update* to the task's owner
//! costs nothing.

use crate::limits::DEFAULT_TTL;
use crate::message::Message;
use crate::name::AgentName;

/// The ttl and trace with which a message arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// Hops left after this one.
    pub ttl: u8,
    /// Everybody who sent it on, the sender of this hop last.
    pub trace: Vec<AgentName>,
}

/// Why a hop is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No hops left for passing it on.
    #[error("this has been passed on as often as its ttl allows; do the work yourself")]
    TtlExhausted,
    /// It would come round to somebody who had it.
    #[error("{target} has already handled this (trace: {}); do it yourself or ask another agent", .trace.join(" → "))]
    Circular {
        /// Who would get it again.
        target: AgentName,
        /// Whose hands it went through.
        trace: Vec<String>,
    },
    /// No hops left for another reply.
    #[error("this exchange has reached its ttl; start a new message if there is more to say")]
    ReplyExhausted,
}

/// A message that a person or an agent starts afresh.
pub fn fresh(from: &AgentName) -> Hop {
    Hop { ttl: DEFAULT_TTL - 1, trace: vec![from.clone()] }
}

/// Passing `parent` on to a third agent.
pub fn relay(parent: &Message, by: &AgentName, to: &AgentName) -> Result<Hop, Refused> {
    if parent.trace.contains(to) || to == by {
        let trace = parent.trace.iter().map(AgentName::to_string).collect();
        return Err(Refused::Circular { target: to.clone(), trace });
    }
    let ttl = parent.ttl.checked_sub(1).ok_or(Refused::TtlExhausted)?;
    Ok(Hop { ttl, trace: extended(parent, by) })
}

/// Answering the sender of `parent`.
pub fn reply(parent: &Message, by: &AgentName) -> Result<Hop, Refused> {
    let ttl = parent.ttl.checked_sub(1).ok_or(Refused::ReplyExhausted)?;
    Ok(Hop { ttl, trace: extended(parent, by) })
}

/// Telling the owner of the task in `parent` what became of it.
pub fn task_update(parent: &Message, by: &AgentName) -> Hop {
    Hop { ttl: parent.ttl, trace: extended(parent, by) }
}

/// The hop of a draft that names another message. A "reply" to anyone but the sender goes round, and is judged as a relay;
/// following up on one's own message starts afresh, since nobody else's message provoked it.
pub fn after(parent: &Message, by: &AgentName, to: &AgentName) -> Result<Hop, Refused> {
    if parent.from == *by {
        Ok(fresh(by))
    } else if parent.from == *to {
        reply(parent, by)
    } else {
        relay(parent, by, to)
    }
}

fn extended(parent: &Message, by: &AgentName) -> Vec<AgentName> {
    let mut trace = parent.trace.clone();
    trace.push(by.clone());
    trace
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::MessageId;
    use crate::message::{Kind, Part, Priority};
    use jiff::Timestamp;

    fn name(text: &str) -> AgentName {
        text.parse().unwrap()
    }

    fn arrived(from: &str, to: &str, hop: Hop) -> Message {
        Message {
            id: MessageId::parse("m").unwrap(),
            from: name(from),
            to: name(to),
            sent_at: Timestamp::UNIX_EPOCH,
            kind: Kind::Task,
            session: None,
            subject: None,
            parts: vec![Part::text("do it")],
            priority: Priority::Normal,
            ttl: hop.ttl,
            trace: hop.trace,
            task: None,
            callback: None,
            reply_to: None,
            correlation_id: None,
            metadata: Default::default(),
        }
    }

    fn trace(names: &[&str]) -> Vec<AgentName> {
        names.iter().map(|n| name(n)).collect()
    }

    #[test]
    fn a_chain_ends_at_the_fourth_agent() {
        let at_b = arrived("a", "b", fresh(&name("a")));
        assert_eq!((at_b.ttl, &at_b.trace), (2, &trace(&["a"])));
        let at_c = arrived("b", "c", relay(&at_b, &name("b"), &name("c")).unwrap());
        assert_eq!((at_c.ttl, &at_c.trace), (1, &trace(&["a", "b"])));
        let at_d = arrived("c", "d", relay(&at_c, &name("c"), &name("d")).unwrap());
        assert_eq!((at_d.ttl, &at_d.trace), (0, &trace(&["a", "b", "c"])));
        assert_eq!(relay(&at_d, &name("d"), &name("e")), Err(Refused::TtlExhausted));
        assert_eq!(task_update(&at_d, &name("d")).ttl, 0, "the result still goes back");
    }

    #[test]
    fn a_cycle_is_refused() {
        let at_b = arrived("a", "b", fresh(&name("a")));
        let at_c = arrived("b", "c", relay(&at_b, &name("b"), &name("c")).unwrap());
        assert!(matches!(relay(&at_c, &name("c"), &name("a")), Err(Refused::Circular { .. })));
        assert!(matches!(relay(&at_c, &name("c"), &name("c")), Err(Refused::Circular { .. })));
    }

    #[test]
    fn a_natural_reply_passes_though_its_target_is_in_the_trace() {
        let at_b = arrived("a", "b", fresh(&name("a")));
        let answer = reply(&at_b, &name("b")).unwrap();
        assert_eq!((answer.ttl, answer.trace), (1, trace(&["a", "b"])));
    }

    #[test]
    fn two_agents_that_answer_each_other_stop_after_three_messages() {
        let mut message = arrived("a", "b", fresh(&name("a")));
        let mut sent = 1;
        while let Ok(hop) = reply(&message, &message.to.clone()) {
            message = arrived(message.to.as_str(), message.from.as_str(), hop);
            sent += 1;
        }
        assert_eq!(sent, 3);
        assert!(!message.provokes_answer());
    }

    #[test]
    fn a_reply_to_somebody_else_is_a_relay() {
        let at_b = arrived("a", "b", fresh(&name("a")));
        assert_eq!(after(&at_b, &name("b"), &name("a")), reply(&at_b, &name("b")));
        assert_eq!(after(&at_b, &name("b"), &name("c")), relay(&at_b, &name("b"), &name("c")));
        assert_eq!(after(&at_b, &name("a"), &name("b")), Ok(fresh(&name("a"))), "a follow-up is no loop");
    }
}
