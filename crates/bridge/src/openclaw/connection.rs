//! A connection to the gateway's WebSocket that has been let in.

use std::fmt;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::{CONNECT_TIMEOUT, Gateway, refused};
use crate::runtime::{Trouble, TurnError};

/// The version of the protocol that is spoken here.
const PROTOCOL: u32 = 4;

/// What the gateway says.
#[derive(Deserialize)]
struct Frame {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    event: Option<String>,
    #[serde(default)]
    ok: Option<bool>,
    #[serde(default)]
    payload: Value,
    #[serde(default)]
    error: Option<Value>,
}

/// An answer to something that was asked.
pub(super) struct Answer {
    /// To what.
    pub(super) id: String,
    /// What it says, or the reason for which the gateway refuses.
    pub(super) said: Result<Value, Refusal>,
}

/// Why the gateway refuses something.
#[derive(Debug)]
pub(super) struct Refusal {
    code: String,
    message: String,
}

impl Refusal {
    /// Whether it would not refuse a little later: it is starting, stopping, or busy with this very session.
    pub(super) fn is_passing(&self) -> bool {
        self.code == "UNAVAILABLE"
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

pub(super) struct Line {
    socket: WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>,
    asked: u32,
    /// When the gateway let us in, and for how long it had run then, where it says so.
    opened: (Instant, Option<Duration>),
}

impl Line {
    pub(super) async fn open(gateway: &Gateway) -> Result<Self, TurnError> {
        let mut url = gateway.url.clone();
        // Between schemes of the same kind this cannot fail.
        let _ = url.set_scheme(if url.scheme() == "https" { "wss" } else { "ws" });
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let unreachable = |why: String| gateway.unreachable(&why);
        let connected = timeout_at(deadline, connect_async(url.as_str())).await;
        let (socket, _) = connected.map_err(|_| unreachable("no answer".into()))?.map_err(|error| match error {
            // Somebody is there who does not speak the gateway's protocol, or not at this address.
            tungstenite::Error::Http(answer) => refused(answer.status(), ""),
            error => unreachable(error.to_string()),
        })?;
        let mut line = Self { socket, asked: 0, opened: (Instant::now(), None) };
        // Nothing has been asked of it yet: whatever goes wrong until it has let us in, no turn has begun.
        loop {
            let frame = line.frame(deadline).await.map_err(|error| unreachable(error.detail))?;
            if frame.event.as_deref() == Some("connect.challenge") {
                break;
            }
        }
        let hello = json!({
            "minProtocol": PROTOCOL, "maxProtocol": PROTOCOL,
            // The gateway knows its clients by name and lets in no others.
            "client": { "id": "gateway-client", "version": env!("CARGO_PKG_VERSION"), "platform": "linux", "mode": "backend" },
            "role": "operator", "scopes": ["operator.read", "operator.write"], "caps": [], "commands": [], "permissions": {},
            "auth": { "token": gateway.token },
        });
        let id = line.ask("connect", hello).await.map_err(|error| unreachable(error.detail))?;
        let answer = line.answer(&[&id], deadline).await.map_err(|error| unreachable(error.detail))?;
        match answer.said {
            Ok(hello) => {
                let uptime = hello.pointer("/snapshot/uptimeMs").and_then(Value::as_u64).map(Duration::from_millis);
                line.opened = (Instant::now(), uptime);
                Ok(line)
            }
            Err(why) if why.is_passing() => Err(unreachable(why.to_string())),
            Err(why) => Err(TurnError::new(
                Trouble::Unauthorized,
                format!(
                    "the gateway does not let the bridge in ({why}); set OPENCLAW_GATEWAY_TOKEN to gateway.auth.token of \
                     openclaw.json"
                ),
            )),
        }
    }

    /// For how long the gateway has run; for ever, where it does not say.
    pub(super) fn uptime(&self) -> Duration {
        let (opened, uptime) = self.opened;
        uptime.map_or(Duration::MAX, |uptime| uptime.saturating_add(opened.elapsed()))
    }

    /// Asks; the answer will have the id that this answers.
    pub(super) async fn ask(&mut self, method: &str, params: Value) -> Result<String, TurnError> {
        self.asked += 1;
        let id = format!("r{}", self.asked);
        let request = json!({ "type": "req", "id": id, "method": method, "params": params });
        self.socket.send(Message::text(request.to_string())).await.map_err(broken)?;
        Ok(id)
    }

    /// The next answer to any of these. Events are for others.
    pub(super) async fn answer(&mut self, ids: &[&str], deadline: Instant) -> Result<Answer, TurnError> {
        loop {
            let frame = self.frame(deadline).await?;
            let Some(id) = frame.id.filter(|id| frame.kind == "res" && ids.contains(&id.as_str())) else { continue };
            let said = match frame.ok {
                Some(false) => {
                    let why = frame.error.unwrap_or_default();
                    let word = |name: &str| why.get(name).and_then(Value::as_str).map(str::to_owned);
                    let message = word("message").unwrap_or_else(|| why.to_string());
                    Err(Refusal { code: word("code").unwrap_or_default(), message })
                }
                _ => Ok(frame.payload),
            };
            return Ok(Answer { id, said });
        }
    }

    /// Says goodbye. A gateway that is gone meanwhile is no news.
    pub(super) async fn close(mut self) {
        let _ = self.socket.close(None).await;
    }

    async fn frame(&mut self, deadline: Instant) -> Result<Frame, TurnError> {
        let lost = |why: &str| TurnError::new(Trouble::Lost, format!("the gateway closed the line{why}"));
        loop {
            let next = timeout_at(deadline, self.socket.next()).await;
            match next.map_err(|_| TurnError::new(Trouble::Timeout, "the gateway did not answer in time"))? {
                Some(Ok(Message::Text(text))) => match serde_json::from_str(&text) {
                    Ok(frame) => return Ok(frame),
                    Err(error) => tracing::debug!(%error, "not understood"),
                },
                Some(Ok(Message::Close(close))) => {
                    return Err(lost(&close.map_or_else(String::new, |close| format!(": {}", close.reason))));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(broken(error)),
                None => return Err(lost("")),
            }
        }
    }
}

fn broken(error: tungstenite::Error) -> TurnError {
    TurnError::new(Trouble::Lost, format!("the line to the gateway broke: {error}"))
}
