//! `Idempotency-Key`.

use serde_json::{Value, json};

use crate::test_server::{Agent, Answer, TestServer};

async fn send_once(server: &TestServer, from: &Agent, key: &str, body: &Value) -> Answer {
    let request = server.http.post(server.url("/messages/send")).header("X-API-Key", &from.key);
    server.request(request.header("Idempotency-Key", key).json(body)).await
}

async fn a_repeat_returns_the_first_result_and_sends_nothing(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let body = json!({"to": bob.name, "subject": "Plan", "content": "once"});
    let first = send_once(&server, &alice, "k-1", &body).await.expect(201);
    let again = send_once(&server, &alice, "k-1", &body).await.expect(201);
    assert_eq!(first, again);
    let inbox = server.get(&bob, "/inbox").await.expect(200);
    assert_eq!(inbox["sessions"][0]["unread_count"], 1);
    let other = send_once(&server, &alice, "k-2", &body).await.expect(201);
    assert_ne!(first["message_id"], other["message_id"]);
    // Idempotency keys belong to their senders.
    let back = json!({"to": alice.name, "subject": "Plan", "content": "mine"});
    send_once(&server, &bob, "k-1", &back).await.expect(201);
}

async fn the_same_key_with_another_body_is_a_conflict(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let body = |content: &str| json!({"to": bob.name, "subject": "Plan", "content": content});
    send_once(&server, &alice, "k-1", &body("one")).await.expect(201);
    send_once(&server, &alice, "k-1", &body("two")).await.problem(409, "conflict");
    send_once(&server, &alice, "k-1", &body("one")).await.expect(201);
    send_once(&server, &alice, "", &body("one")).await.problem(422, "invalid");
    send_once(&server, &alice, &"x".repeat(256), &body("one")).await.problem(422, "invalid");
}

async fn a_repeat_keeps_the_first_relative_deadline(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let carol = server.register("carol-agent").await;
    server.connect(&alice, &carol).await;
    let body = json!({"to": bob.name, "subject": "Work", "content": "do it", "kind": "task", "deadline_in": 7200});
    let first = send_once(&server, &alice, "k-1", &body).await.expect(201);
    assert_eq!(send_once(&server, &alice, "k-1", &body).await.expect(201), first);
    let task = server.get(&bob, "/tasks").await.expect(200)["tasks"][0].clone();
    let due: amb_core::Timestamp = task["deadline"].as_str().unwrap().parse().unwrap();
    let left = due.duration_since(amb_core::Timestamp::now()).as_secs();
    assert!((3_600..=7_200).contains(&left), "{task}");
    let many =
        json!({"to": [bob.name, carol.name], "subject": "Work", "content": "all", "kind": "task", "deadline_in": 60});
    let post = async || {
        let request = server.http.post(server.url("/messages/send-many")).header("X-API-Key", &alice.key);
        server.request(request.header("Idempotency-Key", "k-2").json(&many)).await.expect(201)
    };
    assert_eq!(post().await, post().await);
    assert!(server.get(&carol, "/tasks").await.expect(200)["tasks"][0]["deadline"].is_string());
    for bad in [json!(-1), json!("2h"), json!(1.5), json!(u64::MAX)] {
        let mut body = body.clone();
        body["deadline_in"] = bad;
        server.post(&alice, "/messages/send", body).await.problem(422, "invalid");
    }
    let mut exact = body.clone();
    exact["deadline_in"] = json!(7200.0);
    assert_eq!(send_once(&server, &alice, "k-1", &exact).await.expect(201), first, "the same number");
    let mut both = body.clone();
    both["deadline"] = json!("2030-01-01T00:00:00Z");
    server.post(&alice, "/messages/send", both).await.problem(422, "invalid");
    let mut plain = body;
    plain["kind"] = json!("message");
    server.post(&alice, "/messages/send", plain).await.problem(422, "invalid");
}

async fn fifty_concurrent_repeats_send_one_message(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let body = json!({"to": bob.name, "subject": "Plan", "content": "once"});
    let repeats = (0..50).map(|_| send_once(&server, &alice, "k-1", &body));
    let answers: Vec<Value> = join_all(repeats).await.into_iter().map(|answer| answer.expect(201)).collect();
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert_eq!(server.get(&bob, "/inbox").await.expect(200)["sessions"][0]["unread_count"], 1);
}

/// Posts the same request twice with one key, and another request with it.
async fn post_twice(server: &TestServer, agent: &Agent, path: &str, body: Value, other: Value, status: u16) {
    let post = |key: &'static str, body: &Value| {
        let request = server.http.post(server.url(path)).header("X-API-Key", &agent.key);
        server.request(request.header("Idempotency-Key", key).json(body))
    };
    let key: &'static str = Box::leak(format!("key of {path}").replace(' ', "-").into_boxed_str());
    let first = post(key, &body).await.expect(status);
    assert_eq!(post(key, &body).await.expect(status), first, "{path}");
    post(key, &other).await.problem(409, "conflict");
    // Nor with another verb.
    let send = json!({"to": "bob-agent", "subject": "x", "content": "x"});
    send_once(server, agent, key, &send).await.problem(409, "conflict");
    post("", &body).await.problem(422, "invalid");
}

async fn every_creation_is_idempotent_with_a_key(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let carol = server.register("carol-agent").await;
    server.connect(&alice, &carol).await;
    let dora = server.register("dora-agent").await;

    let to = json!([bob.name, carol.name]);
    let body = |content: &str| json!({"to": to, "subject": "All", "content": content});
    post_twice(&server, &alice, "/messages/send-many", body("one"), body("two"), 201).await;
    for one in [&bob, &carol] {
        let inbox = server.get(one, "/inbox").await.expect(200);
        let session = inbox["sessions"].as_array().unwrap().iter().find(|session| session["subject"] == "All").unwrap();
        assert_eq!(session["unread_count"], 1, "{inbox}");
    }

    let ask = |message: &str| json!({"target_agent_name": dora.name, "message": message});
    post_twice(&server, &alice, "/connections/request", ask("one"), ask("two"), 201).await;
    let waiting = server.get(&dora, "/connections/pending").await.expect(200);
    assert_eq!(waiting["pending_connections"].as_array().unwrap().len(), 1);

    let code = server.ask(&bob, &carol).await;
    let approve = |code: &str| json!({"verification_code": code});
    post_twice(&server, &carol, "/connections/approve", approve(&code), approve("AA-000"), 200).await;

    let group = |name: &str| json!({"name": name});
    post_twice(&server, &alice, "/groups", group("crew"), group("team"), 201).await;
    let invite = |agent: &Agent| json!({"agent_name": agent.name});
    post_twice(&server, &alice, "/groups/crew/invite", invite(&bob), invite(&carol), 200).await;

    let line = |content: &str| json!({"role": "user", "sender": "ann", "content": content});
    post_twice(&server, &alice, "/transcripts/chat:1", line("one"), line("two"), 201).await;
    let lines = server.get(&alice, "/transcripts/chat:1").await.expect(200);
    assert_eq!(lines["lines"].as_array().unwrap().len(), 1, "{lines}");

    let task = json!({"to": bob.name, "subject": "Work", "content": "do it", "kind": "task"});
    let task = server.post(&alice, "/messages/send", task).await.expect(201)["task"]["id"].as_str().unwrap().to_owned();
    let state = |note: &str| json!({"state": "working", "note": note});
    post_twice(&server, &bob, &format!("/tasks/{task}/state"), state("one"), state("two"), 200).await;
}

async fn a_key_that_two_routes_use_at_once_is_a_conflict_for_one(server: TestServer) {
    let (alice, bob) = server.pair().await;
    for round in 0..30 {
        let key = format!("k-{round}");
        let post = |path: &str, body: Value| {
            let request = server.http.post(server.url(path)).header("X-API-Key", &alice.key);
            server.request(request.header("Idempotency-Key", &key).json(&body))
        };
        let message = json!({"to": bob.name, "subject": "Plan", "content": "once"});
        let (sent, group) =
            tokio::join!(post("/messages/send", message), post("/groups", json!({"name": format!("crew-{round}")})));
        let mut statuses = [sent.status, group.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 409]);
    }
}

async fn join_all<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    use futures_util::StreamExt;
    futures_util::stream::iter(all).buffered(64).collect().await
}

crate::on_every_store!(
    a_repeat_returns_the_first_result_and_sends_nothing,
    the_same_key_with_another_body_is_a_conflict,
    a_repeat_keeps_the_first_relative_deadline,
    fifty_concurrent_repeats_send_one_message,
    every_creation_is_idempotent_with_a_key,
    a_key_that_two_routes_use_at_once_is_a_conflict_for_one,
);
