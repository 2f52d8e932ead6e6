//! The log of a mailbox.

use amb_core::Event;

use super::household::OWNER;
use super::*;
use amb_store::{HouseholdCursor, HouseholdPage, ListenerState};

pub async fn entries_are_numbered_from_one_without_gaps(store: TestStore) {
    let (alice, bob) = store.pair().await;
    for n in 0..10 {
        store.say(&alice, &bob, if n % 2 == 0 { "a" } else { "b" }, &n.to_string()).await;
    }
    let log = store.events(bob.key, 0, 100).await.unwrap();
    let numbers: Vec<_> = log.iter().map(|entry| entry.cursor.as_number().unwrap()).collect();
    assert_eq!(numbers, (1..=11).collect::<Vec<_>>());
    let texts: Vec<_> = log
        .iter()
        .filter_map(|entry| match &entry.event {
            Event::NewMessage(message) => Some(message.content.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(texts, (0..10).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(store.event_head(bob.key).await.unwrap(), 11);
}

pub async fn a_reader_resumes_from_any_cursor(store: TestStore) {
    let (alice, bob) = store.pair().await;
    for n in 0..9 {
        store.say(&alice, &bob, "Plan", &n.to_string()).await;
    }
    let (mut since, mut seen) = (0, Vec::new());
    loop {
        let page = store.events(bob.key, since, 4).await.unwrap();
        assert!(page.len() <= 4);
        let Some(last) = page.last() else { break };
        since = last.cursor.as_number().unwrap();
        seen.extend(page.into_iter().map(|entry| entry.cursor.as_number().unwrap()));
    }
    assert_eq!(seen, (1..=10).collect::<Vec<_>>());
    assert_eq!(store.events(bob.key, 10, 4).await.unwrap(), []);
    assert_eq!(store.events(bob.key, 1_000, 4).await.unwrap(), []);
    assert_eq!(store.events(bob.key, u64::MAX, 4).await.unwrap(), []);
    assert_eq!(store.event_head(alice.key).await.unwrap(), 1, "each agent has a log of its own");
}

pub async fn the_entries_that_a_verb_returns_are_those_of_the_log(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let mut entries = Vec::new();
    for n in 0..5 {
        entries.extend(store.say(&alice, &bob, "Plan", &n.to_string()).await.entries);
        entries.extend(store.say(&bob, &alice, "Plan", &n.to_string()).await.entries);
    }
    let session = store.inbox(&bob, false, at(2)).await.unwrap().sessions[0].session_id.clone();
    entries.extend(store.history(&bob, &session, HistoryPage::default(), at(3)).await.unwrap().entries);
    for agent in [&alice, &bob] {
        let pushed: Vec<_> = entries.iter().filter(|one| one.agent == agent.key).map(|one| one.entry.clone()).collect();
        assert_eq!(pushed, store.events(agent.key, 1, 100).await.unwrap());
    }
}

pub async fn pruning_removes_old_events_and_never_mail(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let draft = Draft { idempotency_key: Some("k".into()), ..Draft::text(bob.name.clone(), "Plan", "kept") };
    let first = store.send(&alice, draft.clone(), at(1)).await.unwrap().answer;
    assert_eq!(store.events(bob.key, 0, 10).await.unwrap().len(), 2);
    while store.prune(at(100)).await.unwrap() > 0 {}
    let log = store.events(bob.key, 0, 10).await.unwrap();
    assert!(matches!(&log[..], [entry] if matches!(entry.event, Event::NewMessage(_))), "{log:?}");
    assert_eq!(store.texts(&bob, &first.session_id, 10).await, ["kept"]);
    let again = store.send(&alice, draft, at(101)).await.unwrap().answer;
    assert_ne!(again.message_id, first.message_id, "the key was forgotten");
}

pub async fn numbers_are_not_reused_after_pruning(store: TestStore) {
    let (alice, bob) = store.pair().await;
    assert_eq!(store.event_head(alice.key).await.unwrap(), 1);
    while store.prune(at(100)).await.unwrap() > 0 {}
    assert_eq!(store.events(alice.key, 0, 10).await.unwrap(), []);
    assert_eq!(store.event_head(alice.key).await.unwrap(), 1);
    store.say(&bob, &alice, "Plan", "x").await;
    let log = store.events(alice.key, 1, 10).await.unwrap();
    assert_eq!(log[0].cursor.as_number(), Some(2));
}

pub async fn listeners_that_are_behind_or_whose_key_was_revoked_are_found(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let (old, new) = (KeyHash::of(&key_of("bob")), KeyHash::of("new"));
    store.say(&alice, &bob, "Plan", "hello").await;
    let head = store.event_head(bob.key).await.unwrap();
    let mailbox = |at, key| ListenerState { agent: bob.key, at, key };
    let seats = [mailbox(head, Some(old)), mailbox(head - 1, Some(old)), mailbox(head, None), mailbox(0, None)];
    let looked = async |seats: &[ListenerState], seconds| {
        let mut found = store.stale_listeners(seats, at(seconds)).await.unwrap();
        found.sort_by_key(|found| found.index);
        found.into_iter().map(|found| (found.index, found.head, found.key_ended)).collect::<Vec<_>>()
    };
    assert_eq!(looked(&seats, 1).await, [(1, head, false), (3, head, false)]);
    store.rotate_key(&bob, old, new_key("new", "amb_new0"), Some(at(100)), at(2)).await.unwrap();
    let keys = [mailbox(head, Some(old)), mailbox(head, Some(new)), mailbox(head, None)];
    assert_eq!(looked(&keys, 99).await, []);
    assert_eq!(looked(&keys, 100).await, [(0, head, true)], "the old key's time is over");
    assert_eq!(
        looked(&[ListenerState { agent: alice.key, at: 9, key: Some(new) }], 99).await.len(),
        1,
        "another agent's key"
    );
    store.delete_agent(&bob, new, at(101)).await.unwrap();
    let ended = looked(&keys, 102).await.into_iter().filter(|(_, _, ended)| *ended).map(|(index, _, _)| index);
    assert_eq!(ended.collect::<Vec<_>>(), [0, 1]);
}

pub async fn a_cursor_beyond_the_end_resumes_at_undelivered_entries(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let first = store.say(&alice, &bob, "Plan", "1").await.entries[0].entry.cursor.as_number().unwrap();
    store.delivered(&bob, 0, first, at(2)).await.unwrap();
    for n in 2..5 {
        store.say(&alice, &bob, "Plan", &n.to_string()).await;
    }
    let head = store.event_head(bob.key).await.unwrap();
    for known in [0, first, head] {
        assert_eq!(store.resume(bob.key, known).await.unwrap(), known);
    }
    // A cursor from a database state that was replaced by an older one: entries since then have lower numbers.
    assert_eq!(store.resume(bob.key, head + 5).await.unwrap(), first);
    store.delivered(&bob, first, head, at(2)).await.unwrap();
    assert_eq!(store.resume(bob.key, head + 5).await.unwrap(), head);
    let carol = store.enter("carol").await;
    assert_eq!(store.resume(carol.key, 9).await.unwrap(), 0, "an empty log has one cursor");
}

/// The agents and texts of a page, in its order; an entry that is no message has no text.
fn said(page: &HouseholdPage) -> Vec<(String, String)> {
    let said = page.events.iter().filter_map(|entry| match &entry.event {
        Event::NewMessage(mail) => Some((entry.agent.to_string(), mail.content.clone())),
        _ => None,
    });
    said.collect()
}

pub async fn the_logs_of_a_household_are_read_as_one(store: TestStore) {
    let ann = store.household_of("ann").await;
    let (coder, writer) = (store.join("coder", OWNER).await, store.join("writer", OWNER).await);
    let friend = store.enter("friend").await;
    store.connect(&friend, &coder).await;
    let household = store.viewer(&ann).await.unwrap().household.unwrap();
    let read =
        async |since: &HouseholdCursor, last| store.household_events(household, since.clone(), last).await.unwrap();
    let said_to = |to: &str, text: &str| (to.to_owned(), text.to_owned());
    for text in ["one", "two"] {
        store.say(&writer, &coder, "Plan", text).await;
    }
    store.say(&coder, &writer, "Plan", "three").await;
    let start = HouseholdCursor::default();
    let last = read(&start, 1).await;
    assert_eq!(said(&last), [said_to("coder", "two"), said_to("writer", "three")], "the last of each");
    let mut members: Vec<_> = last.members.iter().map(|(_, name)| name.to_string()).collect();
    members.sort();
    assert_eq!(members, ["ann", "coder", "writer"]);
    let now = read(&start, 0).await;
    assert!(now.events.is_empty() && now.cursor.of.len() == 3, "{now:?}");
    assert_eq!(now.cursor.of, last.cursor.of, "both are at the end");
    assert_eq!(read(&now.cursor, 50).await.cursor, now.cursor, "nothing happened");
    // The entries since then, in the order of each log, including other events than mail.
    store.say(&coder, &friend, "Plan", "outside").await;
    store.say(&friend, &coder, "Plan", "four").await;
    store.set_paused(&ann, &coder.name, true, at(2)).await.unwrap();
    store.say(&friend, &coder, "Plan", "five").await;
    let page = read(&now.cursor, 50).await;
    assert_eq!(said(&page), [said_to("coder", "four")], "a log ends for the person where it does for the paused agent");
    assert_eq!(page.events.iter().filter(|entry| matches!(entry.event, Event::SteppedIn(_))).count(), 2);
    assert!(read(&page.cursor, 50).await.events.is_empty());
    store.set_paused(&ann, &coder.name, false, at(3)).await.unwrap();
    let resumed = read(&page.cursor, 50).await;
    assert_eq!(said(&resumed), [said_to("coder", "five")]);
    // Reading the household's logs is not a delivery.
    let inbox = store.inbox(&coder, true, at(4)).await.unwrap();
    assert_eq!(inbox.unread(), 4);
    let mail = store.say(&friend, &coder, "Plan", "six").await.answer;
    read(&resumed.cursor, 50).await;
    let receipt = store.message(&friend, &mail.message_id).await.unwrap().receipts.remove(0);
    assert_eq!(receipt.state, amb_core::ReceiptState::Queued);
    // A member that joins is shown from its last entries; one that leaves is no longer shown.
    let late = store.join("late", OWNER).await;
    store.say(&writer, &late, "Plan", "welcome").await;
    store.leave_household(&writer, &writer.name, at(5)).await.unwrap();
    let page = read(&resumed.cursor, 50).await;
    assert!(said(&page).contains(&said_to("late", "welcome")), "{page:?}");
    assert!(page.cursor.of.contains_key(&late.key) && !page.cursor.of.contains_key(&writer.key));
}

pub async fn a_page_of_a_households_logs_is_bounded_and_fair(store: TestStore) {
    let ann = store.household_of("ann").await;
    let mut members = Vec::new();
    for number in 0..12 {
        members.push(store.join(&format!("agent-{number}"), OWNER).await);
    }
    let household = store.viewer(&ann).await.unwrap().household.unwrap();
    let start = store.household_events(household, HouseholdCursor::default(), 0).await.unwrap().cursor;
    let names: Vec<_> = members.iter().map(|member| member.name.clone()).collect();
    for number in 0..60 {
        let draft = Draft::text(names[0].clone(), "Plan", number.to_string());
        store.send_all(&ann, &names, draft, at(number)).await.unwrap();
    }
    let (mut cursor, mut seen, mut pages) =
        (start, std::collections::HashMap::<String, Vec<String>>::new(), Vec::new());
    loop {
        let page = store.household_events(household, cursor, 50).await.unwrap();
        cursor = page.cursor.clone();
        if page.events.is_empty() {
            break;
        }
        pages.push(page.events.len());
        for (to, text) in said(&page) {
            seen.entry(to).or_default().push(text);
        }
    }
    // 50 of each agent and 500 in all; then the next agents in turn.
    assert_eq!(pages, [500, 200, 20]);
    let all: Vec<String> = (0..60).map(|number| number.to_string()).collect();
    for member in &members {
        assert_eq!(seen[member.name.as_str()], all, "{}: each once, in order", member.name);
    }
}
