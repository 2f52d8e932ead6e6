//! NATS goes away and comes back.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use amb_live::{
    Broker, BrokerError, Goal, LivePeers, NatsBroker, NatsOptions, OnOutage, OutboxOptions, PublishOutcome,
    inbox_subject,
};

use crate::world::{bodies, fresh, join, message, name, sees, soon, until};
use amb_testing::NatsServer;

async fn connect(options: NatsOptions) -> (Arc<NatsBroker>, LivePeers) {
    let broker = NatsBroker::connect(options).await.unwrap();
    let peers = LivePeers::over(Arc::clone(&broker) as Arc<dyn Broker>);
    (broker, peers)
}

fn queueing(server: &NatsServer, dir: &Path) -> NatsOptions {
    NatsOptions { on_outage: OnOutage::Queue(OutboxOptions::new(dir)), ..server.options() }
}

/// Collects until `count` messages have come, in order.
async fn collect(goal: &Goal, count: usize) -> Vec<String> {
    let mut all = Vec::new();
    soon("all messages", async {
        while all.len() < count {
            let batch = goal.next().await;
            all.extend(batch.iter().map(|message| message.body.clone()));
            batch.confirm();
        }
    })
    .await;
    all
}

#[tokio::test]
async fn during_an_outage_a_send_is_refused_with_the_reason_and_afterwards_it_works_again() {
    let mut server = NatsServer::start();
    let ((broker, here), (_, there)) = (connect(server.options()).await, connect(server.options()).await);
    let (alice, bob) = (join(&here, "alice").await, join(&there, "bob").await);
    sees(&here, &bob).await;
    here.send(&alice, "bob", "before", None).await.unwrap();

    server.kill();
    until("the loss is noticed", || !broker.is_connected()).await;
    let report = here.send(&alice, "bob", "during", None).await.unwrap();
    assert!(report.delivered_to.is_empty() && report.published_to.is_empty());
    let [reason] = report.unreachable_reasons.as_slice() else { panic!("{report:?}") };
    assert!(reason.contains("not connected to nats://") && reason.contains("nothing was sent"), "{reason}");

    server.restart();
    // Connection, subscriptions, presence and its bucket are restored without a call.
    soon("delivered again", async {
        while here.send(&alice, "bob", "after", None).await.unwrap().delivered_to.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert_eq!(bodies(&bob.inbox().drain()), ["before", "after"], "what was refused did not arrive later");
    let (_, late) = connect(server.options()).await;
    soon("a newcomer sees both", async {
        while late.peers().len() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_goal_that_joins_during_an_outage_is_told_so_and_can_join_after_it() {
    let mut server = NatsServer::start();
    let (broker, peers) = connect(server.options()).await;
    server.kill();
    until("the loss is noticed", || !broker.is_connected()).await;
    let id = fresh();
    let buffer = peers.router().register(id);
    let error = peers.router().ready(id, Duration::from_millis(200)).await.unwrap_err().to_string();
    assert!(error.contains("not connected"), "{error}");
    server.restart();
    peers.router().ready(id, Duration::from_secs(30)).await.unwrap();
    broker.publish(&inbox_subject(id), message("bob", "hello").into()).await.unwrap();
    assert_eq!(buffer.len(), 1);
}

#[tokio::test]
async fn queued_messages_arrive_in_order_and_once_after_the_outage() {
    let mut server = NatsServer::start();
    let dir = tempfile::tempdir().unwrap();
    let (_, there) = connect(server.options()).await;
    let (broker, here) = connect(queueing(&server, dir.path())).await;
    let bob = join(&there, "bob").await;
    sees(&here, &bob).await;
    for number in 0..3 {
        let report = here.send(name("alice"), "bob", &number.to_string(), None).await.unwrap();
        assert_eq!(report.delivered_to, [bob.id()]);
    }
    server.kill();
    for number in 3..23 {
        let report = here.send(name("alice"), "bob", &number.to_string(), None).await.unwrap();
        assert_eq!(report.queued_for, [bob.id()], "{report:?}");
    }
    assert_eq!(broker.outbox().unwrap().unwrap().queued, 20);
    server.restart();
    let expected: Vec<_> = (0..23).map(|number| number.to_string()).collect();
    assert_eq!(collect(&bob, 23).await, expected);
    until("the outbox is empty", || broker.outbox().unwrap().unwrap().queued == 0).await;
    assert!(bob.inbox().is_empty(), "nothing came twice");
}

#[tokio::test]
async fn what_was_queued_survives_the_end_of_the_sender() {
    let mut server = NatsServer::start();
    let dir = tempfile::tempdir().unwrap();
    let (_, there) = connect(server.options()).await;
    let bob = join(&there, "bob").await;
    {
        let (broker, here) = connect(queueing(&server, dir.path())).await;
        sees(&here, &bob).await;
        server.kill();
        until("the loss is noticed", || !broker.is_connected()).await;
        for body in ["one", "two"] {
            let sent = broker.publish(&inbox_subject(bob.id()), message("bob", body).into()).await.unwrap();
            assert_eq!(sent, PublishOutcome::Queued);
        }
    }
    server.restart();
    let reconnected = soon("the outbox is free", async {
        loop {
            // The first process's tasks hold the lock until they have ended.
            match NatsBroker::connect(queueing(&server, dir.path())).await {
                Ok(broker) => break broker,
                Err(error) => {
                    println!("not yet: {error}");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    })
    .await;
    assert_eq!(collect(&bob, 2).await, ["one", "two"]);
    until("the outbox is empty", || reconnected.outbox().unwrap().unwrap().queued == 0).await;
}

#[tokio::test]
async fn a_full_outbox_refuses() {
    let mut server = NatsServer::start();
    let dir = tempfile::tempdir().unwrap();
    let small = OutboxOptions { max_messages: 1, ..OutboxOptions::new(dir.path()) };
    let (broker, _) = connect(NatsOptions { on_outage: OnOutage::Queue(small), ..server.options() }).await;
    server.kill();
    until("the loss is noticed", || !broker.is_connected()).await;
    let subject = inbox_subject(fresh());
    assert_eq!(broker.publish(&subject, message("bob", "1").into()).await.unwrap(), PublishOutcome::Queued);
    let error = broker.publish(&subject, message("bob", "2").into()).await.unwrap_err();
    assert!(matches!(error, BrokerError::OutboxFull(_)), "{error}");
}

#[tokio::test]
async fn a_queued_message_whose_goal_never_comes_back_becomes_a_dead_letter() {
    let mut server = NatsServer::start();
    let dir = tempfile::tempdir().unwrap();
    let impatient = OutboxOptions { max_age: Duration::ZERO, ..OutboxOptions::new(dir.path()) };
    let (broker, _) = connect(NatsOptions { on_outage: OnOutage::Queue(impatient), ..server.options() }).await;
    server.kill();
    until("the loss is noticed", || !broker.is_connected()).await;
    broker.publish(&inbox_subject(fresh()), message("bob", "hi").into()).await.unwrap();
    server.restart();
    until("it is dead", || {
        let counts = broker.outbox().unwrap().unwrap();
        (counts.queued, counts.dead) == (0, 1)
    })
    .await;
}

#[tokio::test]
async fn a_server_killed_in_the_middle_of_traffic_loses_nothing_that_was_said_to_be_delivered() {
    let mut server = NatsServer::start();
    let dir = tempfile::tempdir().unwrap();
    let (_, there) = connect(server.options()).await;
    let (broker, here) = connect(queueing(&server, dir.path())).await;
    let bob = join(&there, "bob").await;
    sees(&here, &bob).await;
    let sender = tokio::spawn(async move {
        let mut taken = Vec::new();
        for number in 0..60 {
            let report = here.send(name("alice"), "bob", &number.to_string(), None).await.unwrap();
            if !report.delivered_to.is_empty() || !report.queued_for.is_empty() {
                taken.push(number.to_string());
            } else {
                panic!("{report:?}");
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        taken
    });
    let mut got = Vec::new();
    soon("all of it", async {
        for round in 0..3 {
            while got.len() < 15 * (round + 1) {
                let batch = bob.next().await;
                got.extend(batch.iter().map(|message| message.body.clone()));
                batch.confirm();
            }
            server.restart();
        }
        while got.len() < 60 {
            let batch = bob.next().await;
            got.extend(batch.iter().map(|message| message.body.clone()));
            batch.confirm();
        }
    })
    .await;
    assert_eq!(got, sender.await.unwrap(), "each once, in order");
    until("the outbox is empty", || broker.outbox().unwrap().unwrap().queued == 0).await;
    assert!(bob.inbox().is_empty());
}

#[tokio::test]
async fn an_unreachable_address_fails_at_once_and_is_named() {
    let mut server = NatsServer::start();
    let url = server.url();
    server.kill();
    let error = NatsBroker::connect(NatsOptions::new(&url)).await.err().expect("nobody is there").to_string();
    assert!(error.contains(&url), "{error}");
    assert!(NatsBroker::connect(NatsOptions::new("")).await.is_err());
}
