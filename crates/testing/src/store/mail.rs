//! Sending.

use amb_core::{AllowFrom, Callback, Code, Event, Kind, Part, Priority};
use serde_json::json;

use super::*;

pub async fn mail_needs_a_connection(store: TestStore) {
    let (alice, bob) = (store.enter("alice").await, store.enter("bob").await);
    let draft = |to: &str| Draft::text(name(to), "Plan", "hello");
    assert_eq!(code(store.send(&alice, draft("bob"), at(1)).await), Code::NotConnected);
    assert_eq!(code(store.send(&alice, draft("nobody"), at(1)).await), Code::NotConnected);
    assert_eq!(code(store.send(&alice, draft("alice"), at(1)).await), Code::NotConnected);
    let asked = store.request_connection(&alice, Ask::new(bob.name.clone(), None), at(1)).await.unwrap().answer;
    assert_eq!(code(store.send(&alice, draft("bob"), at(1)).await), Code::NotConnected, "asked is not approved");
    store.approve_connection(&bob, &asked.verification_code, at(1)).await.unwrap();
    store.send(&alice, draft("bob"), at(1)).await.unwrap();

    let card = Card { allow_from: AllowFrom(vec!["Alice".into()]), ..Card::default() };
    let picky = NewAgent { card, ..new_agent("picky") };
    let picky = store.register_agent(picky, at(1)).await.unwrap().answer;
    for other in [&alice, &bob] {
        store.connect(other, &picky).await;
    }
    store.send(&alice, draft("picky"), at(1)).await.unwrap();
    let task = store.send(&alice, Draft::task(name("picky"), "Plan", "x"), at(1)).await.unwrap().answer.task.unwrap();
    assert_eq!(task.state, amb_core::TaskState::Pending, "names are compared without case");
    let taken = store.set_task_state(&picky, &task.id, amb_core::TaskState::Accepted, None, at(1)).await.unwrap();
    assert_eq!(taken.answer.state, amb_core::TaskState::Accepted);
    assert_eq!(code(store.send(&bob, draft("picky"), at(1)).await), Code::NotAllowed);
}

pub async fn a_message_is_in_the_inbox_and_in_the_log(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let now = Timestamp::from_nanosecond(at(1).as_nanosecond() + 123_456_789).unwrap();
    let sent = store.send(&alice, Draft::text(bob.name.clone(), "Plan", "hello"), now).await.unwrap();
    assert_eq!(sent.answer.subject, "Plan");
    assert_eq!(sent.answer.created_at, amb_store::to_micros(now));

    let inbox = store.inbox(&bob, false, at(2)).await.unwrap();
    let [session] = inbox.sessions.as_slice() else { panic!("{inbox:?}") };
    assert_eq!(session.session_id, sent.answer.session_id);
    assert_eq!((session.subject.as_str(), &session.other_agent_name, session.unread_count), ("Plan", &alice.name, 1));
    assert_eq!(session.last_message_at, sent.answer.created_at);
    let [message] = session.recent_messages.as_slice() else { panic!("{session:?}") };
    assert_eq!(message.id, sent.answer.message_id);
    assert_eq!((message.content.as_str(), &message.sender_name, message.is_read), ("hello", &alice.name, false));
    assert_eq!(message.created_at, sent.answer.created_at);

    let own = store.inbox(&alice, false, at(2)).await.unwrap();
    assert_eq!((own.sessions[0].unread_count, &own.sessions[0].other_agent_name), (0, &bob.name));

    let log = store.events(bob.key, 1, 10).await.unwrap();
    let [entry] = log.as_slice() else { panic!("{log:?}") };
    assert_eq!(sent.entries.len(), 1);
    assert_eq!((sent.entries[0].agent, &sent.entries[0].entry), (bob.key, entry));
    let Event::NewMessage(event) = &entry.event else { panic!("{entry:?}") };
    assert_eq!((&event.message_id, event.content.as_str()), (&sent.answer.message_id, "hello"));
}

pub async fn a_subject_finds_its_session_in_any_case_and_from_both_sides(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let first = store.say(&alice, &bob, "Ship it", "1").await.answer;
    for (from, to, subject) in [(&alice, &bob, "ship IT"), (&bob, &alice, " Ship it "), (&bob, &alice, "SHIP IT")] {
        let sent = store.say(from, to, subject, "n").await.answer;
        assert_eq!((sent.session_id, sent.subject.as_str()), (first.session_id.clone(), "Ship it"));
    }
    let other = store.say(&alice, &bob, "Ship it now", "1").await.answer;
    assert_ne!(other.session_id, first.session_id);
    let carol = store.enter("carol").await;
    store.connect(&alice, &carol).await;
    assert_ne!(store.say(&alice, &carol, "Ship it", "1").await.answer.session_id, first.session_id, "another pair");
}

pub async fn only_members_continue_a_session(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let carol = store.enter("carol").await;
    store.connect(&alice, &carol).await;
    let session = store.say(&alice, &bob, "Plan", "1").await.answer.session_id;
    let within =
        |to: &Agent| Draft { session: Some(session.clone()), subject: None, ..Draft::text(to.name.clone(), "", "2") };
    let sent = store.send(&bob, within(&alice), at(2)).await.unwrap().answer;
    assert_eq!((&sent.session_id, sent.subject.as_str()), (&session, "Plan"));
    assert_eq!(code(store.send(&alice, within(&carol), at(2)).await), Code::Forbidden);
    assert_eq!(code(store.send(&carol, within(&alice), at(2)).await), Code::Forbidden);
    for unknown in ["00000000-0000-7000-8000-000000000000", "no-uuid"] {
        let draft = Draft { session: Some(unknown.parse().unwrap()), ..within(&bob) };
        assert_eq!(code(store.send(&alice, draft, at(2)).await), Code::NotFound);
    }
    assert_eq!(store.texts(&alice, &session, 10).await, ["2", "1"]);
}

pub async fn a_repeated_send_returns_the_same_and_writes_nothing(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let draft = Draft { idempotency_key: Some("k1".into()), ..Draft::text(bob.name.clone(), "Plan", "once") };
    let first = store.send(&alice, draft.clone(), at(1)).await.unwrap();
    let again = store.send(&alice, draft.clone(), at(9)).await.unwrap();
    assert_eq!(first.answer, again.answer);
    assert!(again.entries.is_empty());
    assert_eq!(store.texts(&bob, &first.answer.session_id, 10).await, ["once"]);
    // Another agent's key is another key.
    let theirs = Draft { idempotency_key: Some("k1".into()), ..Draft::text(alice.name.clone(), "Plan", "once") };
    assert_ne!(store.send(&bob, theirs, at(9)).await.unwrap().answer.message_id, first.answer.message_id);
}

pub async fn a_repeat_returns_the_same_when_its_recipient_is_gone(store: TestStore) {
    let (alice, bob) = store.pair().await;
    store.create_group(&bob, &name("crew"), at(1)).await.unwrap();
    store.invite_to_group(&bob, &name("crew"), &alice.name, at(1)).await.unwrap();
    store.join_group(&alice, &name("crew"), true).await.unwrap();
    let first = store.say(&bob, &alice, "Plan", "hello").await.answer;
    let keyed = |key: &str, to: &str| Draft { idempotency_key: Some(key.into()), ..Draft::text(name(to), "Plan", "x") };
    let drafts = [
        keyed("message", "bob"),
        Draft { kind: Kind::Task, ..keyed("task", "bob") },
        Draft { session: Some(first.session_id.clone()), ..keyed("session", "bob") },
        Draft { reply_to: Some(first.message_id.clone()), ..keyed("reply", "bob") },
        keyed("group", "crew"),
    ];
    let mut answers = Vec::new();
    for draft in &drafts {
        answers.push(store.send(&alice, draft.clone(), at(2)).await.unwrap().answer);
    }
    store.join_group(&alice, &name("crew"), false).await.unwrap();
    store.delete_agent(&bob, hash_of("bob"), at(3)).await.unwrap();
    let head = store.event_head(alice.key).await.unwrap();
    for (draft, answer) in drafts.into_iter().zip(answers) {
        let again = store.send(&alice, draft.clone(), at(4)).await.unwrap();
        assert_eq!((again.answer, again.entries.len()), (answer, 0));
        let other = Draft { parts: vec![Part::text("other")], ..draft.clone() };
        assert_eq!(code(store.send(&alice, other, at(4)).await), Code::Conflict, "{:?}", draft.idempotency_key);
        let unused = Draft { idempotency_key: Some("unused".into()), ..draft };
        assert_eq!(code(store.send(&alice, unused, at(4)).await), Code::NotConnected);
    }
    assert_eq!(store.event_head(alice.key).await.unwrap(), head);
}

pub async fn a_key_used_for_another_draft_is_a_conflict(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let draft = Draft { idempotency_key: Some("k1".into()), ..Draft::text(bob.name.clone(), "Plan", "once") };
    let first = store.send(&alice, draft.clone(), at(1)).await.unwrap();
    let other = Draft { parts: vec![Part::text("twice")], ..draft };
    assert_eq!(code(store.send(&alice, other, at(2)).await), Code::Conflict);
    assert_eq!(store.texts(&bob, &first.answer.session_id, 10).await, ["once"]);
    // A send that was refused leaves its key unused.
    let refused = Draft { idempotency_key: Some("k2".into()), ..Draft::text(name("nobody"), "Plan", "x") };
    assert_eq!(code(store.send(&alice, refused, at(3)).await), Code::NotConnected);
    let good = Draft { idempotency_key: Some("k2".into()), ..Draft::text(bob.name.clone(), "Plan", "x") };
    store.send(&alice, good, at(3)).await.unwrap();
}

pub async fn messages_are_stored_with_all_their_fields(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let parts =
        vec![Part::text("one"), Part::data(json!({"b": [1, null], "a": "é"})), Part::file("/tmp/x"), Part::text("two")];
    let callback = Callback { channel: Some("feishu".into()), session_id: Some("s".into()), ..Callback::default() };
    let draft = Draft {
        kind: "work_assignment".parse().unwrap(),
        parts: parts.clone(),
        priority: Priority::Urgent,
        callback: Some(callback.clone()),
        correlation_id: Some("corr-1".parse().unwrap()),
        metadata: json!({"bead": "b-1"}).as_object().unwrap().clone(),
        ..Draft::text(bob.name.clone(), "Plan", "")
    };
    let sent = store.send(&alice, draft, at(1)).await.unwrap();
    let log = store.events(bob.key, 1, 10).await.unwrap();
    assert_eq!(sent.entries[0].entry, log[0]);
    let Event::NewMessage(event) = &log[0].event else { panic!("{log:?}") };
    assert_eq!((&event.parts, event.content.as_str(), event.priority), (&parts, "one\ntwo", Priority::Urgent));
    assert_eq!(event.kind, "work_assignment".parse::<Kind>().unwrap());

    for (viewer, sees) in [(&bob, None), (&alice, Some(callback))] {
        let history =
            store.history(viewer, &sent.answer.session_id, HistoryPage::default(), at(2)).await.unwrap().answer;
        let message = &history.messages[0];
        assert_eq!((&message.parts, message.content.as_str()), (&parts, "one\ntwo"));
        assert_eq!(message.correlation_id.as_ref().map(|id| id.as_str()), Some("corr-1"));
        assert_eq!(message.metadata["bead"], "b-1");
        assert_eq!(message.callback, sees, "a callback is for the agent that set it");
    }
}

pub async fn replies_and_relays_carry_ttl_and_trace(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let carol = store.enter("carol").await;
    store.connect(&bob, &carol).await;
    let first = store.say(&alice, &bob, "Plan", "1").await.answer;
    let reply = |to: &Agent, id: &amb_core::MessageId| {
        Draft { reply_to: Some(id.clone()), ..Draft::text(to.name.clone(), "Plan", "re") }.automatic()
    };
    let second = store.send(&bob, reply(&alice, &first.message_id), at(2)).await.unwrap().answer;
    let third = store.send(&alice, reply(&bob, &second.message_id), at(3)).await.unwrap().answer;
    assert_eq!(code(store.send(&bob, reply(&alice, &third.message_id), at(4)).await), Code::LoopRefused);

    let asked = Draft { reply_to: Some(third.message_id), ..Draft::text(alice.name.clone(), "Plan", "and you?") };
    let asked = store.send(&bob, asked, at(4)).await.unwrap().answer;
    let asked = store.message(&alice, &asked.message_id).await.unwrap().message;
    assert_eq!((asked.ttl, asked.trace), (2, vec![bob.name.clone()]), "what somebody decides to say starts afresh");

    let relay = |to: &Agent, id: &amb_core::MessageId| Draft {
        relay_of: Some(id.clone()),
        ..Draft::text(to.name.clone(), "Plan", "fwd")
    };
    store.send(&bob, relay(&carol, &first.message_id), at(5)).await.unwrap();
    assert_eq!(code(store.send(&bob, relay(&alice, &first.message_id), at(5)).await), Code::LoopRefused);
    // Neither one's own message nor one that one did not receive can be passed on.
    assert_eq!(code(store.send(&alice, relay(&bob, &first.message_id), at(5)).await), Code::NotFound);
    assert_eq!(code(store.send(&carol, reply(&bob, &first.message_id), at(5)).await), Code::NotFound);
    let none = "not-ours".parse().unwrap();
    assert_eq!(code(store.send(&bob, reply(&alice, &none), at(5)).await), Code::NotFound);
}

pub async fn text_of_any_script_and_length_is_kept(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let long = "😀".repeat(10_000);
    for (n, text) in
        ["مرحبا", "\u{202e}x", "a\nb\tc", "'; DROP TABLE messages; --", "nul \0 here", &long].into_iter().enumerate()
    {
        let subject = format!("s{n} ß");
        let sent = store.say(&alice, &bob, &subject, text).await.answer;
        assert_eq!(sent.subject, subject);
        assert_eq!(store.texts(&bob, &sent.session_id, 1).await, [text]);
        let log = store.events(bob.key, store.event_head(bob.key).await.unwrap() - 1, 1).await.unwrap();
        assert!(matches!(&log[0].event, Event::NewMessage(event) if event.content == text && event.parts.is_empty()));
    }
    let draft = Draft::text(bob.name.clone(), "a \0 subject", "x");
    assert_eq!(code(store.send(&alice, draft, at(1)).await), Code::Invalid);
    let intro = Ask::new(bob.name.clone(), Some("\0".into()));
    assert_eq!(code(store.request_connection(&alice, intro, at(1)).await), Code::Invalid);
}

pub async fn a_refused_send_leaves_nothing(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let first = Draft { idempotency_key: Some("k".into()), ..Draft::text(bob.name.clone(), "Plan", "hello") };
    store.send(&alice, first.clone(), at(1)).await.unwrap();
    let heads = async || (store.event_head(alice.key).await.unwrap(), store.event_head(bob.key).await.unwrap());
    let before = heads().await;
    let unknown = Some("00000000-0000-7000-8000-000000000000".parse().unwrap());
    let refused = [
        Draft { reply_to: unknown.clone(), ..Draft::text(bob.name.clone(), "Reply", "to what?") },
        Draft { relay_of: unknown, ..Draft::text(bob.name.clone(), "Relay", "of what?") },
        Draft { subject: Some("Another".into()), ..first },
        Draft {
            session: Some("00000000-0000-7000-8000-000000000001".parse().unwrap()),
            ..Draft::text(bob.name.clone(), "x", "y")
        },
    ];
    for draft in refused {
        store.send(&alice, draft, at(2)).await.unwrap_err();
    }
    let many = Draft {
        reply_to: Some("00000000-0000-7000-8000-000000000002".parse().unwrap()),
        ..Draft::text(bob.name.clone(), "Many", "x")
    };
    store.send_all(&alice, std::slice::from_ref(&bob.name), many, at(2)).await.unwrap_err();
    for agent in [&alice, &bob] {
        let inbox = store.inbox(agent, false, at(3)).await.unwrap();
        assert_eq!(inbox.sessions.iter().map(|session| session.subject.as_str()).collect::<Vec<_>>(), ["Plan"]);
    }
    assert_eq!(heads().await, before);
    let sent = store.say(&alice, &bob, "Reply", "afresh").await;
    assert_eq!(store.texts(&bob, &sent.answer.session_id, 9).await, ["afresh"]);
}
