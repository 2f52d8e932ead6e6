//! Killed between any two steps: one reply, never none, never two.

use amb_bridge::Step;
use amb_bridge::openclaw::GatewayRoute;
use amb_core::mailbox::{HistoryPage, Mailbox};

use crate::world::{ROUTES, World, deadly, quick};

#[tokio::test]
async fn a_bridge_killed_between_any_two_steps_sends_one_reply_when_it_is_started_again() {
    for route in ROUTES {
        for step in Step::ALL {
            let what = format!("{route} killed at {step:?}");
            let world = World::new().await;
            let mail = world.mail().await;
            world.start(route, deadly(step)).dies().await;
            let bridge = world.start(route, quick());
            world.has_one_answer(&mail, &what).await;
            assert_eq!(world.gateway.runs_of(mail.id.as_str()), 1, "{what}: the model's runs");
            bridge.stop().await;
        }
    }
}

#[tokio::test]
async fn a_bridge_killed_at_every_step_in_turn_sends_one_reply() {
    for route in ROUTES {
        let world = World::new().await;
        let mail = world.mail().await;
        for step in Step::ALL {
            world.start(route, deadly(step)).dies().await;
        }
        let bridge = world.start(route, quick());
        world.has_one_answer(&mail, &route.to_string()).await;
        assert_eq!(world.gateway.runs_of(mail.id.as_str()), 1);
        bridge.stop().await;
    }
}

#[tokio::test]
async fn without_a_history_to_look_in_a_lost_turn_runs_again_and_still_one_reply_is_sent() {
    for route in [GatewayRoute::Chat, GatewayRoute::SessionsSend] {
        let world = World::new().await;
        world.gateway.lock().no_history = true;
        let mail = world.mail().await;
        world.start(route, deadly(Step::Turned)).dies().await;
        let bridge = world.start(route, quick());
        world.has_one_answer(&mail, &route.to_string()).await;
        assert_eq!(world.gateway.runs_of(mail.id.as_str()), 2);
        bridge.stop().await;
    }
}

#[tokio::test]
async fn a_mail_that_the_agent_read_itself_is_answered_although_the_bridge_died() {
    for step in Step::ALL.into_iter().skip(1) {
        let world = World::new().await;
        let mail = world.mail().await;
        world.start(GatewayRoute::WebSocket, deadly(step)).dies().await;
        world.bob.read(&mail.session, HistoryPage::newest(50).unwrap()).await.unwrap();
        let bridge = world.start(GatewayRoute::WebSocket, quick());
        world.has_one_answer(&mail, &format!("{step:?}")).await;
        bridge.stop().await;
    }
}

#[tokio::test]
async fn a_bridge_killed_in_the_middle_of_a_turn_resumes_the_mail_at_once() {
    let world = World::new().await;
    world.gateway.fault([crate::gateway::Fault::Hangs]);
    let mail = world.mail().await;
    let bridge = world.start(GatewayRoute::Chat, quick());
    crate::world::until("a turn", async || world.gateway.lock().faults.is_empty()).await;
    bridge.kill().await;
    let bridge = world.start(GatewayRoute::Chat, quick());
    world.has_one_answer(&mail, "killed in a turn").await;
    bridge.stop().await;
}

#[tokio::test]
async fn a_shutdown_releases_the_mail() {
    let world = World::new().await;
    world.gateway.fault([crate::gateway::Fault::Hangs]);
    let mail = world.mail().await;
    let bridge = world.start(GatewayRoute::Chat, quick());
    crate::world::until("a turn", async || world.gateway.lock().faults.is_empty()).await;
    bridge.stop().await;
    let claimed = world.bob.claim(amb_core::mailbox::ClaimRequest::default()).await.unwrap();
    assert_eq!(claimed[0].id, mail.id);
}
