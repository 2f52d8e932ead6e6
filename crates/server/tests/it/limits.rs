//! Rate limits. They do not depend on the kind of store, so SQLite alone is tested.

use amb_server::{Config, Rate, RateLimits};
use reqwest::Method;
use serde_json::json;

use crate::test_server::TestServer;

async fn server_with(limits: RateLimits) -> TestServer {
    TestServer::sqlite_with(Config { rate_limits: Some(limits), ..Config::default() }).await
}

#[tokio::test]
async fn registrations_from_one_address_are_limited() {
    let server = server_with(RateLimits { register: Rate::per_minute(1, 2), ..RateLimits::default() }).await;
    server.register("first").await;
    server.register("second").await;
    let answer = server.call(Method::POST, "/agents/register", None, Some(&json!({"name": "third"}))).await;
    let wait: u64 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!(wait >= 1);
    answer.problem(429, "too_many_requests");
}

#[tokio::test]
async fn code_guesses_are_limited() {
    let server = server_with(RateLimits { guess_agent: Rate::per_minute(1, 3), ..RateLimits::default() }).await;
    let bob = server.register("bob-agent").await;
    for _ in 0..3 {
        server
            .post(&bob, "/connections/approve", json!({"verification_code": "AA-000"}))
            .await
            .problem(404, "not_found");
    }
    let fourth = server.post(&bob, "/connections/approve", json!({"verification_code": "AA-000"})).await;
    fourth.problem(429, "too_many_requests");
    server.get(&bob, "/inbox").await.expect(200);
}

#[tokio::test]
async fn guesses_of_one_agent_do_not_limit_others_at_its_address() {
    let limits = RateLimits {
        guess_agent: Rate::per_minute(1, 3),
        guess_address: Rate::per_minute(1, 6),
        ..RateLimits::default()
    };
    let server = server_with(limits).await;
    let (bob, carol) = (server.register("bob-agent").await, server.register("carol-agent").await);
    let guess = async |agent| server.post(agent, "/connections/approve", json!({"verification_code": "AA-000"})).await;
    for _ in 0..3 {
        guess(&bob).await.problem(404, "not_found");
    }
    for _ in 0..20 {
        guess(&bob).await.problem(429, "too_many_requests");
    }
    guess(&carol).await.problem(404, "not_found");
}

#[tokio::test]
async fn a_right_code_is_not_charged() {
    let limits = RateLimits {
        guess_agent: Rate::per_minute(1, 2),
        guess_address: Rate::per_minute(1, 2),
        ..RateLimits::default()
    };
    let server = server_with(limits).await;
    let hub = server.register("the-hub").await;
    for n in 0..6 {
        let agent = server.register(&format!("agent-{n}")).await;
        server.connect(&agent, &hub).await;
    }
    let wrong = async || server.post(&hub, "/connections/approve", json!({"verification_code": "AA-000"})).await;
    wrong().await.problem(404, "not_found");
    wrong().await.problem(404, "not_found");
    wrong().await.problem(429, "too_many_requests");
}

#[tokio::test]
async fn wrong_keys_do_not_limit_approvals_of_others() {
    let server = server_with(RateLimits { wrong_key: Rate::per_minute(1, 1), ..RateLimits::default() }).await;
    let (alice, bob) = (server.register("alice-agent").await, server.register("bob-agent").await);
    let code = server.ask(&alice, &bob).await;
    server.call(Method::GET, "/inbox", Some("stale"), None).await.problem(401, "unauthorized");
    server.call(Method::GET, "/inbox", Some("stale"), None).await.problem(429, "too_many_requests");
    server.post(&bob, "/connections/approve", json!({"verification_code": code})).await.expect(200);
}

#[tokio::test]
async fn a_rate_limited_agent_does_not_limit_another() {
    let server = server_with(RateLimits { agent: Rate::per_minute(1, 5), ..RateLimits::default() }).await;
    let (alice, bob) = (server.register("alice-agent").await, server.register("bob-agent").await);
    for _ in 0..5 {
        server.get(&alice, "/inbox").await.expect(200);
    }
    server.get(&alice, "/inbox").await.problem(429, "too_many_requests");
    server.get(&bob, "/inbox").await.expect(200);
}

#[tokio::test]
async fn wrong_keys_from_one_address_are_limited() {
    let server = server_with(RateLimits { wrong_key: Rate::per_minute(1, 2), ..RateLimits::default() }).await;
    let alice = server.register("alice-agent").await;
    let wrong = format!("amb_{}", "0".repeat(64));
    for _ in 0..2 {
        server.call(Method::GET, "/inbox", Some(&wrong), None).await.problem(401, "unauthorized");
    }
    server.call(Method::GET, "/inbox", Some(&wrong), None).await.problem(429, "too_many_requests");
    server.get(&alice, "/inbox").await.expect(200);
}
