//! Broadcasts between the processes of an office.

use amb_live::{Broadcast, BrokerError, NatsBroadcast};
use amb_testing::NatsServer;
use tokio::sync::mpsc::Receiver;

use crate::world::{soon, until};

async fn open(server: &NatsServer) -> (NatsBroadcast, Receiver<Broadcast>) {
    let (broadcast, mut broadcasts) = NatsBroadcast::open(&server.options(), "amb.hints.test").await.unwrap();
    assert_eq!(heard(&mut broadcasts).await, Broadcast::Missed, "whatever was posted before");
    assert!(broadcast.is_subscribed());
    (broadcast, broadcasts)
}

async fn heard(broadcasts: &mut Receiver<Broadcast>) -> Broadcast {
    soon("a notice", broadcasts.recv()).await.unwrap()
}

fn note(text: &'static str) -> Broadcast {
    Broadcast::Message(text.into())
}

#[tokio::test]
async fn a_note_reaches_every_other_process_and_not_its_own() {
    let server = NatsServer::start();
    let (one, mut to_one) = open(&server).await;
    let (two, mut to_two) = open(&server).await;
    let (_three, mut to_three) = open(&server).await;
    one.publish("from one".into()).await.unwrap();
    assert_eq!(heard(&mut to_two).await, note("from one"));
    assert_eq!(heard(&mut to_three).await, note("from one"));
    two.publish("from two".into()).await.unwrap();
    assert_eq!(heard(&mut to_one).await, note("from two"), "its own note did not come before");
}

#[tokio::test]
async fn after_an_outage_listeners_learn_that_they_may_have_missed_something() {
    let mut server = NatsServer::start();
    let (one, mut to_one) = open(&server).await;
    let (two, mut to_two) = open(&server).await;
    server.kill();
    until("the loss is noticed", || !one.is_subscribed() && !two.is_subscribed()).await;
    assert!(matches!(two.publish("lost".into()).await, Err(BrokerError::Offline { .. })));
    server.restart();
    assert_eq!(heard(&mut to_one).await, Broadcast::Missed);
    assert_eq!(heard(&mut to_two).await, Broadcast::Missed);
    assert!(one.is_subscribed() && two.is_subscribed());
    two.publish("again".into()).await.unwrap();
    assert_eq!(heard(&mut to_one).await, note("again"));
}

#[tokio::test]
async fn a_reader_that_is_too_slow_is_told_that_it_missed_something() {
    let server = NatsServer::start();
    let (one, _to_one) = open(&server).await;
    let (_two, mut to_two) = open(&server).await;
    for _ in 0..20_000 {
        one.publish("x".into()).await.unwrap();
    }
    soon("the notice", async { while to_two.recv().await.unwrap() != Broadcast::Missed {} }).await;
}

#[tokio::test]
async fn a_process_without_permission_is_not_subscribed() {
    let users = r#"
        authorization { users: [{ user: "mute", password: "p", permissions: {
            publish: "amb.>", subscribe: { allow: ["_INBOX.>"] } } }] }
    "#;
    let server = NatsServer::with_config(users);
    let auth = amb_live::NatsAuth::UserPassword { user: "mute".into(), password: "p".into() };
    let options = amb_live::NatsOptions { auth, ..server.options() };
    let (broadcast, mut broadcasts) = NatsBroadcast::open(&options, "amb.hints.test").await.unwrap();
    heard(&mut broadcasts).await;
    until("it knows that it is deaf", || !broadcast.is_subscribed()).await;
}
