//! Tests of messages.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::{TestOffice, mailbox, name, pair};
use amb_core::draft::Draft;
use amb_core::error::Code;
use amb_core::id::MessageId;
use amb_core::mailbox::{ClaimRequest, HistoryPage, Mailbox};
use amb_core::message::{Kind, Part, Priority};
use amb_core::receipt::ReceiptState;

fn draft(to: &dyn Mailbox, text: &str) -> Draft {
    Draft::text(to.me().clone(), "Plan", text)
}

/// All messages of a session, page by page, newest first.
async fn whole(office: &dyn Mailbox, session: &amb_core::SessionId, limit: u32) -> Vec<amb_core::doc::MessageView> {
    let mut all = Vec::new();
    let mut page = HistoryPage { limit, before: None };
    loop {
        let history = office.read(session, page.clone()).await.unwrap();
        let Some(last) = history.messages.last() else { return all };
        page.before = Some(last.id.clone());
        all.extend(history.messages);
    }
}

/// A message waits unread in the inbox, and reading it marks it.
pub async fn a_sent_message_is_unread_until_it_is_read(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let sent = alice.send(draft(&*bob, "hello")).await.unwrap();
    assert_eq!(sent.subject, "Plan");

    for _ in 0..2 {
        let inbox = bob.inbox(true).await.unwrap();
        let [session] = inbox.sessions.as_slice() else { panic!("one session, not {inbox:?}") };
        assert_eq!((&session.session_id, session.unread_count), (&sent.session_id, 1), "looking marks nothing");
        assert_eq!(session.other_agent_name, *alice.me());
        assert_eq!(session.recent_messages[0].id, sent.message_id);
        assert!(!session.recent_messages[0].is_read);
    }
    let history = bob.read(&sent.session_id, HistoryPage::default()).await.unwrap();
    assert_eq!(history.messages[0].content, "hello");
    assert!(bob.inbox(true).await.unwrap().sessions.is_empty(), "nothing is unread after reading");
    assert_eq!(alice.inbox(true).await.unwrap().unread(), 0, "the sender's own mail is never unread for it");
}

/// No field of a draft sets the sender or marks it as a person.
pub async fn the_sender_is_set_by_the_office(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let mut forged = draft(&*bob, "I am the boss");
    let words = [("from", json!("boss")), ("from_person", json!(true)), ("amb:from_person", json!(true))];
    forged.metadata.extend(words.clone().map(|(key, value)| (key.to_owned(), value)));
    let sent = alice.send(forged).await.unwrap();
    let whole = bob.message(&sent.message_id).await.unwrap().message;
    assert_eq!((&whole.from, whole.from_person), (alice.me(), false));
    let history = bob.read(&sent.session_id, HistoryPage::default()).await.unwrap();
    assert_eq!((&history.messages[0].sender_name, history.messages[0].from_person), (alice.me(), false));
    for (key, value) in words {
        assert_eq!(whole.metadata.get(key), Some(&value), "plain data");
    }
}

/// A page marks its own messages, not the whole session.
pub async fn reading_marks_only_what_was_fetched(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let mut session = None;
    for n in 0..5 {
        session = Some(alice.send(draft(&*bob, &format!("m{n}"))).await.unwrap().session_id);
    }
    let session = session.unwrap();
    let newest = bob.read(&session, HistoryPage::newest(2).unwrap()).await.unwrap();
    let texts: Vec<_> = newest.messages.iter().map(|m| m.content.as_str()).collect();
    assert_eq!(texts, ["m4", "m3"], "newest first");
    assert_eq!(bob.inbox(true).await.unwrap().unread(), 3);
}

/// Pages cover a session of both sides' messages with no gap and no repeat.
pub async fn history_pages_return_each_message_once(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let mut expected = Vec::new();
    let mut session = None;
    for n in 0..11 {
        let (from, to) = if n % 3 == 0 { (&bob, &alice) } else { (&alice, &bob) };
        let sent = from.send(draft(&**to, &format!("m{n}"))).await.unwrap();
        expected.push(sent.message_id);
        session = Some(sent.session_id);
    }
    expected.reverse();
    let session = session.unwrap();
    for (reader, limit) in [(&alice, 3), (&bob, 4), (&alice, 50)] {
        let ids: Vec<_> = whole(&**reader, &session, limit).await.into_iter().map(|m| m.id).collect();
        assert_eq!(ids, expected, "limit {limit}");
    }
    let strange = HistoryPage { limit: 3, before: Some(MessageId::parse("no-such-message").unwrap()) };
    assert!(alice.read(&session, strange).await.is_err());
}

/// The same subject continues the same session, whoever writes and however it is capitalised.
pub async fn one_subject_is_one_session_from_both_sides(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let first = alice.send(draft(&*bob, "a")).await.unwrap();
    let second = bob.send(Draft::text(alice.me().clone(), "plan", "b")).await.unwrap();
    let third = alice.send(Draft { session: Some(first.session_id.clone()), subject: None, ..draft(&*bob, "c") }).await;
    let other = alice.send(Draft::text(bob.me().clone(), "Other", "d")).await.unwrap();
    assert_eq!(first.session_id, second.session_id);
    assert_eq!(first.session_id, third.unwrap().session_id);
    assert_ne!(first.session_id, other.session_id);
}

/// The error for a mistyped name suggests the right one, and nothing is sent.
pub async fn an_unknown_recipient_is_an_error_with_a_suggestion(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let error = alice.send(Draft::text(name("bob-agnet"), "Plan", "hello")).await.unwrap_err();
    assert!(matches!(error.code(), Code::NotFound | Code::NotConnected), "{error:?}");
    assert!(error.detail().contains("bob-agent"), "{error}");
    assert!(bob.inbox(false).await.unwrap().sessions.is_empty());
}

/// Nothing of a refused draft is stored.
pub async fn bad_input_is_refused_and_leaves_nothing(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let bad = [
        Draft { parts: vec![], ..draft(&*bob, "x") },
        draft(&*bob, ""),
        Draft { subject: Some("x".repeat(256)), ..draft(&*bob, "x") },
        Draft { kind: Kind::TaskUpdate, ..draft(&*bob, "x") },
        Draft { reply_to: Some(MessageId::parse("no-such-message").unwrap()), ..draft(&*bob, "x") },
        Draft { relay_of: Some(MessageId::parse("no-such-message").unwrap()), ..draft(&*bob, "x") },
        Draft { session: Some("00000000-0000-4000-8000-000000000000".parse().unwrap()), ..draft(&*bob, "x") },
    ];
    for draft in bad {
        let shown = format!("{draft:?}");
        assert!(alice.send(draft).await.is_err(), "{shown}");
    }
    assert!(bob.inbox(false).await.unwrap().sessions.is_empty());
}

/// Parts, priority, kind, metadata, correlation and text to the byte.
pub async fn everything_in_a_message_arrives(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let text = "línea 1\nline 2\t\"quoted\" \\ 你好 \u{202e}bidi 🦀";
    let parts =
        vec![Part::text(text), Part::data(json!({"n": 1, "list": [true, null]})), Part::file("/data/report.pdf")];
    let sent = alice
        .send(Draft {
            kind: "work_assignment".parse().unwrap(),
            parts: parts.clone(),
            priority: Priority::Urgent,
            correlation_id: Some("c-1".parse().unwrap()),
            metadata: [("k".to_owned(), json!("v"))].into_iter().collect(),
            ..draft(&*bob, "")
        })
        .await
        .unwrap();
    let message = bob.message(&sent.message_id).await.unwrap().message;
    assert_eq!(message.parts, parts);
    assert_eq!(message.kind.as_str(), "work_assignment");
    assert_eq!(message.priority, Priority::Urgent);
    assert_eq!(message.correlation_id.unwrap().as_str(), "c-1");
    assert_eq!(message.metadata["k"], "v");
    assert_eq!((message.ttl, message.trace), (2, vec![alice.me().clone()]));
    let history = bob.read(&sent.session_id, HistoryPage::default()).await.unwrap();
    assert_eq!(history.messages[0].content, text);
}

/// A retry after a lost response is safe; the key with another message is refused.
pub async fn a_repeat_with_the_same_key_sends_nothing(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let keyed = Draft { idempotency_key: Some("k1".into()), ..draft(&*bob, "once") };
    let first = alice.send(keyed.clone()).await.unwrap();
    let again = alice.send(keyed.clone()).await.unwrap();
    assert_eq!(first, again);
    let other = Draft { parts: vec![Part::text("twice")], ..keyed };
    assert_eq!(alice.send(other).await.unwrap_err().code(), Code::Conflict);
    assert_eq!(whole(&*bob, &first.session_id, 10).await.len(), 1);
}

/// A third agent sees neither the message nor the session.
pub async fn nobody_reads_the_mail_of_others(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let eve = mailbox(post, "eve").await;
    let sent = alice.send(draft(&*bob, "secret")).await.unwrap();
    assert!(eve.message(&sent.message_id).await.is_err());
    let denied = eve.read(&sent.session_id, HistoryPage::default()).await.unwrap_err();
    assert!(matches!(denied.code(), Code::Forbidden | Code::NotFound), "{denied:?}");
    assert!(eve.ack(std::slice::from_ref(&sent.message_id)).await.is_err());
    assert!(eve.inbox(false).await.unwrap().sessions.is_empty());
    assert_eq!(bob.inbox(true).await.unwrap().unread(), 1, "and nothing was marked");
}

/// The receipt is true at each step.
pub async fn a_receipt_says_read_only_after_reading(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let sent = alice.send(draft(&*bob, "hello")).await.unwrap();
    let before = alice.message(&sent.message_id).await.unwrap().receipts;
    assert_eq!(before[0].recipient, *bob.me());
    assert_eq!(before[0].state, ReceiptState::Queued);
    bob.rung(std::slice::from_ref(&sent.message_id)).await.unwrap();
    let rung = alice.message(&sent.message_id).await.unwrap().receipts;
    assert_eq!(
        (rung[0].state, bob.inbox(true).await.unwrap().unread()),
        (ReceiptState::Queued, 1),
        "a ring reads nothing"
    );
    bob.read(&sent.session_id, HistoryPage::default()).await.unwrap();
    let after = alice.message(&sent.message_id).await.unwrap().receipts;
    assert_eq!(after[0].state, ReceiptState::Read);
}

/// An acknowledgement counts once.
pub async fn acknowledging_twice_is_no_error(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let one = alice.send(draft(&*bob, "1")).await.unwrap().message_id;
    let two = alice.send(draft(&*bob, "2")).await.unwrap().message_id;
    assert_eq!(bob.ack(std::slice::from_ref(&one)).await.unwrap(), 1);
    assert_eq!(bob.ack(&[one, two]).await.unwrap(), 1);
    assert_eq!(bob.inbox(true).await.unwrap().unread(), 0);
}

/// Two consumers of one mailbox never claim the same message.
pub async fn a_claimed_message_has_one_holder_until_released(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let twin = mailbox(post, "bob-agent").await;
    for n in 0..3 {
        alice.send(draft(&*bob, &format!("m{n}"))).await.unwrap();
    }
    let two = ClaimRequest { limit: 2, ..ClaimRequest::default() };
    let mine = bob.claim(two.clone()).await.unwrap();
    let theirs = twin.claim(two.clone()).await.unwrap();
    assert_eq!(mine.iter().map(|m| m.text()).collect::<Vec<_>>(), ["m0", "m1"], "in order of time");
    assert_eq!(theirs.iter().map(|m| m.text()).collect::<Vec<_>>(), ["m2"]);
    assert!(bob.claim(two.clone()).await.unwrap().is_empty());

    bob.ack(&[mine[0].id.clone()]).await.unwrap();
    bob.release(&[mine[1].id.clone()]).await.unwrap();
    let back = twin.claim(two).await.unwrap();
    assert_eq!(back.iter().map(|m| m.text()).collect::<Vec<_>>(), ["m1"], "released comes back, acknowledged does not");
}

/// Another process of the same agent sees the claims and claims nothing itself.
pub async fn another_process_sees_what_is_claimed_and_not_acknowledged(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let twin = mailbox(post, "bob-agent").await;
    for n in 0..4 {
        alice.send(draft(&*bob, &format!("m{n}"))).await.unwrap();
    }
    let held = async |mailbox: &Arc<dyn Mailbox>| -> BTreeSet<String> {
        mailbox.claimed().await.unwrap().iter().map(|message| message.text()).collect()
    };
    assert!(held(&twin).await.is_empty());
    let three = ClaimRequest { limit: 3, ..ClaimRequest::default() };
    let mine = bob.claim(three.clone()).await.unwrap();
    for mailbox in [&bob, &twin] {
        assert_eq!(held(mailbox).await, ["m0", "m1", "m2"].map(String::from).into());
    }
    let seen = twin.claimed().await.unwrap();
    let seen = seen.iter().find(|message| message.text() == "m0").unwrap();
    assert_eq!((&seen.id, seen.ttl, &seen.trace), (&mine[0].id, 2, &vec![alice.me().clone()]));
    assert!(alice.claimed().await.unwrap().is_empty(), "it is nobody else's business");
    bob.ack(&[mine[0].id.clone()]).await.unwrap();
    bob.release(&[mine[1].id.clone()]).await.unwrap();
    assert_eq!(held(&twin).await, ["m2"].map(String::from).into());
    assert_eq!(twin.claim(three).await.unwrap().len(), 2, "looking took nothing");
}

/// A message that a person or a model relayed with its last hop gets one automatic answer.
pub async fn a_question_relayed_to_its_last_hop_is_answered_once(post: &dyn TestOffice) {
    let mut mailboxes = Vec::new();
    for agent in ["ann-agent", "ben-agent", "cat-agent", "dan-agent"] {
        mailboxes.push(mailbox(post, agent).await);
    }
    for two in mailboxes.windows(2) {
        post.acquaint(&*two[0], &*two[1]).await;
    }
    let mut sent = mailboxes[0].send(draft(&*mailboxes[1], "question")).await.unwrap();
    for at in 1..3 {
        let relay = Draft { relay_of: Some(sent.message_id.clone()), ..draft(&*mailboxes[at + 1], "question") };
        sent = mailboxes[at].send(relay).await.unwrap();
    }
    let (cat, dan) = (&mailboxes[2], &mailboxes[3]);
    let question = dan.message(&sent.message_id).await.unwrap().message;
    assert_eq!((question.ttl, question.provokes_answer()), (0, true));
    let answer = dan.send(Draft::reply(&question, "answer").automatic()).await.unwrap();
    let answer = cat.message(&answer.message_id).await.unwrap().message;
    assert_eq!((answer.ttl, answer.is_automatic(), answer.provokes_answer()), (0, true, false));
    let refused = cat.send(Draft::reply(&answer, "thanks").automatic()).await.unwrap_err();
    assert_eq!(refused.code(), Code::LoopRefused);
}

/// Urgent messages first, and by time among equals.
pub async fn urgent_mail_is_claimed_first_if_requested(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    for (text, priority) in [
        ("low", Priority::Low),
        ("first", Priority::Normal),
        ("urgent", Priority::Urgent),
        ("second", Priority::Normal),
    ] {
        alice.send(Draft { priority, ..draft(&*bob, text) }).await.unwrap();
    }
    let request = ClaimRequest { limit: 10, urgent_first: true, lease: Duration::from_secs(60) };
    let texts: Vec<_> = bob.claim(request).await.unwrap().iter().map(|m| m.text()).collect();
    assert_eq!(texts, ["urgent", "first", "second", "low"]);
}

/// Concurrent sends are neither lost nor repeated.
pub async fn concurrent_sends_all_arrive_once(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let (senders, each) = (8, 10);
    let mut running = Vec::new();
    for sender in 0..senders {
        let (alice, to) = (Arc::clone(&alice), bob.me().clone());
        running.push(tokio::spawn(async move {
            let mut session = None;
            for n in 0..each {
                let draft = Draft::text(to.clone(), "Race", format!("{sender}/{n}"));
                session = Some(alice.send(draft).await.unwrap().session_id);
            }
            session.unwrap()
        }));
    }
    let mut sessions = BTreeSet::new();
    for sender in running {
        sessions.insert(sender.await.unwrap());
    }
    assert_eq!(sessions.len(), 1, "one subject, one session");
    let all = whole(&*bob, sessions.first().unwrap(), 50).await;
    let texts: BTreeSet<_> = all.iter().map(|m| m.content.clone()).collect();
    assert_eq!((all.len(), texts.len()), (senders * each, senders * each));
}

/// A natural reply passes; two automatic answerers stop after three messages.
pub async fn a_natural_reply_passes_and_automatic_answers_end(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let mut sent = alice.send(draft(&*bob, "question")).await.unwrap();
    let mut count = 1;
    let (mut reader, mut other) = (&bob, &alice);
    let refused = loop {
        let message = reader.message(&sent.message_id).await.unwrap().message;
        match reader.send(Draft::reply(&message, "answer").automatic()).await {
            Ok(reply) => {
                assert_eq!(reply.session_id, sent.session_id, "in the conversation it came from");
                sent = reply;
            }
            Err(refused) => break refused,
        }
        count += 1;
        std::mem::swap(&mut reader, &mut other);
    };
    assert_eq!((count, refused.code()), (3, Code::LoopRefused));
    assert!(alice.send(draft(&*bob, "a new question")).await.is_ok(), "and starting afresh still works");
}

/// However long a conversation is, a question that somebody decided to ask can be answered automatically.
pub async fn ten_rounds_of_questions_get_automatic_answers(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let mut question = alice.send(draft(&*bob, "question 0")).await.unwrap();
    for round in 1..=10 {
        let received = bob.message(&question.message_id).await.unwrap().message;
        assert!(received.provokes_answer() && !received.is_automatic());
        let answer = bob.send(Draft::reply(&received, "answer").automatic()).await.unwrap();
        let answer = alice.message(&answer.message_id).await.unwrap().message;
        assert!(answer.is_automatic(), "the mark is kept");
        assert_eq!((answer.ttl, answer.trace.len()), (1, 2));
        question = alice.send(Draft::reply(&answer, format!("question {round}"))).await.unwrap();
    }
    let last = bob.message(&question.message_id).await.unwrap().message;
    assert_eq!((last.ttl, last.trace), (2, vec![alice.me().clone()]), "begun afresh");
}

/// A reply needs neither session nor subject, and a subject of its own does not change its session.
pub async fn a_reply_belongs_to_the_session_of_what_it_answers(post: &dyn TestOffice) {
    let (alice, bob) = pair(post).await;
    let question = alice.send(draft(&*bob, "question")).await.unwrap();
    let reply = |to: &dyn Mailbox, id: &MessageId, subject: Option<&str>| Draft {
        subject: subject.map(Into::into),
        reply_to: Some(id.clone()),
        ..draft(to, "re")
    };
    let answer = bob.send(reply(&*alice, &question.message_id, None)).await.unwrap();
    assert_eq!((&answer.session_id, &answer.subject), (&question.session_id, &question.subject));
    let more = alice.send(reply(&*bob, &answer.message_id, Some("Re: Plan"))).await.unwrap();
    assert_eq!((&more.session_id, &more.subject), (&question.session_id, &question.subject));
    let follow_up = alice.send(reply(&*bob, &more.message_id, None)).await.unwrap();
    assert_eq!(follow_up.session_id, question.session_id, "after one's own message, too");
    assert_eq!(whole(&*bob, &question.session_id, 50).await.len(), 4);

    // An agent that is not in that session gets a session of its own.
    let carol = mailbox(post, "carol-agent").await;
    post.acquaint(&*bob, &*carol).await;
    let aside = bob.send(reply(&*carol, &follow_up.message_id, Some("Plan"))).await.unwrap();
    assert_ne!(aside.session_id, question.session_id);
}

/// A → B → C → D is the longest chain; C → A is refused.
pub async fn relays_end_at_ttl_zero_and_never_return(post: &dyn TestOffice) {
    let mut mailboxes = Vec::new();
    for agent in ["aaa", "bbb", "ccc", "ddd", "eee"] {
        mailboxes.push(mailbox(post, agent).await);
    }
    for (at, one) in mailboxes.iter().enumerate() {
        for two in &mailboxes[at + 1..] {
            post.acquaint(&**one, &**two).await;
        }
    }
    let mut sent = mailboxes[0].send(draft(&*mailboxes[1], "pass it on")).await.unwrap();
    for hop in 1..=2 {
        let relay = Draft { relay_of: Some(sent.message_id.clone()), ..draft(&*mailboxes[hop + 1], "pass it on") };
        sent = mailboxes[hop].send(relay).await.unwrap();
    }
    let last = mailboxes[3].message(&sent.message_id).await.unwrap().message;
    assert_eq!((last.ttl, last.trace.len()), (0, 3));
    let on = |to: usize| Draft { relay_of: Some(sent.message_id.clone()), ..draft(&*mailboxes[to], "pass it on") };
    assert_eq!(mailboxes[3].send(on(4)).await.unwrap_err().code(), Code::LoopRefused, "no hops left");

    let first = mailboxes[0].send(draft(&*mailboxes[1], "round")).await.unwrap();
    let second =
        mailboxes[1].send(Draft { relay_of: Some(first.message_id), ..draft(&*mailboxes[2], "round") }).await.unwrap();
    let back = Draft { relay_of: Some(second.message_id), ..draft(&*mailboxes[0], "round") };
    assert_eq!(mailboxes[2].send(back).await.unwrap_err().code(), Code::LoopRefused, "a circle");
}
