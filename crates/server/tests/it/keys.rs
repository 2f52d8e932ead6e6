//! Keys: which may replace or revoke others, and what ends with them.

use std::time::Duration;

use amb_server::Config;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::test_server::{Agent, Answer, TestServer, soon};

/// One subscriber for each agent, so that a refused second one shows that the first one waits.
fn one_listener() -> Config {
    let poll_interval = Duration::from_millis(200);
    Config { rate_limits: None, ws_per_agent: 1, poll_interval, ..Config::default() }
}

async fn rotate(server: &TestServer, key: &str, grace: u32) -> Answer {
    server.call(Method::POST, "/agents/me/rotate-key", Some(key), Some(&json!({"grace_seconds": grace}))).await
}

async fn a_key_in_its_grace_period_cannot_lock_its_owner_out(server: TestServer) {
    let alice = server.register("alice-agent").await;
    let second = rotate(&server, &alice.key, 3600).await.expect(200)["api_key"].as_str().unwrap().to_owned();
    let problem = rotate(&server, &alice.key, 0).await.problem(403, "old_key");
    assert!(problem["detail"].as_str().unwrap().contains("use the key that replaced it"), "{problem}");
    server.call(Method::DELETE, "/agents/me", Some(&alice.key), None).await.problem(403, "old_key");
    for key in [&alice.key, &second] {
        server.call(Method::GET, "/inbox", Some(key), None).await.expect(200);
    }
    let third = rotate(&server, &second, 0).await.expect(200)["api_key"].as_str().unwrap().to_owned();
    for old in [&alice.key, &second] {
        server.call(Method::GET, "/inbox", Some(old), None).await.problem(401, "unauthorized");
        rotate(&server, old, 0).await.problem(401, "unauthorized");
    }
    assert_eq!(server.call(Method::DELETE, "/agents/me", Some(&third), None).await.status, 204);
    rotate(&server, &third, 0).await.problem(401, "unauthorized");
}

/// Long-polls this path until `end` has revoked the key. Returns the response.
async fn wait_while(server: &TestServer, agent: &Agent, path: &str, end: impl Future<Output = ()>) -> Answer {
    let waiting = async {
        loop {
            let answer = server.get(agent, path).await;
            // The check below was subscribed for a moment.
            if answer.status != 429 {
                return answer;
            }
        }
    };
    let ended = async {
        // It is subscribed: no other can be.
        while server.get(agent, "/events?since=0&wait=1").await.status != 429 {}
        end.await;
    };
    soon(async { tokio::join!(waiting, ended).0 }).await
}

async fn a_wait_ends_with_its_key(server: TestServer, elsewhere: &TestServer) {
    for where_to in ["events", "transcripts"] {
        for way in ["rotate", "grace", "delete"] {
            let agent = server.register(&format!("{where_to}-{way}")).await;
            let line = json!({"role": "user", "content": "hi", "sender": "ann"});
            server.post(&agent, &format!("/transcripts/{where_to}-{way}"), line).await.expect(201);
            let path = match where_to {
                "events" => "/events?since=0&wait=60".to_owned(),
                _ => format!("/transcripts/{where_to}-{way}?after=1&wait=60"),
            };
            let answer = wait_while(&server, &agent, &path, async {
                let status = match way {
                    "rotate" => rotate(elsewhere, &agent.key, 0).await.status,
                    "grace" => rotate(elsewhere, &agent.key, 1).await.status,
                    _ => elsewhere.call(Method::DELETE, "/agents/me", Some(&agent.key), None).await.status,
                };
                assert!(status.is_success(), "{way}: {status}");
            })
            .await;
            let problem: Value = answer.problem(401, "unauthorized");
            assert!(problem["detail"].as_str().unwrap().contains("key"), "{way} {path}: {problem}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_ends_when_its_key_does_on_sqlite() {
    let server = TestServer::sqlite_with(one_listener()).await;
    let same = server.same_office();
    a_wait_ends_with_its_key(server, &same).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_ends_when_its_key_does_on_another_replica() {
    let server = TestServer::postgres_with(one_listener()).await;
    let elsewhere = server.replica(one_listener()).await;
    let shared = server.same_office();
    a_wait_ends_with_its_key(shared, &elsewhere).await;
}

async fn a_key_that_ends_before_its_body_arrives_does_nothing(server: TestServer) {
    let (alice, bob) = server.pair().await;
    let body = json!({"to": bob.name, "subject": "Plan", "content": "late"}).to_string();
    let mut line = TcpStream::connect(&server.host).await.unwrap();
    let head = format!(
        "POST /messages/send HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nX-API-Key: {}\r\n\
         Content-Length: {}\r\nConnection: close\r\nExpect: 100-continue\r\n\r\n",
        alice.key,
        body.len()
    );
    soon(line.write_all(head.as_bytes())).await.unwrap();
    // The office asks for the body when it has found the caller.
    let mut asked = [0; 25];
    soon(line.read_exact(&mut asked)).await.unwrap();
    assert!(asked.starts_with(b"HTTP/1.1 100 "), "{asked:?}");
    server.post(&alice, "/agents/me/rotate-key", json!({"grace_seconds": 0})).await.expect(200);
    soon(line.write_all(body.as_bytes())).await.unwrap();
    let mut answer = String::new();
    soon(line.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    assert_eq!(server.get(&bob, "/inbox").await.expect(200)["sessions"], json!([]));
}

async fn a_body_without_required_fields_can_be_left_out(server: TestServer) {
    let alice = server.register("alice-agent").await;
    let empty = async |key: &str, path: &str| server.call(Method::POST, path, Some(key), None).await;
    empty(&alice.key, "/messages/claim").await.expect(200);
    empty(&alice.key, "/groups").await.problem(400, "malformed");
    let rotated = empty(&alice.key, "/agents/me/rotate-key").await.expect(200);
    let me = server.call(Method::GET, "/agents/me", rotated["api_key"].as_str(), None).await.expect(200);
    assert!(me["previous_key_until"].is_string() && rotated["previous_key_until"] == me["previous_key_until"], "{me}");
}

crate::on_every_store!(
    a_body_without_required_fields_can_be_left_out,
    a_key_in_its_grace_period_cannot_lock_its_owner_out,
    a_key_that_ends_before_its_body_arrives_does_nothing,
);
