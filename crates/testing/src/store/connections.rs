//! Connection requests and approvals.

use std::sync::atomic::{AtomicUsize, Ordering};

use amb_core::doc::ConnectionStatus;
use amb_core::{Code, Event};

use super::*;
use amb_core::limits::MAX_WAITING_REQUESTS;

pub async fn a_request_is_seen_by_its_target_and_approved_by_its_code(store: TestStore) {
    let (alice, bob) = (store.enter("alice").await, store.enter("bob").await);
    let ask = Ask::new(bob.name.clone(), Some("Want to chat?".into()));
    let asked = store.request_connection(&alice, ask, at(1)).await.unwrap();
    assert_eq!(asked.answer.status, ConnectionStatus::Pending);
    assert_eq!(asked.answer.target_agent_name, bob.name);
    let code = asked.answer.verification_code.clone();

    let inbox = store.inbox(&bob, false, at(2)).await.unwrap();
    let [waiting] = inbox.pending_connections.as_slice() else { panic!("{inbox:?}") };
    assert_eq!(waiting.connection_id, asked.answer.connection_id);
    assert_eq!(waiting.from_agent_name, alice.name);
    assert_eq!(waiting.message.as_deref(), Some("Want to chat?"));
    assert_eq!(waiting.verification_code.as_deref(), Some(code.as_str()));
    assert_eq!(waiting.created_at, at(1));
    assert!(store.inbox(&alice, false, at(2)).await.unwrap().pending_connections.is_empty());
    let shown = async |agent: &Agent| store.connections(agent).await.unwrap().remove(0).verification_code;
    assert_eq!(
        (shown(&alice).await, shown(&bob).await),
        (Some(code.clone()), None),
        "only who asked sees it in the list"
    );

    let log = store.events(bob.key, 0, 10).await.unwrap();
    assert_eq!(asked.entries.iter().map(|one| &one.entry).collect::<Vec<_>>(), log.iter().collect::<Vec<_>>());
    let Event::ConnectionRequest { from_agent, verification_code, message, .. } = &log[0].event else {
        panic!("{log:?}")
    };
    assert_eq!(
        (from_agent, verification_code, message.as_deref()),
        (&alice.name, &Some(code.clone()), Some("Want to chat?"))
    );

    let approved = store.approve_connection(&bob, &code, at(3)).await.unwrap();
    assert_eq!(approved.answer.status, ConnectionStatus::Active);
    assert_eq!(approved.answer.connected_agent_name, alice.name);
    assert_eq!(approved.answer.connection_id, asked.answer.connection_id);
    let log = store.events(alice.key, 0, 10).await.unwrap();
    assert!(
        matches!(&log[..], [entry] if matches!(&entry.event, Event::ConnectionApproved { connected_agent, .. } if *connected_agent == bob.name)),
        "{log:?}"
    );
    assert!(store.inbox(&bob, false, at(4)).await.unwrap().pending_connections.is_empty());
    assert_eq!(shown(&alice).await, None, "used");
    store.say(&alice, &bob, "Plan", "hello").await;
    store.say(&bob, &alice, "Plan", "hello yourself").await;
}

pub async fn an_invalid_request_is_refused_with_its_reason(store: TestStore) {
    let (alice, bob) = (store.enter("alice").await, store.enter("bob").await);
    let ask = |to: &str| Ask::new(name(to), None);
    assert_eq!(code(store.request_connection(&alice, ask("alice"), at(1)).await), Code::Invalid);
    assert_eq!(code(store.request_connection(&alice, ask("nobody"), at(1)).await), Code::NotFound);
    let asked = store.request_connection(&alice, ask("bob"), at(1)).await.unwrap();
    assert_eq!(code(store.request_connection(&alice, ask("bob"), at(2)).await), Code::Conflict);
    store.approve_connection(&bob, &asked.answer.verification_code, at(3)).await.unwrap();
    assert_eq!(code(store.request_connection(&alice, ask("bob"), at(4)).await), Code::Conflict);
    assert_eq!(code(store.request_connection(&bob, ask("alice"), at(4)).await), Code::Conflict, "from either side");
    assert_eq!(store.event_head(bob.key).await.unwrap(), 1, "what was refused was not told");
}

pub async fn a_code_can_be_used_once_and_only_by_its_target(store: TestStore) {
    let (alice, bob, carol) = (store.enter("alice").await, store.enter("bob").await, store.enter("carol").await);
    let asked = store.request_connection(&alice, Ask::new(bob.name.clone(), None), at(1)).await.unwrap().answer;
    let key = asked.verification_code.as_str();
    let stranger = store.approve_connection(&carol, key, at(2)).await.unwrap_err();
    let wrong = store.approve_connection(&carol, "no such code", at(2)).await.unwrap_err();
    assert_eq!(
        (stranger.code(), stranger.detail()),
        (Code::NotFound, wrong.detail()),
        "a code is found by its target alone"
    );
    assert_eq!(code(store.approve_connection(&alice, key, at(2)).await), Code::Forbidden, "not by who asked");
    assert_eq!(code(store.approve_connection(&bob, "no such code", at(2)).await), Code::NotFound);
    store.approve_connection(&bob, key, at(3)).await.unwrap();
    assert_eq!(code(store.approve_connection(&bob, key, at(4)).await), Code::NotFound, "used");
}

pub async fn a_code_that_is_taken_is_generated_again(store: TestStore) {
    let (alice, bob, carol) = (store.enter("alice").await, store.enter("bob").await, store.enter("carol").await);
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let codes: amb_store::CodeMaker = Arc::new(move || {
        // Each code comes twice before the next does.
        Ok(format!("AA-{:03}", counter.fetch_add(1, Ordering::SeqCst) / 2))
    });
    let ask = |to: &Agent| Ask { codes: codes.clone(), ..Ask::new(to.name.clone(), None) };
    let first = store.request_connection(&alice, ask(&bob), at(1)).await.unwrap().answer;
    let second = store.request_connection(&alice, ask(&carol), at(1)).await.unwrap().answer;
    assert_eq!((first.verification_code.as_str(), second.verification_code.as_str()), ("AA-000", "AA-001"));
    store.approve_connection(&bob, "AA-000", at(2)).await.unwrap();
    // A code whose request is settled is free again.
    let codes: amb_store::CodeMaker = Arc::new(|| Ok("AA-000".into()));
    let again = Ask { codes, ..Ask::new(carol.name.clone(), None) };
    assert_eq!(store.request_connection(&bob, again, at(3)).await.unwrap().answer.verification_code, "AA-000");
}

pub async fn a_private_code_reaches_neither_inbox_nor_event(store: TestStore) {
    let (alice, bob) = (store.enter("alice").await, store.enter("bob").await);
    let ask = Ask { private_code: true, ..Ask::new(bob.name.clone(), None) };
    let asked = store.request_connection(&alice, ask, at(1)).await.unwrap();
    let inbox = store.inbox(&bob, false, at(2)).await.unwrap();
    assert_eq!(inbox.pending_connections[0].verification_code, None);
    let log = format!("{:?}{:?}", store.events(bob.key, 0, 10).await.unwrap(), asked.entries);
    assert!(!log.contains(&asked.answer.verification_code), "{log}");
    store.approve_connection(&bob, &asked.answer.verification_code, at(2)).await.unwrap();
}

pub async fn an_expired_request_is_gone_and_can_be_made_again(store: TestStore) {
    let (alice, bob) = (store.enter("alice").await, store.enter("bob").await);
    let ask = |expires: i64| Ask { expires_at: Some(at(expires)), ..Ask::new(bob.name.clone(), None) };
    let first = store.request_connection(&alice, ask(10), at(1)).await.unwrap().answer;
    assert_eq!(store.inbox(&bob, false, at(9)).await.unwrap().pending_connections.len(), 1);
    assert!(store.inbox(&bob, false, at(10)).await.unwrap().pending_connections.is_empty());
    assert_eq!(code(store.approve_connection(&bob, &first.verification_code, at(10)).await), Code::Gone);
    let second = store.request_connection(&alice, ask(20), at(11)).await.unwrap().answer;
    assert_eq!(
        code(store.approve_connection(&bob, &first.verification_code, at(11)).await),
        Code::Gone,
        "swept meanwhile"
    );
    assert_eq!(code(store.approve_connection(&alice, &first.verification_code, at(11)).await), Code::NotFound);
    assert_ne!(first.connection_id, second.connection_id);
    assert_eq!(store.inbox(&bob, false, at(12)).await.unwrap().pending_connections.len(), 1);
    let log = store.events(alice.key, 0, 10).await.unwrap();
    assert!(
        matches!(&log[..], [entry] if matches!(&entry.event, Event::ConnectionChanged { status: ConnectionStatus::Expired, .. })),
        "{log:?}"
    );
    store.approve_connection(&bob, &second.verification_code, at(12)).await.unwrap();
}

pub async fn requests_from_both_sides_end_in_one_connection(store: TestStore) {
    let (alice, bob) = (store.enter("alice").await, store.enter("bob").await);
    let one = store.request_connection(&alice, Ask::new(bob.name.clone(), None), at(1)).await.unwrap().answer;
    let two = store.request_connection(&bob, Ask::new(alice.name.clone(), None), at(1)).await.unwrap().answer;
    store.approve_connection(&bob, &one.verification_code, at(2)).await.unwrap();
    assert_eq!(code(store.approve_connection(&alice, &two.verification_code, at(3)).await), Code::NotFound);
    assert!(store.inbox(&alice, false, at(3)).await.unwrap().pending_connections.is_empty());
}

pub async fn pending_requests_to_one_agent_are_limited(store: TestStore) {
    let target = store.enter("target").await;
    for n in 0..=MAX_WAITING_REQUESTS {
        let agent = store.enter(&format!("agent{n}")).await;
        let ask = Ask { expires_at: Some(at(100)), ..Ask::new(target.name.clone(), None) };
        let asked = store.request_connection(&agent, ask, at(1)).await;
        match n {
            MAX_WAITING_REQUESTS => assert_eq!(code(asked), Code::TooManyRequests),
            _ => drop(asked.unwrap()),
        }
    }
    let waiting = store.inbox(&target, false, at(2)).await.unwrap().pending_connections.len();
    assert_eq!((waiting, store.pending_connections(&target, at(2)).await.unwrap().len()), (100, 100));
    let late = store.enter("late").await;
    store.request_connection(&late, Ask::new(target.name.clone(), None), at(100)).await.unwrap();
}

pub async fn pending_requests_from_one_agent_are_limited(store: TestStore) {
    let alice = store.enter("alice").await;
    for n in 0..4 {
        store.enter(&format!("peer-{n}")).await;
    }
    let ask =
        |n: usize| Ask { max_pending: Some(3), expires_at: Some(at(10)), ..Ask::new(name(&format!("peer-{n}")), None) };
    for n in 0..3 {
        store.request_connection(&alice, ask(n), at(1)).await.unwrap();
    }
    assert_eq!(code(store.request_connection(&alice, ask(3), at(9)).await), Code::TooManyRequests);
    store.request_connection(&alice, Ask { expires_at: Some(at(99)), ..ask(3) }, at(10)).await.unwrap();
}
