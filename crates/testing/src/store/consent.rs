//! Consent that can be taken back.

use amb_core::doc::{ConnectionChange, ConnectionStatus};
use amb_core::{Code, Event};

use super::*;

async fn ask(desk: &TestStore, from: &Agent, to: &Agent) -> amb_core::doc::ConnectionRequested {
    desk.request_connection(from, Ask::new(to.name.clone(), Some("hi".into())), at(1)).await.unwrap().answer
}

async fn status(desk: &TestStore, caller: &Agent, peer: &Agent) -> Option<ConnectionStatus> {
    let links = desk.connections(caller).await.unwrap();
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

pub async fn a_rejected_request_is_over_and_may_be_made_again(desk: TestStore) {
    let (alice, bob) = (desk.enter("alice").await, desk.enter("bob").await);
    let asked = ask(&desk, &alice, &bob).await;
    assert_eq!(desk.pending_connections(&bob, at(2)).await.unwrap().len(), 1);
    let rejected = desk.change_connection(&bob, &alice.name, ConnectionChange::Reject, at(2)).await.unwrap();
    assert_eq!((rejected.answer.status, rejected.answer.outgoing), (ConnectionStatus::Rejected, false));
    assert_eq!(rejected.answer.connection_id, asked.connection_id);
    assert!(desk.pending_connections(&bob, at(3)).await.unwrap().is_empty());
    assert_eq!(code(desk.approve_connection(&bob, &asked.verification_code, at(3)).await), Code::NotFound);
    let told = desk.events(alice.key, 0, 10).await.unwrap();
    assert_eq!(changes(&told), [ConnectionStatus::Rejected]);
    assert_eq!(rejected.entries.iter().map(|one| &one.entry).collect::<Vec<_>>(), told.iter().collect::<Vec<_>>());
    assert_eq!(code(desk.change_connection(&bob, &alice.name, ConnectionChange::Reject, at(4)).await), Code::NotFound);
    ask(&desk, &alice, &bob).await;
    assert_eq!(status(&desk, &alice, &bob).await, Some(ConnectionStatus::Pending));
}

pub async fn a_revoked_connection_carries_nothing_more(desk: TestStore) {
    let (alice, bob) = desk.pair().await;
    let session = desk.say(&alice, &bob, "Plan", "before").await.answer.session_id;
    assert_eq!(status(&desk, &alice, &bob).await, Some(ConnectionStatus::Active));
    let head = desk.event_head(alice.key).await.unwrap();
    desk.change_connection(&bob, &alice.name, ConnectionChange::Revoke, at(5)).await.unwrap();
    assert_eq!(changes(&desk.events(alice.key, head, 10).await.unwrap()), [ConnectionStatus::Revoked]);
    for (from, to) in [(&alice, &bob), (&bob, &alice)] {
        let again = Draft::text(to.name.clone(), "Plan", "after");
        assert_eq!(code(desk.send(from, again, at(6)).await), Code::NotConnected);
        let within = Draft { session: Some(session.clone()), ..Draft::text(to.name.clone(), "Plan", "after") };
        assert_eq!(code(desk.send(from, within, at(6)).await), Code::NotConnected);
        assert_eq!(status(&desk, from, to).await, Some(ConnectionStatus::Revoked));
    }
    assert_eq!(desk.texts(&bob, &session, 10).await, ["before"], "what was said stays readable");
    assert_eq!(code(desk.change_connection(&bob, &alice.name, ConnectionChange::Revoke, at(7)).await), Code::NotFound);
    desk.connect(&alice, &bob).await;
    desk.say(&alice, &bob, "Plan", "again").await;
}

pub async fn a_blocked_agent_is_neither_heard_nor_told_so(desk: TestStore) {
    let (alice, bob) = desk.pair().await;
    let blocked = desk.change_connection(&bob, &alice.name, ConnectionChange::Block, at(5)).await.unwrap().answer;
    assert_eq!((blocked.status, blocked.outgoing), (ConnectionStatus::Blocked, true));
    assert_eq!(code(desk.send(&alice, Draft::text(bob.name.clone(), "s", "x"), at(6)).await), Code::NotConnected);
    assert_eq!(code(desk.request_connection(&alice, Ask::new(bob.name.clone(), None), at(6)).await), Code::NotAllowed);
    assert_eq!(status(&desk, &alice, &bob).await, Some(ConnectionStatus::Revoked));
    assert_eq!(status(&desk, &bob, &alice).await, Some(ConnectionStatus::Blocked));
    // Blocking again is no error, and a stranger can be blocked before it ever asked.
    desk.change_connection(&bob, &alice.name, ConnectionChange::Block, at(7)).await.unwrap();
    let carol = desk.enter("carol").await;
    desk.change_connection(&bob, &carol.name, ConnectionChange::Block, at(7)).await.unwrap();
    assert_eq!(code(desk.request_connection(&carol, Ask::new(bob.name.clone(), None), at(8)).await), Code::NotAllowed);

    desk.change_connection(&bob, &alice.name, ConnectionChange::Unblock, at(9)).await.unwrap();
    assert_eq!(code(desk.send(&alice, Draft::text(bob.name.clone(), "s", "x"), at(9)).await), Code::NotConnected);
    assert_eq!(code(desk.change_connection(&bob, &alice.name, ConnectionChange::Unblock, at(9)).await), Code::NotFound);
    desk.connect(&alice, &bob).await;
    assert_eq!(
        code(desk.change_connection(&bob, &name("nobody"), ConnectionChange::Block, at(9)).await),
        Code::NotFound
    );
}

pub async fn requests_run_out_by_themselves_and_tell_who_asked(desk: TestStore) {
    let alice = desk.enter("alice").await;
    for n in 0..3 {
        let peer = desk.enter(&format!("peer-{n}")).await;
        let expires_at = (n < 2).then(|| at(10 + n));
        desk.request_connection(&alice, Ask { expires_at, ..Ask::new(peer.name.clone(), None) }, at(1)).await.unwrap();
    }
    assert_eq!(desk.expire_connections(at(9)).await.unwrap().answer, 0);
    assert_eq!(desk.expire_connections(at(10)).await.unwrap().answer, 1);
    let rest = desk.expire_connections(at(99)).await.unwrap();
    assert_eq!((rest.answer, rest.entries.len()), (1, 1));
    assert_eq!(desk.expire_connections(at(99)).await.unwrap().answer, 0);
    let told = desk.events(alice.key, 0, 10).await.unwrap();
    assert_eq!(changes(&told), [ConnectionStatus::Expired, ConnectionStatus::Expired]);
    let links = desk.connections(&alice).await.unwrap();
    assert_eq!(links.iter().filter(|link| link.status == ConnectionStatus::Pending).count(), 1);
    assert_eq!(links.len(), 3);
}

pub async fn after_a_revocation_was_answered_no_send_gets_through(desk: TestStore) {
    let (alice, bob) = desk.pair().await;
    let session = desk.say(&alice, &bob, "Plan", "first").await.answer.session_id;
    let storm: Vec<_> = (0..8)
        .map(|_| {
            let (desk, alice, bob) = (desk.clone(), alice.clone(), bob.clone());
            tokio::spawn(async move {
                let mut sent = 0;
                while desk.send(&alice, Draft::text(bob.name.clone(), "Plan", "x"), at(1)).await.is_ok() {
                    sent += 1;
                }
                sent
            })
        })
        .collect();
    // Let some through first.
    while desk.event_head(bob.key).await.unwrap() < 20 {
        tokio::task::yield_now().await;
    }
    desk.change_connection(&bob, &alice.name, ConnectionChange::Revoke, at(2)).await.unwrap();
    let head = desk.event_head(bob.key).await.unwrap();
    let mut sent = 1;
    for sender in storm {
        sent += sender.await.unwrap();
    }
    assert_eq!(desk.event_head(bob.key).await.unwrap(), head, "nothing came after the answer");
    assert_eq!(desk.inbox(&bob, false, at(3)).await.unwrap().unread(), sent, "what was answered is there");
    assert!(!desk.texts(&bob, &session, 50).await.is_empty());
}
