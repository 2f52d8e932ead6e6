//! Rejecting, revoking and blocking.

use amb_core::doc::{ConnectionChange, ConnectionStatus};
use amb_core::{Code, Event};

use super::*;

async fn ask(store: &TestStore, from: &Agent, to: &Agent) -> amb_core::doc::ConnectionRequested {
    store.request_connection(from, Ask::new(to.name.clone(), Some("hi".into())), at(1)).await.unwrap().answer
}

async fn status(store: &TestStore, caller: &Agent, peer: &Agent) -> Option<ConnectionStatus> {
    let links = store.connections(caller).await.unwrap();
    links.into_iter().find(|link| link.agent_name == peer.name).map(|link| link.status)
}

fn changes(entries: &[amb_core::Entry]) -> Vec<ConnectionStatus> {
    entries
        .iter()
        .filter_map(|entry| match &entry.event {
            Event::ConnectionChanged { status, .. } => Some(*status),
            _ => None,
        })
        .collect()
}

pub async fn a_rejected_request_can_be_made_again(store: TestStore) {
    let (alice, bob) = (store.enter("alice").await, store.enter("bob").await);
    let asked = ask(&store, &alice, &bob).await;
    assert_eq!(store.pending_connections(&bob, at(2)).await.unwrap().len(), 1);
    let rejected = store.change_connection(&bob, &alice.name, ConnectionChange::Reject, at(2)).await.unwrap();
    assert_eq!((rejected.answer.status, rejected.answer.outgoing), (ConnectionStatus::Rejected, false));
    assert_eq!(rejected.answer.connection_id, asked.connection_id);
    assert!(store.pending_connections(&bob, at(3)).await.unwrap().is_empty());
    assert_eq!(code(store.approve_connection(&bob, &asked.verification_code, at(3)).await), Code::NotFound);
    let log = store.events(alice.key, 0, 10).await.unwrap();
    assert_eq!(changes(&log), [ConnectionStatus::Rejected]);
    assert_eq!(rejected.entries.iter().map(|one| &one.entry).collect::<Vec<_>>(), log.iter().collect::<Vec<_>>());
    assert_eq!(code(store.change_connection(&bob, &alice.name, ConnectionChange::Reject, at(4)).await), Code::NotFound);
    ask(&store, &alice, &bob).await;
    assert_eq!(status(&store, &alice, &bob).await, Some(ConnectionStatus::Pending));
}

pub async fn a_revoked_connection_carries_no_mail(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let session = store.say(&alice, &bob, "Plan", "before").await.answer.session_id;
    assert_eq!(status(&store, &alice, &bob).await, Some(ConnectionStatus::Active));
    let head = store.event_head(alice.key).await.unwrap();
    store.change_connection(&bob, &alice.name, ConnectionChange::Revoke, at(5)).await.unwrap();
    assert_eq!(changes(&store.events(alice.key, head, 10).await.unwrap()), [ConnectionStatus::Revoked]);
    for (from, to) in [(&alice, &bob), (&bob, &alice)] {
        let again = Draft::text(to.name.clone(), "Plan", "after");
        assert_eq!(code(store.send(from, again, at(6)).await), Code::NotConnected);
        let within = Draft { session: Some(session.clone()), ..Draft::text(to.name.clone(), "Plan", "after") };
        assert_eq!(code(store.send(from, within, at(6)).await), Code::NotConnected);
        assert_eq!(status(&store, from, to).await, Some(ConnectionStatus::Revoked));
    }
    assert_eq!(store.texts(&bob, &session, 10).await, ["before"], "what was said stays readable");
    assert_eq!(code(store.change_connection(&bob, &alice.name, ConnectionChange::Revoke, at(7)).await), Code::NotFound);
    store.connect(&alice, &bob).await;
    store.say(&alice, &bob, "Plan", "again").await;
}

pub async fn a_blocked_agent_is_refused_without_learning_of_the_block(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let blocked = store.change_connection(&bob, &alice.name, ConnectionChange::Block, at(5)).await.unwrap().answer;
    assert_eq!((blocked.status, blocked.outgoing), (ConnectionStatus::Blocked, true));
    assert_eq!(code(store.send(&alice, Draft::text(bob.name.clone(), "s", "x"), at(6)).await), Code::NotConnected);
    assert_eq!(code(store.request_connection(&alice, Ask::new(bob.name.clone(), None), at(6)).await), Code::NotAllowed);
    assert_eq!(status(&store, &alice, &bob).await, Some(ConnectionStatus::Revoked));
    assert_eq!(status(&store, &bob, &alice).await, Some(ConnectionStatus::Blocked));
    // Blocking again is no error, and a stranger can be blocked before it ever asked.
    store.change_connection(&bob, &alice.name, ConnectionChange::Block, at(7)).await.unwrap();
    let carol = store.enter("carol").await;
    store.change_connection(&bob, &carol.name, ConnectionChange::Block, at(7)).await.unwrap();
    assert_eq!(code(store.request_connection(&carol, Ask::new(bob.name.clone(), None), at(8)).await), Code::NotAllowed);

    // Asking for a connection does not undo one's own block.
    assert_eq!(code(store.request_connection(&bob, Ask::new(alice.name.clone(), None), at(8)).await), Code::Conflict);
    assert_eq!(status(&store, &bob, &alice).await, Some(ConnectionStatus::Blocked));
    store.change_connection(&bob, &alice.name, ConnectionChange::Unblock, at(9)).await.unwrap();
    assert_eq!(code(store.send(&alice, Draft::text(bob.name.clone(), "s", "x"), at(9)).await), Code::NotConnected);
    assert_eq!(
        code(store.change_connection(&bob, &alice.name, ConnectionChange::Unblock, at(9)).await),
        Code::NotFound
    );
    store.connect(&alice, &bob).await;
    assert_eq!(
        code(store.change_connection(&bob, &name("nobody"), ConnectionChange::Block, at(9)).await),
        Code::NotFound
    );
}

pub async fn requests_to_a_deleted_agent_notify_the_requester(store: TestStore) {
    let (alice, bob) = (store.enter("alice").await, store.enter("bob").await);
    let (carol, dave) = (store.enter("carol").await, store.enter("dave").await);
    for (from, to) in [(&alice, &bob), (&carol, &bob), (&bob, &dave)] {
        store.request_connection(from, Ask::new(to.name.clone(), None), at(1)).await.unwrap();
    }
    let gone = store.delete_agent(&bob, hash_of("bob"), at(2)).await.unwrap();
    let told: Vec<_> = gone.entries.iter().map(|one| one.agent).collect();
    assert_eq!(told, [alice.key, carol.key], "those who asked");
    for requester in [&alice, &carol] {
        let log = store.events(requester.key, 0, 10).await.unwrap();
        assert_eq!(changes(&log), [ConnectionStatus::Expired]);
        assert_eq!(status(&store, requester, &bob).await, Some(ConnectionStatus::Expired));
    }
    assert_eq!(store.pending_connections(&dave, at(3)).await.unwrap(), []);
}

pub async fn requests_expire_and_notify_the_requester(store: TestStore) {
    let alice = store.enter("alice").await;
    for n in 0..3 {
        let peer = store.enter(&format!("peer-{n}")).await;
        let expires_at = (n < 2).then(|| at(10 + n));
        store.request_connection(&alice, Ask { expires_at, ..Ask::new(peer.name.clone(), None) }, at(1)).await.unwrap();
    }
    assert_eq!(store.expire_connections(at(9)).await.unwrap().answer, 0);
    assert_eq!(store.expire_connections(at(10)).await.unwrap().answer, 1);
    let rest = store.expire_connections(at(99)).await.unwrap();
    assert_eq!((rest.answer, rest.entries.len()), (1, 1));
    assert_eq!(store.expire_connections(at(99)).await.unwrap().answer, 0);
    let log = store.events(alice.key, 0, 10).await.unwrap();
    assert_eq!(changes(&log), [ConnectionStatus::Expired, ConnectionStatus::Expired]);
    let links = store.connections(&alice).await.unwrap();
    assert_eq!(links.iter().filter(|link| link.status == ConnectionStatus::Pending).count(), 1);
    assert_eq!(links.len(), 3);
}

pub async fn no_send_succeeds_after_a_revocation_was_answered(store: TestStore) {
    let (alice, bob) = store.pair().await;
    let session = store.say(&alice, &bob, "Plan", "first").await.answer.session_id;
    let storm: Vec<_> = (0..8)
        .map(|_| {
            let (store, alice, bob) = (store.clone(), alice.clone(), bob.clone());
            tokio::spawn(async move {
                let mut sent = 0;
                while store.send(&alice, Draft::text(bob.name.clone(), "Plan", "x"), at(1)).await.is_ok() {
                    sent += 1;
                }
                sent
            })
        })
        .collect();
    // Let some sends succeed first.
    while store.event_head(bob.key).await.unwrap() < 20 {
        tokio::task::yield_now().await;
    }
    store.change_connection(&bob, &alice.name, ConnectionChange::Revoke, at(2)).await.unwrap();
    let head = store.event_head(bob.key).await.unwrap();
    let mut sent = 1;
    for sender in storm {
        sent += sender.await.unwrap();
    }
    assert_eq!(store.event_head(bob.key).await.unwrap(), head, "nothing came after the answer");
    assert_eq!(store.inbox(&bob, false, at(3)).await.unwrap().unread(), sent, "what was answered is there");
    assert!(!store.texts(&bob, &session, 50).await.is_empty());
}
