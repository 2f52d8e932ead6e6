//! Agents and their keys.

use amb_core::Code;

use super::*;

pub async fn a_registered_agent_is_known_by_its_key_and_by_its_name(store: TestStore) {
    let alice = store.enter("alice").await;
    let bob = store.enter("bob").await;
    assert_ne!(alice.key, bob.key);
    assert_eq!(alice.id.get_version_num(), 7);
    for _ in 0..2 {
        let found = store.agent_by_key_hash(KeyHash::of(&key_of("alice")), at(1)).await.unwrap();
        assert_eq!(found.as_ref(), Some(&alice));
    }
    assert_eq!(store.agent_by_key_hash(KeyHash::of("amb_other"), at(1)).await.unwrap(), None);
    assert_eq!(store.agent_by_name(&name("bob")).await.unwrap(), Some(bob));
    assert_eq!(store.agent_by_name(&name("carol")).await.unwrap(), None);
    store.ready().await.unwrap();
}

pub async fn a_name_can_be_registered_once(store: TestStore) {
    let alice = store.enter("alice").await;
    let other = NewAgent { key_hash: KeyHash::of("another"), ..new_agent("alice") };
    assert_eq!(code(store.register_agent(other, at(1)).await), Code::Conflict);
    assert_eq!(store.agent_by_key_hash(KeyHash::of("another"), at(1)).await.unwrap(), None);
    assert_eq!(store.agent_by_name(&name("alice")).await.unwrap(), Some(alice));
}

pub async fn names_are_unique_and_looked_up_without_case(store: TestStore) {
    let (ann, ben) = (store.enter("Ann").await, store.enter("ben").await);
    for taken in ["ann", "ANN", "Ann"] {
        let new = NewAgent { key_hash: KeyHash::of(taken), ..new_agent(taken) };
        assert_eq!(code(store.register_agent(new, at(1)).await), Code::Conflict, "{taken}");
        assert_eq!(code(store.create_group(&ben, &name(taken), at(1)).await), Code::Conflict, "{taken}");
        assert_eq!(store.agent_by_name(&name(taken)).await.unwrap().as_ref(), Some(&ann));
        assert_eq!(store.agent(&ben, &name(taken), at(1)).await.unwrap().name, ann.name);
    }
    store.create_group(&ben, &name("Crew"), at(1)).await.unwrap();
    assert_eq!(code(store.create_group(&ann, &name("crew"), at(1)).await), Code::Conflict);
    let new = NewAgent { key_hash: KeyHash::of("crew"), ..new_agent("CREW") };
    assert_eq!(code(store.register_agent(new, at(1)).await), Code::Conflict);
    assert_eq!(code(store.request_connection(&ann, Ask::new(name("ANN"), None), at(1)).await), Code::Invalid, "itself");

    let asked = store.request_connection(&ben, Ask::new(name("ann"), None), at(1)).await.unwrap().answer;
    assert_eq!(asked.target_agent_name, ann.name);
    store.approve_connection(&ann, &asked.verification_code, at(1)).await.unwrap();
    let sent = store.send(&ben, Draft::text(name("ANN"), "Plan", "hello"), at(2)).await.unwrap().answer;
    assert_eq!(store.message(&ann, &sent.message_id).await.unwrap().message.to, ann.name);
    let session = store.send(&ben, Draft::text(name("Ann"), "Plan", "again"), at(2)).await.unwrap().answer.session_id;
    assert_eq!(session, sent.session_id);
    let task =
        store.send(&ben, Draft::task(name("aNN"), "Plan", "do it"), at(2)).await.unwrap().answer.task.unwrap().id;
    assert_eq!(store.task(&ben, &task).await.unwrap().assignee, ann.name);
    store.send(&ben, Draft::text(name("CREW"), "Standup", "all"), at(2)).await.unwrap();
    // The trace is compared without case.
    let relay = Draft { relay_of: Some(sent.message_id.clone()), ..Draft::text(name("BEN"), "Plan", "back") };
    assert_eq!(code(store.send(&ann, relay, at(3)).await), Code::LoopRefused);
    store.change_connection(&ben, &name("ann"), amb_core::doc::ConnectionChange::Block, at(4)).await.unwrap();
    assert_eq!(code(store.send(&ann, Draft::text(name("BEN"), "Plan", "x"), at(5)).await), Code::NotConnected);
}
