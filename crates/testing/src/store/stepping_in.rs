//! Interventions of a household's person in its agents, their conversations and their tasks.

use amb_core::doc::ConnectionChange;
use amb_core::mailbox::{ClaimRequest, TaskFilter};
use amb_core::stepping_in::{Act, ConnectionAct};
use amb_core::{Code, Event, Kind, TaskId, TaskState};
use amb_store::{AgentKey, ConnectionDecision, NewKey};

use super::household::OWNER;
use super::races::at_once;
use super::*;

pub(super) fn all() -> ClaimRequest {
    ClaimRequest { limit: 100, ..ClaimRequest::default() }
}

impl TestStore {
    /// The interventions in this agent's log.
    pub(super) async fn acts(&self, agent: &Agent) -> Vec<(String, Act)> {
        let entries = self.events(agent.key, 0, 500).await.unwrap();
        let acts = entries.into_iter().filter_map(|entry| match entry.event {
            Event::SteppedIn(acted) => Some((acted.by.to_string(), acted.act)),
            _ => None,
        });
        acts.collect()
    }

    pub(super) async fn give(&self, from: &Agent, to: &Agent, subject: &str) -> TaskId {
        let draft = Draft { kind: Kind::Task, ..Draft::text(to.name.clone(), subject, "do it") };
        self.send(from, draft, at(1)).await.unwrap().answer.task.unwrap().id
    }

    /// Kinds and texts of the messages in an agent's log after a number.
    pub(super) async fn messages_after(&self, agent: &Agent, since: u64) -> Vec<(Kind, String)> {
        let entries = self.events(agent.key, since, 500).await.unwrap();
        let mail = entries.into_iter().filter_map(|entry| match entry.event {
            Event::NewMessage(mail) => Some((mail.kind, mail.content)),
            _ => None,
        });
        mail.collect()
    }
}

pub async fn a_paused_agents_mail_arrives_in_order_when_it_is_resumed(store: TestStore) {
    let ann = store.household_of("ann").await;
    let (coder, friend) = (store.join("coder", OWNER).await, store.enter("friend").await);
    store.connect(&friend, &coder).await;
    assert!(!store.say(&ann, &coder, "Plan", "now").await.answer.paused);
    let paused = store.set_paused(&ann, &coder.name, true, at(1)).await.unwrap();
    assert_eq!(paused.entries.len(), 2, "the agent and the person are told");
    assert!(store.set_paused(&ann, &coder.name, true, at(1)).await.unwrap().entries.is_empty(), "again is nothing new");
    let end = store.event_head(coder.key).await.unwrap();
    for (from, text) in [(&ann, "one"), (&friend, "two"), (&ann, "three")] {
        let sent = store.say(from, &coder, "Plan", text).await;
        assert!(sent.answer.paused, "the sender is told that it waits");
    }
    // Nothing can be claimed, the log ends at the pause, and no listener is behind.
    assert_eq!(store.claim(&coder, all(), at(2)).await.unwrap().answer, []);
    assert_eq!(store.events(coder.key, end, 10).await.unwrap(), []);
    assert_eq!(store.event_head(coder.key).await.unwrap(), end);
    let listener = amb_store::ListenerState { agent: coder.key, at: end, key: None };
    assert!(store.stale_listeners(&[listener], at(2)).await.unwrap().is_empty());
    assert_eq!(store.resume(coder.key, end + 1).await.unwrap(), end + 1, "a cursor behind the pause stays good");
    let acts = store.acts(&coder).await;
    assert_eq!(acts, [("ann".to_owned(), Act::Paused { agent: coder.name.clone() })], "that it is paused, it sees");
    // Everybody who sees the agent sees that it is paused; only the household sees by whom.
    assert!(store.is_paused(coder.key).await.unwrap() && !store.is_paused(friend.key).await.unwrap());
    assert!(store.agent(&friend, &coder.name, at(2)).await.unwrap().paused);
    assert!(store.profile(&coder, at(2)).await.unwrap().entry.paused);
    assert_eq!(store.household(&ann, at(2)).await.unwrap().members[1].paused_by, Some(ann.name.clone()));
    // The agent itself can still send.
    store.say(&coder, &ann, "Report", "still here").await;
    store.set_paused(&ann, &coder.name, false, at(3)).await.unwrap();
    assert!(store.set_paused(&ann, &coder.name, false, at(3)).await.unwrap().entries.is_empty());
    let texts: Vec<String> = store.messages_after(&coder, end).await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["one", "two", "three"]);
    assert_eq!(store.claim(&coder, all(), at(4)).await.unwrap().answer.len(), 4);
    let by_ann = |act: fn(AgentName) -> Act| ("ann".to_owned(), act(coder.name.clone()));
    let both = [by_ann(|agent| Act::Paused { agent }), by_ann(|agent| Act::Resumed { agent })];
    assert_eq!(store.acts(&coder).await, both);
    assert_eq!(store.acts(&ann).await, both);
    assert!(!store.say(&ann, &coder, "Plan", "four").await.answer.paused);
    // Removing an agent from the household ends its pause; leaving by itself does not.
    store.set_paused(&ann, &coder.name, true, at(5)).await.unwrap();
    store.say(&friend, &coder, "Plan", "five").await;
    assert_eq!(code(store.leave_household(&coder, &coder.name, at(5)).await), Code::Conflict);
    assert_eq!(store.claim(&coder, all(), at(5)).await.unwrap().answer, []);
    store.leave_household(&ann, &coder.name, at(5)).await.unwrap();
    assert_eq!(store.claim(&coder, all(), at(6)).await.unwrap().answer.len(), 2);
    assert!(!store.say(&friend, &coder, "Plan", "six").await.answer.paused);
}

pub async fn agents_are_resumed_when_their_person_is_deleted(store: TestStore) {
    let ann = store.household_of("ann").await;
    let (coder, writer) = (store.join("coder", OWNER).await, store.join("writer", OWNER).await);
    store.set_paused(&ann, &coder.name, true, at(1)).await.unwrap();
    let end = store.event_head(coder.key).await.unwrap();
    store.say(&writer, &coder, "Plan", "waits").await;
    let gone = store.delete_agent(&ann, hash_of("ann"), at(2)).await.unwrap();
    assert_eq!(gone.entries.iter().filter(|one| one.agent == coder.key).count(), 1);
    assert!(!gone.entries.iter().any(|one| one.agent == writer.key), "it was not paused");
    assert!(!store.is_paused(coder.key).await.unwrap());
    assert!(!store.agent(&writer, &coder.name, at(3)).await.unwrap().paused);
    assert_eq!(store.household(&coder, at(3)).await.unwrap().members[0].paused_by, None);
    assert_eq!(store.messages_after(&coder, end).await, [(Kind::Message, "waits".to_owned())]);
    assert_eq!(store.acts(&coder).await.last(), Some(&("ann".to_owned(), Act::Resumed { agent: coder.name.clone() })));
    assert!(!store.say(&writer, &coder, "Plan", "arrives").await.answer.paused);
    assert_eq!(store.claim(&coder, all(), at(4)).await.unwrap().answer.len(), 2);
    store.leave_household(&coder, &coder.name, at(5)).await.unwrap();
}

pub async fn only_the_person_steps_in_and_only_in_its_household(store: TestStore) {
    let ann = store.household_of("ann").await;
    let (coder, writer) = (store.join("coder", OWNER).await, store.join("writer", OWNER).await);
    let (friend, other) = (store.enter("friend").await, store.enter("other").await);
    store.connect(&friend, &other).await;
    let (ours, theirs) = (store.give(&coder, &writer, "Build").await, store.give(&friend, &other, "Build").await);
    let session = store.say(&coder, &writer, "Build", "x").await.answer.session_id;
    let strange = store.say(&friend, &other, "Build", "x").await.answer.session_id;
    for nobody in [&coder, &writer, &friend] {
        let refused = [
            code(store.set_paused(nobody, &coder.name, true, at(2)).await),
            code(store.end_session(nobody, &session, at(2)).await),
            code(store.cancel_task(nobody, &ours, None, at(2)).await),
            code(store.reassign_task(nobody, &ours, &coder.name, at(2)).await),
        ];
        assert_eq!(refused, [Code::Forbidden; 4], "{}", nobody.name);
    }
    let missing = [
        code(store.set_paused(&ann, &friend.name, true, at(2)).await),
        code(store.end_session(&ann, &strange, at(2)).await),
        code(store.end_session(&ann, &"no-such-session".parse().unwrap(), at(2)).await),
        code(store.cancel_task(&ann, &theirs, None, at(2)).await),
        code(store.reassign_task(&ann, &theirs, &coder.name, at(2)).await),
        code(store.reassign_task(&ann, &ours, &friend.name, at(2)).await),
        code(store.reassign_task(&ann, &ours, &name("nobody"), at(2)).await),
    ];
    assert_eq!(missing, [Code::NotFound; 7]);
    assert_eq!(code(store.set_paused(&ann, &ann.name, true, at(2)).await), Code::Conflict);
    // The person of another household may not.
    store.found_household(KeyHash::of("theirs"), false, at(3)).await.unwrap().unwrap();
    let join = Some(amb_store::Join { token: KeyHash::of("theirs"), person: true });
    let bea = store.register_agent(NewAgent { join, ..new_agent("bea") }, at(3)).await.unwrap().answer;
    let refused = [
        code(store.set_paused(&bea, &coder.name, true, at(4)).await),
        code(store.end_session(&bea, &session, at(4)).await),
        code(store.cancel_task(&bea, &ours, None, at(4)).await),
        code(store.reassign_task(&bea, &ours, &bea.name, at(4)).await),
    ];
    assert_eq!(refused, [Code::NotFound; 4]);
    assert!(store.acts(&coder).await.is_empty() && store.acts(&writer).await.is_empty());
}

pub async fn an_ended_conversation_accepts_no_mail(store: TestStore) {
    let ann = store.household_of("ann").await;
    let (coder, writer) = (store.join("coder", OWNER).await, store.join("writer", OWNER).await);
    let friend = store.enter("friend").await;
    store.connect(&friend, &coder).await;
    let first = store.say(&coder, &writer, "Loop", "first").await.answer;
    let task = store.give(&coder, &writer, "Loop").await;
    store.set_task_state(&writer, &task, TaskState::Working, None, at(2)).await.unwrap();
    let session = first.session_id.clone();
    let shown_as_ended = async || store.inbox(&writer, false, at(4)).await.unwrap().sessions.remove(0).ended_by;
    assert_eq!(shown_as_ended().await, None);
    let ended = store.end_session(&ann, &session, at(3)).await.unwrap();
    assert_eq!(shown_as_ended().await, Some(ann.name.clone()));
    assert_eq!((ended.answer.ended_by.as_str(), ended.answer.subject.as_str()), ("ann", "Loop"));
    let again = store.end_session(&ann, &session, at(4)).await.unwrap();
    assert_eq!((again.answer, again.entries.len()), (ended.answer, 0), "again is nothing new");
    for (from, to) in [(&coder, &writer), (&writer, &coder)] {
        let by_subject = Draft::text(to.name.clone(), " LOOP", "more");
        let within = Draft { session: Some(session.clone()), ..Draft::text(to.name.clone(), "x", "more") };
        let reply = Draft { reply_to: Some(first.message_id.clone()), ..Draft::text(to.name.clone(), "x", "more") };
        let task = Draft { kind: Kind::Task, ..by_subject.clone() };
        for draft in [by_subject, within, reply, task] {
            let refused = store.send(from, draft, at(5)).await.unwrap_err();
            assert_eq!(refused.code(), Code::Gone);
            assert!(refused.detail().contains("ann ended") && refused.detail().contains("new subject"), "{refused}");
        }
        store.say(from, to, "Something else", "goes on").await;
    }
    // The open task in it is canceled, and both know by whom.
    for side in [&coder, &writer] {
        let task = store.task(side, &task).await.unwrap();
        assert_eq!((task.state, task.canceled_by), (TaskState::Failed, Some(ann.name.clone())));
    }
    assert_eq!(code(store.set_task_state(&writer, &task, TaskState::Completed, None, at(5)).await), Code::IllegalMove);
    for agent in [&coder, &writer, &ann] {
        let acts = store.acts(agent).await;
        assert!(matches!(&acts[0], (by, Act::TaskCanceled { .. }) if by == "ann"), "{acts:?}");
        let end = Act::SessionEnded { session_id: session.clone(), subject: "Loop".into() };
        assert_eq!(acts[1..], [("ann".to_owned(), end)], "{}", agent.name);
    }
    // One side is enough.
    let abroad = store.say(&coder, &friend, "Plan", "hi").await.answer.session_id;
    store.end_session(&ann, &abroad, at(6)).await.unwrap();
    assert_eq!(code(store.send(&friend, Draft::text(coder.name.clone(), "Plan", "x"), at(7)).await), Code::Gone);
    assert_eq!(store.acts(&friend).await.len(), 1);
    // The history stays readable.
    assert!(store.texts(&writer, &session, 10).await.contains(&"first".to_owned()));
}

pub async fn only_the_owners_person_ends_a_groups_conversation(store: TestStore) {
    let ann = store.household_of("ann").await;
    let (coder, friend) = (store.join("coder", OWNER).await, store.enter("friend").await);
    store.connect(&friend, &coder).await;
    for (owner, member, group) in [(&coder, &friend, "ours"), (&friend, &coder, "theirs")] {
        store.create_group(owner, &name(group), at(1)).await.unwrap();
        store.invite_to_group(owner, &name(group), &member.name, at(1)).await.unwrap();
        store.join_group(member, &name(group), true).await.unwrap();
    }
    let chat = |from: &Agent, group: &str| {
        let (store, from, draft) = (store.clone(), from.clone(), Draft::text(name(group), "Chat", "hi"));
        async move { store.send(&from, draft, at(2)).await.map(|sent| sent.answer.session_id) }
    };
    let (ours, theirs) = (chat(&coder, "ours").await.unwrap(), chat(&coder, "theirs").await.unwrap());
    assert_eq!(code(store.end_session(&ann, &theirs, at(3)).await), Code::Forbidden, "another's group");
    assert!(chat(&friend, "theirs").await.is_ok());
    store.end_session(&ann, &ours, at(3)).await.unwrap();
    for from in [&coder, &friend] {
        assert_eq!(code(chat(from, "ours").await), Code::Gone);
        assert_eq!(store.acts(from).await.len(), 1);
    }
}

pub async fn no_send_succeeds_after_a_conversation_was_ended(store: TestStore) {
    let ann = store.household_of("ann").await;
    let (coder, writer) = (store.join("coder", OWNER).await, store.join("writer", OWNER).await);
    for round in 0..8 {
        let subject = format!("Loop {round}");
        let session = store.say(&coder, &writer, &subject, "first").await.answer.session_id;
        let sends = at_once(16, |n| {
            let (store, subject) = (store.clone(), subject.clone());
            let (from, to) = if n % 2 == 0 { (coder.clone(), writer.clone()) } else { (writer.clone(), coder.clone()) };
            let (ann, session) = (ann.clone(), session.clone());
            async move {
                if n % 8 == 7 {
                    // Two browsers of the person at once.
                    return store.end_session(&ann, &session, at(2)).await.map(|ended| ended.entries.len());
                }
                let kind = if n % 3 == 0 { Kind::Task } else { Kind::Message };
                let draft = Draft { kind, ..Draft::text(to.name.clone(), &subject, "more") };
                store.send(&from, draft, at(2)).await.map(|_| 0)
            }
        });
        let answers = sends.await;
        let written: Vec<usize> = answers.iter().skip(7).step_by(8).map(|answer| *answer.as_ref().unwrap()).collect();
        assert_eq!(written.iter().filter(|count| **count > 0).count(), 1, "one of the two ended it: {written:?}");
        let refused = answers.into_iter().filter_map(Result::err).all(|error| error.code() == Code::Gone);
        assert!(refused, "a send is accepted or told why");
        let open = TaskFilter { open: true, ..TaskFilter::default() };
        assert_eq!(store.tasks(&coder, open, 100).await.unwrap(), [], "no task stays open in it");
    }
}

pub async fn nothing_is_claimed_after_a_pause_was_answered(store: TestStore) {
    let ann = store.household_of("ann").await;
    let coder = store.join("coder", OWNER).await;
    for round in 0..8 {
        for _ in 0..20 {
            store.say(&ann, &coder, "Plan", "x").await;
        }
        let claims = at_once(9, |n| {
            let (store, ann, coder) = (store.clone(), ann.clone(), coder.clone());
            async move {
                if n == 4 {
                    store.set_paused(&ann, &coder.name, true, at(round)).await.unwrap();
                    return store.claim(&coder, all(), at(round)).await.unwrap().answer.len();
                }
                store.claim(&coder, ClaimRequest::default(), at(round)).await.unwrap().answer.len()
            }
        });
        assert_eq!(claims.await[4], 0, "what is asked after the answer gets nothing");
        store.set_paused(&ann, &coder.name, false, at(round)).await.unwrap();
    }
}

pub async fn only_a_members_key_is_renewed_and_its_others_are_revoked(store: TestStore) {
    let ann = store.household_of("ann").await;
    let (coder, friend) = (store.join("coder", OWNER).await, store.enter("friend").await);
    let key = |text: &str| NewKey { hash: KeyHash::of(text), prefix: "amb_new0".into() };
    let refused = [
        code(store.renew_key(&coder, &coder.name, key("a"), at(1)).await),
        code(store.renew_key(&ann, &friend.name, key("b"), at(1)).await),
        code(store.renew_key(&ann, &ann.name, key("c"), at(1)).await),
    ];
    assert_eq!(refused, [Code::Forbidden, Code::NotFound, Code::NotFound]);
    let renewed = store.renew_key(&ann, &name("CODER"), key("new"), at(2)).await.unwrap();
    assert_eq!((renewed.answer.key, renewed.entries.len()), (coder.key, 2), "both are told");
    assert_eq!(store.agent_by_key_hash(hash_of("coder"), at(2)).await.unwrap(), None);
    assert_eq!(store.agent_by_key_hash(KeyHash::of("new"), at(2)).await.unwrap(), Some(coder.clone()));
    // While it leaves: either it is a member and gets a new key, or it is none and keeps its own.
    for round in 0..8 {
        let agent = store.join(&format!("round-{round}"), OWNER).await;
        let new = format!("round {round}");
        let acted = at_once(2, |n| {
            let (store, ann, agent, key) = (store.clone(), ann.clone(), agent.clone(), key(&new));
            async move {
                match n {
                    0 => store.leave_household(&agent, &agent.name, at(3)).await.is_ok(),
                    _ => store.renew_key(&ann, &agent.name, key, at(3)).await.is_ok(),
                }
            }
        });
        let renewed = acted.await[1];
        let acts = store.acts(&agent).await.len();
        assert_eq!((acts == 1, acts <= 1), (renewed, true));
        let works = store.agent_by_key_hash(KeyHash::of(&new), at(4)).await.unwrap().is_some();
        assert_eq!(works, renewed);
    }
}

pub async fn decisions_on_behalf_of_an_agent_are_logged(store: TestStore) {
    let ann = store.household_of("ann").await;
    let (coder, friend) = (store.join("coder", OWNER).await, store.enter("friend").await);
    let change = |change| ConnectionDecision::Change { peer: friend.name.clone(), change };
    let act = |did| Act::Connection { agent: coder.name.clone(), with: friend.name.clone(), did };
    let notified = |written: &Written<AgentName>| -> Vec<AgentKey> {
        let acts = written.entries.iter().filter(|one| matches!(one.entry.event, Event::SteppedIn(_)));
        acts.map(|one| one.agent).collect()
    };
    let mut wanted = Vec::new();
    let asked = store.request_connection(&friend, Ask::new(coder.name.clone(), None), at(1)).await.unwrap().answer;
    let approve = ConnectionDecision::Approve { code: asked.verification_code };
    let decisions = [
        (approve, ConnectionAct::Approved),
        (change(ConnectionChange::Revoke), ConnectionAct::Revoked),
        (ConnectionDecision::Ask(Ask::new(friend.name.clone(), None)), ConnectionAct::Asked),
        (change(ConnectionChange::Block), ConnectionAct::Blocked),
        (change(ConnectionChange::Unblock), ConnectionAct::Unblocked),
    ];
    for (decision, did) in decisions {
        let done = store.decide_connection(&ann, &coder.name, decision, at(2)).await.unwrap();
        assert_eq!(done.answer, friend.name, "{did:?}");
        let mut agents = notified(&done);
        agents.sort_unstable();
        let mut both = [coder.key, ann.key];
        both.sort_unstable();
        assert_eq!(agents, both, "{did:?}");
        wanted.push(("ann".to_owned(), act(did)));
    }
    store.request_connection(&friend, Ask::new(coder.name.clone(), None), at(3)).await.unwrap();
    store.decide_connection(&ann, &coder.name, change(ConnectionChange::Reject), at(4)).await.unwrap();
    wanted.push(("ann".to_owned(), act(ConnectionAct::Rejected)));
    store.renew_key(&ann, &coder.name, new_key("renewed", "amb_rene"), at(5)).await.unwrap();
    wanted.push(("ann".to_owned(), Act::KeyRenewed { agent: coder.name.clone() }));
    assert!(store.agent_by_key_hash(hash_of("coder"), at(6)).await.unwrap().is_none());
    let known = store.agent_by_key_hash(KeyHash::of("renewed"), at(6)).await.unwrap().unwrap();
    assert_eq!(known.key, coder.key);
    // A refused decision is not logged.
    let refused = [
        code(store.decide_connection(&ann, &coder.name, change(ConnectionChange::Revoke), at(7)).await),
        code(
            store
                .decide_connection(&ann, &coder.name, ConnectionDecision::Approve { code: "XX-000".into() }, at(7))
                .await,
        ),
        code(store.decide_connection(&ann, &friend.name, change(ConnectionChange::Block), at(7)).await),
        code(store.renew_key(&ann, &friend.name, new_key("x", "amb_x"), at(7)).await),
    ];
    assert_eq!(refused, [Code::NotFound; 4]);
    for nobody in [&coder, &friend] {
        let refused = [
            code(store.decide_connection(nobody, &coder.name, change(ConnectionChange::Block), at(7)).await),
            code(store.renew_key(nobody, &coder.name, new_key("x", "amb_x"), at(7)).await),
        ];
        assert_eq!(refused, [Code::Forbidden; 2], "{}", nobody.name);
    }
    assert_eq!(store.acts(&coder).await, wanted);
    assert_eq!(store.acts(&ann).await, wanted);
    assert_eq!(store.acts(&friend).await, [], "the other side is told of the connection alone");
}
