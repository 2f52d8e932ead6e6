//! Many parcels on their way at once: each receipt is true, and order is kept.

use amb_live::{
    Broker, BrokerError, LivePeers, NatsBroker, NatsOptions, OnOutage, OutboxOptions, Publication, PublishOutcome,
    inbox_subject,
};
use amb_testing::NatsServer;

use crate::world::{bodies, fresh, join, message, on_both_brokers, soon};

on_both_brokers! {
    async fn what_is_posted_ahead_arrives_in_order_and_each_receipt_is_true(world: World) {
        let process = world.process().await;
        let bob = join(&process, "bob").await;
        let sender = world.broker().await;
        let subject = inbox_subject(bob.id());
        let mut receipts = Vec::new();
        for number in 0..60 {
            receipts.push(sender.post(&subject, message("bob", &number.to_string()).into()).await);
            receipts.push(sender.post(&subject, Publication::Raw("no message".into())).await);
        }
        for pair in receipts.chunks_mut(2) {
            let [good, bad] = pair else { panic!("posted in pairs") };
            assert_eq!(soon("the receipt", good).await.unwrap(), PublishOutcome::Delivered);
            assert!(matches!(soon("the receipt", bad).await, Err(BrokerError::Refused(_))));
        }
        let expected: Vec<_> = (0..60).map(|number| number.to_string()).collect();
        assert_eq!(bodies(&bob.inbox().drain()), expected);
    }

    async fn a_receipt_says_when_nobody_listens(world: World) {
        let sender = world.broker().await;
        let receipt = sender.post(&inbox_subject(fresh()), message("bob", "hi").into()).await;
        assert!(matches!(soon("the receipt", receipt).await, Err(BrokerError::NoSubscriber)));
    }

    async fn a_receipt_that_nobody_awaits_holds_up_no_other(world: World) {
        let process = world.process().await;
        let bob = join(&process, "bob").await;
        let sender = world.broker().await;
        let subject = inbox_subject(bob.id());
        for _ in 0..10 {
            drop(sender.post(&subject, message("bob", "dropped").into()).await);
        }
        let receipt = sender.post(&subject, message("bob", "awaited").into()).await;
        assert_eq!(soon("the receipt", receipt).await.unwrap(), PublishOutcome::Delivered);
        assert_eq!(bob.inbox().len(), 11, "those whose receipt was dropped are on their way all the same");
    }
}

#[tokio::test]
async fn every_receipt_comes_when_the_server_is_killed() {
    let mut server = NatsServer::start();
    let peers = LivePeers::connect(server.options()).await.unwrap();
    let bob = join(&peers, "bob").await;
    let sender = NatsBroker::connect(server.options()).await.unwrap();
    let subject = inbox_subject(bob.id());
    let mut receipts = Vec::new();
    for number in 0..200 {
        if number == 100 {
            server.kill();
        }
        receipts.push(soon("the hand-over", sender.post(&subject, message("bob", "x").into())).await);
    }
    for receipt in receipts {
        match soon("the receipt", receipt).await {
            Ok(PublishOutcome::Delivered) | Err(BrokerError::Offline { .. } | BrokerError::Lost { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn what_is_posted_in_an_outage_waits_in_the_outbox_in_order() {
    let mut server = NatsServer::start();
    let outbox = tempfile::tempdir().unwrap();
    let on_outage = OnOutage::Queue(OutboxOptions::new(outbox.path()));
    let sender = NatsBroker::connect(NatsOptions { on_outage, ..server.options() }).await.unwrap();
    let peers = LivePeers::connect(server.options()).await.unwrap();
    let bob = join(&peers, "bob").await;
    server.kill();
    let subject = inbox_subject(bob.id());
    for body in ["1", "2", "3"] {
        let receipt = sender.post(&subject, message("bob", body).into()).await;
        assert_eq!(soon("the receipt", receipt).await.unwrap(), PublishOutcome::Queued);
    }
    server.restart();
    let mut got = Vec::new();
    soon("all of it", async {
        while got.len() < 3 {
            let batch = bob.next().await;
            got.extend(batch.iter().cloned());
            batch.confirm();
        }
    })
    .await;
    assert_eq!(bodies(&got), ["1", "2", "3"]);
}
