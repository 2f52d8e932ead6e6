//! Requests that a browser would send for a foreign web page.

use std::time::Duration;

use amb_server::Config;
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::test_server::{TestServer, soon};

#[tokio::test]
async fn a_page_that_rebinds_its_dns_name_is_rejected() {
    let server = TestServer::sqlite().await;
    let register = |host: &str, origin: Option<&str>, name: &str| {
        let mut request =
            server.http.post(server.url("/agents/register")).header("Host", host).json(&json!({"name": name}));
        if let Some(origin) = origin {
            request = request.header("Origin", origin);
        }
        server.request(request)
    };
    let (_, port) = server.host.split_once(':').unwrap();
    let rebound = format!("evil.example:{port}");
    register(&rebound, Some(&format!("http://{rebound}")), "one").await.problem(403, "host_not_allowed");
    register(&rebound, None, "one").await.problem(403, "host_not_allowed");
    register(&server.host, Some("https://evil.example"), "one").await.problem(403, "origin_not_allowed");
    register(&server.host, Some("null"), "one").await.problem(403, "origin_not_allowed");
    register(&format!("localhost:{port}"), None, "one").await.expect(201);
    register(&format!("[::1]:{port}"), Some(&format!("http://localhost:{port}")), "two").await.expect(201);
}

#[tokio::test]
async fn a_listener_on_all_addresses_is_strict_for_loopback_connections() {
    let mut server = TestServer::sqlite().await;
    server.close().await;
    server.start_on("0.0.0.0:0", Config::default()).await;
    let (_, port) = server.host.split_once(':').unwrap();
    let ask = |host: &str| server.request(server.http.get(server.url("/health/live")).header("Host", host));
    ask(&format!("evil.example:{port}")).await.problem(403, "host_not_allowed");
    ask(&format!("localhost:{port}")).await.expect(200);
}

#[tokio::test]
async fn a_host_can_be_allowed() {
    let config = Config { allowed_hosts: vec!["office.example".to_owned()], ..Config::default() };
    let server = TestServer::sqlite_with(config).await;
    let ask = |host: &str| server.request(server.http.get(server.url("/health/live")).header("Host", host));
    ask("office.example").await.expect(200);
    ask("other.example").await.problem(403, "host_not_allowed");
}

#[tokio::test]
async fn a_socket_of_a_foreign_web_origin_is_rejected() {
    use tokio_tungstenite::tungstenite::client::IntoClientRequest;
    let server = TestServer::sqlite().await;
    let bob = server.register("bob-agent").await;
    let connect = async |origin: Option<&str>| {
        let mut request = format!("ws://{}/ws?api_key={}", server.host, bob.key).into_client_request().unwrap();
        if let Some(origin) = origin {
            request.headers_mut().insert("origin", origin.parse().unwrap());
        }
        soon(tokio_tungstenite::connect_async(request)).await
    };
    match connect(Some("https://evil.example")).await {
        Err(tokio_tungstenite::tungstenite::Error::Http(answer)) => assert_eq!(answer.status(), 403),
        other => panic!("expected a refusal, not {other:?}"),
    }
    assert!(connect(None).await.is_ok());
    assert!(connect(Some(&format!("http://{}", server.host))).await.is_ok());
}

#[tokio::test]
async fn only_an_empty_body_needs_no_content_type() {
    let server = TestServer::sqlite().await;
    let request = server.http.post(server.url("/agents/register")).body(r#"{"name":"page"}"#);
    server.request(request).await.problem(415, "unsupported_media_type");
    let form = "application/x-www-form-urlencoded";
    let request =
        server.http.post(server.url("/agents/register")).header("Content-Type", form).body(r#"{"name":"page"}"#);
    server.request(request).await.problem(415, "unsupported_media_type");
    server.call(Method::POST, "/agents/register", None, None).await.problem(400, "malformed");
    let bob = server.register("bob-agent").await;
    server.call(Method::POST, "/agents/me/heartbeat", Some(&bob.key), None).await.expect(204);
}

#[tokio::test]
async fn connections_and_requests_in_flight_from_one_address_are_limited() {
    let config = Config { connections_per_address: 3, requests_per_address: 1, rate_limits: None, ..Config::default() };
    let server = TestServer::sqlite_with(config).await;
    let bob = server.register("bob-agent").await;
    let connect = async || TcpStream::connect(&server.host).await.unwrap();
    let ask = |path: &str| {
        format!("GET {path} HTTP/1.1\r\nhost: {}\r\nx-api-key: {}\r\nconnection: close\r\n\r\n", server.host, bob.key)
    };
    let wait = async || {
        let mut waiting = connect().await;
        waiting.write_all(ask("/events?since=0&wait=60").as_bytes()).await.unwrap();
        waiting
    };
    let mut waiting = wait().await;
    // The test client's own connection is one more.
    soon(async {
        while server.call(Method::GET, "/health/live", None, None).await.status != 429 {
            // The request above may have been in flight when the poll arrived: then the poll was refused.
            if waiting.try_read(&mut [0]).is_ok() {
                waiting = wait().await;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let mut third = connect().await;
    third.write_all(ask("/health/live").as_bytes()).await.unwrap();
    let mut answer = String::new();
    soon(third.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("under way"), "{answer}");
    let (_one, _two) = (connect().await, connect().await);
    soon(async {
        loop {
            let mut answer = String::new();
            let mut more = connect().await;
            let read = more.read_to_string(&mut answer);
            match tokio::time::timeout(Duration::from_millis(200), read).await {
                Ok(_) if answer.contains("too many connections") => break,
                _ => {}
            }
        }
    })
    .await;
    drop(waiting);
    soon(async {
        while server.call(Method::GET, "/health/live", None, None).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn open_sockets_count_as_connections_of_their_address() {
    use tokio_tungstenite::tungstenite::Error;
    let config = Config { connections_per_address: 4, rate_limits: None, ..Config::default() };
    let server = TestServer::sqlite_with(config).await;
    // The connection of this client is the first of the four.
    let bob = server.register("bob-agent").await;
    let mut sockets = vec![server.live(&bob).await, server.live(&bob).await, server.live(&bob).await];
    let connect =
        async || tokio_tungstenite::connect_async(format!("ws://{}/ws?api_key={}", server.host, bob.key)).await;
    match soon(connect()).await {
        Err(Error::Http(answer)) => assert_eq!(answer.status(), 429),
        other => panic!("expected a refusal, not {other:?}"),
    }
    sockets.pop();
    soon(async {
        while connect().await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_unread_response_counts_as_a_request_in_flight() {
    let config = Config { requests_per_address: 1, rate_limits: None, ..Config::default() };
    let server = TestServer::sqlite_with(config).await;
    let (alice, bob) = server.pair().await;
    for _ in 0..4 {
        let parts = json!([{"type": "data", "data": {"k": "x".repeat(900_000)}}]);
        let body = json!({"to": bob.name, "subject": "Plan", "content": "look", "parts": parts});
        server.post(&alice, "/messages/send", body).await.expect(201);
    }
    let (host, key) = (&server.host, &bob.key);
    let ask = format!("GET /export HTTP/1.1\r\nhost: {host}\r\nx-api-key: {key}\r\nconnection: close\r\n\r\n");
    let status = async || server.call(Method::GET, "/health/live", None, None).await.status.as_u16();
    let mut head = [0; 12];
    let mut unread = soon(async {
        loop {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            // So small that most of the response stays at the server.
            socket.set_recv_buffer_size(4 * 1024).unwrap();
            let mut stream = socket.connect(server.host.parse().unwrap()).await.unwrap();
            stream.write_all(ask.as_bytes()).await.unwrap();
            stream.read_exact(&mut head).await.unwrap();
            // Else the previous request was still in flight.
            if head == *b"HTTP/1.1 200" {
                return stream;
            }
        }
    })
    .await;
    assert_eq!(status().await, 429, "the answer is made and not written");
    let mut rest = Vec::new();
    soon(unread.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.len() > 3_600_000, "{}", rest.len());
    soon(async {
        while status().await != 200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_client_that_never_reads_is_disconnected() {
    let config = Config { write_timeout: Duration::from_millis(300), rate_limits: None, ..Config::default() };
    let server = TestServer::sqlite_with(config).await;
    let (alice, bob) = server.pair().await;
    for number in 0..40 {
        server.send(&alice, &bob, &format!("Plan {number}"), &"x".repeat(10_000)).await;
    }
    let mut stream = TcpStream::connect(&server.host).await.unwrap();
    let ask = format!("GET /export HTTP/1.1\r\nhost: {}\r\nx-api-key: {}\r\n\r\n", server.host, bob.key);
    // More responses than the socket buffers hold.
    let cut = async {
        while stream.write_all(ask.as_bytes()).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    soon(cut).await;
}

#[tokio::test]
async fn a_head_has_at_most_32_kib() {
    let server = TestServer::sqlite().await;
    let ask = |size: usize| server.http.get(server.url("/health/live")).header("X-Long", "x".repeat(size)).send();
    assert_eq!(soon(ask(30 * 1024)).await.unwrap().status(), 200);
    // Either the error is read, or the connection broke while the rest was written.
    if let Ok(answer) = soon(ask(64 * 1024)).await {
        assert_eq!(answer.status(), 431);
    }
}
