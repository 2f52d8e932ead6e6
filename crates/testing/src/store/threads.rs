//! The inbox and a session's history.

use amb_core::{Code, Event, ReceiptState};

use super::*;

pub async fn an_empty_inbox_is_empty(store: TestStore) {
    let alice = store.enter("alice").await;
    assert_eq!(store.inbox(&alice, false, at(1)).await.unwrap(), Default::default());
    assert_eq!(store.inbox(&alice, true, at(1)).await.unwrap(), Default::default());
    assert_eq!(store.events(alice.key, 0, 10).await.unwrap(), []);
    assert_eq!(store.event_head(alice.key).await.unwrap(), 0);
}

pub async fn sessions_are_ordered_by_their_newest_message(store: TestStore) {
    let (alice, bob) = store.pair().await;
    for (second, subject) in [(1, "a"), (2, "b"), (3, "c"), (4, "a")] {
        for n in 0..4 {
            let draft = Draft::text(bob.name.clone(), subject, format!("{subject}{second}{n}"));
            store.send(&alice, draft, at(second)).await.unwrap();
        }
    }
    let inbox = store.inbox(&bob, false, at(9)).await.unwrap();
    let seen: Vec<_> = inbox.sessions.iter().map(|session| (session.subject.as_str(), session.unread_count)).collect();
    assert_eq!(seen, [("a", 8), ("c", 4), ("b", 4)]);
    let recent: Vec<_> = inbox.sessions[0].recent_messages.iter().map(|message| message.content.as_str()).collect();
    assert_eq!(recent, ["a43", "a42", "a41"], "three, newest first");
    assert_eq!(inbox.unread(), 16);
}

pub async fn unread_only_omits_read_sessions(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let read = store.say(&alice, &bob, "read", "1").await.answer.session_id;
    store.say(&alice, &bob, "unread", "1").await;
    store.texts(&bob, &read, 10).await;
    let inbox = store.inbox(&bob, true, at(3)).await.unwrap();
    let subjects: Vec<_> = inbox.sessions.iter().map(|session| session.subject.as_str()).collect();
    assert_eq!(subjects, ["unread"]);
    assert_eq!(store.inbox(&bob, false, at(3)).await.unwrap().sessions.len(), 2);
    assert!(store.inbox(&alice, true, at(3)).await.unwrap().sessions.is_empty(), "what one sent is not unread");
}

pub async fn history_marks_only_the_messages_it_returns(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let mut session = None;
    for n in 0..5 {
        session = Some(store.say(&alice, &bob, "Plan", &n.to_string()).await.answer.session_id);
    }
    let session = session.unwrap();
    let shown = store.history(&bob, &session, HistoryPage::default(), at(2)).await.unwrap().answer;
    assert_eq!((shown.session_id, shown.subject.as_str()), (session.clone(), "Plan"));
    assert_eq!(shown.messages.iter().map(|m| m.content.as_str()).collect::<Vec<_>>(), ["4", "3", "2"]);
    assert!(shown.messages.iter().all(|message| message.is_read), "read by the time it is answered");
    assert_eq!(store.inbox(&bob, false, at(3)).await.unwrap().sessions[0].unread_count, 2);
    let all = HistoryPage { limit: 50, before: None };
    let sender_sees = store.history(&alice, &session, all.clone(), at(3)).await.unwrap().answer;
    assert_eq!(sender_sees.messages.iter().map(|m| m.is_read).collect::<Vec<_>>(), [true, true, true, false, false]);
    store.history(&bob, &session, all, at(4)).await.unwrap();
    assert_eq!(store.inbox(&bob, false, at(5)).await.unwrap().sessions[0].unread_count, 0);
}

pub async fn reading_updates_the_senders_receipt(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let sent = store.say(&alice, &bob, "Plan", "1").await.answer;
    let before = store.event_head(alice.key).await.unwrap();
    let read = store.history(&bob, &sent.session_id, HistoryPage::default(), at(7)).await.unwrap();
    let log = store.events(alice.key, before, 10).await.unwrap();
    assert_eq!(read.entries.iter().map(|one| (one.agent, &one.entry)).collect::<Vec<_>>(), [(alice.key, &log[0])]);
    let Event::Receipt { message_id, receipt } = &log[0].event else { panic!("{log:?}") };
    assert_eq!((message_id, &receipt.recipient, receipt.state), (&sent.message_id, &bob.name, ReceiptState::Read));
    assert_eq!((receipt.queued_at, receipt.delivered_at, receipt.read_at), (at(1), Some(at(7)), Some(at(7))));
    let again = store.history(&bob, &sent.session_id, HistoryPage::default(), at(8)).await.unwrap();
    assert!(again.entries.is_empty(), "once");
}

pub async fn paging_with_before_returns_each_message_once(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let mut session = None;
    for n in 0..23 {
        // All at one instant: the order does not depend on the clock.
        let (from, to) = if n % 3 == 0 { (&bob, &alice) } else { (&alice, &bob) };
        session = Some(store.say(from, to, "Plan", &n.to_string()).await.answer.session_id);
        store.say(&alice, &bob, "Other", "x").await;
    }
    let session = session.unwrap();
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let page = HistoryPage { limit: 5, before: before.clone() };
        let shown = store.history(&bob, &session, page, at(2)).await.unwrap().answer.messages;
        let Some(last) = shown.last() else { break };
        before = Some(last.id.clone());
        seen.extend(shown.into_iter().map(|message| message.content));
    }
    assert_eq!(seen, (0..23).rev().map(|n| n.to_string()).collect::<Vec<_>>());

    let other = store.say(&alice, &bob, "Other", "y").await.answer;
    for unknown in [other.message_id.as_str(), "00000000-0000-7000-8000-000000000000", "no-uuid"] {
        let page = HistoryPage { limit: 5, before: Some(unknown.parse().unwrap()) };
        assert_eq!(code(store.history(&bob, &session, page, at(3)).await), Code::NotFound, "{unknown}");
    }
}

pub async fn only_members_read_a_history(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let carol = store.enter("carol").await;
    let session = store.say(&alice, &bob, "Plan", "1").await.answer.session_id;
    assert_eq!(code(store.history(&carol, &session, HistoryPage::default(), at(2)).await), Code::Forbidden);
    for unknown in ["00000000-0000-7000-8000-000000000000", "no-uuid"] {
        let unknown = unknown.parse().unwrap();
        assert_eq!(code(store.history(&bob, &unknown, HistoryPage::default(), at(2)).await), Code::NotFound);
    }
    assert_eq!(store.inbox(&bob, true, at(3)).await.unwrap().unread(), 1);
}

pub async fn reading_ones_own_messages_marks_nothing(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let session = store.say(&alice, &bob, "Plan", "1").await.answer.session_id;
    let own = store.history(&alice, &session, HistoryPage::default(), at(2)).await.unwrap();
    assert!(own.entries.is_empty());
    assert!(!own.answer.messages[0].is_read, "its recipient has not read it");
    assert_eq!(store.inbox(&bob, true, at(3)).await.unwrap().unread(), 1);
}
