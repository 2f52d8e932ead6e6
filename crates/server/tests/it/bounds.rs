//! Bounds of responses and waits.

use serde_json::{Value, json};

use crate::test_server::{Agent, Answer, TestServer};

/// Sends a message with a part of this many bytes.
async fn send_large(server: &TestServer, from: &Agent, to: &Agent, subject: &str, bytes: usize) -> Value {
    let parts = json!([{"type": "text", "text": "look"}, {"type": "data", "data": {"k": "x".repeat(bytes)}}]);
    let body = json!({"to": to.name, "subject": subject, "parts": parts});
    server.post(from, "/messages/send", body).await.expect(201)
}

fn size(answer: &Answer) -> usize {
    answer.headers["content-length"].to_str().unwrap().parse().unwrap()
}

async fn an_inbox_is_read_in_pages_newest_first(server: TestServer) {
    let (alice, bob) = server.pair().await;
    for number in 0..7 {
        server.send(&alice, &bob, &format!("Plan {number}"), "hello").await;
    }
    // An older session with a new message comes first.
    server.send(&alice, &bob, "Plan 2", "again").await;
    let subjects = |inbox: &Value| -> Vec<String> {
        inbox["sessions"].as_array().unwrap().iter().map(|s| s["subject"].as_str().unwrap().to_owned()).collect()
    };
    let whole = server.get(&bob, "/inbox").await.expect(200);
    assert!(whole.get("next").is_none(), "{whole}");
    let expected = ["Plan 2", "Plan 6", "Plan 5", "Plan 4", "Plan 3", "Plan 1", "Plan 0"];
    assert_eq!(subjects(&whole), expected);
    for limit in [1, 2, 3, 7, 500] {
        let (mut seen, mut path) = (Vec::new(), format!("/inbox?limit={limit}"));
        loop {
            let page = server.get(&bob, &path).await.expect(200);
            assert!(page["sessions"].as_array().unwrap().len() <= limit);
            seen.extend(subjects(&page));
            match page["next"].as_str() {
                Some(next) => path = format!("/inbox?limit={limit}&before={next}"),
                None => break,
            }
        }
        assert_eq!(seen, expected, "by {limit}");
    }
    let last = whole["sessions"][6]["session_id"].as_str().unwrap();
    assert_eq!(subjects(&server.get(&bob, &format!("/inbox?before={last}")).await.expect(200)), [""; 0]);
    server.get(&bob, &format!("/inbox?before={}", uuid())).await.problem(404, "not_found");
    let carol = server.register("carol-agent").await;
    server.get(&carol, &format!("/inbox?before={last}")).await.problem(404, "not_found");
    for bad in ["limit=0", "limit=501", "limit=x", "before=x"] {
        server.get(&bob, &format!("/inbox?{bad}")).await.problem(422, "invalid");
    }
}

fn uuid() -> &'static str {
    "01900000-0000-7000-8000-000000000000"
}

async fn an_inbox_truncates_long_messages(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let long = "é".repeat(10_000);
    server.send(&alice, &bob, "Short", &"x".repeat(2_000)).await;
    server.send(&alice, &bob, "Long", &long).await;
    let inbox = server.get(&bob, "/inbox").await.expect(200);
    let shown = &inbox["sessions"][0]["recent_messages"][0];
    assert_eq!((&shown["content"], &shown["truncated"]), (&json!("é".repeat(2_000)), &json!(true)));
    let short = &inbox["sessions"][1]["recent_messages"][0];
    assert_eq!(short["content"].as_str().unwrap().len(), 2_000);
    assert!(short.get("truncated").is_none(), "{short}");
    let session = inbox["sessions"][0]["session_id"].as_str().unwrap();
    let history = server.get(&bob, &format!("/sessions/{session}/history")).await.expect(200);
    assert_eq!(history["messages"][0]["content"], long, "whole where it is read");
    for number in 0..20 {
        send_large(&server, &alice, &bob, &format!("Large {number}"), 900_000).await;
    }
    let inbox = server.get(&bob, "/inbox").await;
    assert!(size(&inbox) < 100_000, "{}", size(&inbox));
    let inbox = inbox.expect(200);
    let large = &inbox["sessions"][0]["recent_messages"][0];
    assert_eq!((&large["content"], &large["truncated"]), (&json!("look"), &json!(true)));
    assert!(large.get("parts").is_none());
}

async fn every_page_is_bounded_in_bytes_and_the_rest_follows(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let count = 12;
    let mut sent = Vec::new();
    for _ in 0..count {
        sent.push(send_large(&server, &alice, &bob, "Large", 900_000).await["message_id"].clone());
    }
    let session =
        server.get(&bob, "/inbox").await.expect(200)["sessions"][0]["session_id"].as_str().unwrap().to_owned();
    let most = 6 * 1024 * 1024;
    let page = async |path: String| {
        let answer = server.get(&bob, &path).await;
        assert!(size(&answer) < most, "{path} has {} bytes", size(&answer));
        answer.expect(200)
    };
    let ids = |messages: &Value| -> Vec<Value> {
        messages.as_array().unwrap().iter().map(|message| message["id"].clone()).collect()
    };
    let newest_first: Vec<Value> = sent.iter().rev().cloned().collect();

    let (mut seen, mut path) = (Vec::new(), "/messages?limit=100".to_owned());
    loop {
        let got = page(path).await;
        seen.extend(ids(&got["messages"]));
        match got["next"].as_u64() {
            Some(next) => path = format!("/messages?limit=100&before={next}"),
            None => break,
        }
    }
    assert_eq!(seen, newest_first, "messages");

    let (mut seen, mut path) = (Vec::new(), format!("/sessions/{session}/history?limit=50"));
    loop {
        let got = page(path).await;
        let some = ids(&got["messages"]);
        let Some(last) = some.last().and_then(Value::as_str) else { break };
        path = format!("/sessions/{session}/history?limit=50&before={last}");
        seen.extend(some);
    }
    assert_eq!(seen, newest_first, "history");

    let (mut seen, mut path) = (Vec::new(), "/export".to_owned());
    loop {
        let got = page(path).await;
        let some = ids(&got["messages"]);
        let Some(last) = some.last().and_then(Value::as_str) else { break };
        path = format!("/export?after={last}");
        seen.extend(some);
    }
    assert_eq!(seen, sent, "export");

    let (mut seen, mut since) = (Vec::new(), 0);
    loop {
        let got = page(format!("/events?since={since}&limit=500")).await;
        let events = got["events"].as_array().unwrap();
        if events.is_empty() {
            break;
        }
        since = got["cursor"].as_u64().unwrap();
        seen.extend(events.iter().filter(|e| e["type"] == "new_message").map(|e| e["message_id"].clone()));
    }
    assert_eq!(seen, sent, "events");

    let mut socket = server.since(&bob, 0).await;
    let mut heard = Vec::new();
    while heard.len() < sent.len() {
        let event = socket.receive().await;
        if event["type"] == "new_message" {
            heard.push(event["message_id"].clone());
        }
    }
    assert_eq!(heard, sent, "a socket");
}

async fn a_claim_is_bounded_in_bytes(server: TestServer) {
    let (alice, bob) = server.pair().await;
    for _ in 0..10 {
        send_large(&server, &alice, &bob, "Large", 900_000).await;
    }
    let mut claimed = 0;
    loop {
        let answer = server.post(&bob, "/messages/claim", json!({"limit": 100})).await;
        assert!(size(&answer) < 6 * 1024 * 1024);
        match answer.expect(200)["messages"].as_array().unwrap().len() {
            0 => break,
            some => claimed += some,
        }
    }
    assert_eq!(claimed, 10, "what did not fit was not taken");
}

async fn one_send_to_many_is_bounded(server: TestServer) {
    let (alice, bob) = server.pair().await;
    for again in [bob.name.to_string(), bob.name.to_string().to_uppercase()] {
        let twice = json!({"to": [bob.name, again], "subject": "Plan", "content": "hello"});
        let problem = server.post(&alice, "/messages/send-many", twice).await.problem(422, "invalid");
        assert!(problem["detail"].as_str().unwrap().contains("more than once"), "{problem}");
    }
    let names: Vec<String> = (0..40).map(|number| format!("agent-{number}")).collect();
    let parts = json!([{"type": "data", "data": {"k": "x".repeat(900_000)}}]);
    let body = json!({"to": names, "subject": "Plan", "parts": parts});
    server.post(&alice, "/messages/send-many", body).await.problem(413, "too_large");
    let callback = json!({"channel": "x", "extra": "y".repeat(1_060_000)});
    let body = json!({"to": bob.name, "subject": "Plan", "content": "x", "kind": "task", "callback": callback});
    server.post(&alice, "/messages/send", body).await.problem(413, "too_large");
    assert_eq!(server.get(&bob, "/inbox").await.expect(200)["sessions"], json!([]));
}

async fn waits_for_transcripts_are_limited(mut server: TestServer) {
    server.close().await;
    let config = amb_server::Config { ws_per_agent: 1, rate_limits: None, ..amb_server::Config::default() };
    server.start(config).await;
    let alice = server.register("alice-agent").await;
    let line = json!({"role": "user", "sender": "ann", "content": "hello"});
    server.post(&alice, "/transcripts/chat:1", line.clone()).await.expect(201);
    let follow = async || server.get(&alice, "/transcripts/chat:1?after=1&wait=60").await;
    let first = async { (follow().await, 1) };
    let second = async { (follow().await, 2) };
    let (mut first, mut second) = (Box::pin(first), Box::pin(second));
    // The second is refused at once; the line ends the wait of the first.
    tokio::select! {
        (answer, _) = &mut first => { answer.problem(429, "too_many_requests"); }
        (answer, _) = &mut second => { answer.problem(429, "too_many_requests"); }
    }
    server.post(&alice, "/transcripts/chat:1", line).await.expect(201);
}

crate::on_every_store!(
    an_inbox_is_read_in_pages_newest_first,
    an_inbox_truncates_long_messages,
    every_page_is_bounded_in_bytes_and_the_rest_follows,
    a_claim_is_bounded_in_bytes,
    one_send_to_many_is_bounded,
    waits_for_transcripts_are_limited,
);
