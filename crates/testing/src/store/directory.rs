//! The list of agents, presence and keys.

use amb_core::doc::ProfilePatch;
use amb_core::{AllowFrom, Code, Status};

use super::*;
use amb_store::AgentsPage;

async fn names(store: &TestStore, caller: &Agent) -> Vec<String> {
    let page = AgentsPage { after: None, limit: 100 };
    let agents = store.agents(caller, page, at(1)).await.unwrap();
    agents.into_iter().map(|agent| agent.name.to_string()).collect()
}

pub async fn the_list_of_agents_shows_only_visible_ones(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let (carol, dave) = (store.enter("carol").await, store.enter("dave").await);
    let hidden = ProfilePatch { discoverable: Some(false), ..ProfilePatch::default() };
    for agent in [&bob, &carol] {
        store.update_profile(agent, hidden.clone(), at(1)).await.unwrap();
    }
    store.change_connection(&dave, &alice.name, amb_core::doc::ConnectionChange::Block, at(1)).await.unwrap();
    assert_eq!(names(&store, &alice).await, ["alice", "bob"], "connected, but not hidden strangers, nor who blocked");
    assert_eq!(names(&store, &carol).await, ["alice", "carol", "dave"]);
    assert_eq!(store.agent(&alice, &bob.name, at(1)).await.unwrap().name, bob.name);
    assert_eq!(code(store.agent(&alice, &carol.name, at(1)).await), Code::NotFound);
    let error = store.agent(&alice, &name("bobb"), at(1)).await.unwrap_err();
    assert!(error.detail().contains("\"bob\""), "{error}");
    let error = store.agent(&alice, &name("carrol"), at(1)).await.unwrap_err();
    assert!(!error.detail().contains("\"carol\""), "whom one may not see is not suggested: {error}");
}

pub async fn the_list_of_agents_is_paged(store: TestStore) {
    let alice = store.enter("alice").await;
    for n in 0..7 {
        store.enter(&format!("peer-{n}")).await;
    }
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let page = store.agents(&alice, AgentsPage { after, limit: 3 }, at(1)).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.name.clone());
        seen.extend(page.into_iter().map(|agent| agent.name.to_string()));
    }
    assert_eq!(seen.len(), 8);
    assert!(seen.is_sorted());
}

pub async fn a_profile_is_patched_and_checked(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let patch = ProfilePatch {
        description: Some("Writes code".into()),
        capabilities: Some(vec!["rust".into()]),
        max_concurrent_tasks: Some(7),
        ..ProfilePatch::default()
    };
    let profile = store.update_profile(&alice, patch, at(1)).await.unwrap();
    assert_eq!(profile, store.profile(&alice, at(1)).await.unwrap());
    assert_eq!((profile.id, profile.discoverable), (alice.id, true));
    assert_eq!(profile.owner_contact.as_deref(), Some("alice@example.org"));
    assert_eq!(profile.api_key_prefix, "amb_0123");
    let card = &profile.entry.card;
    assert_eq!((card.description.as_str(), card.max_concurrent_tasks), ("Writes code", 7));
    assert_eq!(card.allow_from, AllowFrom::default(), "what was not named stays");
    assert_eq!(store.agent(&bob, &alice.name, at(1)).await.unwrap().card, *card);

    let bad = ProfilePatch { description: Some("x".repeat(1_001)), ..ProfilePatch::default() };
    assert_eq!(code(store.update_profile(&alice, bad, at(1)).await), Code::Invalid);
    // `allow_from` takes effect at once.
    let nobody = ProfilePatch { allow_from: Some(AllowFrom(vec![])), ..ProfilePatch::default() };
    store.say(&bob, &alice, "Plan", "x").await;
    store.update_profile(&alice, nobody, at(1)).await.unwrap();
    assert_eq!(code(store.send(&bob, Draft::text(alice.name.clone(), "Plan", "x"), at(1)).await), Code::NotAllowed);
}

pub async fn presence_follows_heartbeats(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let presence = async |seconds| store.agent(&bob, &alice.name, at(seconds)).await.unwrap().presence;
    assert_eq!(presence(0).await.status, Status::Offline, "registered is not alive");
    store.seen(&[alice.key, bob.key], at(10)).await.unwrap();
    assert_eq!((presence(11).await.status, presence(11).await.last_seen), (Status::Idle, Some(at(10))));
    assert_eq!(presence(41).await.status, Status::Offline, "no heartbeat for a while");
    store.seen(&[alice.key], at(50)).await.unwrap();
    store.leave(&alice, at(51)).await.unwrap();
    assert_eq!(presence(52).await.status, Status::Offline, "goodbye");
    store.seen(&[alice.key], at(53)).await.unwrap();
    assert_eq!(presence(54).await.status, Status::Idle);
}

pub async fn a_rotated_key_works_at_once_and_the_old_one_in_its_grace_period(store: TestStore) {
    let alice = store.enter("alice").await;
    let (old, new) = (KeyHash::of(&key_of("alice")), KeyHash::of("new"));
    let whose = async |hash, seconds| store.agent_by_key_hash(hash, at(seconds)).await.unwrap();
    assert_eq!(whose(old, 1).await.as_ref(), Some(&alice));
    store.rotate_key(&alice, old, new_key("new", "amb_new0"), Some(at(100)), at(2)).await.unwrap();
    assert_eq!(whose(new, 3).await.as_ref(), Some(&alice));
    assert_eq!(whose(old, 99).await.as_ref(), Some(&alice));
    assert_eq!(whose(old, 100).await, None, "its time is over, though it was remembered");
    let profile = store.profile(&alice, at(3)).await.unwrap();
    assert_eq!((profile.api_key_prefix.as_str(), profile.previous_key_until), ("amb_new0", Some(at(100))));
    store.rotate_key(&alice, new, new_key("newer", "amb_new1"), None, at(4)).await.unwrap();
    assert_eq!(whose(new, 5).await, None, "without a grace the old one ends at once");
    assert_eq!(whose(old, 5).await, None);
    assert_eq!(whose(KeyHash::of("newer"), 5).await, Some(alice));
}

pub async fn a_key_in_its_grace_period_neither_rotates_nor_removes(store: TestStore) {
    let alice = store.enter("alice").await;
    let (old, new) = (hash_of("alice"), KeyHash::of("new"));
    store.rotate_key(&alice, old, new_key("new", "amb_new0"), Some(at(100)), at(2)).await.unwrap();
    let error = store.rotate_key(&alice, old, new_key("thief", "amb_bad0"), None, at(3)).await.unwrap_err();
    assert_eq!(error.code(), Code::OldKey);
    assert!(error.detail().contains("use the key that replaced it"), "{error}");
    assert_eq!(code(store.delete_agent(&alice, old, at(3)).await), Code::OldKey);
    assert_eq!(
        store.agent_by_key_hash(new, at(4)).await.unwrap().as_ref(),
        Some(&alice),
        "the owner is not locked out"
    );
    assert_eq!(code(store.rotate_key(&alice, old, new_key("x", "amb_bad0"), None, at(101)).await), Code::Unauthorized);
    assert_eq!(code(store.delete_agent(&alice, old, at(101)).await), Code::Unauthorized);
    store.delete_agent(&alice, new, at(102)).await.unwrap();
    assert_eq!(code(store.rotate_key(&alice, new, new_key("y", "amb_bad0"), None, at(103)).await), Code::Unauthorized);
    assert_eq!(code(store.delete_agent(&alice, new, at(103)).await), Code::Unauthorized);
    assert_eq!(store.agent_by_name(&alice.name).await.unwrap(), None, "nobody came back");
}

pub async fn a_key_issued_by_the_operator_revokes_all_others(store: TestStore) {
    let alice = store.enter("alice").await;
    let (old, new) = (hash_of("alice"), KeyHash::of("new"));
    store.rotate_key(&alice, old, new_key("new", "amb_new0"), Some(at(100)), at(2)).await.unwrap();
    for hash in [old, new] {
        assert_eq!(store.agent_by_key_hash(hash, at(3)).await.unwrap().as_ref(), Some(&alice));
    }
    assert_eq!(store.issue_key(&alice.name, new_key("issued", "amb_iss0")).await.unwrap(), alice);
    for hash in [old, new] {
        assert_eq!(store.agent_by_key_hash(hash, at(4)).await.unwrap(), None);
    }
    let issued = KeyHash::of("issued");
    assert_eq!(store.agent_by_key_hash(issued, at(4)).await.unwrap().as_ref(), Some(&alice));
    assert_eq!(store.profile(&alice, at(4)).await.unwrap().api_key_prefix, "amb_iss0");
    assert_eq!(code(store.issue_key(&name("nobody"), new_key("z", "amb_zzz0")).await), Code::NotFound);
    store.delete_agent(&alice, issued, at(5)).await.unwrap();
    assert_eq!(code(store.issue_key(&alice.name, new_key("z", "amb_zzz0")).await), Code::NotFound);
}

pub async fn a_deleted_agent_leaves_others_history_readable(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let session = store.say(&alice, &bob, "Plan", "bye").await.answer.session_id;
    let head = store.event_head(bob.key).await.unwrap();
    store.agent_by_key_hash(KeyHash::of(&key_of("alice")), at(1)).await.unwrap().unwrap();
    let gone = store.delete_agent(&alice, hash_of("alice"), at(5)).await.unwrap();
    assert_eq!(store.agent_by_key_hash(KeyHash::of(&key_of("alice")), at(6)).await.unwrap(), None);
    assert_eq!(store.agent_by_name(&alice.name).await.unwrap(), None);
    let log = store.events(bob.key, head, 10).await.unwrap();
    assert_eq!(gone.entries.iter().map(|one| &one.entry).collect::<Vec<_>>(), log.iter().collect::<Vec<_>>());
    assert_eq!(log.len(), 1);
    let history = store.history(&bob, &session, HistoryPage::default(), at(7)).await.unwrap().answer;
    assert_eq!(history.messages[0].sender_name, alice.name);
    assert_eq!(store.inbox(&bob, false, at(7)).await.unwrap().sessions[0].other_agent_name, alice.name);
    assert_eq!(code(store.send(&bob, Draft::text(alice.name.clone(), "Plan", "x"), at(7)).await), Code::NotConnected);
    assert_eq!(code(store.request_connection(&bob, Ask::new(alice.name.clone(), None), at(7)).await), Code::NotFound);
    let again = NewAgent { key_hash: KeyHash::of("other"), ..new_agent("alice") };
    assert_eq!(code(store.register_agent(again, at(8)).await), Code::Conflict, "nobody can take its name");
    assert_eq!(names(&store, &bob).await, ["bob"]);
}
