//! Agents and their keys.

use amb_core::Code;

use super::*;

pub async fn a_registered_agent_is_known_by_its_key_and_by_its_name(desk: Desk) {
    let alice = desk.enter("alice").await;
    let bob = desk.enter("bob").await;
    assert_ne!(alice.key, bob.key);
    assert_eq!(alice.id.get_version_num(), 7);
    for _ in 0..2 {
        let found = desk.agent_by_key_hash(KeyHash::of(&key_of("alice")), at(1)).await.unwrap();
        assert_eq!(found.as_ref(), Some(&alice));
    }
    assert_eq!(desk.agent_by_key_hash(KeyHash::of("amb_other"), at(1)).await.unwrap(), None);
    assert_eq!(desk.agent_by_name(&name("bob")).await.unwrap(), Some(bob));
    assert_eq!(desk.agent_by_name(&name("carol")).await.unwrap(), None);
    desk.ready().await.unwrap();
}

pub async fn a_name_is_given_once(desk: Desk) {
    let alice = desk.enter("alice").await;
    let other = NewAgent { key_hash: KeyHash::of("another"), ..new_agent("alice") };
    assert_eq!(code(desk.register_agent(other, at(1)).await), Code::Conflict);
    assert_eq!(desk.agent_by_key_hash(KeyHash::of("another"), at(1)).await.unwrap(), None);
    assert_eq!(desk.agent_by_name(&name("alice")).await.unwrap(), Some(alice));
}
