//! `POST /connections/request` and `/approve`.

use serde_json::json;

use crate::test_server::TestServer;

async fn test_request_connection_success(server: TestServer) {
    let (alice, bob) = (server.register("alice-agent").await, server.register("bob-agent").await);
    let body = json!({"target_agent_name": bob.name, "message": "Hi Bob"});
    let got = server.post(&alice, "/connections/request", body).await.expect(201);
    let code = got["verification_code"].as_str().unwrap().as_bytes();
    assert!(code.len() == 6 && code[..2].iter().all(u8::is_ascii_uppercase) && code[2] == b'-', "{got}");
    assert!(code[3..].iter().all(u8::is_ascii_digit), "{got}");
    assert_eq!((&got["target_agent_name"], &got["status"]), (&json!("bob-agent"), &json!("PENDING")));
    assert!(got["connection_id"].as_str().unwrap().parse::<uuid::Uuid>().is_ok());
    assert_eq!(got.as_object().unwrap().len(), 4, "{got}");

    let inbox = server.get(&bob, "/inbox").await.expect(200);
    let pending = &inbox["pending_connections"][0];
    assert_eq!(pending["connection_id"], got["connection_id"]);
    assert_eq!(pending["verification_code"], got["verification_code"]);
    assert_eq!((&pending["from_agent_name"], &pending["message"]), (&json!("alice-agent"), &json!("Hi Bob")));
    assert!(pending["created_at"].as_str().unwrap().ends_with('Z'), "{pending}");
}

async fn test_request_connection_self(server: TestServer) {
    let alice = server.register("alice-agent").await;
    let body = json!({"target_agent_name": alice.name});
    server.post(&alice, "/connections/request", body).await.problem(422, "invalid");
}

async fn test_request_connection_no_target(server: TestServer) {
    let alice = server.register("alice-agent").await;
    let body = json!({"target_agent_name": "nobody-here"});
    server.post(&alice, "/connections/request", body).await.problem(404, "not_found");
}

async fn test_request_connection_duplicate(server: TestServer) {
    let (alice, bob) = (server.register("alice-agent").await, server.register("bob-agent").await);
    let body = json!({"target_agent_name": bob.name});
    let code = server.ask(&alice, &bob).await;
    server.post(&alice, "/connections/request", body.clone()).await.problem(409, "conflict");
    server.post(&bob, "/connections/approve", json!({"verification_code": code})).await.expect(200);
    server.post(&alice, "/connections/request", body).await.problem(409, "conflict");
    let back = json!({"target_agent_name": alice.name});
    server.post(&bob, "/connections/request", back).await.problem(409, "conflict");
}

async fn test_approve_connection_success(server: TestServer) {
    let (alice, bob) = (server.register("alice-agent").await, server.register("bob-agent").await);
    let code = server.ask(&alice, &bob).await;
    let got = server.post(&bob, "/connections/approve", json!({"verification_code": code})).await.expect(200);
    assert_eq!((&got["status"], &got["connected_agent_name"]), (&json!("ACTIVE"), &json!("alice-agent")));
    assert_eq!(got.as_object().unwrap().len(), 3, "{got}");
    server.post(&bob, "/connections/approve", json!({"verification_code": code})).await.problem(404, "not_found");
}

async fn test_approve_connection_wrong_agent(server: TestServer) {
    let (alice, bob) = (server.register("alice-agent").await, server.register("bob-agent").await);
    let carol = server.register("carol-agent").await;
    let code = server.ask(&alice, &bob).await;
    let approve =
        async |agent, code: &str| server.post(agent, "/connections/approve", json!({"verification_code": code})).await;
    approve(&alice, &code).await.problem(403, "forbidden");
    let live = approve(&carol, &code).await.problem(404, "not_found");
    let wrong = approve(&carol, "no code").await.problem(404, "not_found");
    assert_eq!(live["detail"], wrong["detail"], "a stranger learns of no code whether it waits");
    server.post(&bob, "/connections/approve", json!({"verification_code": code})).await.expect(200);
}

async fn test_approve_connection_invalid_code(server: TestServer) {
    let bob = server.register("bob-agent").await;
    for code in ["ZZ-000", "", "nonsense", &"x".repeat(10_000)] {
        server.post(&bob, "/connections/approve", json!({"verification_code": code})).await.problem(404, "not_found");
    }
    server.post(&bob, "/connections/approve", json!({"verification_code": 7})).await.problem(422, "invalid");
    server.post(&bob, "/connections/approve", json!({})).await.problem(422, "invalid");
}

async fn the_length_of_an_introduction_counts_characters(server: TestServer) {
    let (alice, bob) = (server.register("alice-agent").await, server.register("bob-agent").await);
    let ask = |chars: usize| json!({"target_agent_name": bob.name, "message": "é".repeat(chars)});
    server.post(&alice, "/connections/request", ask(501)).await.problem(422, "invalid");
    server.post(&alice, "/connections/request", ask(500)).await.expect(201);
}

async fn pending_connection_requests_are_limited(server: TestServer) {
    let alice = server.register("alice-agent").await;
    for number in 0..3 {
        let other = server.register(&format!("other-{number}")).await;
        server.ask(&alice, &other).await;
    }
    let fourth = server.register("fourth").await;
    let answer = server.post(&alice, "/connections/request", json!({"target_agent_name": fourth.name})).await;
    assert_eq!(answer.headers["retry-after"], "60", "not at once: somebody has to answer first");
    answer.problem(429, "too_many_requests");
}

crate::on_every_store!(
    test_request_connection_success,
    test_request_connection_self,
    test_request_connection_no_target,
    test_request_connection_duplicate,
    test_approve_connection_success,
    test_approve_connection_wrong_agent,
    test_approve_connection_invalid_code,
    the_length_of_an_introduction_counts_characters,
    pending_connection_requests_are_limited,
);
