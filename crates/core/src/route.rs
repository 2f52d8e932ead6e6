//! ttl and trace, which stop loops and let replies pass.
//!
//! Every hop costs 1 ttl and appends the sender to the trace, the first hop too.
//!
//! - *Relaying* (passing a message on to a third agent) is refused at ttl 0 or when the target is already in the trace.
//! - An *automatic reply*, marked by the program that sends it ([`Draft::automatic`](crate::Draft::automatic)), goes
//!   back to the sender, so the trace is not checked; but it costs 1 ttl, so two programs that answer each other stop
//!   after three messages. A message that a person or a model decided to pass on
//!   ([`Draft::mark_relay`](crate::Draft::mark_relay)) may be answered once more at ttl 0, by an answer that has ttl 0 itself.
//! - A reply that a person or a model decided to send has fresh hops, so that in a long conversation the next question
//!   can still be answered automatically.
//! - A *task update* to the task's owner costs nothing.
//!
//! Files that other programs write carry no mark, but their own ttl and trace, which an automatic reply or a relay
//! continues: they count as automatic.

use crate::limits::DEFAULT_TTL;
use crate::message::Message;
use crate::name::AgentName;

/// The ttl and trace with which a message arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// Hops left after this one.
    pub ttl: u8,
    /// The agents that sent it on, the sender of this hop last.
    pub trace: Vec<AgentName>,
}

/// Why a hop is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No hops left for passing it on.
    #[error("this has been passed on as often as its ttl allows; do the work yourself")]
    TtlExhausted,
    /// It would return to an agent that had it before.
    #[error("{} has already handled this (trace: {}); do it yourself or ask another agent", .target.quoted(), path(.trace))]
    Circular {
        /// That agent.
        target: AgentName,
        /// The agents that it passed through.
        trace: Vec<AgentName>,
    },
    /// No hops left for another automatic reply.
    #[error("this exchange has reached its ttl for automatic replies; leave it unanswered")]
    ReplyExhausted,
}

fn path(trace: &[AgentName]) -> String {
    trace.iter().map(AgentName::quoted).collect::<Vec<_>>().join(" → ")
}

/// The hop of a message that a person or a model starts.
pub fn fresh(from: &AgentName) -> Hop {
    Hop { ttl: DEFAULT_TTL - 1, trace: vec![from.clone()] }
}

/// The hop of passing `parent` on to a third agent.
pub fn relay(parent: &Message, by: &AgentName, to: &AgentName) -> Result<Hop, Refused> {
    if parent.trace.contains(to) || to == by {
        return Err(Refused::Circular { target: to.clone(), trace: parent.trace.clone() });
    }
    let ttl = parent.ttl.checked_sub(1).ok_or(Refused::TtlExhausted)?;
    Ok(Hop { ttl, trace: extended(parent, by) })
}

/// The hop of an automatic answer to the sender of `parent`. If `parent` has no hops left but somebody decided to send
/// it, the answer has none either, which makes it the last.
pub fn automatic_reply(parent: &Message, by: &AgentName) -> Result<Hop, Refused> {
    let ttl = match parent.ttl.checked_sub(1) {
        Some(ttl) => ttl,
        None if parent.is_decided() => 0,
        None => return Err(Refused::ReplyExhausted),
    };
    Ok(Hop { ttl, trace: extended(parent, by) })
}

/// The hop of an update to the owner of the task in `parent`.
pub fn task_update(parent: &Message, by: &AgentName) -> Hop {
    Hop { ttl: parent.ttl, trace: extended(parent, by) }
}

/// The hop of a draft that answers `parent`. A "reply" to anyone but the sender counts as a relay; a follow-up to one's
/// own message has fresh hops, since no other agent's message caused it.
pub fn reply(parent: &Message, by: &AgentName, to: &AgentName, automatic: bool) -> Result<Hop, Refused> {
    if parent.from != *by && parent.from != *to {
        relay(parent, by, to)
    } else if parent.from == *to && parent.from != *by && automatic {
        automatic_reply(parent, by)
    } else {
        Ok(fresh(by))
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
            from_person: false,
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
        let at_c = arrived("b", "c", Hop { ttl: 1, trace: trace(&["you may go on", "b"]) });
        let refused = relay(&at_c, &name("c"), &name("you may go on")).unwrap_err().to_string();
        let wanted = "\"you may go on\" has already handled this (trace: \"you may go on\" → b); do it yourself";
        assert!(refused.starts_with(wanted), "a name of several words is no part of the sentence: {refused}");
    }

    #[test]
    fn a_natural_reply_passes_though_its_target_is_in_the_trace() {
        let at_b = arrived("a", "b", fresh(&name("a")));
        let answer = automatic_reply(&at_b, &name("b")).unwrap();
        assert_eq!((answer.ttl, answer.trace), (1, trace(&["a", "b"])));
    }

    #[test]
    fn two_programs_that_answer_each_other_stop_after_three_messages() {
        let mut message = arrived("a", "b", fresh(&name("a")));
        let mut sent = 1;
        while let Ok(hop) = reply(&message, &message.to, &message.from, true) {
            message = arrived(message.to.as_str(), message.from.as_str(), hop);
            sent += 1;
        }
        assert_eq!(sent, 3);
        assert!(!message.provokes_answer());
    }

    #[test]
    fn a_question_relayed_to_its_last_hop_is_answered_once() {
        let at_b = arrived("a", "b", fresh(&name("a")));
        let at_c = arrived("b", "c", relay(&at_b, &name("b"), &name("c")).unwrap());
        let mut at_d = arrived("c", "d", relay(&at_c, &name("c"), &name("d")).unwrap());
        assert_eq!((at_d.ttl, at_d.provokes_answer()), (0, false), "a file of another program has no mark");
        assert_eq!(automatic_reply(&at_d, &name("d")), Err(Refused::ReplyExhausted));
        at_d.metadata.insert("automatic".into(), false.into());
        assert!(at_d.provokes_answer());
        assert_eq!(relay(&at_d, &name("d"), &name("e")), Err(Refused::TtlExhausted), "it may still not be relayed");
        let mut answer = arrived("d", "c", automatic_reply(&at_d, &name("d")).unwrap());
        answer.metadata.insert("automatic".into(), true.into());
        assert_eq!((answer.ttl, answer.provokes_answer()), (0, false));
        assert_eq!(automatic_reply(&answer, &name("c")), Err(Refused::ReplyExhausted));
    }

    #[test]
    fn a_conversation_continues_as_long_as_one_side_decides_to_ask() {
        let mut question = arrived("a", "b", fresh(&name("a")));
        for _ in 0..20 {
            assert!(question.provokes_answer());
            let answer = arrived("b", "a", reply(&question, &name("b"), &name("a"), true).unwrap());
            assert_eq!((answer.ttl, &answer.trace), (1, &trace(&["a", "b"])));
            let hop = reply(&answer, &name("a"), &name("b"), false).unwrap();
            assert_eq!(hop, fresh(&name("a")), "a question that somebody decided to ask");
            question = arrived("a", "b", hop);
        }
    }

    #[test]
    fn a_reply_to_somebody_else_is_a_relay() {
        let at_b = arrived("a", "b", fresh(&name("a")));
        let (a, b, c) = (name("a"), name("b"), name("c"));
        for automatic in [false, true] {
            assert_eq!(reply(&at_b, &b, &c, automatic), relay(&at_b, &b, &c));
            assert_eq!(reply(&at_b, &a, &b, automatic), Ok(fresh(&a)), "a follow-up is no loop");
        }
        assert_eq!(reply(&at_b, &b, &a, true), automatic_reply(&at_b, &b));
    }
}
