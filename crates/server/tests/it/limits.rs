//! Rate limits. They know nothing of stores, so one store shows them.

use amb_server::{Config, Rate, RateLimits};
use reqwest::Method;
use serde_json::json;

use crate::test_server::TestServer;

async fn desk_with(limits: RateLimits) -> TestServer {
    TestServer::sqlite_with(Config { rate_limits: Some(limits), ..Config::default() }).await
}

#[tokio::test]
async fn registrations_from_one_address_are_limited() {
    let desk = desk_with(RateLimits { register: Rate::per_minute(1, 2), ..RateLimits::default() }).await;
    desk.register("first").await;
    desk.register("second").await;
    let answer = desk.call(Method::POST, "/agents/register", None, Some(&json!({"name": "third"}))).await;
    let wait: u64 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!(wait >= 1);
    answer.problem(429, "too_many_requests");
}

#[tokio::test]
async fn guesses_at_codes_are_limited() {
    let desk = desk_with(RateLimits { guess_agent: Rate::per_minute(1, 3), ..RateLimits::default() }).await;
    let bob = desk.register("bob-agent").await;
    for _ in 0..3 {
        desk.post(&bob, "/connections/approve", json!({"verification_code": "AA-000"})).await.problem(404, "not_found");
    }
    let fourth = desk.post(&bob, "/connections/approve", json!({"verification_code": "AA-000"})).await;
    fourth.problem(429, "too_many_requests");
    desk.get(&bob, "/inbox").await.expect(200);
}

#[tokio::test]
async fn one_agents_guesses_leave_the_others_at_its_address_theirs() {
    let limits = RateLimits {
        guess_agent: Rate::per_minute(1, 3),
        guess_address: Rate::per_minute(1, 6),
        ..RateLimits::default()
    };
    let desk = desk_with(limits).await;
    let (bob, carol) = (desk.register("bob-agent").await, desk.register("carol-agent").await);
    let guess = async |agent| desk.post(agent, "/connections/approve", json!({"verification_code": "AA-000"})).await;
    for _ in 0..3 {
        guess(&bob).await.problem(404, "not_found");
    }
    for _ in 0..20 {
        guess(&bob).await.problem(429, "too_many_requests");
    }
    guess(&carol).await.problem(404, "not_found");
}

#[tokio::test]
async fn a_right_code_is_no_guess() {
    let limits = RateLimits {
        guess_agent: Rate::per_minute(1, 2),
        guess_address: Rate::per_minute(1, 2),
        ..RateLimits::default()
    };
    let desk = desk_with(limits).await;
    let hub = desk.register("the-hub").await;
    for n in 0..6 {
        let agent = desk.register(&format!("agent-{n}")).await;
        desk.connect(&agent, &hub).await;
    }
    let wrong = async || desk.post(&hub, "/connections/approve", json!({"verification_code": "AA-000"})).await;
    wrong().await.problem(404, "not_found");
    wrong().await.problem(404, "not_found");
    wrong().await.problem(429, "too_many_requests");
}

#[tokio::test]
async fn wrong_keys_of_one_stop_no_approval_of_another() {
    let desk = desk_with(RateLimits { wrong_key: Rate::per_minute(1, 1), ..RateLimits::default() }).await;
    let (alice, bob) = (desk.register("alice-agent").await, desk.register("bob-agent").await);
    let code = desk.ask(&alice, &bob).await;
    desk.call(Method::GET, "/inbox", Some("stale"), None).await.problem(401, "unauthorized");
    desk.call(Method::GET, "/inbox", Some("stale"), None).await.problem(429, "too_many_requests");
    desk.post(&bob, "/connections/approve", json!({"verification_code": code})).await.expect(200);
}

#[tokio::test]
async fn one_agent_that_calls_too_often_does_not_stop_another() {
    let desk = desk_with(RateLimits { agent: Rate::per_minute(1, 5), ..RateLimits::default() }).await;
    let (alice, bob) = (desk.register("alice-agent").await, desk.register("bob-agent").await);
    for _ in 0..5 {
        desk.get(&alice, "/inbox").await.expect(200);
    }
    desk.get(&alice, "/inbox").await.problem(429, "too_many_requests");
    desk.get(&bob, "/inbox").await.expect(200);
}

#[tokio::test]
async fn wrong_keys_from_one_address_are_limited() {
    let desk = desk_with(RateLimits { wrong_key: Rate::per_minute(1, 2), ..RateLimits::default() }).await;
    let alice = desk.register("alice-agent").await;
    let wrong = format!("amb_{}", "0".repeat(64));
    for _ in 0..2 {
        desk.call(Method::GET, "/inbox", Some(&wrong), None).await.problem(401, "unauthorized");
    }
    desk.call(Method::GET, "/inbox", Some(&wrong), None).await.problem(429, "too_many_requests");
    desk.get(&alice, "/inbox").await.expect(200);
}
