//! What the model at this seat is working on, so that what it passes on keeps its ttl and trace although a model names
//! no message it passes on. Not mail: forgetting it loses nothing but the guard against loops.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use amb_core::doc::MessageView;
use amb_core::{AgentName, Kind, MessageId, SessionId, TaskId};
use tokio::time::Instant;

/// How long a mail that was shown is taken for what the model is working on.
const MEMORY: Duration = Duration::from_secs(3_600);
/// Mails remembered; the oldest are forgotten first.
const CAPACITY: usize = 64;

/// A mail that the model was shown, oldest first.
#[derive(Debug, Clone)]
pub(crate) struct Mail {
    pub(crate) id: MessageId,
    pub(crate) from: AgentName,
    session: SessionId,
    task: Option<TaskId>,
    /// The message it answers, if it names one.
    pub(crate) reply_to: Option<MessageId>,
    at: Instant,
    /// Something was sent to its sender, or into its session, since it was shown.
    answered: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Work {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    mails: VecDeque<Mail>,
    /// To whom a message was refused because of what the model is working on.
    refused: Option<AgentName>,
}

impl Work {
    /// The model was shown a mail of another agent. The end of one's own task is a result, not work.
    pub(crate) fn shown(&self, message: &MessageView, session: &SessionId) {
        if message.kind == Kind::TaskUpdate {
            return;
        }
        let mut state = self.state();
        let known = state.mails.iter().position(|mail| mail.id == message.id);
        let answered = known.and_then(|at| state.mails.remove(at)).is_some_and(|mail| mail.answered);
        state.mails.push_back(Mail {
            id: message.id.clone(),
            from: message.sender_name.clone(),
            session: session.clone(),
            task: message.task.as_ref().map(|task| task.id.clone()),
            reply_to: message.reply_to.clone(),
            at: Instant::now(),
            answered,
        });
        if state.mails.len() > CAPACITY {
            state.mails.pop_front();
        }
    }

    /// The model sent something.
    pub(crate) fn sent(&self, to: &AgentName, session: &SessionId) {
        let mut state = self.state();
        state.refused = None;
        for mail in state.mails.iter_mut().filter(|mail| mail.from == *to || mail.session == *session) {
            mail.answered = true;
        }
    }

    /// A message was refused because of what the model is working on.
    pub(crate) fn refused(&self, to: &AgentName) {
        self.state().refused = Some(to.clone());
    }

    /// Whether the last message was refused because of what the model is working on, and was for this agent.
    pub(crate) fn was_refused(&self, to: &AgentName) -> bool {
        self.state().refused.as_ref() == Some(to)
    }

    /// The task has ended: its mail is no work any more.
    pub(crate) fn ended(&self, task: &TaskId, message: &MessageId) {
        self.state().mails.retain(|mail| mail.task.as_ref() != Some(task) && mail.id != *message);
    }

    /// The mail is no work: it is gone, or it answers what this agent itself asked.
    pub(crate) fn forget(&self, id: &MessageId) {
        self.state().mails.retain(|mail| mail.id != *id);
    }

    /// What a message to this agent may be passing on, latest first. Nothing where it answers that agent, which goes back,
    /// not round.
    pub(crate) fn passed_on_to(&self, to: &AgentName, session: Option<&SessionId>) -> Vec<Mail> {
        let mut state = self.state();
        state.mails.retain(|mail| mail.at.elapsed() < MEMORY);
        let goes_back = |mail: &Mail| mail.from == *to || session == Some(&mail.session);
        if state.mails.iter().any(|mail| goes_back(mail) && !mail.answered) {
            return Vec::new();
        }
        state.mails.iter().rev().filter(|mail| !goes_back(mail)).cloned().collect()
    }

    /// Whether the model was shown anything lately.
    pub(crate) fn remembers_any(&self) -> bool {
        !self.state().mails.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> AgentName {
        text.parse().unwrap()
    }

    fn mail(id: &str, from: &str) -> MessageView {
        MessageView {
            id: id.parse().unwrap(),
            sender_name: name(from),
            content: "x".into(),
            created_at: Default::default(),
            is_read: false,
            kind: Kind::Message,
            priority: Default::default(),
            parts: Vec::new(),
            task: None,
            reply_to: None,
            correlation_id: None,
            callback: None,
            metadata: Default::default(),
            truncated: false,
        }
    }

    fn ids(mails: Vec<Mail>) -> Vec<String> {
        mails.into_iter().map(|mail| mail.id.to_string()).collect()
    }

    #[tokio::test]
    async fn a_message_to_a_third_agent_passes_on_the_mail_shown_last() {
        let work = Work::default();
        let session = |id: &str| id.parse::<SessionId>().unwrap();
        work.shown(&mail("m1", "ann"), &session("s1"));
        work.shown(&mail("m2", "ben"), &session("s2"));
        assert_eq!(ids(work.passed_on_to(&name("cat"), None)), ["m2", "m1"]);
        assert!(work.passed_on_to(&name("ann"), None).is_empty(), "an answer");
        assert!(work.passed_on_to(&name("crew"), Some(&session("s2"))).is_empty(), "an answer to a group");
        work.sent(&name("ann"), &session("s1"));
        assert_eq!(ids(work.passed_on_to(&name("ann"), None)), ["m2"], "answered: now it may be ben's work");
        work.shown(&mail("m1", "ann"), &session("s1"));
        assert_eq!(ids(work.passed_on_to(&name("cat"), None)), ["m1", "m2"], "shown again, it is the latest");
        work.ended(&"t".parse().unwrap(), &"m1".parse().unwrap());
        assert_eq!(ids(work.passed_on_to(&name("cat"), None)), ["m2"]);
    }

    #[tokio::test]
    async fn memory_does_not_grow_without_bound() {
        let work = Work::default();
        for n in 0..CAPACITY * 2 {
            work.shown(&mail(&format!("m{n}"), "ann"), &"s".parse().unwrap());
        }
        assert_eq!(work.passed_on_to(&name("cat"), None).len(), CAPACITY);
    }
}
