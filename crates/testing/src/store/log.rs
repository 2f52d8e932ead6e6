//! The log of a mailbox.

use amb_core::Event;

use super::*;
use amb_store::ListenerState;

pub async fn entries_are_numbered_from_one_without_gaps(desk: TestStore) {
    let (alice, bob) = desk.pair().await;
    for n in 0..10 {
        desk.say(&alice, &bob, if n % 2 == 0 { "a" } else { "b" }, &n.to_string()).await;
    }
    let told = desk.events(bob.key, 0, 100).await.unwrap();
    let numbers: Vec<_> = told.iter().map(|entry| entry.cursor.as_number().unwrap()).collect();
    assert_eq!(numbers, (1..=11).collect::<Vec<_>>());
    let texts: Vec<_> = told
        .iter()
        .filter_map(|entry| match &entry.event {
            Event::NewMessage(message) => Some(message.content.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(texts, (0..10).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(desk.event_head(bob.key).await.unwrap(), 11);
}

pub async fn a_reader_goes_on_at_any_cursor(desk: TestStore) {
    let (alice, bob) = desk.pair().await;
    for n in 0..9 {
        desk.say(&alice, &bob, "Plan", &n.to_string()).await;
    }
    let (mut since, mut seen) = (0, Vec::new());
    loop {
        let page = desk.events(bob.key, since, 4).await.unwrap();
        assert!(page.len() <= 4);
        let Some(last) = page.last() else { break };
        since = last.cursor.as_number().unwrap();
        seen.extend(page.into_iter().map(|entry| entry.cursor.as_number().unwrap()));
    }
    assert_eq!(seen, (1..=10).collect::<Vec<_>>());
    assert_eq!(desk.events(bob.key, 10, 4).await.unwrap(), []);
    assert_eq!(desk.events(bob.key, 1_000, 4).await.unwrap(), []);
    assert_eq!(desk.events(bob.key, u64::MAX, 4).await.unwrap(), []);
    assert_eq!(desk.event_head(alice.key).await.unwrap(), 1, "each agent has a log of its own");
}

pub async fn the_news_of_a_verb_are_the_entries_of_the_log(desk: TestStore) {
    let (alice, bob) = desk.pair().await;
    let mut entries = Vec::new();
    for n in 0..5 {
        entries.extend(desk.say(&alice, &bob, "Plan", &n.to_string()).await.entries);
        entries.extend(desk.say(&bob, &alice, "Plan", &n.to_string()).await.entries);
    }
    let session = desk.inbox(&bob, false, at(2)).await.unwrap().sessions[0].session_id.clone();
    entries.extend(desk.history(&bob, &session, HistoryPage::default(), at(3)).await.unwrap().entries);
    for agent in [&alice, &bob] {
        let pushed: Vec<_> = entries.iter().filter(|one| one.agent == agent.key).map(|one| one.entry.clone()).collect();
        assert_eq!(pushed, desk.events(agent.key, 1, 100).await.unwrap());
    }
}

pub async fn pruning_removes_old_events_and_never_mail(desk: TestStore) {
    let (alice, bob) = desk.pair().await;
    let draft = Draft { idempotency_key: Some("k".into()), ..Draft::text(bob.name.clone(), "Plan", "kept") };
    let first = desk.send(&alice, draft.clone(), at(1)).await.unwrap().answer;
    assert_eq!(desk.events(bob.key, 0, 10).await.unwrap().len(), 2);
    while desk.prune(at(100)).await.unwrap() > 0 {}
    let told = desk.events(bob.key, 0, 10).await.unwrap();
    assert!(matches!(&told[..], [entry] if matches!(entry.event, Event::NewMessage(_))), "{told:?}");
    assert_eq!(desk.texts(&bob, &first.session_id, 10).await, ["kept"]);
    let again = desk.send(&alice, draft, at(101)).await.unwrap().answer;
    assert_ne!(again.message_id, first.message_id, "the key was forgotten");
}

pub async fn numbers_are_not_given_twice_after_pruning(desk: TestStore) {
    let (alice, bob) = desk.pair().await;
    assert_eq!(desk.event_head(alice.key).await.unwrap(), 1);
    while desk.prune(at(100)).await.unwrap() > 0 {}
    assert_eq!(desk.events(alice.key, 0, 10).await.unwrap(), []);
    assert_eq!(desk.event_head(alice.key).await.unwrap(), 1);
    desk.say(&bob, &alice, "Plan", "x").await;
    let told = desk.events(alice.key, 1, 10).await.unwrap();
    assert_eq!(told[0].cursor.as_number(), Some(2));
}

pub async fn a_listener_that_fell_behind_or_whose_key_ended_is_found(desk: TestStore) {
    let (alice, bob) = desk.pair().await;
    let (old, new) = (KeyHash::of(&key_of("bob")), KeyHash::of("new"));
    desk.say(&alice, &bob, "Plan", "hello").await;
    let head = desk.event_head(bob.key).await.unwrap();
    let mailbox = |at, key| ListenerState { agent: bob.key, at, key };
    let seats = [mailbox(head, Some(old)), mailbox(head - 1, Some(old)), mailbox(head, None), mailbox(0, None)];
    let looked = async |seats: &[ListenerState], seconds| {
        let mut found = desk.stale_listeners(seats, at(seconds)).await.unwrap();
        found.sort_by_key(|found| found.index);
        found.into_iter().map(|found| (found.index, found.head, found.key_ended)).collect::<Vec<_>>()
    };
    assert_eq!(looked(&seats, 1).await, [(1, head, false), (3, head, false)]);
    desk.rotate_key(&bob, old, new_key("new", "amb_new0"), Some(at(100)), at(2)).await.unwrap();
    let keys = [mailbox(head, Some(old)), mailbox(head, Some(new)), mailbox(head, None)];
    assert_eq!(looked(&keys, 99).await, []);
    assert_eq!(looked(&keys, 100).await, [(0, head, true)], "the old key's time is over");
    assert_eq!(
        looked(&[ListenerState { agent: alice.key, at: 9, key: Some(new) }], 99).await.len(),
        1,
        "another agent's key"
    );
    desk.delete_agent(&bob, new, at(101)).await.unwrap();
    let ended = looked(&keys, 102).await.into_iter().filter(|(_, _, ended)| *ended).map(|(index, _, _)| index);
    assert_eq!(ended.collect::<Vec<_>>(), [0, 1]);
}

pub async fn a_cursor_beyond_the_end_goes_on_from_what_was_not_handed_over(desk: TestStore) {
    let (alice, bob) = desk.pair().await;
    let first = desk.say(&alice, &bob, "Plan", "1").await.entries[0].entry.cursor.as_number().unwrap();
    desk.delivered(&bob, 0, first, at(2)).await.unwrap();
    for n in 2..5 {
        desk.say(&alice, &bob, "Plan", &n.to_string()).await;
    }
    let head = desk.event_head(bob.key).await.unwrap();
    for known in [0, first, head] {
        assert_eq!(desk.resume(bob.key, known).await.unwrap(), known);
    }
    // A cursor from a database state that was replaced by an older one: entries since then have lower numbers.
    assert_eq!(desk.resume(bob.key, head + 5).await.unwrap(), first);
    desk.delivered(&bob, first, head, at(2)).await.unwrap();
    assert_eq!(desk.resume(bob.key, head + 5).await.unwrap(), head);
    let carol = desk.enter("carol").await;
    assert_eq!(desk.resume(carol.key, 9).await.unwrap(), 0, "an empty log has one cursor");
}
