//! The gateway's WebSocket: `agent` with the mail's id as idempotency key, then `agent.wait`.

use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::{CONNECT_TIMEOUT, Gateway, PATIENCE, spoken};
use crate::runtime::{Outcome, Trouble, Turn, TurnError};

/// The version of the protocol that is spoken here.
const PROTOCOL: u32 = 4;
/// The longest that one `agent.wait` waits.
const WAIT_MS: u128 = 60_000;

type Socket = WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>;

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

pub(super) async fn turn(gateway: &Gateway, turn: &Turn) -> Result<Outcome, TurnError> {
    let mut line = Line::open(gateway).await?;
    let deadline = Instant::now() + turn.timeout + PATIENCE;
    // A repeat of the same key joins the run that there is, or was.
    let started = line
        .call(
            "agent",
            json!({
                "message": turn.prompt, "sessionKey": turn.session_key, "idempotencyKey": turn.key, "deliver": false,
            }),
            deadline,
        )
        .await?;
    if let Some(outcome) = ended(&started) {
        return outcome;
    }
    loop {
        let left = deadline.saturating_duration_since(Instant::now()).as_millis().min(WAIT_MS);
        if left == 0 {
            return Err(TurnError::new(Trouble::Timeout, "the agent did not answer in time"));
        }
        let waited = line.call("agent.wait", json!({ "runId": turn.key, "timeoutMs": left }), deadline).await?;
        if let Some(outcome) = ended(&waited) {
            return outcome;
        }
    }
}

/// What came of the run, unless it is still under way.
fn ended(payload: &Value) -> Option<Result<Outcome, TurnError>> {
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    match payload.get("status").and_then(Value::as_str).unwrap_or_default() {
        "ok" | "completed" => {
            let reply = payload.get("terminalReply")?;
            let visible = text(reply, "disposition").is_none_or(|disposition| disposition == "visible");
            Some(Ok(spoken(text(reply, "text").filter(|_| visible).as_deref())))
        }
        "error" | "failed" => {
            let why =
                text(payload, "error").or_else(|| text(payload, "summary")).unwrap_or_else(|| "no reason given".into());
            Some(Err(TurnError::new(Trouble::Failed, format!("the turn failed: {why}"))))
        }
        // accepted, timeout (of the wait alone), in_flight
        _ => None,
    }
}

/// A connection that has been let in.
struct Line {
    socket: Socket,
    calls: u32,
}

impl Line {
    async fn open(gateway: &Gateway) -> Result<Self, TurnError> {
        let mut url = gateway.url.clone();
        // Between schemes of the same kind this cannot fail.
        let _ = url.set_scheme(if url.scheme() == "https" { "wss" } else { "ws" });
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let unreachable = |why: String| {
            TurnError::new(Trouble::Unreachable, format!("cannot reach the OpenClaw gateway at {}: {why}", gateway.url))
        };
        let connected = timeout_at(deadline, connect_async(url.as_str())).await;
        let (socket, _) =
            connected.map_err(|_| unreachable("no answer".into()))?.map_err(|e| unreachable(e.to_string()))?;
        let mut line = Self { socket, calls: 0 };
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
        line.call("connect", hello, deadline).await.map_err(|error| match error.trouble {
            Trouble::Failed => TurnError::new(
                Trouble::Unauthorized,
                format!("the gateway does not let the bridge in ({error}); check OPENCLAW_GATEWAY_TOKEN"),
            ),
            _ => error,
        })?;
        Ok(line)
    }

    /// Asks and waits for the first answer to it.
    async fn call(&mut self, method: &str, params: Value, deadline: Instant) -> Result<Value, TurnError> {
        self.calls += 1;
        let id = format!("r{}", self.calls);
        let request = json!({ "type": "req", "id": id, "method": method, "params": params });
        self.socket.send(Message::text(request.to_string())).await.map_err(broken)?;
        loop {
            let frame = self.frame(deadline).await?;
            // Events, and the second answer that `agent` gives at its end, are for others.
            if frame.kind != "res" || frame.id.as_deref() != Some(&id) {
                continue;
            }
            return match frame.ok {
                Some(false) => {
                    let why = frame.error.unwrap_or_default();
                    let why = why.get("message").and_then(Value::as_str).map_or_else(|| why.to_string(), str::to_owned);
                    Err(TurnError::new(Trouble::Failed, format!("{method}: {why}")))
                }
                _ => Ok(frame.payload),
            };
        }
    }

    async fn frame(&mut self, deadline: Instant) -> Result<Frame, TurnError> {
        loop {
            let next = timeout_at(deadline, self.socket.next()).await;
            match next.map_err(|_| TurnError::new(Trouble::Timeout, "the gateway did not answer in time"))? {
                Some(Ok(Message::Text(text))) => match serde_json::from_str(&text) {
                    Ok(frame) => return Ok(frame),
                    Err(error) => tracing::debug!(%error, "not understood"),
                },
                Some(Ok(Message::Close(close))) => {
                    let why = close.map_or_else(String::new, |close| close.reason.to_string());
                    return Err(TurnError::new(Trouble::Failed, format!("the gateway closed the line: {why}")));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(broken(error)),
                None => return Err(TurnError::new(Trouble::Failed, "the gateway closed the line")),
            }
        }
    }
}

fn broken(error: tungstenite::Error) -> TurnError {
    TurnError::new(Trouble::Failed, format!("the line to the gateway broke: {error}"))
}

/// Whether the gateway lets the bridge in this way.
pub(super) async fn greet(gateway: &Gateway) -> Result<(), TurnError> {
    let mut line = Line::open(gateway).await?;
    // It has served its purpose; a gateway that is gone meanwhile is no news.
    let _ = line.socket.close(None).await;
    Ok(())
}
