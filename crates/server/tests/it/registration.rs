//! Who may register.

use amb_server::{Config, Rate, RateLimits, Registration};
use reqwest::Method;
use serde_json::{Value, json};

use crate::test_server::{Answer, TestServer};

async fn server_with(registration: Registration) -> TestServer {
    let limits = RateLimits { wrong_key: Rate::per_minute(1, 3), ..RateLimits::default() };
    TestServer::sqlite_with(Config { registration, rate_limits: Some(limits), ..Config::default() }).await
}

async fn register(server: &TestServer, name: &str, token: Option<&str>) -> Answer {
    let mut body = json!({"name": name});
    if let Some(token) = token {
        body["registration_token"] = Value::from(token);
    }
    server.call(Method::POST, "/agents/register", None, Some(&body)).await
}

#[tokio::test]
async fn closed_registration_registers_nobody() {
    let server = server_with(Registration::Closed).await;
    let problem = register(&server, "ann-agent", Some("secret")).await.problem(403, "registration_closed");
    assert!(problem["detail"].as_str().unwrap().contains("operator"), "{problem}");
}

#[tokio::test]
async fn registration_with_a_token_needs_the_right_token() {
    let server = server_with(Registration::Token("secret".to_owned())).await;
    register(&server, "ann-agent", None).await.problem(403, "registration_token_needed");
    register(&server, "ann-agent", Some("secre")).await.problem(403, "registration_token_wrong");
    register(&server, "ann-agent", Some("secret")).await.expect(201);
    for _ in 0..2 {
        register(&server, "ben-agent", Some("guess")).await.problem(403, "registration_token_wrong");
    }
    for token in ["guess", "secret"] {
        register(&server, "ben-agent", Some(token)).await.problem(429, "too_many_requests");
    }
}

#[tokio::test]
async fn open_registration_ignores_a_token() {
    let server = server_with(Registration::Open).await;
    register(&server, "ann-agent", None).await.expect(201);
    register(&server, "ben-agent", Some("whatever")).await.expect(201);
}
