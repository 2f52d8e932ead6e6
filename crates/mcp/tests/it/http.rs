//! HTTP: which requests are admitted, and both eras.

use std::net::SocketAddr;
use std::sync::Arc;

use amb_core::{Draft, Mailbox};
use amb_mcp::{McpOptions, ServeError, serve_http};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::client::{PATIENCE, name, town};

struct Server {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ServeError>>,
}

impl Server {
    async fn start(mailbox: Arc<dyn Mailbox>, options: McpOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let ended = async move {
            let _ = stopped.await;
        };
        let task = tokio::spawn(serve_http(listener, mailbox, options, ended));
        Self { address, stop, task }
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        tokio::time::timeout(PATIENCE, self.task).await.expect("the server ends").unwrap().unwrap();
    }

    /// Posts one message; returns the raw status, headers and body.
    async fn post(&self, headers: &[(&str, &str)], body: &Value) -> (u16, String, String) {
        let body = body.to_string();
        let has = |wanted: &str| headers.iter().any(|(header, _)| header.eq_ignore_ascii_case(wanted));
        let mut request = String::from("POST /mcp HTTP/1.1\r\n");
        if !has("host") {
            request.push_str(&format!("host: {}\r\n", self.address));
        }
        request.push_str(
            "content-type: application/json\r\naccept: application/json, text/event-stream\r\nconnection: close\r\n",
        );
        for (header, value) in headers {
            request.push_str(&format!("{header}: {value}\r\n"));
        }
        request.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("an answer in time").unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_owned(), body.to_owned())
    }
}

/// The JSON-RPC answer in a body, be it plain JSON or an event stream, chunked or not.
fn answer(body: &str) -> Value {
    let line = body
        .lines()
        .map(|line| line.strip_prefix("data: ").unwrap_or(line))
        .find(|line| line.starts_with("{\"jsonrpc\""));
    serde_json::from_str(line.unwrap_or_else(|| panic!("no answer in {body}"))).unwrap()
}

fn initialize() -> Value {
    let params =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
}

fn stateless(method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    });
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
}

#[tokio::test]
async fn pages_of_the_web_and_rebound_names_are_kept_out() {
    let office = town();
    let server = Server::start(Arc::new(office.mailbox(name("alice"))), McpOptions::default()).await;
    let own = format!("http://127.0.0.1:{}", server.address.port());
    let other_port = format!("http://127.0.0.1:{}", server.address.port() ^ 1);
    let refused: [&[(&str, &str)]; 6] = [
        &[("origin", "https://evil.example")],
        &[("origin", "http://localhost.evil.example")],
        &[("origin", "null")],
        &[("origin", &other_port)],
        &[("host", "evil.example")],
        &[("host", "evil.example:8000"), ("origin", &own)],
    ];
    for headers in refused {
        let (status, _, body) = server.post(headers, &initialize()).await;
        assert_eq!(status, 403, "{headers:?}: {body}");
        assert!(!body.contains("--allow-host"), "`amb mcp` has no such option: {body}");
    }
    let local = format!("localhost:{}", server.address.port());
    let allowed: [&[(&str, &str)]; 3] = [&[], &[("origin", &own)], &[("host", &local)]];
    for headers in allowed {
        let (status, _, body) = server.post(headers, &initialize()).await;
        assert_eq!(status, 200, "{headers:?}: {body}");
    }
    server.stop().await;
}

#[tokio::test]
async fn an_origin_can_be_allowed() {
    let office = town();
    let options = McpOptions { allowed_origins: vec!["https://app.example:443".into()], ..McpOptions::default() };
    let server = Server::start(Arc::new(office.mailbox(name("alice"))), options).await;
    let (status, _, body) = server.post(&[("origin", "https://app.example")], &initialize()).await;
    assert_eq!(status, 200, "{body}");
    server.stop().await;
}

#[tokio::test]
async fn an_address_that_others_reach_is_refused() {
    let office = town();
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let ended =
        serve_http(listener, Arc::new(office.mailbox(name("alice"))), McpOptions::default(), std::future::pending())
            .await;
    assert!(matches!(ended, Err(ServeError::NotLoopback(_))), "{ended:?}");
}

#[tokio::test]
async fn a_client_with_a_handshake_has_a_session() {
    let office = town();
    let bob = office.mailbox(name("bob"));
    bob.send(Draft::text(name("alice"), "Plan", "Hello")).await.unwrap();
    let server = Server::start(Arc::new(office.mailbox(name("alice"))), McpOptions::default()).await;
    for _ in 0..2 {
        let (status, head, body) = server.post(&[], &initialize()).await;
        assert_eq!(status, 200);
        let result = answer(&body)["result"].clone();
        assert_eq!(result["serverInfo"]["name"], "agent-mailbox");
        assert!(result["capabilities"].get("experimental").is_none(), "the channel is for stdio");
        let session = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap();
        let headers = [("mcp-session-id", session), ("mcp-protocol-version", "2025-11-25")];
        let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "mailbox_check", "arguments": {}}});
        let (_, _, body) = server.post(&headers, &call).await;
        let data = answer(&body)["result"]["structuredContent"].clone();
        assert_eq!(
            data["sessions"][0]["recent_messages"][0]["content"], "Hello",
            "each session is shown it once: {data}"
        );
        let (_, _, body) = server.post(&headers, &call).await;
        let data = answer(&body)["result"]["structuredContent"].clone();
        assert_eq!(data["sessions"][0]["recent_messages"], json!([]), "{data}");
    }
    server.stop().await;
}

#[tokio::test]
async fn sessions_are_bounded_and_other_clients_go_on() {
    let server = Server::start(Arc::new(town().mailbox(name("alice"))), McpOptions::default()).await;
    for _ in 0..256 {
        assert_eq!(server.post(&[], &initialize()).await.0, 200);
    }
    let (status, _, body) = server.post(&[], &initialize()).await;
    assert!(status == 503 && body.contains("256 sessions"), "{status} {body}");
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "server/discover")];
    assert_eq!(server.post(&headers, &stateless("server/discover", json!({}))).await.0, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_stateless_client_needs_none() {
    let office = town();
    let server = Server::start(Arc::new(office.mailbox(name("alice"))), McpOptions::default()).await;
    let headers = |method: &'static str| [("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
    let (status, _, body) = server.post(&headers("server/discover"), &stateless("server/discover", json!({}))).await;
    assert_eq!(status, 200, "{body}");
    assert!(answer(&body)["result"]["supportedVersions"].to_string().contains("2026-07-28"), "{body}");
    let call = stateless("tools/call", json!({"name": "mailbox_check", "arguments": {}}));
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "mailbox_check")];
    let (status, head, body) = server.post(&headers, &call).await;
    assert_eq!(status, 200, "{body}");
    assert!(!head.contains("mcp-session-id"), "{head}");
    assert_eq!(answer(&body)["result"]["structuredContent"]["unread"], 0, "{body}");
    server.stop().await;
}
