//! What a goal's inbox holds, and for how long a buffer waits for a goal.

use std::sync::Arc;
use std::time::Duration;

use amb_live::{
    Broker, BrokerError, INBOX_CAPACITY, InboxRouter, LocalBroker, Publication, PublishOutcome, RouterOptions,
    inbox_subject,
};
use tokio_util::sync::CancellationToken;

use crate::world::{World, bodies, fresh, join, message, name, on_both_brokers, soon, until};

fn publication(body: &str) -> Publication {
    message("bob", body).into()
}

on_both_brokers! {
    async fn a_full_inbox_keeps_the_newest_and_counts_the_rest(world: World) {
        let process = world.process().await;
        let bob = join(&process, "bob").await;
        for number in 0..INBOX_CAPACITY + 6 {
            let report = process.send(name("alice"), "bob", &number.to_string(), None).await.unwrap();
            assert_eq!(report.delivered_to, [bob.id()]);
        }
        assert_eq!((bob.inbox().len(), bob.inbox().evicted()), (INBOX_CAPACITY, 6));
        let drained = bob.inbox().drain();
        assert_eq!((&*drained[0].body, &*drained[INBOX_CAPACITY - 1].body), ("6", "69"));
    }

    async fn a_turn_that_dies_half_way_loses_no_message(world: World) {
        let process = world.process().await;
        let bob = join(&process, "bob").await;
        process.send(name("alice"), "bob", "one", None).await.unwrap();
        process.send(name("alice"), "bob", "two", None).await.unwrap();
        {
            let turn = bob.next().await;
            assert_eq!(bodies(&turn), ["one", "two"]);
            // The turn ends here without having confirmed.
        }
        let turn = soon("the batch is back", bob.next()).await;
        assert_eq!(bodies(&turn), ["one", "two"]);
        turn.confirm();
        assert!(bob.inbox().is_empty());
    }

    async fn mail_for_a_goal_about_to_start_waits_for_it(world: World) {
        let broker = world.broker().await;
        let router = InboxRouter::new(Arc::clone(&broker));
        let _task = router.spawn(CancellationToken::new());
        let goal = fresh();
        if !world.is_local() {
            // Between processes nobody would keep it unless asked to.
            assert!(matches!(broker.publish(&inbox_subject(goal), publication("lost")).await, Err(BrokerError::NoSubscriber)));
            router.expect(goal);
            router.ready(goal, Duration::from_secs(10)).await.unwrap();
        }
        assert_eq!(broker.publish(&inbox_subject(goal), publication("early")).await.unwrap(), PublishOutcome::Delivered);
        assert_eq!((router.goals(), router.waiting()), (0, 1));
        let buffer = router.register(goal);
        assert_eq!((router.goals(), router.waiting()), (1, 0));
        router.ready(goal, Duration::from_secs(10)).await.unwrap();
        broker.publish(&inbox_subject(goal), publication("late")).await.unwrap();
        assert_eq!(bodies(&buffer.drain()), ["early", "late"], "each once, in order");
    }

    async fn a_message_after_the_end_makes_no_buffer(world: World) {
        let broker = world.broker().await;
        let router = InboxRouter::new(Arc::clone(&broker));
        let _task = router.spawn(CancellationToken::new());
        let goal = fresh();
        let buffer = router.register(goal);
        router.ready(goal, Duration::from_secs(10)).await.unwrap();
        broker.publish(&inbox_subject(goal), publication("in time")).await.unwrap();
        router.forget(goal);
        soon("the end is known", async {
            while broker.publish(&inbox_subject(goal), publication("too late")).await.is_ok() {}
        })
        .await;
        assert_eq!((router.goals(), router.waiting()), (0, 0));
        assert_eq!(buffer.len(), 1, "whoever still holds the buffer has what came in time");
        let again = router.register(goal);
        assert!(again.is_empty(), "a new start begins empty");
        router.ready(goal, Duration::from_secs(10)).await.unwrap();
        broker.publish(&inbox_subject(goal), publication("hello again")).await.unwrap();
        assert_eq!(again.len(), 1);
    }

    async fn made_up_goal_ids_do_not_grow_the_memory_without_bound(world: World) {
        let broker = world.broker().await;
        let options = RouterOptions { max_waiting_goals: 10, ..RouterOptions::default() };
        let router = InboxRouter::with_options(Arc::clone(&broker), options);
        let _task = router.spawn(CancellationToken::new());
        let mut taken = 0;
        for _ in 0..100 {
            taken += usize::from(broker.publish(&inbox_subject(fresh()), publication("x")).await.is_ok());
        }
        let expected = if world.is_local() { 10 } else { 0 };
        assert_eq!((taken, router.waiting()), (expected, expected));
        let goal = fresh();
        let buffer = router.register(goal);
        router.ready(goal, Duration::from_secs(10)).await.unwrap();
        broker.publish(&inbox_subject(goal), publication("real")).await.unwrap();
        assert_eq!(bodies(&buffer.drain()), ["real"], "a real goal is served all the same");
    }
}

#[tokio::test]
async fn a_buffer_waits_for_its_goal_for_a_bounded_time() {
    let broker = LocalBroker::new();
    let options = RouterOptions { waiting_time: Duration::from_millis(20), ..RouterOptions::default() };
    let router = InboxRouter::with_options(broker.clone(), options);
    let _task = router.spawn(CancellationToken::new());
    broker.publish(&inbox_subject(fresh()), publication("x")).await.unwrap();
    until("the buffer is gone", || router.waiting() == 0).await;
}

#[tokio::test]
async fn buffers_of_goals_that_never_came_are_bounded_in_bytes_too() {
    let broker = LocalBroker::new();
    let options = RouterOptions { max_waiting_bytes: 100, ..RouterOptions::default() };
    let router = InboxRouter::with_options(broker.clone(), options);
    let goal = fresh();
    broker.publish(&inbox_subject(goal), publication(&"x".repeat(90))).await.unwrap();
    let refused = broker.publish(&inbox_subject(goal), publication(&"x".repeat(20))).await.unwrap_err();
    assert!(matches!(refused, BrokerError::Refused(_)), "{refused}");
    assert_eq!(router.counts().refused, 1);
    router.register(goal);
    broker.publish(&inbox_subject(goal), publication(&"x".repeat(20))).await.unwrap();
}

#[tokio::test]
async fn a_router_that_was_dropped_refuses_messages() {
    let world = World::local();
    let broker = world.broker().await;
    let router = InboxRouter::new(Arc::clone(&broker));
    let goal = fresh();
    let buffer = router.register(goal);
    drop(router);
    assert!(broker.publish(&inbox_subject(goal), publication("x")).await.is_err());
    assert!(buffer.is_empty());
}
