//! An authenticated connection to the gateway's WebSocket.

use std::fmt;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::{CONNECT_TIMEOUT, Gateway, http_error};
use crate::runtime::{FailureKind, TurnError};

/// The protocol version that the bridge speaks.
const PROTOCOL: u32 = 4;

#[derive(Deserialize)]
struct GatewayFrame {
    #[serde(rename = "type")]
    kind: String,
    id: Option<String>,
    event: Option<String>,
    ok: Option<bool>,
    #[serde(default)]
    payload: Value,
    error: Option<Value>,
}

pub(super) struct GatewayResponse {
    pub(super) id: String,
    /// The payload, or the gateway's error.
    pub(super) said: Result<Value, GatewayError>,
}

/// An error that the gateway returned.
#[derive(Debug)]
pub(super) struct GatewayError {
    code: String,
    message: String,
}

impl GatewayError {
    /// Whether a retry may succeed: the gateway is starting, stopping, or busy with this session.
    pub(super) fn is_transient(&self) -> bool {
        self.code == "UNAVAILABLE"
    }
}

impl fmt::Display for GatewayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

pub(super) struct GatewayConnection {
    socket: WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>,
    asked: u32,
    /// When the connection was accepted, and the gateway's uptime at that time, where it reports one.
    opened: (Instant, Option<Duration>),
}

impl GatewayConnection {
    pub(super) async fn open(gateway: &Gateway) -> Result<Self, TurnError> {
        let mut url = gateway.url.clone();
        // Changing between schemes of the same kind cannot fail.
        let _ = url.set_scheme(if url.scheme() == "https" { "wss" } else { "ws" });
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let unreachable = |why: String| gateway.unreachable(&why);
        let connected = timeout_at(deadline, connect_async(url.as_str())).await;
        let (socket, _) = connected.map_err(|_| unreachable("no answer".into()))?.map_err(|error| match error {
            // A server that does not speak the gateway's protocol, or not at this address.
            tungstenite::Error::Http(answer) => http_error(answer.status(), ""),
            error => unreachable(error.to_string()),
        })?;
        let mut connection = Self { socket, asked: 0, opened: (Instant::now(), None) };
        // No turn has begun yet: whatever fails until the connection is accepted, the message can be retried.
        loop {
            let frame = connection.frame(deadline).await.map_err(|error| unreachable(error.detail))?;
            if frame.event.as_deref() == Some("connect.challenge") {
                break;
            }
        }
        let hello = json!({
            "minProtocol": PROTOCOL, "maxProtocol": PROTOCOL,
            // The gateway accepts only clients whose name it knows.
            "client": { "id": "gateway-client", "version": env!("CARGO_PKG_VERSION"), "platform": "linux", "mode": "backend" },
            "role": "operator", "scopes": ["operator.read", "operator.write"], "caps": [], "commands": [], "permissions": {},
            "auth": { "token": gateway.token },
        });
        let id = connection.ask("connect", hello).await.map_err(|error| unreachable(error.detail))?;
        let answer = connection.answer(&[&id], deadline).await.map_err(|error| unreachable(error.detail))?;
        match answer.said {
            Ok(hello) => {
                let uptime = hello.pointer("/snapshot/uptimeMs").and_then(Value::as_u64).map(Duration::from_millis);
                connection.opened = (Instant::now(), uptime);
                Ok(connection)
            }
            Err(why) if why.is_transient() => Err(unreachable(why.to_string())),
            Err(why) => Err(TurnError::new(
                FailureKind::Unauthorized,
                format!(
                    "the gateway does not let the bridge in ({why}); set OPENCLAW_GATEWAY_TOKEN to gateway.auth.token of \
                     openclaw.json"
                ),
            )),
        }
    }

    /// The gateway's uptime; the maximum where it does not report one.
    pub(super) fn uptime(&self) -> Duration {
        let (opened, uptime) = self.opened;
        uptime.map_or(Duration::MAX, |uptime| uptime.saturating_add(opened.elapsed()))
    }

    /// Sends a request; returns its id.
    pub(super) async fn ask(&mut self, method: &str, params: Value) -> Result<String, TurnError> {
        self.asked += 1;
        let id = format!("r{}", self.asked);
        let request = json!({ "type": "req", "id": id, "method": method, "params": params });
        self.socket.send(Message::text(request.to_string())).await.map_err(connection_error)?;
        Ok(id)
    }

    /// Returns the next response to any of these requests, and ignores events.
    pub(super) async fn answer(&mut self, ids: &[&str], deadline: Instant) -> Result<GatewayResponse, TurnError> {
        loop {
            let frame = self.frame(deadline).await?;
            let Some(id) = frame.id.filter(|id| frame.kind == "res" && ids.contains(&id.as_str())) else { continue };
            let said = match frame.ok {
                Some(false) => {
                    let why = frame.error.unwrap_or_default();
                    let word = |name: &str| why.get(name).and_then(Value::as_str).map(str::to_owned);
                    let message = word("message").unwrap_or_else(|| why.to_string());
                    Err(GatewayError { code: word("code").unwrap_or_default(), message })
                }
                _ => Ok(frame.payload),
            };
            return Ok(GatewayResponse { id, said });
        }
    }

    /// Closes the connection. It may be gone already.
    pub(super) async fn close(mut self) {
        let _ = self.socket.close(None).await;
    }

    async fn frame(&mut self, deadline: Instant) -> Result<GatewayFrame, TurnError> {
        let lost = |why: &str| TurnError::new(FailureKind::Lost, format!("the gateway closed the line{why}"));
        loop {
            let next = timeout_at(deadline, self.socket.next()).await;
            match next.map_err(|_| TurnError::new(FailureKind::Timeout, "the gateway did not answer in time"))? {
                Some(Ok(Message::Text(text))) => match serde_json::from_str(&text) {
                    Ok(frame) => return Ok(frame),
                    Err(error) => tracing::debug!(%error, "not understood"),
                },
                Some(Ok(Message::Close(close))) => {
                    return Err(lost(&close.map_or_else(String::new, |close| format!(": {}", close.reason))));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(connection_error(error)),
                None => return Err(lost("")),
            }
        }
    }
}

fn connection_error(error: tungstenite::Error) -> TurnError {
    TurnError::new(FailureKind::Lost, format!("the connection to the gateway broke: {error}"))
}
