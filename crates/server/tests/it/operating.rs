//! Operation: health, metrics, request ids, shutdown.

use amb_server::Config;
use reqwest::Method;
use serde_json::json;

use crate::test_server::{TestServer, soon};

async fn health_reports_whether_the_office_can_accept_mail(server: TestServer) {
    for path in ["/health", "/health/live", "/health/ready"] {
        let got = server.call(Method::GET, path, None, None).await.expect(200);
        assert_eq!(got["status"], "ok");
    }
    let alice = server.register("alice-agent").await;
    server.store.close().await;
    server.call(Method::GET, "/health/live", None, None).await.expect(200);
    for path in ["/health", "/health/ready"] {
        server.call(Method::GET, path, None, None).await.problem(503, "unavailable");
    }
    let answer = server.post(&alice, "/connections/request", json!({"target_agent_name": "bob-agent"})).await;
    assert!(answer.headers.contains_key("retry-after"));
    answer.problem(503, "unavailable");
}

async fn metrics_have_their_own_listener(server: TestServer) {
    let (alice, bob) = server.pair().await;
    server.send(&alice, &bob, "Plan", "hello").await;
    let socket = server.live(&bob).await;
    let request = server.http.get(format!("http://{}/metrics", server.metrics));
    let text = server.request(request).await.expect(200);
    let text = text.as_str().unwrap();
    for line in [r#"amb_http_requests_total{route="/messages/send",status="201"} 1"#, "amb_ws_sockets 1"] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert!(!text.contains(&alice.key) && !text.contains("alice-agent"));
    server.call(Method::GET, "/metrics", None, None).await.problem(404, "no_such_route");
    drop(socket);
}

async fn every_response_has_a_request_id(server: TestServer) {
    let ask = async |id: Option<&str>| {
        let mut request = server.http.get(server.url("/health/live"));
        if let Some(id) = id {
            request = request.header("X-Request-Id", id);
        }
        server.request(request).await.headers["x-request-id"].to_str().unwrap().to_owned()
    };
    assert_eq!(ask(Some("trace-1.a_B")).await, "trace-1.a_B");
    assert_ne!(ask(None).await, ask(None).await);
    let long = "x".repeat(65);
    for odd in [long.as_str(), "two words", "<script>"] {
        assert_ne!(ask(Some(odd)).await, odd);
    }
}

async fn a_shutdown_answers_long_polls_and_closes_sockets_with_a_reason(mut server: TestServer) {
    let bob = server.register("bob-agent").await;
    let mut socket = server.live(&bob).await;
    let poll = server.http.get(server.url("/events?since=0&wait=60")).header("X-API-Key", &bob.key).send();
    let poll = tokio::spawn(poll);
    // The poll counts as a second subscriber once it waits.
    let serving = server.begin_closing();
    let (code, reason) = socket.closed().await;
    assert_eq!(code, 1001);
    assert!(reason.contains("closing"), "{reason}");
    // It was either accepted and answered, or refused; it never hangs.
    if let Ok(answer) = soon(poll).await.unwrap() {
        assert_eq!(answer.status(), 200);
    }
    soon(serving).await.unwrap();
}

async fn mail_survives_a_restart_of_the_office(mut server: TestServer) {
    let (alice, bob) = server.pair().await;
    server.send(&alice, &bob, "Plan", "before").await;
    server.close().await;
    server.start(Config { rate_limits: None, ..Config::default() }).await;
    let inbox = server.get(&bob, "/inbox").await.expect(200);
    assert_eq!(inbox["sessions"][0]["recent_messages"][0]["content"], "before");
}

#[tokio::test]
async fn private_codes_are_withheld_from_the_target() {
    let server = TestServer::sqlite_with(Config { private_codes: true, ..Config::default() }).await;
    let (alice, bob) = (server.register("alice-agent").await, server.register("bob-agent").await);
    let mut socket = server.live(&bob).await;
    let code = server.ask(&alice, &bob).await;
    assert_eq!(socket.receive().await["verification_code"], json!(null));
    let inbox = server.get(&bob, "/inbox").await.expect(200);
    assert_eq!(inbox["pending_connections"][0]["verification_code"], json!(null));
    server.post(&bob, "/connections/approve", json!({"verification_code": code})).await.expect(200);
}

#[tokio::test]
async fn an_expired_code_is_410_and_the_pair_can_request_again() {
    let config = Config { code_ttl: std::time::Duration::ZERO, ..Config::default() };
    let server = TestServer::sqlite_with(config).await;
    let (alice, bob) = (server.register("alice-agent").await, server.register("bob-agent").await);
    let code = server.ask(&alice, &bob).await;
    server.post(&bob, "/connections/approve", json!({"verification_code": code})).await.problem(410, "gone");
    server.ask(&alice, &bob).await;
}

#[tokio::test]
async fn other_web_origins_are_allowed_only_if_configured() {
    let origin = "https://app.example.com";
    let ask = async |origins: Vec<String>| {
        let server = TestServer::sqlite_with(Config { cors_origins: origins, ..Config::default() }).await;
        let request = server.http.get(server.url("/health/live")).header("Origin", origin);
        server.request(request).await
    };
    ask(vec![]).await.problem(403, "origin_not_allowed");
    ask(vec!["https://other.example.com".to_owned()]).await.problem(403, "origin_not_allowed");
    let allowed = ask(vec![origin.to_owned()]).await;
    assert_eq!(allowed.headers["access-control-allow-origin"], origin);
    allowed.expect(200);
}

crate::on_every_store!(
    health_reports_whether_the_office_can_accept_mail,
    metrics_have_their_own_listener,
    every_response_has_a_request_id,
    a_shutdown_answers_long_polls_and_closes_sockets_with_a_reason,
    mail_survives_a_restart_of_the_office,
);
