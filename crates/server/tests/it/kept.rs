//! Keep-alive: after any response, the next request on the connection is answered.

use amb_server::{Config, Rate, RateLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::test_server::{TestServer, soon};

/// More than the server reads together with the head of a request.
const LARGE: usize = 300 * 1024;

/// Posts a large body and returns the head of the response.
async fn post(line: &mut TcpStream, path: &str, extra: &str) -> String {
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {LARGE}\r\n{extra}\r\n");
    soon(line.write_all(head.as_bytes())).await.unwrap();
    soon(line.write_all(&vec![b' '; LARGE])).await.unwrap();
    answer(line).await
}

/// Reads one response and returns its head.
async fn answer(line: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(soon(line.read_u8()).await.expect("the connection was closed without a word"));
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let (_, length) = head.split_once("content-length: ").unwrap();
    let mut body = vec![0; length.split_once("\r\n").unwrap().0.parse().unwrap()];
    soon(line.read_exact(&mut body)).await.unwrap();
    head
}

async fn a_body_that_grows_too_large_and_does_not_end_is_refused_for_its_size(server: TestServer) {
    let agent = server.register("alice-agent").await;
    let mut line = TcpStream::connect(&server.host).await.unwrap();
    let head = format!(
        "POST /messages/send HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {}\r\nContent-Type: application/json\r\n\
         Transfer-Encoding: chunked\r\n\r\n",
        agent.key
    );
    soon(line.write_all(head.as_bytes())).await.unwrap();
    let chunk = vec![b' '; 3 * 1024 * 1024];
    soon(line.write_all(format!("{:x}\r\n", chunk.len()).as_bytes())).await.unwrap();
    soon(line.write_all(&chunk)).await.unwrap();
    assert!(answer(&mut line).await.starts_with("http/1.1 413 "));
}

async fn an_error_leaves_the_connection_usable(server: TestServer) {
    let mut line = TcpStream::connect(&server.host).await.unwrap();
    for (path, extra, status) in [
        ("/messages/send", "", 401),
        ("/messages/send", "X-API-Key: wrong\r\n", 401),
        ("/inbox", "", 405),
        ("/nowhere", "", 404),
        ("/agents/register", "Content-Type: text/plain\r\n", 415),
    ] {
        let head = post(&mut line, path, extra).await;
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{path}: {head}");
        assert!(!head.contains("connection: close"), "{path}: {head}");
    }
}

#[tokio::test]
async fn a_rate_limit_error_leaves_the_connection_usable() {
    let limits = RateLimits { address: Rate::per_minute(1, 1), ..RateLimits::default() };
    let server = TestServer::sqlite_with(Config { rate_limits: Some(limits), ..Config::default() }).await;
    let mut line = TcpStream::connect(&server.host).await.unwrap();
    post(&mut line, "/messages/send", "").await;
    for _ in 0..3 {
        assert!(post(&mut line, "/messages/send", "").await.starts_with("http/1.1 429 "));
    }
}

#[tokio::test]
async fn expect_100_continue_is_answered_at_once_with_connection_close() {
    let server = TestServer::sqlite().await;
    let mut line = TcpStream::connect(&server.host).await.unwrap();
    let head = "POST /messages/send HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    soon(line.write_all(head.as_bytes())).await.unwrap();
    let head = answer(&mut line).await;
    assert!(head.starts_with("http/1.1 401 ") && head.contains("connection: close"), "{head}");
}

#[tokio::test]
async fn a_long_request_head_is_accepted() {
    let server = TestServer::sqlite().await;
    let mut line = TcpStream::connect(&server.host).await.unwrap();
    for _ in 0..3 {
        let head = format!("GET /inbox HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {}\r\n\r\n", "k".repeat(20_000));
        soon(line.write_all(head.as_bytes())).await.unwrap();
        assert!(answer(&mut line).await.starts_with("http/1.1 401 "));
    }
}

crate::on_every_store!(
    an_error_leaves_the_connection_usable,
    a_body_that_grows_too_large_and_does_not_end_is_refused_for_its_size,
);
