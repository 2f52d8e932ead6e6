//! Several turns at once, those of one conversation one after the other.

use std::sync::Arc;
use std::time::Duration;

use amb_bridge::openclaw::GatewayRoute;
use amb_bridge::{BridgeOptions, Conversations, FailureKind, Runtime, Step, Turn, TurnError, TurnOutcome};
use amb_core::Backoff;
use amb_core::mailbox::Mailbox;
use async_trait::async_trait;
use tokio::sync::{Semaphore, mpsc};

use crate::gateway::Fault;
use crate::world::{Mail, ROUTES, World, deadly, quick, until};

/// A model that reports which mail it was given, and answers when the test lets it.
struct Model {
    begun: mpsc::Sender<String>,
    may_end: Semaphore,
}

#[async_trait]
impl Runtime for Model {
    fn describe(&self) -> String {
        "model".into()
    }

    async fn turn(&self, turn: &Turn) -> Result<TurnOutcome, TurnError> {
        let text = turn.mail.text();
        let _ = self.begun.send(text.clone()).await;
        if text.contains("poison") {
            return Err(TurnError::new(FailureKind::Failed, "no model"));
        }
        self.may_end.acquire().await.unwrap().forget();
        Ok(TurnOutcome::Reply(format!("answer to {}", turn.mail.id)))
    }
}

fn model() -> (Arc<Model>, mpsc::Receiver<String>) {
    let (begun, begins) = mpsc::channel(64);
    (Arc::new(Model { begun, may_end: Semaphore::new(0) }), begins)
}

fn several() -> BridgeOptions {
    BridgeOptions {
        concurrency: 4,
        conversations: Conversations::Session,
        turn_timeout: Duration::from_secs(20),
        ..quick()
    }
}

async fn next(begins: &mut mpsc::Receiver<String>) -> String {
    tokio::time::timeout(Duration::from_secs(20), begins.recv()).await.expect("no turn begins").unwrap()
}

#[tokio::test]
async fn turns_of_several_sessions_begin_before_any_of_them_ends_up_to_the_limit() {
    let world = World::new().await;
    let (model, mut begins) = model();
    let bridge = world.start_with(model.clone(), several());
    let mut mail = Vec::new();
    for _ in 0..5 {
        mail.push(world.mail().await);
    }
    let mut begun = Vec::new();
    for _ in 0..4 {
        begun.push(next(&mut begins).await);
    }
    begun.sort();
    assert_eq!(begun, ["question 0", "question 1", "question 2", "question 3"]);
    let status = world.status_says("four turns", |status| status.under_way.len() == 4).await;
    assert_eq!(status.under_way.len(), 4);
    world.status_says("count of what waits", |status| status.waiting == 1).await;
    assert!(begins.try_recv().is_err(), "the fifth waits");
    model.may_end.add_permits(1);
    assert_eq!(next(&mut begins).await, "question 4");
    model.may_end.add_permits(4);
    for mail in &mail {
        world.is_answered(mail).await;
    }
    bridge.stop().await;
}

#[tokio::test]
async fn turns_of_one_session_follow_each_other_while_others_go_on() {
    let world = World::new().await;
    let (model, mut begins) = model();
    let first = world.mail().await;
    for text in ["second", "third"] {
        world.mail_in(&first.session, text).await;
    }
    world.mail().await;
    let bridge = world.start_with(model.clone(), several());
    let mut begun = [next(&mut begins).await, next(&mut begins).await];
    begun.sort();
    assert_eq!(begun, ["question 0", "question 1"]);
    model.may_end.add_permits(2);
    assert_eq!(next(&mut begins).await, "second");
    model.may_end.add_permits(1);
    assert_eq!(next(&mut begins).await, "third");
    model.may_end.add_permits(1);
    until("three answers", async || world.replies(&first).await.len() == 3).await;
    bridge.stop().await;
}

#[tokio::test]
async fn a_mail_that_keeps_failing_delays_no_other() {
    let world = World::new().await;
    let (model, _begins) = model();
    model.may_end.add_permits(10);
    let mut options = several();
    options.backoff = Backoff::new(Duration::from_secs(3_600), Duration::from_secs(3_600));
    options.hold_session = Duration::from_millis(10);
    let poisoned = world.mail().await;
    let bridge = world.start_with(model, options);
    world.is_answered(&poisoned).await;
    world.mail_in(&poisoned.session, "poison").await;
    world.status_says("failure", |status| status.last_error.is_some()).await;
    // Of another session, and of the same one.
    let innocent = [world.mail().await, world.mail_in(&poisoned.session, "innocent").await];
    world.is_answered(&innocent[0]).await;
    until("an answer", async || world.replies(&innocent[1]).await.len() == 2).await;
    bridge.stop().await;
}

#[tokio::test]
async fn mail_of_another_peer_does_not_wait_behind_a_flood_of_one() {
    let world = World::new().await;
    let carol = world.office.mailbox("carol".parse().unwrap());
    let (model, mut begins) = model();
    for _ in 0..100 {
        world.mail().await;
    }
    let innocent = amb_core::Draft::text("bob".parse().unwrap(), "mine", "innocent");
    carol.send(innocent).await.unwrap();
    let options = BridgeOptions { conversations: Conversations::Peer("agent:main:mailbox:".into()), ..several() };
    let bridge = world.start_with(model.clone(), options);
    let mut begun = [next(&mut begins).await, next(&mut begins).await];
    begun.sort();
    assert_eq!(begun, ["innocent", "question 0"]);
    // The rest is there, and in order.
    model.may_end.add_permits(3);
    assert_eq!([next(&mut begins).await, next(&mut begins).await], ["question 1", "question 2"]);
    bridge.stop().await;
    let free = amb_core::mailbox::ClaimRequest { limit: 200, ..Default::default() };
    assert!(world.bob.claim(free).await.unwrap().len() >= 97, "an ended bridge holds nothing");
}

#[tokio::test]
async fn the_mail_of_a_session_keeps_its_order_when_one_fails_or_is_urgent() {
    let world = World::new().await;
    let (model, mut begins) = model();
    model.may_end.add_permits(10);
    let first = world.mail().await;
    world.mail_in(&first.session, "second").await;
    let urgent = amb_core::Draft {
        session: Some(first.session.clone()),
        priority: amb_core::Priority::Urgent,
        ..amb_core::Draft::text("bob".parse().unwrap(), "", "third, urgent")
    };
    world.alice.send(urgent).await.unwrap();
    world.mail_in(&first.session, "poison").await;
    world.mail_in(&first.session, "behind it").await;
    let bridge = world.start_with(model, several());
    let mut begun = Vec::new();
    while begun.last().is_none_or(|text| text != "behind it") {
        begun.push(next(&mut begins).await);
    }
    let expected =
        ["question 0", "second", "third, urgent", "poison", "poison", "poison", "poison", "poison", "behind it"];
    assert_eq!(begun, expected, "tried five times and given up before the next has its turn");
    bridge.stop().await;
}

#[tokio::test]
async fn mail_that_waits_while_the_runtime_is_down_keeps_its_order() {
    let mut world = World::new().await;
    world.gateway.down().await;
    let first = world.mail().await;
    for text in ["second", "third"] {
        world.mail_in(&first.session, text).await;
    }
    let bridge = world.start(GatewayRoute::Chat, BridgeOptions { turn_timeout: Duration::from_secs(2), ..several() });
    world.status_says("outage", |status| status.waiting == 3).await;
    world.gateway.fault([Fault::Status(503), Fault::Status(429)]);
    world.gateway.up().await;
    until("three answers", async || world.replies(&first).await.len() == 3).await;
    let asked = |prompt: &String| ["question 0", "second", "third"].into_iter().find(|text| prompt.contains(text));
    let begun: Vec<_> = world.gateway.lock().prompts.iter().filter_map(asked).collect();
    assert_eq!(begun, ["question 0", "second", "third"]);
    bridge.stop().await;
}

#[tokio::test]
async fn a_bridge_killed_with_several_turns_under_way_sends_one_reply_for_each_mail() {
    for route in ROUTES {
        for step in Step::ALL {
            let world = World::new().await;
            let mut mail: Vec<Mail> = Vec::new();
            for _ in 0..6 {
                mail.push(world.mail().await);
            }
            let concurrent = |options: BridgeOptions| BridgeOptions { checkpoint: options.checkpoint, ..several() };
            world.start(route, concurrent(deadly(step))).dies().await;
            let bridge = world.start(route, several());
            for mail in &mail {
                world.is_answered(mail).await;
            }
            until("end", async || world.status().is_some_and(|s| s.under_way.is_empty() && s.waiting == 0)).await;
            for mail in &mail {
                assert_eq!(world.replies(mail).await, [format!("answer to {}", mail.id)], "{route} killed at {step:?}");
                assert_eq!(world.gateway.runs_of(mail.id.as_str()), 1, "{route} killed at {step:?}: the model's runs");
            }
            bridge.stop().await;
        }
    }
}

#[tokio::test]
async fn a_shutdown_releases_all_running_and_waiting_mail() {
    let world = World::new().await;
    let (model, mut begins) = model();
    let first = world.mail().await;
    world.mail_in(&first.session, "second").await;
    world.mail().await;
    let bridge = world.start_with(model, several());
    next(&mut begins).await;
    next(&mut begins).await;
    bridge.stop().await;
    let free = amb_core::mailbox::ClaimRequest { limit: 10, ..Default::default() };
    assert_eq!(world.bob.claim(free).await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_turn_that_hangs_delays_no_other() {
    let world = World::new().await;
    world.gateway.fault([Fault::Hangs]);
    let slow = world.mail().await;
    let bridge = world.start(GatewayRoute::WebSocket, several());
    until("a turn", async || world.gateway.lock().faults.is_empty()).await;
    let quick = world.mail().await;
    world.is_answered(&quick).await;
    assert!(world.replies(&slow).await.is_empty());
    bridge.stop().await;
}
