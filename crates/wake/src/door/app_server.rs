//! Codex' app server: JSON objects in text frames of a WebSocket over a Unix socket, without a `jsonrpc` member.

use std::path::Path;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

/// The limit of one exchange with the server, connecting included.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Why a request to the server failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum AppServerError {
    /// Nobody listens, or the connection broke.
    #[error("the app server cannot be reached: {0}")]
    Unreachable(String),
    #[error("the app server refused {method}: {message}")]
    Refused { method: &'static str, message: String },
    #[error("the app server did not answer in time")]
    Timeout,
}

/// Starts a turn, or adds to the running one. A thread that is not loaded is loaded first.
pub(super) async fn start_turn(socket: &Path, thread: &str, text: &str) -> Result<(), AppServerError> {
    let exchange = async {
        let mut session = AppServerSession::open(socket).await?;
        if session.status(thread).await? == "notLoaded" {
            session.call("thread/resume", json!({"threadId": thread})).await?;
        }
        let input = json!([{"type": "text", "text": text}]);
        session.call("turn/start", json!({"threadId": thread, "input": input})).await.map(drop)
    };
    timeout(TIMEOUT, exchange).await.unwrap_or(Err(AppServerError::Timeout))
}

/// The status of a thread: `idle`, `active`, `notLoaded`.
pub(super) async fn thread_status(socket: &Path, thread: &str) -> Result<String, AppServerError> {
    let exchange = async { AppServerSession::open(socket).await?.status(thread).await };
    timeout(TIMEOUT, exchange).await.unwrap_or(Err(AppServerError::Timeout))
}

struct AppServerSession {
    socket: WebSocketStream<UnixStream>,
    requests: u64,
}

impl AppServerSession {
    async fn open(path: &Path) -> Result<Self, AppServerError> {
        let stream = UnixStream::connect(path).await.map_err(|error| AppServerError::Unreachable(error.to_string()))?;
        let (socket, _) = client_async("ws://localhost/", stream).await.map_err(unreachable)?;
        let mut session = Self { socket, requests: 0 };
        let client = json!({"name": "amb", "title": "Agent Mailbox", "version": env!("CARGO_PKG_VERSION")});
        session.call("initialize", json!({"clientInfo": client, "capabilities": {"experimentalApi": true}})).await?;
        session.send(json!({"method": "initialized"})).await?;
        Ok(session)
    }

    async fn status(&mut self, thread: &str) -> Result<String, AppServerError> {
        let read = self.call("thread/read", json!({"threadId": thread})).await?;
        Ok(read["thread"]["status"]["type"].as_str().unwrap_or("unknown").to_owned())
    }

    async fn send(&mut self, message: Value) -> Result<(), AppServerError> {
        self.socket.send(Message::text(message.to_string())).await.map_err(unreachable)
    }

    async fn call(&mut self, method: &'static str, params: Value) -> Result<Value, AppServerError> {
        self.requests += 1;
        let id = self.requests;
        self.send(json!({"id": id, "method": method, "params": params})).await?;
        loop {
            let frame = self.socket.next().await.ok_or_else(|| AppServerError::Unreachable("it hung up".into()))?;
            let Message::Text(text) = frame.map_err(unreachable)? else { continue };
            // Notifications, and requests of the server, are ignored.
            let Ok(mut answer) = serde_json::from_str::<Value>(&text) else { continue };
            if answer["id"] != id || answer.get("method").is_some() {
                continue;
            }
            return match answer.get("error") {
                Some(error) => {
                    let message = error["message"].as_str().unwrap_or("no reason given").chars().take(200).collect();
                    Err(AppServerError::Refused { method, message })
                }
                None => Ok(answer["result"].take()),
            };
        }
    }
}

fn unreachable(error: tokio_tungstenite::tungstenite::Error) -> AppServerError {
    AppServerError::Unreachable(error.to_string())
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;
    use tokio_tungstenite::accept_async;

    use super::*;

    /// An app server whose thread has this status; returns the requests it got before its client disconnected.
    async fn server(listener: UnixListener, status: &str) -> Vec<Value> {
        let mut socket = accept_async(listener.accept().await.unwrap().0).await.unwrap();
        let mut requests = Vec::new();
        while let Some(Ok(frame)) = socket.next().await {
            let Message::Text(text) = frame else { continue };
            let request: Value = serde_json::from_str(&text).unwrap();
            let answer = match request["method"].as_str().unwrap() {
                "thread/read" => json!({"id": request["id"], "result": {"thread": {"status": {"type": status}}}}),
                "turn/start" if status == "broken" => {
                    json!({"id": request["id"], "error": {"code": -32001, "message": "overloaded"}})
                }
                _ => json!({"id": request["id"], "result": {}}),
            };
            // Notifications and requests of the server come in between.
            socket.send(Message::text(json!({"method": "turn/started", "params": {}}).to_string())).await.unwrap();
            socket
                .send(Message::text(json!({"id": request["id"], "method": "item/ask", "params": {}}).to_string()))
                .await
                .unwrap();
            if request.get("id").is_some() {
                socket.send(Message::text(answer.to_string())).await.unwrap();
            }
            requests.push(request);
        }
        requests
    }

    fn methods(requests: &[Value]) -> Vec<&str> {
        requests.iter().map(|request| request["method"].as_str().unwrap()).collect()
    }

    #[tokio::test]
    async fn a_thread_is_loaded_before_its_turn_starts() {
        let home = tempfile::tempdir().unwrap();
        for (status, wanted) in [
            ("active", &["initialize", "initialized", "thread/read", "turn/start"][..]),
            ("notLoaded", &["initialize", "initialized", "thread/read", "thread/resume", "turn/start"]),
        ] {
            let socket = home.path().join(format!("{status}.sock"));
            let listener = UnixListener::bind(&socket).unwrap();
            let (started, requests) = tokio::join!(start_turn(&socket, "t-1", "hello"), server(listener, status));
            started.unwrap();
            assert_eq!(methods(&requests), wanted);
            let turn = requests.last().unwrap();
            assert_eq!(turn["params"], json!({"threadId": "t-1", "input": [{"type": "text", "text": "hello"}]}));
            assert!(turn.get("jsonrpc").is_none());
        }
    }

    #[tokio::test]
    async fn a_refusal_and_an_unreachable_server_are_errors() {
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("s.sock");
        assert!(matches!(start_turn(&socket, "t", "x").await, Err(AppServerError::Unreachable(_))));
        let listener = UnixListener::bind(&socket).unwrap();
        let (started, _) = tokio::join!(start_turn(&socket, "t", "x"), server(listener, "broken"));
        assert!(started.unwrap_err().to_string().contains("overloaded"));
    }
}
