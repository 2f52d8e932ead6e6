//! The messages that the model of this mailbox is working on. A message to a third agent counts as passing one of them
//! on and keeps its ttl and trace, although models rarely name it. Losing this state loses no message, only this guard
//! against loops.

use std::collections::VecDeque;
use std::time::Duration;

use amb_core::doc::MessageView;
use amb_core::{AgentName, Kind, Message, MessageId, SessionId, Task, TaskId};
use parking_lot::Mutex;
use tokio::time::Instant;

/// How long a message that was shown counts as what the model is working on.
const MEMORY: Duration = Duration::from_secs(3_600);
/// How many shown messages are remembered; the oldest are dropped first.
const CAPACITY: usize = 64;

/// A message's remaining hops and the agents it passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HopState {
    pub(crate) ttl: u8,
    pub(crate) trace: Vec<AgentName>,
}

impl HopState {
    pub(crate) fn of(message: &Message) -> Self {
        Self { ttl: message.ttl, trace: message.trace.clone() }
    }
}

/// A message that the model works on.
#[derive(Debug, Clone)]
pub(crate) struct WorkMail {
    pub(crate) id: MessageId,
    from: AgentName,
    session: Option<SessionId>,
    task: Option<TaskId>,
    /// The message it answers, if it names one.
    pub(crate) reply_to: Option<MessageId>,
    /// Known once the office was asked.
    pub(crate) route: Option<HopState>,
    /// Whether it was checked that it does not answer a message of this agent's own.
    pub(crate) is_checked: bool,
    /// When it was shown; `None` where only the office says that it is work: a consumer of this agent has claimed it,
    /// or it carries an open task.
    shown_at: Option<Instant>,
    /// Whether something was sent to its sender, or into its session, since it became known.
    answered: bool,
    /// Whether the task that it carries has ended, so that it is no work any more.
    ended: bool,
}

impl WorkMail {
    fn new(id: MessageId, from: AgentName) -> Self {
        Self {
            id,
            from,
            session: None,
            task: None,
            reply_to: None,
            route: None,
            is_checked: false,
            shown_at: None,
            answered: false,
            ended: false,
        }
    }

    /// Whether it asks for something, rather than answers: a task, or a message that is no reply.
    fn is_request(&self) -> bool {
        self.task.is_some() || self.reply_to.is_none()
    }

    /// Whether what it asks for is still to be done.
    fn is_open(&self) -> bool {
        !self.ended && (self.task.is_some() || !self.answered)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Work {
    state: Mutex<WorkState>,
}

#[derive(Debug, Default)]
struct WorkState {
    /// In the order in which they became known.
    mails: VecDeque<WorkMail>,
    /// The recipient of the last message that was refused because of what the model is working on.
    refused: Option<AgentName>,
}

impl Work {
    /// Records a message of another agent that the model was shown. An update of the agent's own task is a result, not
    /// work.
    pub(crate) fn shown(&self, message: &MessageView, session: &SessionId) {
        if message.kind == Kind::TaskUpdate {
            return;
        }
        let mut state = self.state.lock();
        let known = state.mails.iter().position(|mail| mail.id == message.id).and_then(|at| state.mails.remove(at));
        state.mails.push_back(WorkMail {
            session: Some(session.clone()),
            task: message.task.as_ref().map(|task| task.id.clone()),
            reply_to: message.reply_to.clone(),
            shown_at: Some(Instant::now()),
            ..known.unwrap_or_else(|| WorkMail::new(message.id.clone(), message.sender_name.clone()))
        });
        let shown = state.mails.iter().filter(|mail| mail.shown_at.is_some()).count();
        if shown > CAPACITY
            && let Some(oldest) = state.mails.iter().position(|mail| mail.shown_at.is_some())
        {
            state.mails.remove(oldest);
        }
    }

    /// Replaces what the office says that this agent works on: messages that its consumers have claimed, and open
    /// tasks.
    pub(crate) fn sync_with_office(&self, claimed: &[Message], tasks: &[Task]) {
        let mut state = self.state.lock();
        state.mails.retain(|mail| {
            mail.shown_at.is_some_and(|at| at.elapsed() < MEMORY)
                || claimed.iter().any(|message| message.id == mail.id)
                || tasks.iter().any(|task| task.message_id == mail.id)
        });
        let mut add = |mail: WorkMail| match state.mails.iter_mut().find(|known| known.id == mail.id) {
            Some(known) => known.route = known.route.take().or(mail.route),
            None => state.mails.push_back(mail),
        };
        for message in claimed.iter().filter(|message| message.kind != Kind::TaskUpdate) {
            add(WorkMail {
                session: message.session.clone(),
                task: message.task.as_ref().map(|task| task.id.clone()),
                reply_to: message.reply_to.clone(),
                route: Some(HopState::of(message)),
                is_checked: message.reply_to.is_none(),
                ..WorkMail::new(message.id.clone(), message.from.clone())
            });
        }
        for task in tasks {
            add(WorkMail {
                session: task.session_id.clone(),
                task: Some(task.id.clone()),
                is_checked: true,
                ..WorkMail::new(task.message_id.clone(), task.owner.clone())
            });
        }
    }

    /// Records a message's hops, and that it answers nothing of this agent's own.
    pub(crate) fn set_route(&self, id: &MessageId, route: HopState) {
        if let Some(mail) = self.state.lock().mails.iter_mut().find(|mail| mail.id == *id) {
            (mail.route, mail.is_checked) = (Some(route), true);
        }
    }

    /// Records a message that the model sent.
    pub(crate) fn sent(&self, to: &AgentName, session: &SessionId) {
        let mut state = self.state.lock();
        state.refused = None;
        for mail in state.mails.iter_mut().filter(|mail| mail.from == *to || mail.session.as_ref() == Some(session)) {
            mail.answered = true;
        }
    }

    /// Records that a message was refused because of what the model is working on.
    pub(crate) fn refused(&self, to: &AgentName) {
        self.state.lock().refused = Some(to.clone());
    }

    /// Whether the last message was refused because of what the model is working on, and was for this agent.
    pub(crate) fn was_refused(&self, to: &AgentName) -> bool {
        self.state.lock().refused.as_ref() == Some(to)
    }

    /// Records that the task has ended.
    pub(crate) fn ended(&self, task: &TaskId, message: &MessageId) {
        let is_it = |mail: &&mut WorkMail| mail.task.as_ref() == Some(task) || mail.id == *message;
        self.state.lock().mails.iter_mut().filter(is_it).for_each(|mail| mail.ended = true);
    }

    /// Removes a message that is not work: it is gone, or answers this agent's own message.
    pub(crate) fn forget(&self, id: &MessageId) {
        self.state.lock().mails.retain(|mail| mail.id != *id);
    }

    /// Whether the model works on this message, and it came from this agent.
    pub(crate) fn is_from(&self, id: &MessageId, from: &AgentName) -> bool {
        self.state.lock().mails.iter().any(|mail| mail.id == *id && mail.from == *from)
    }

    /// The last message of this agent that was shown, in this session where one is named.
    pub(crate) fn last_from(&self, from: &AgentName, session: Option<&SessionId>) -> Option<MessageId> {
        let state = self.state.lock();
        let is_it = |mail: &&WorkMail| {
            !mail.ended && mail.from == *from && (session.is_none() || mail.session.as_ref() == session)
        };
        state.mails.iter().rev().find(is_it).map(|mail| mail.id.clone())
    }

    /// The last request of this agent that was shown and is still to be done, or was shown within this time.
    pub(crate) fn request_from(&self, from: &AgentName, within: Duration) -> Option<MessageId> {
        let is_it = |mail: &&WorkMail| {
            let is_new = || mail.shown_at.is_some_and(|at| at.elapsed() <= within);
            mail.from == *from && mail.is_request() && (mail.is_open() || is_new())
        };
        self.state.lock().mails.iter().rev().find(is_it).map(|mail| mail.id.clone())
    }

    /// The messages that one to this agent may be passing on, latest first. Empty where it answers that agent: that is
    /// a reply, not a relay.
    pub(crate) fn passed_on_to(&self, to: &AgentName, session: Option<&SessionId>) -> Vec<WorkMail> {
        let state = self.state.lock();
        let goes_back = |mail: &WorkMail| mail.from == *to || (session.is_some() && session == mail.session.as_ref());
        if state.mails.iter().any(|mail| goes_back(mail) && !mail.answered && !mail.ended) {
            return Vec::new();
        }
        state.mails.iter().rev().filter(|mail| !goes_back(mail) && !mail.ended).cloned().collect()
    }
}

/// The most restrictive message: one that `to` has had already, else the one with the fewest hops left; of several the
/// first. So a loop does not continue because unrelated messages are waiting.
pub(crate) fn most_restrictive<'m>(mails: &'m [WorkMail], to: &AgentName) -> Option<&'m WorkMail> {
    let routes = || mails.iter().filter_map(|mail| Some((mail, mail.route.as_ref()?)));
    let been_there = routes().find(|(_, route)| route.trace.contains(to));
    been_there.or_else(|| routes().min_by_key(|(_, route)| route.ttl)).map(|(mail, _)| mail)
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
            from_person: false,
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

    fn ids(mails: Vec<WorkMail>) -> Vec<String> {
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

    #[test]
    fn the_most_restrictive_mail_is_the_one_passed_on() {
        let with = |id: &str, ttl: u8, trace: &[&str]| WorkMail {
            route: Some(HopState { ttl, trace: trace.iter().map(|agent| name(agent)).collect() }),
            is_checked: true,
            ..WorkMail::new(id.parse().unwrap(), name("ann"))
        };
        let mails = [with("noise", 2, &["zoe"]), with("ring", 1, &["cat", "ann"]), with("last", 0, &["ben"])];
        let chosen = |to: &str| most_restrictive(&mails, &name(to)).unwrap().id.to_string();
        assert_eq!(chosen("cat"), "ring", "cat had it");
        assert_eq!(chosen("dan"), "last", "the fewest hops left");
        assert_eq!(most_restrictive(&[], &name("dan")).map(|mail| &mail.id), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_open_until_it_is_done_and_for_the_rest_of_that_turn() {
        let work = Work::default();
        let (ann, session) = (name("ann"), "s".parse::<SessionId>().unwrap());
        let in_hand = |seconds| work.request_from(&ann, Duration::from_secs(seconds)).map(|id| id.to_string());
        let task = |id: &str, reply_to: Option<&str>| MessageView {
            task: Some(
                serde_json::from_value(serde_json::json!({"id": format!("t-{id}"), "state": "pending"})).unwrap(),
            ),
            reply_to: reply_to.map(|id| id.parse().unwrap()),
            ..mail(id, "ann")
        };
        work.shown(&MessageView { reply_to: Some("mine".parse().unwrap()), ..mail("answer", "ann") }, &session);
        assert_eq!(in_hand(60), None, "an answer asks for nothing");
        work.shown(&task("t1", Some("mine")), &session);
        tokio::time::advance(Duration::from_secs(600)).await;
        work.sent(&ann, &session);
        assert_eq!(in_hand(60).as_deref(), Some("t1"), "answered, and not done");
        work.ended(&"t-t1".parse().unwrap(), &"t1".parse().unwrap());
        assert_eq!((in_hand(60), in_hand(900).as_deref()), (None, Some("t1")));
        assert_eq!(work.last_from(&ann, None).unwrap().as_str(), "answer", "a message answers what is not done");
        assert!(!work.passed_on_to(&name("cat"), None).iter().any(|mail| mail.id.as_str() == "t1"));
    }

    #[tokio::test]
    async fn claimed_mail_is_work_only_while_it_is_claimed() {
        let work = Work::default();
        let claimed: Vec<Message> = serde_json::from_value(serde_json::json!([{
            "id": "m1", "from": "ann", "to": "me", "sent_at": "2026-02-22T10:05:00Z", "parts": [], "ttl": 1, "trace": ["ann"],
        }]))
        .unwrap();
        work.sync_with_office(&claimed, &[]);
        work.shown(&mail("m2", "ben"), &"s2".parse().unwrap());
        assert_eq!(ids(work.passed_on_to(&name("cat"), None)), ["m2", "m1"]);
        assert!(work.passed_on_to(&name("ann"), None).is_empty(), "an answer to what a bridge woke it for");
        work.sync_with_office(&[], &[]);
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
