//! `POST /agents/register`.

use reqwest::Method;
use serde_json::{Value, json};

use crate::test_server::{Answer, TestServer};

async fn register(server: &TestServer, body: Value) -> Answer {
    server.call(Method::POST, "/agents/register", None, Some(&body)).await
}

async fn test_register_agent_success(server: TestServer) {
    let got = register(&server, json!({"name": "alice-agent", "owner_contact": "alice@example.com"})).await.expect(201);
    let key = got["api_key"].as_str().unwrap();
    assert!(key.len() == 68 && key.starts_with("amb_"), "{key}");
    assert!(key[4..].bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')), "{key}");
    assert_eq!(got["name"], "alice-agent");
    assert!(got["id"].as_str().unwrap().parse::<uuid::Uuid>().is_ok());
    assert_eq!(got.as_object().unwrap().len(), 3, "{got}");
}

async fn test_register_agent_duplicate_name(server: TestServer) {
    server.register("alice-agent").await;
    register(&server, json!({"name": "alice-agent"})).await.problem(409, "conflict");
}

async fn test_register_agent_invalid_name(server: TestServer) {
    let long = "x".repeat(101);
    for name in
        ["ab", "", "has space", "alice\n", "al/ice", "é-agent", "..", "a.b.c", "\u{202e}abc", "me", "register", &long]
    {
        let problem = register(&server, json!({"name": name})).await.problem(422, "invalid");
        assert_eq!(problem["errors"][0]["field"], "body.name", "{name:?}: {problem}");
    }
    register(&server, json!({"name": "x".repeat(100)})).await.expect(201);
    register(&server, json!({"name": "abc"})).await.expect(201);
    let missing = register(&server, json!({})).await.problem(422, "invalid");
    assert_eq!(missing["errors"][0]["field"], "body.name", "{missing}");
    register(&server, json!({"name": null})).await.problem(422, "invalid");
    register(&server, json!({"name": 7})).await.problem(422, "invalid");
    let contact = "é".repeat(256);
    register(&server, json!({"name": "contact", "owner_contact": contact})).await.problem(422, "invalid");
    register(&server, json!({"name": "contact", "owner_contact": "é".repeat(255)})).await.expect(201);
}

async fn a_request_without_a_valid_key_is_401(server: TestServer) {
    let alice = server.register("alice-agent").await;
    let unknown = format!("amb_{}", "0".repeat(64));
    for path in ["/inbox", "/events", "/sessions/0190b4a0-0000-7000-8000-000000000000/history"] {
        let answer = server.call(Method::GET, path, None, None).await;
        assert!(answer.headers.contains_key("www-authenticate"));
        answer.problem(401, "unauthorized");
        for key in ["", "x", &unknown, &alice.key[..67], &alice.key.to_uppercase()] {
            server.call(Method::GET, path, Some(key), None).await.problem(401, "unauthorized");
        }
    }
    for path in ["/connections/request", "/connections/approve", "/messages/send"] {
        server.call(Method::POST, path, None, Some(&json!({}))).await.problem(401, "unauthorized");
    }
}

async fn a_key_is_accepted_as_a_bearer_token(server: TestServer) {
    let alice = server.register("alice-agent").await;
    let request = server.http.get(server.url("/inbox")).bearer_auth(&alice.key);
    server.request(request).await.expect(200);
}

crate::on_every_store!(
    test_register_agent_success,
    test_register_agent_duplicate_name,
    test_register_agent_invalid_name,
    a_request_without_a_valid_key_is_401,
    a_key_is_accepted_as_a_bearer_token,
);
