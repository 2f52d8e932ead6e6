//! Faults of the gateway during a turn, on every route.

use std::sync::Arc;
use std::time::Duration;

use amb_bridge::openclaw::GatewayRoute;
use amb_bridge::{BridgeOptions, FailureKind, Ledger, Runtime};
use amb_core::Backoff;
use amb_core::mailbox::Mailbox;

use crate::gateway::Fault;
use crate::world::{Mail, ROUTES, Running, World, quick, until};

/// One message with these faults before it goes well; answers how often the model ran.
async fn runs_with(route: GatewayRoute, faults: &[Fault]) -> usize {
    let world = World::new().await;
    world.gateway.fault(faults.iter().copied());
    let mail = world.mail().await;
    let bridge = world.start(route, quick());
    world.has_one_answer(&mail, &format!("{route} with {faults:?}")).await;
    bridge.stop().await;
    world.gateway.runs_of(mail.id.as_str())
}

/// A gateway that ran a message's turn, dropped the connection before its answer and was killed; the message and its
/// bridge.
async fn killed_after_a_run(world: &mut World, runtime: Arc<dyn Runtime>, turn_timeout: Duration) -> (Mail, Running) {
    world.gateway.fault([Fault::DropAfter]);
    let mail = world.mail().await;
    let backoff = Backoff::new(Duration::from_millis(40), Duration::from_millis(40));
    let bridge = world.start_with(runtime, BridgeOptions { turn_timeout, backoff, ..quick() });
    until("a turn", async || world.gateway.runs_of(mail.id.as_str()) == 1).await;
    world.gateway.down().await;
    (mail, bridge)
}

#[tokio::test]
async fn a_connection_that_drops_before_the_model_ran_costs_nothing() {
    for route in ROUTES {
        assert_eq!(runs_with(route, &[Fault::DropBefore, Fault::DropBefore]).await, 1, "{route}");
    }
}

#[tokio::test]
async fn a_connection_that_drops_after_the_model_ran_makes_no_second_reply() {
    for route in ROUTES {
        assert_eq!(runs_with(route, &[Fault::DropAfter]).await, 1, "{route}");
    }
}

#[tokio::test]
async fn a_model_that_fails_is_asked_again() {
    for route in ROUTES {
        assert_eq!(runs_with(route, &[Fault::Fails, Fault::Fails]).await, 3, "{route}");
    }
}

#[tokio::test]
async fn a_gateway_in_trouble_is_asked_again() {
    for route in [GatewayRoute::Chat, GatewayRoute::SessionsSend] {
        assert_eq!(runs_with(route, &[Fault::Status(502), Fault::Status(503), Fault::Status(500)]).await, 1);
    }
}

#[tokio::test]
async fn a_gateway_that_hangs_is_asked_again() {
    for route in ROUTES {
        assert_eq!(runs_with(route, &[Fault::Hangs]).await, 1, "{route}");
    }
}

#[tokio::test]
async fn an_answer_that_comes_after_the_wait_is_found_in_the_history() {
    for late in [Fault::Late, Fault::Says("timeout"), Fault::Says("queued"), Fault::FailsSent] {
        assert_eq!(runs_with(GatewayRoute::SessionsSend, &[late]).await, 1, "{late:?}");
    }
}

#[tokio::test]
async fn an_unknown_status_is_a_failed_turn_and_not_an_answer() {
    // HTTP says 200 all the same. What the turn has come to is found in the history by the next try.
    assert_eq!(runs_with(GatewayRoute::SessionsSend, &[Fault::Says("mislaid")]).await, 1);
}

#[tokio::test]
async fn one_mail_by_sessions_send_is_one_turn_from_a_caller_that_is_not_the_agent_itself() {
    // The stand-in refuses a caller that is the target, or none, and chatters where no channel is named.
    assert_eq!(runs_with(GatewayRoute::SessionsSend, &[]).await, 1);
}

#[tokio::test]
async fn an_agent_that_says_nothing_ends_the_mail_without_an_answer() {
    for route in ROUTES {
        let world = World::new().await;
        world.gateway.fault([Fault::Silent]);
        let mail = world.mail().await;
        let bridge = world.start(route, quick());
        world.status_says("mail without an answer", |status| status.unanswered == 1).await;
        world.settle().await;
        assert!(world.replies(&mail).await.is_empty(), "{route}");
        assert_eq!(world.gateway.runs_of(mail.id.as_str()), 1, "{route}");
        bridge.stop().await;
    }
}

#[tokio::test]
async fn a_long_answer_arrives_whole() {
    for route in ROUTES {
        let world = World::new().await;
        world.gateway.fault([Fault::Long]);
        let mail = world.mail().await;
        let bridge = world.start(route, quick());
        world.is_answered(&mail).await;
        assert!(world.replies(&mail).await[0].ends_with(&"x".repeat(6_000)), "{route}");
        bridge.stop().await;
    }
}

#[tokio::test]
async fn an_answer_that_the_end_of_the_run_does_not_mention_is_found_in_the_history() {
    let world = World::new().await;
    world.gateway.lock().no_text = true;
    let mail = world.mail().await;
    let bridge = world.start(GatewayRoute::WebSocket, quick());
    world.is_answered(&mail).await;
    assert_eq!(world.replies(&mail).await.len(), 1);
    assert_eq!(world.gateway.runs_of(mail.id.as_str()), 1);
    bridge.stop().await;
}

#[tokio::test]
async fn a_mail_that_always_fails_is_given_up_listed_and_can_be_revived() {
    for route in ROUTES {
        let world = World::new().await;
        world.gateway.fault([Fault::Fails; 5]);
        let mail = world.mail().await;
        let bridge = world.start(route, quick());
        let status = world.status_says("mail given up", |status| status.given_up == 1).await;
        assert!(status.last_error.is_some());
        world.settle().await;
        let told = world.replies(&mail).await;
        assert!(told.len() == 1 && told[0].contains("could not work on this"), "its sender is told: {told:?}");

        let ledger = Ledger::open_read_only(&world.ledger());
        let dead = ledger.dead_letters().unwrap();
        assert_eq!((dead.len(), &dead[0].message_id, dead[0].failures), (1, &mail.id, 5), "{route}");
        assert_eq!(dead[0].trouble, FailureKind::Failed);

        assert!(ledger.revive(&mail.id).unwrap());
        let answer = format!("answer to {}", mail.id);
        until("an answer", async || world.replies(&mail).await.contains(&answer)).await;
        world.settle().await;
        assert_eq!(world.replies(&mail).await, [told[0].clone(), answer], "{route}, revived");
        assert!(ledger.dead_letters().unwrap().is_empty());
        assert!(!ledger.revive(&mail.id).unwrap(), "it is not on the list any more");
        bridge.stop().await;
    }
}

#[tokio::test]
async fn a_mail_that_the_gateway_refuses_is_given_up_at_once() {
    let world = World::new().await;
    world.gateway.fault([Fault::Status(413)]);
    let mail = world.mail().await;
    let bridge = world.start(GatewayRoute::Chat, quick());
    world.status_says("mail given up", |status| status.given_up == 1).await;
    let dead = Ledger::open_read_only(&world.ledger()).dead_letters().unwrap();
    assert_eq!((dead[0].failures, dead[0].trouble), (1, FailureKind::Refused));
    assert_eq!(world.replies(&mail).await.len(), 1, "its sender is told");
    bridge.stop().await;
}

#[tokio::test]
async fn one_mail_that_fails_does_not_hold_up_the_others() {
    let world = World::new().await;
    world.gateway.fault([Fault::Fails]);
    let (first, second) = (world.mail().await, world.mail().await);
    let mut options = quick();
    options.backoff = Backoff::new(Duration::from_secs(3_600), Duration::from_secs(3_600));
    let bridge = world.start(GatewayRoute::Chat, options);
    world.is_answered(&second).await;
    assert!(world.replies(&first).await.is_empty());
    assert_eq!(world.status_says("mail that waits", |status| status.waiting == 1).await.given_up, 0);
    bridge.stop().await;
    let free = world.bob.claim(amb_core::mailbox::ClaimRequest::default()).await.unwrap();
    assert_eq!(free[0].id, first.id, "an ended bridge holds nothing");
}

#[tokio::test]
async fn the_probe_takes_the_best_route_that_the_gateway_offers() {
    let offers =
        [(false, false, "websocket"), (false, true, "websocket"), (true, false, "chat"), (true, true, "sessions_send")];
    for (no_socket, no_chat, route) in offers {
        let world = World::new().await;
        {
            let mut inner = world.gateway.lock();
            (inner.no_socket, inner.no_chat) = (no_socket, no_chat);
        }
        let mail = world.mail().await;
        let bridge = world.start_with(world.openclaw(None), quick());
        world.is_answered(&mail).await;
        assert_eq!(world.gateway.lock().runs.len(), 1, "probing runs nothing");
        until("status", async || world.status().is_some_and(|status| status.runtime.ends_with(route))).await;
        bridge.stop().await;
    }
}

#[tokio::test]
async fn a_finished_turn_is_not_run_again_after_the_gateway_was_killed() {
    for route in ROUTES {
        let mut world = World::new().await;
        let runtime = world.openclaw(Some(route));
        let (mail, bridge) = killed_after_a_run(&mut world, runtime, quick().turn_timeout).await;
        world.gateway.lock().forget_runs();
        world.gateway.up().await;
        world.has_one_answer(&mail, &route.to_string()).await;
        assert_eq!(world.gateway.runs_of(mail.id.as_str()), 1, "{route}");
        bridge.stop().await;
    }
}

#[tokio::test]
async fn the_error_of_a_turn_that_takes_too_long_names_the_timeout() {
    for route in ROUTES {
        let world = World::new().await;
        world.gateway.fault([Fault::Hangs]);
        world.mail().await;
        let bridge = world.start(route, quick());
        let status = world.status_says("trouble", |status| status.last_error.is_some()).await;
        let error = status.last_error.unwrap();
        assert!(error.contains("did not answer within 800ms; --turn-timeout"), "{route}: {error}");
        bridge.stop().await;
    }
}

#[tokio::test]
async fn the_line_that_sends_nothing_is_not_one_that_openclaw_reserves() {
    let world = World::new().await;
    let bridge = world.start(GatewayRoute::WebSocket, quick());
    let mail = world.mail().await;
    world.is_answered(&mail).await;
    let prompt = world.gateway.lock().prompts[0].clone();
    assert!(prompt.contains("[mailbox: no answer]") && !prompt.contains("NO_REPLY"), "{prompt}");
    world.gateway.fault([Fault::Answers("[mailbox: no answer]")]);
    let silent = world.mail().await;
    world.status_says("mail without an answer", |status| status.unanswered == 1).await;
    assert!(world.replies(&silent).await.is_empty());
    assert_eq!(world.gateway.runs_of(silent.id.as_str()), 1);
    bridge.stop().await;
}

#[tokio::test]
async fn a_truncated_answer_is_fetched_whole_or_marked_as_cut() {
    let cut = "[cut: the gateway shows no more of this answer";
    for has_history in [true, false] {
        let world = World::new().await;
        world.gateway.fault([Fault::VeryLong]);
        (world.gateway.lock().no_results, world.gateway.lock().no_history) = (true, !has_history);
        let mail = world.mail().await;
        let bridge = world.start(GatewayRoute::WebSocket, quick());
        world.settle().await;
        let said: String = world.replies(&mail).await.concat();
        assert_eq!(said.matches('x').count() >= 25_000, has_history, "{} characters", said.len());
        assert_eq!(said.contains(cut), !has_history);
        bridge.stop().await;
    }
}

#[tokio::test]
async fn a_long_answer_found_in_the_history_is_whole_or_marked_as_cut() {
    for route in [GatewayRoute::Chat, GatewayRoute::SessionsSend] {
        for no_socket in [false, true] {
            let world = World::new().await;
            world.gateway.lock().no_socket = no_socket;
            world.gateway.fault([Fault::Long]);
            let mail = world.mail().await;
            world.start(route, crate::world::deadly(amb_bridge::Step::Turned)).dies().await;
            let bridge = world.start(route, quick());
            world.is_answered(&mail).await;
            let said = world.replies(&mail).await.concat();
            assert_eq!(said.ends_with(&"x".repeat(6_000)), !no_socket, "{route}");
            assert_eq!(said.contains("[cut: the gateway shows no more"), no_socket, "{route}");
            assert_eq!(world.gateway.runs_of(mail.id.as_str()), 1, "{route}");
            bridge.stop().await;
        }
    }
}

#[tokio::test]
async fn an_answer_after_many_calls_of_tools_is_found_in_the_history() {
    for route in ROUTES {
        assert_eq!(runs_with(route, &[Fault::ManyCalls]).await, 1, "{route}");
    }
}

#[tokio::test]
async fn a_turn_that_a_restarted_gateway_resumes_is_awaited_on_every_route() {
    for route in ROUTES {
        let mut world = World::new().await;
        let runtime = world.openclaw(Some(route));
        let (mail, bridge) = killed_after_a_run(&mut world, runtime, Duration::from_secs(20)).await;
        world.gateway.lock().recover("agent:main:main", mail.id.as_str());
        world.gateway.up().await;
        world.is_answered(&mail).await;
        assert_eq!(
            world.gateway.runs_of(mail.id.as_str()),
            2,
            "{route}: once before the kill, once by the gateway itself"
        );
        bridge.stop().await;
    }
}

#[tokio::test]
async fn a_turn_that_a_restarted_gateway_resumes_is_not_run_again() {
    let mut world = World::new().await;
    let runtime = world.openclaw(None);
    let (mail, bridge) = killed_after_a_run(&mut world, runtime, Duration::from_secs(20)).await;
    world.gateway.lock().recover("agent:main:main", mail.id.as_str());
    // It answers by HTTP before it lets anybody in by its own protocol: the route stays what it was.
    world.gateway.lock().is_starting = true;
    world.gateway.up().await;
    world
        .status_says("start of the gateway", |status| {
            status.last_error.as_ref().is_some_and(|error| error.contains("gateway starting"))
        })
        .await;
    world.gateway.lock().is_starting = false;
    world.is_answered(&mail).await;
    assert_eq!(world.replies(&mail).await, [format!("answer to {}", mail.id)]);
    assert_eq!(world.gateway.runs_of(mail.id.as_str()), 2, "once before the kill, and once by the gateway itself");
    assert!(world.status().unwrap().runtime.ends_with("websocket"));
    bridge.stop().await;
}
