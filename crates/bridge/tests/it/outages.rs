//! Outages of the gateway, the token or the office: mail waits, nothing is lost or given up.

use std::sync::Arc;

use amb_bridge::openclaw::GatewayRoute;
use amb_bridge::{FailureKind, Ledger, RuntimeState};
use amb_core::mailbox::Mailbox;
use amb_core::{Code, OfficeError};

use crate::flaky::Flaky;
use crate::gateway::Fault;
use crate::world::{ROUTES, World, quick, start};

fn trouble(connection: &RuntimeState) -> Option<FailureKind> {
    match connection {
        RuntimeState::Down { trouble, .. } => Some(*trouble),
        _ => None,
    }
}

#[tokio::test]
async fn a_gateway_that_is_down_makes_all_mail_wait_and_none_is_lost() {
    for route in ROUTES {
        let mut world = World::new().await;
        world.gateway.down().await;
        let mail = [world.mail().await, world.mail().await, world.mail().await];
        let bridge = world.start(route, quick());
        let down = |status: &amb_bridge::BridgeStatus| trouble(&status.connection) == Some(FailureKind::Unreachable);
        world.status_says("outage", down).await;
        world.status_says("count of what waits", |status| status.waiting == 3).await;
        world.gateway.up().await;
        for mail in &mail {
            world.has_one_answer(mail, &route.to_string()).await;
        }
        world.status_says("recovery", |status| status.connection == RuntimeState::Up).await;
        assert!(Ledger::open_read_only(&world.ledger()).dead_letters().unwrap().is_empty());
        bridge.stop().await;
    }
}

#[tokio::test]
async fn a_refused_token_is_reported_and_mail_waits() {
    for route in [None, Some(GatewayRoute::Chat), Some(GatewayRoute::WebSocket), Some(GatewayRoute::SessionsSend)] {
        let world = World::new().await;
        world.gateway.lock().token = "another".into();
        let mail = world.mail().await;
        let bridge = world.start_with(world.openclaw(route), quick());
        let status =
            world.status_says("refusal", |status| trouble(&status.connection) == Some(FailureKind::Unauthorized)).await;
        assert!(status.last_error.unwrap().contains("OPENCLAW_GATEWAY_TOKEN"));
        world.gateway.lock().token = "secret".into();
        world.has_one_answer(&mail, &format!("{route:?}")).await;
        bridge.stop().await;
    }
}

#[tokio::test]
async fn an_unusable_gateway_is_reported_at_the_start_before_any_mail() {
    let mut world = World::new().await;
    world.gateway.lock().token = "another".into();
    let bridge = world.start_with(world.openclaw(None), quick());
    let status =
        world.status_says("refusal", |status| trouble(&status.connection) == Some(FailureKind::Unauthorized)).await;
    assert!(status.last_error.unwrap().contains("set OPENCLAW_GATEWAY_TOKEN"));
    bridge.stop().await;

    world.gateway.down().await;
    let bridge = world.start_with(world.openclaw(None), quick());
    let status =
        world.status_says("outage", |status| trouble(&status.connection) == Some(FailureKind::Unreachable)).await;
    let error = status.last_error.unwrap();
    assert!(error.contains("--gateway-url") && error.contains("gateway.port"), "{error}");
    bridge.stop().await;
}

#[tokio::test]
async fn a_route_that_is_not_offered_is_reported_and_mail_waits() {
    let world = World::new().await;
    world.gateway.lock().no_chat = true;
    let mail = world.mail().await;
    let bridge = world.start(GatewayRoute::Chat, quick());
    world.status_says("refusal", |status| trouble(&status.connection) == Some(FailureKind::NotOffered)).await;
    world.gateway.lock().no_chat = false;
    world.has_one_answer(&mail, "enabled").await;
    bridge.stop().await;
}

#[tokio::test]
async fn a_forbidden_tool_is_reported_and_mail_waits() {
    let world = World::new().await;
    world.gateway.fault([Fault::Forbidden]);
    let mail = world.mail().await;
    let bridge = world.start(GatewayRoute::SessionsSend, quick());
    let status = world.status_says("refusal", |status| status.last_error.is_some()).await;
    assert!(status.last_error.unwrap().contains("forbids sessions_send"));
    world.has_one_answer(&mail, "allowed").await;
    assert!(Ledger::open_read_only(&world.ledger()).dead_letters().unwrap().is_empty());
    bridge.stop().await;
}

#[tokio::test]
async fn a_gateway_that_is_too_busy_makes_mail_wait_and_gives_none_up() {
    for route in [GatewayRoute::Chat, GatewayRoute::SessionsSend] {
        let world = World::new().await;
        // More often than a message may fail.
        world.gateway.fault([Fault::Status(429); 8]);
        let mail = world.mail().await;
        let bridge = world.start(route, quick());
        world.has_one_answer(&mail, &route.to_string()).await;
        assert!(Ledger::open_read_only(&world.ledger()).dead_letters().unwrap().is_empty());
        bridge.stop().await;
    }
}

#[tokio::test]
async fn a_flaky_office_loses_and_duplicates_no_reply() {
    let world = World::new().await;
    let office = Arc::new(Flaky::new(world.bob.clone()));
    // Every verb fails, before and after it took effect.
    office.fail_every(3);
    let bridge = start(office, world.openclaw(Some(GatewayRoute::WebSocket)), &world.ledger(), quick());
    let mut mail = Vec::new();
    for _ in 0..10 {
        mail.push(world.mail().await);
    }
    for mail in &mail {
        world.has_one_answer(mail, "a flaky office").await;
        assert_eq!(world.gateway.runs_of(mail.id.as_str()), 1);
    }
    bridge.stop().await;
}

#[tokio::test]
async fn a_rejected_key_ends_the_bridge() {
    let world = World::new().await;
    let office = Arc::new(Flaky::new(world.bob.clone()));
    office.refuse(OfficeError::new(Code::Unauthorized, "that key is not known"));
    let bridge = start(office, world.openclaw(Some(GatewayRoute::Chat)), &world.ledger(), quick());
    assert_eq!(bridge.ends().await.unwrap_err().code(), Code::Unauthorized);
}

#[tokio::test]
async fn an_undeliverable_answer_is_kept_and_sent_when_it_is_retried() {
    let world = World::new().await;
    let closed = amb_core::Card { allow_from: amb_core::AllowFrom(vec!["carol".into()]), ..Default::default() };
    world.alice.register(closed).await.unwrap();
    let mail = world.mail().await;
    let bridge = world.start(GatewayRoute::Chat, quick());
    world.status_says("mail set aside", |status| status.given_up == 1).await;
    let ledger = Ledger::open_read_only(&world.ledger());
    assert_eq!(ledger.dead_letters().unwrap()[0].answer, Some(format!("answer to {}", mail.id)));

    world.alice.register(amb_core::Card::default()).await.unwrap();
    assert!(ledger.revive(&mail.id).unwrap());
    world.has_one_answer(&mail, "revived").await;
    assert_eq!(world.gateway.runs_of(mail.id.as_str()), 1, "the answer was kept");
    bridge.stop().await;
}
