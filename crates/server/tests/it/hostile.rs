//! Invalid input of all kinds returns a problem, never a 500.

use reqwest::Method;
use serde_json::json;

use crate::test_server::TestServer;

async fn malformed_and_invalid_bodies_have_different_errors(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let deep = format!("{{\"to\":{}1{}}}", "[".repeat(10_000), "]".repeat(10_000));
    let deep_data = format!(
        "{{\"to\":\"bob-agent\",\"subject\":\"x\",\"parts\":[{{\"type\":\"data\",\"data\":{}1{}}}]}}",
        "[".repeat(10_000),
        "]".repeat(10_000)
    );
    let table: &[(&[u8], u16, &str)] = &[
        (b"", 400, "malformed"),
        (b"{", 400, "malformed"),
        (b"{\"to\": \"bob-agent\",}", 400, "malformed"),
        (b"{'to': 'bob-agent'}", 400, "malformed"),
        (b"\xff\xfe{\"to\":1}", 400, "malformed"),
        (b"{\"to\":\"\xff\",\"subject\":\"x\",\"content\":\"x\"}", 400, "malformed"),
        (b"{\"to\":\"bob-agent\",\"subject\":\"x\",\"content\":\"\\ud800\"}", 400, "malformed"),
        (b"{\"to\":\"bob-agent\",\"subject\":\"x\",\"content\":\"a\0b\"}", 400, "malformed"),
        (b"{\"to\":\"bob-agent\"} trailing", 400, "malformed"),
        (deep.as_bytes(), 422, "invalid"),
        (deep_data.as_bytes(), 400, "malformed"),
        (b"[]", 422, "invalid"),
        (b"null", 422, "invalid"),
        (b"[\"bob-agent\",\"x\",\"y\"]", 422, "invalid"),
        (b"{}", 422, "invalid"),
        (b"{\"to\":\"bob-agent\",\"to\":\"bob-agent\",\"subject\":\"x\",\"content\":\"x\"}", 422, "invalid"),
        (b"{\"to\":\"bob-agent\",\"subject\":7,\"content\":\"x\"}", 422, "invalid"),
        (b"{\"to\":{},\"subject\":\"x\",\"content\":\"x\"}", 422, "invalid"),
        (b"{\"to\":\"bob-agent\",\"subject\":\"x\",\"content\":\"a\\u0000b\"}", 422, "invalid"),
        (b"{\"to\":\"bob-agent\",\"subject\":\"x\",\"parts\":[]}", 422, "invalid"),
        (b"{\"to\":\"bob-agent\",\"subject\":\"x\",\"parts\":[{\"type\":\"odd\"}]}", 422, "invalid"),
        (b"{\"to\":\"bob-agent\",\"subject\":\"x\",\"content\":\"x\",\"metadata\":[]}", 422, "invalid"),
        (b"{\"to\":\"bob-agent\",\"subject\":\"x\",\"content\":\"x\",\"deadline\":\"soon\"}", 422, "invalid"),
    ];
    for (body, status, code) in table {
        let request = server.http.post(server.url("/messages/send")).header("X-API-Key", &alice.key);
        let request = request.header("Content-Type", "application/json").body(body.to_vec());
        let answer = server.request(request).await;
        assert_eq!(
            answer.status.as_u16(),
            *status,
            "{} gave {}",
            String::from_utf8_lossy(&body[..body.len().min(100)]),
            answer.body
        );
        answer.problem(*status, code);
    }
    server.send(&alice, &bob, "Plan", "all is well").await;
}

async fn a_body_of_another_content_type_is_rejected(server: TestServer) {
    let alice = server.register("alice-agent").await;
    let send = async |kind: Option<&str>| {
        let mut request = server.http.post(server.url("/connections/request")).header("X-API-Key", &alice.key);
        if let Some(kind) = kind {
            request = request.header("Content-Type", kind);
        }
        server.request(request.body(r#"{"target_agent_name":"nobody"}"#)).await
    };
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", "é", "json"] {
        send(Some(kind)).await.problem(415, "unsupported_media_type");
    }
    for kind in ["application/json", "Application/JSON; charset=utf-8", "application/vnd.amb+json"] {
        send(Some(kind)).await.problem(404, "not_found");
    }
    send(None).await.problem(415, "unsupported_media_type");
}

async fn a_too_large_body_is_rejected_with_an_error_the_client_can_read(server: TestServer) {
    let alice = server.register("alice-agent").await;
    let huge = json!({"to": "bob-agent", "subject": "x", "content": "x".repeat(3 * 1024 * 1024)});
    server.post(&alice, "/messages/send", huge).await.problem(413, "too_large");
    let parts = json!({"to": "bob-agent", "subject": "x", "metadata": {"k": "x".repeat(20_000)}, "content": "x"});
    server.post(&alice, "/messages/send", parts).await.problem(413, "too_large");
}

async fn unknown_routes_and_methods_return_problems(server: TestServer) {
    let alice = server.register("alice-agent").await;
    for path in ["/", "/nothing", "/inbox/", "/agent", "/sessions/x/history/y", "/metrics"] {
        server.call(Method::PUT, path, Some(&alice.key), None).await.problem(404, "no_such_route");
    }
    for (method, path, allow) in [
        (Method::GET, "/messages/send", "POST"),
        (Method::DELETE, "/messages/send", "POST"),
        (Method::POST, "/inbox", "GET,HEAD"),
        (Method::PUT, "/sessions/x/history", "GET,HEAD"),
        (Method::OPTIONS, "/inbox", "GET,HEAD"),
    ] {
        let answer = server.call(method, path, Some(&alice.key), None).await;
        assert_eq!(answer.headers["allow"], allow);
        answer.problem(405, "method_not_allowed");
    }
}

async fn odd_paths_and_queries_never_cause_a_500(server: TestServer) {
    let alice = server.register("alice-agent").await;
    server.get(&alice, "/sessions/%FF/history").await.problem(400, "malformed");
    server.get(&alice, "/sessions/%00/history").await.problem(422, "invalid");
    server.get(&alice, "/sessions/..%2f..%2fetc/history").await.problem(422, "invalid");
    server.get(&alice, "/inbox?unread_only=%FF").await.problem(422, "invalid");
    server.get(&alice, "/inbox?%00&%FF=1&x").await.expect(200);
    server.get(&alice, "/inbox?unread_only=1").await.expect(200);
}

async fn times_before_the_year_1_do_no_harm(server: TestServer) {
    let (alice, bob) = server.pair().await;
    for time in ["-009999-01-02T01:59:59Z", "-004713-01-01T00:00:00Z", "0000-01-01T00:00:00Z"] {
        let task = json!({"to": bob.name, "subject": "Work", "content": "x", "kind": "task", "deadline": time});
        server.post(&alice, "/messages/send", task).await.problem(422, "invalid");
        for path in ["/export?since=", "/search?q=x&after=", "/search?q=x&before="] {
            assert_eq!(server.get(&alice, &format!("{path}{time}")).await.status, 200, "{path}{time}");
        }
    }
}

crate::on_every_store!(
    malformed_and_invalid_bodies_have_different_errors,
    a_body_of_another_content_type_is_rejected,
    a_too_large_body_is_rejected_with_an_error_the_client_can_read,
    unknown_routes_and_methods_return_problems,
    odd_paths_and_queries_never_cause_a_500,
    times_before_the_year_1_do_no_harm,
);
