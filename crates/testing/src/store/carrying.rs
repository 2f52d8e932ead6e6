//! Messages carried over from another office.

use amb_core::id::fresh_uuid;
use amb_core::route::Hop;
use amb_core::{Code, TaskState};

use super::*;
use amb_store::Crossing;

/// A message from another office with one hop left and this trace.
fn crossing(trace: &[&str]) -> Crossing {
    Crossing { id: fresh_uuid(at(1)), hop: Hop { ttl: 1, trace: trace.iter().map(|text| name(text)).collect() } }
}

pub async fn a_carried_message_keeps_its_id_its_ttl_and_its_trace(store: TestStore) {
    let (alice, bob) = store.pair().await;
    for trace in [&["zoe", "alice"][..], &["zoe"]] {
        let crossing = crossing(trace);
        let draft = Draft::text(bob.name.clone(), "Plan", "from afar");
        let sent = store.carry(&alice, draft, crossing.clone(), at(1)).await.unwrap();
        assert_eq!(sent.answer.message_id.as_uuid(), Some(crossing.id));
        assert_eq!(sent.entries.len(), 1, "its recipient is told of it");
        let message = store.message(&bob, &sent.answer.message_id).await.unwrap().message;
        assert_eq!((message.from, message.ttl), (alice.name.clone(), 1));
        assert_eq!(message.trace, [name("zoe"), name("alice")], "whoever sends it is in it");
        // Its ttl and trace continue by the rules.
        let reply =
            Draft::reply(&store.message(&bob, &sent.answer.message_id).await.unwrap().message, "back").automatic();
        let back = store.send(&bob, reply, at(2)).await.unwrap().answer;
        assert_eq!(store.message(&alice, &back.message_id).await.unwrap().message.ttl, 0);
        let reply =
            Draft::reply(&store.message(&alice, &back.message_id).await.unwrap().message, "and again").automatic();
        assert_eq!(code(store.send(&alice, reply, at(3)).await), Code::LoopRefused);
    }
    let stranger = store.enter("stranger").await;
    let draft = Draft::text(bob.name.clone(), "Plan", "let me in");
    assert_eq!(code(store.carry(&stranger, draft, crossing(&["stranger"]), at(1)).await), Code::NotConnected);
}

pub async fn a_message_carried_twice_is_stored_once(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let crossing = crossing(&["alice"]);
    let draft = Draft { idempotency_key: Some("m1".into()), ..Draft::text(bob.name.clone(), "Plan", "once") };
    let first = store.carry(&alice, draft.clone(), crossing.clone(), at(1)).await.unwrap();
    let again = store.carry(&alice, draft, crossing, at(9)).await.unwrap();
    assert_eq!(first.answer, again.answer);
    assert!(again.entries.is_empty());
    assert_eq!(store.texts(&bob, &first.answer.session_id, 9).await, ["once"]);
}

pub async fn a_carried_task_has_the_id_of_its_message(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let crossing = crossing(&["alice"]);
    let draft = Draft::task(bob.name.clone(), "Work", "do it");
    let sent = store.carry(&alice, draft, crossing.clone(), at(1)).await.unwrap().answer;
    let id = amb_core::TaskId::from(crossing.id);
    assert_eq!(sent.task.unwrap().id, id);
    let moved = store.set_task_state(&bob, &id, TaskState::Completed, Some("done".into()), at(2)).await.unwrap();
    assert_eq!((moved.answer.owner, moved.answer.state), (alice.name.clone(), TaskState::Completed));
    // The time of the update tells which move was made.
    assert_eq!(store.task(&alice, &id).await.unwrap().updated_at, at(2));
}

pub async fn a_request_can_be_accepted_without_its_code(store: TestStore) {
    let (alice, bob) = (store.enter("alice").await, store.enter("bob").await);
    assert_eq!(code(store.accept_connection(&bob, &alice.name, at(1)).await), Code::NotFound);
    assert_eq!(code(store.accept_connection(&bob, &name("nobody"), at(1)).await), Code::NotFound);
    let ask = Ask { private_code: true, expires_at: Some(at(5)), ..Ask::new(bob.name.clone(), None) };
    store.request_connection(&alice, ask.clone(), at(1)).await.unwrap();
    assert_eq!(
        code(store.accept_connection(&alice, &bob.name, at(1)).await),
        Code::NotFound,
        "who asked decides nothing"
    );
    assert_eq!(code(store.accept_connection(&bob, &alice.name, at(6)).await), Code::Gone);
    store.request_connection(&alice, Ask { expires_at: None, ..ask }, at(7)).await.unwrap();
    let accepted = store.accept_connection(&bob, &alice.name, at(8)).await.unwrap();
    assert_eq!(accepted.answer.connected_agent_name, alice.name);
    assert_eq!(accepted.entries.len(), 1, "who asked is told");
    store.say(&alice, &bob, "Plan", "hello").await;
}
