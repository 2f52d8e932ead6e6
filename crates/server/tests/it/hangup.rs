//! Clients that close their connection as soon as they have written a request.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::test_server::{Agent, TestServer, soon};

/// Writes a whole request and closes the connection without waiting for the response.
async fn write_and_close(server: &TestServer, agent: &Agent, method: &str, path: &str, body: &str) {
    let mut stream = TcpStream::connect(&server.host).await.unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {}\r\nx-api-key: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        server.host,
        agent.key,
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
}

/// Waits until this key is refused; fails the test if it stays valid.
async fn is_refused(server: &TestServer, key: &str) {
    soon(async {
        while server.call(Method::GET, "/agents/me", Some(key), None).await.status != 401 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

async fn a_delete_completes_after_the_client_hung_up(server: TestServer) {
    for number in 0..20 {
        let agent = server.register(&format!("agent-{number}")).await;
        // Caches the key.
        server.get(&agent, "/agents/me").await.expect(200);
        write_and_close(&server, &agent, "DELETE", "/agents/me", "").await;
        is_refused(&server, &agent.key).await;
    }
}

async fn a_key_rotation_completes_after_the_client_hung_up(server: TestServer) {
    for number in 0..20 {
        let agent = server.register(&format!("agent-{number}")).await;
        let mut socket = server.live(&agent).await;
        write_and_close(&server, &agent, "POST", "/agents/me/rotate-key", r#"{"grace_seconds":0}"#).await;
        is_refused(&server, &agent.key).await;
        assert_eq!(socket.closed().await.0, 4001);
    }
}

async fn a_send_is_pushed_at_once_after_the_client_hung_up(mut server: TestServer) {
    // A subscriber without a hint reads the log only after this long.
    server.close().await;
    let config = amb_server::Config {
        poll_interval: Duration::from_secs(3_600),
        rate_limits: None,
        ..amb_server::Config::default()
    };
    server.start(config).await;
    let (alice, bob) = server.pair().await;
    let mut socket = server.live(&bob).await;
    for number in 0..40 {
        let content = format!("number {number}");
        let body = json!({"to": bob.name, "subject": "Plan", "content": content}).to_string();
        write_and_close(&server, &alice, "POST", "/messages/send", &body).await;
        assert_eq!(socket.receive().await["content"], content);
    }
}

async fn a_long_poll_ends_with_its_client(mut server: TestServer) {
    server.close().await;
    let config = amb_server::Config { ws_per_agent: 1, rate_limits: None, ..amb_server::Config::default() };
    server.start(config).await;
    let bob = server.register("bob-agent").await;
    let poll =
        format!("GET /events?since=0&wait=60 HTTP/1.1\r\nhost: {}\r\nx-api-key: {}\r\n\r\n", server.host, bob.key);
    let start_poll = async || {
        let mut stream = TcpStream::connect(&server.host).await.unwrap();
        stream.write_all(poll.as_bytes()).await.unwrap();
        stream
    };
    let waits = async || server.get(&bob, "/events?since=0&wait=1").await.status == 429;
    let mut stream = start_poll().await;
    soon(async {
        while !waits().await {
            // The check above may have been the only subscriber when the poll arrived: then the poll was refused.
            if stream.try_read(&mut [0]).is_ok() {
                stream = start_poll().await;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    drop(stream);
    // It ends well before its own timeout.
    let freed = async {
        while waits().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), freed).await.expect("the poll ended");
}

async fn a_send_is_indexed_at_once_after_the_client_hung_up(server: TestServer) {
    let (alice, bob) = server.pair().await;
    for number in 0..5 {
        let word = format!("zebra{number}");
        let body = json!({"to": bob.name, "subject": "Plan", "content": word}).to_string();
        write_and_close(&server, &alice, "POST", "/messages/send", &body).await;
        let found = async {
            let hits = async || server.get(&bob, &format!("/search?q={word}")).await.expect(200)["hits"].clone();
            while hits().await.as_array().unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        // Without a hint, indexing would start later than this.
        tokio::time::timeout(Duration::from_secs(25), found).await.expect("indexed");
    }
}

/// Whether the agent may have one more subscriber.
async fn can_subscribe(server: &TestServer, agent: &Agent) -> bool {
    let mut socket = server.socket(&format!("?api_key={}", agent.key)).await;
    socket.try_send(json!({"type": "ping"})).await.is_ok() && !socket.receive_one().await.is_null()
}

async fn a_poll_whose_client_hung_up_is_not_acknowledged_by_another_poll(mut server: TestServer) {
    server.close().await;
    let config = amb_server::Config { ws_per_agent: 1, rate_limits: None, ..amb_server::Config::default() };
    server.start(config).await;
    let (alice, bob) = server.pair().await;
    let sent = server.send(&alice, &bob, "Plan", "hello").await;
    let end = server.get(&bob, "/events").await.expect(200)["cursor"].clone();
    let (host, key) = (&server.host, &bob.key);
    let poll = format!("GET /events?since={end}&wait=60 HTTP/1.1\r\nhost: {host}\r\nx-api-key: {key}\r\n\r\n");
    let start_poll = async || {
        let mut stream = TcpStream::connect(&server.host).await.unwrap();
        stream.write_all(poll.as_bytes()).await.unwrap();
        stream
    };
    // One process waits at the end of the log.
    let mut waiting = start_poll().await;
    soon(async {
        while can_subscribe(&server, &bob).await {
            // The check above may have been the only subscriber when the poll arrived: then the poll was refused.
            if waiting.try_read(&mut [0]).is_ok() {
                waiting = start_poll().await;
            }
        }
    })
    .await;
    // Another reads the mail, and the first disconnects before the other polls again.
    let page = server.get(&bob, "/events?since=0").await.expect(200);
    assert_eq!(page["cursor"], end);
    drop(waiting);
    soon(async { while !can_subscribe(&server, &bob).await {} }).await;
    server.get(&bob, &format!("/events?since={end}")).await.expect(200);
    crate::receipts::until(&server, &alice, &sent, "delivered").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_send_is_pushed_on_another_replica_after_the_client_hung_up() {
    let config = amb_server::Config {
        poll_interval: Duration::from_secs(3_600),
        rate_limits: None,
        ..amb_server::Config::default()
    };
    let one = TestServer::postgres_with(config.clone()).await;
    let other = one.replica(config).await;
    one.wait_for_metric("amb_replicas 2").await;
    other.wait_for_metric("amb_replicas 2").await;
    let (alice, bob) = one.pair().await;
    let mut socket = other.live(&bob).await;
    for number in 0..20 {
        let content = format!("number {number}");
        let body = json!({"to": bob.name, "subject": "Plan", "content": content}).to_string();
        write_and_close(&one, &alice, "POST", "/messages/send", &body).await;
        assert_eq!(socket.receive().await["content"], content);
    }
}

crate::on_every_store!(
    a_delete_completes_after_the_client_hung_up,
    a_key_rotation_completes_after_the_client_hung_up,
    a_send_is_pushed_at_once_after_the_client_hung_up,
    a_long_poll_ends_with_its_client,
    a_send_is_indexed_at_once_after_the_client_hung_up,
    a_poll_whose_client_hung_up_is_not_acknowledged_by_another_poll,
);
