//! Codex' app server: JSON objects in text frames of a WebSocket over a Unix socket, without a `jsonrpc` member.

use std::path::Path;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

/// How long one exchange with the server may take, from connecting on.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why the server did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum AppServerError {
    /// Nobody is there, or it hung up.
    #[error("the app server cannot be reached: {0}")]
    Unreachable(String),
    /// It said no.
    #[error("the app server refused {method}: {message}")]
    Refused {
        /// What was asked.
        method: &'static str,
        /// What it said.
        message: String,
    },
    /// It did not answer.
    #[error("the app server did not answer in time")]
    Silent,
}

/// Starts a turn, or joins the one under way. A thread that is not loaded is loaded first.
pub async fn start_turn(socket: &Path, thread: &str, text: &str) -> Result<(), AppServerError> {
    let exchange = async {
        let mut session = Session::open(socket).await?;
        if session.status(thread).await? == "notLoaded" {
            session.call("thread/resume", json!({"threadId": thread})).await?;
        }
        let input = json!([{"type": "text", "text": text}]);
        session.call("turn/start", json!({"threadId": thread, "input": input})).await.map(drop)
    };
    timeout(PATIENCE, exchange).await.unwrap_or(Err(AppServerError::Silent))
}

/// What a thread is doing: `idle`, `active`, `notLoaded`.
pub async fn thread_status(socket: &Path, thread: &str) -> Result<String, AppServerError> {
    let exchange = async { Session::open(socket).await?.status(thread).await };
    timeout(PATIENCE, exchange).await.unwrap_or(Err(AppServerError::Silent))
}

struct Session {
    socket: WebSocketStream<UnixStream>,
    asked: u64,
}

impl Session {
    async fn open(path: &Path) -> Result<Self, AppServerError> {
        let stream = UnixStream::connect(path).await.map_err(|error| AppServerError::Unreachable(error.to_string()))?;
        let (socket, _) = client_async("ws://localhost/", stream).await.map_err(unreachable)?;
        let mut session = Self { socket, asked: 0 };
        let client = json!({"name": "amb", "title": "Agent Mailbox", "version": env!("CARGO_PKG_VERSION")});
        session.call("initialize", json!({"clientInfo": client, "capabilities": {"experimentalApi": true}})).await?;
        session.say(json!({"method": "initialized"})).await?;
        Ok(session)
    }

    async fn status(&mut self, thread: &str) -> Result<String, AppServerError> {
        let read = self.call("thread/read", json!({"threadId": thread})).await?;
        Ok(read["thread"]["status"]["type"].as_str().unwrap_or("unknown").to_owned())
    }

    async fn say(&mut self, message: Value) -> Result<(), AppServerError> {
        self.socket.send(Message::text(message.to_string())).await.map_err(unreachable)
    }

    async fn call(&mut self, method: &'static str, params: Value) -> Result<Value, AppServerError> {
        self.asked += 1;
        let id = self.asked;
        self.say(json!({"id": id, "method": method, "params": params})).await?;
        loop {
            let frame = self.socket.next().await.ok_or_else(|| AppServerError::Unreachable("it hung up".into()))?;
            let Message::Text(text) = frame.map_err(unreachable)? else { continue };
            // Notifications and requests of the server's own are not for us.
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
