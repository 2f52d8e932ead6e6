//! A publication goes where its subject says, and a subscription that fails is made again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use amb_core::GoalId;
use amb_live::broker::{LiveGoal, MessageHandler, Roster, Subscription};
use amb_live::{
    Broker, BrokerError, InboxRouter, MAX_BODY_BYTES, Publication, PublishOutcome, PublishReceipt, RouterCounts,
    RouterOptions, inbox_subject,
};
use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::world::{bodies, fresh, join, message, name, on_both_brokers, sees, soon};

fn raw(text: &str) -> Publication {
    Publication::Raw(text.to_owned().into())
}

on_both_brokers! {
    async fn the_subject_decides_and_the_json_does_not(world: World) {
        let process = world.process().await;
        let (bob, carol) = (join(&process, "bob").await, join(&process, "carol").await);
        let broker = process.broker();
        // Addressed to carol in the JSON, with carol's goal in every field that could be read as a destination.
        let mut liar = serde_json::to_value(message("carol", "for whom?")).unwrap();
        for field in ["goal_id", "to_goal_id", "topic", "subject"] {
            liar[field] = serde_json::json!(inbox_subject(carol.id()));
        }
        let sent = broker.publish(&inbox_subject(bob.id()), raw(&liar.to_string())).await.unwrap();
        assert_eq!(sent, PublishOutcome::Delivered);
        assert_eq!((bob.inbox().len(), carol.inbox().len()), (1, 0));
    }

    async fn garbage_is_dropped_and_the_next_message_arrives(world: World) {
        let process = world.process().await;
        let bob = join(&process, "bob").await;
        let broker = process.broker();
        let subject = inbox_subject(bob.id());
        let oversized = serde_json::to_string(&message("bob", &"x".repeat(MAX_BODY_BYTES + 1))).unwrap();
        let blank = serde_json::to_string(&message("bob", " ")).unwrap();
        let garbage = ["{", "null", "[]", "\"hi\"", "{\"from_agent_id\":\"a\"}", "\u{0}\u{1}", &oversized, &blank];
        for garbage in garbage {
            let refused = broker.publish(&subject, raw(garbage)).await.unwrap_err();
            assert!(matches!(refused, BrokerError::Refused(_)), "{garbage}: {refused}");
        }
        assert_eq!(process.router().counts(), RouterCounts { bad_payloads: 8, ..RouterCounts::default() });
        process.send(name("alice"), "bob", "hi", None).await.unwrap();
        assert_eq!(bodies(&bob.inbox().drain()), ["hi"]);
    }

    async fn a_subject_that_is_no_goals_inbox_reaches_nobody(world: World) {
        let process = world.process().await;
        let bob = join(&process, "bob").await;
        for subject in [
            "agent.inbox".to_owned(),
            "agent.inbox.not-a-goal".to_owned(),
            format!("agent.inbox.{}.more", bob.id()),
            format!("agent.outbox.{}", bob.id()),
            "elsewhere".to_owned(),
        ] {
            let sent = process.broker().publish(&subject, message("bob", "hi").into()).await;
            assert!(sent.is_err(), "{subject}: {sent:?}");
        }
        assert!(bob.inbox().is_empty());
        assert_eq!(process.router().waiting(), 0);
        let counted = if world.is_local() { 5 } else { 0 };
        assert_eq!(process.router().counts().bad_subjects, counted, "over NATS it does not even come here");
    }

    async fn each_process_sees_the_mail_of_its_own_goals_only(world: World) {
        let (here, there) = (world.process().await, world.process().await);
        let (bob, carol) = (join(&here, "bob").await, join(&there, "carol").await);
        sees(&there, &bob).await;
        for _ in 0..10 {
            assert_eq!(there.send(&carol, "bob", "hi", None).await.unwrap().delivered_to, [bob.id()]);
        }
        assert_eq!((bob.inbox().len(), carol.inbox().len()), (10, 0));
        assert_eq!((there.router().goals(), there.router().waiting()), (1, 0));
        assert_eq!(there.router().counts(), RouterCounts::default());
    }

    async fn a_subscribe_that_fails_is_tried_again(world: World) {
        let flaky = Arc::new(Flaky { broker: world.broker().await, failures_left: AtomicUsize::new(3) });
        let options = RouterOptions { backoff: Duration::from_millis(1), ..RouterOptions::default() };
        let router = InboxRouter::with_options(Arc::clone(&flaky) as Arc<dyn Broker>, options);
        let _task = router.spawn(CancellationToken::new());
        let goal = fresh();
        let buffer = router.register(goal);
        router.ready(goal, Duration::from_secs(20)).await.unwrap();
        assert_eq!(flaky.failures_left.load(Ordering::SeqCst), 0);
        flaky.publish(&inbox_subject(goal), message("bob", "at last").into()).await.unwrap();
        assert_eq!(bodies(&buffer.drain()), ["at last"], "once: earlier tries left nothing behind");
    }

    async fn a_subscribe_that_keeps_failing_says_why(world: World) {
        let flaky = Arc::new(Flaky { broker: world.broker().await, failures_left: AtomicUsize::new(usize::MAX) });
        let options = RouterOptions { backoff: Duration::from_millis(1), ..RouterOptions::default() };
        let router = InboxRouter::with_options(flaky, options);
        let _task = router.spawn(CancellationToken::new());
        let goal = fresh();
        router.register(goal);
        let error = router.ready(goal, Duration::from_millis(200)).await.unwrap_err().to_string();
        assert!(error.contains("cannot subscribe") && error.contains("not today"), "{error}");
    }

    async fn a_cancelled_router_takes_its_subscriptions_down(world: World) {
        let broker = world.broker().await;
        let router = InboxRouter::new(Arc::clone(&broker));
        let cancel = CancellationToken::new();
        let task = router.spawn(cancel.clone());
        let goal = fresh();
        let _buffer = router.register(goal);
        router.ready(goal, Duration::from_secs(10)).await.unwrap();
        cancel.cancel();
        soon("the task ends", task).await.unwrap();
        soon("nobody listens", async {
            while broker.publish(&inbox_subject(goal), message("bob", "x").into()).await.is_ok() {}
        })
        .await;
    }
}

/// A broker whose first subscribes fail.
struct Flaky {
    broker: Arc<dyn Broker>,
    failures_left: AtomicUsize,
}

#[async_trait]
impl Broker for Flaky {
    fn describe(&self) -> String {
        self.broker.describe()
    }

    fn publish<'a>(&'a self, subject: &'a str, publication: Publication) -> PublishReceipt<'a> {
        self.broker.publish(subject, publication)
    }

    async fn subscribe(&self, subject: &str, inlet: Arc<dyn MessageHandler>) -> Result<Subscription, BrokerError> {
        let left = self.failures_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match left {
            Ok(_) => Err(BrokerError::Rejected("not today".into())),
            Err(_) => self.broker.subscribe(subject, inlet).await,
        }
    }

    async fn announce(&self, goal: LiveGoal) -> Result<(), BrokerError> {
        self.broker.announce(goal).await
    }

    async fn withdraw(&self, goal: GoalId) -> Result<(), BrokerError> {
        self.broker.withdraw(goal).await
    }

    fn withdraw_soon(&self, goal: GoalId) {
        self.broker.withdraw_soon(goal);
    }

    fn roster(&self) -> &Roster {
        self.broker.roster()
    }

    fn expiry(&self) -> Option<Duration> {
        self.broker.expiry()
    }
}
