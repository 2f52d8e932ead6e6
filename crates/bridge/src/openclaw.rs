//! OpenClaw: one message, one turn in a session of its gateway.
//!
//! | route | model calls a message | a repeat runs the turn again |
//! |---|---|---|
//! | [`GatewayRoute::WebSocket`], `agent` and `agent.wait` | 1 | no, while the gateway remembers: the message's id is the run's id; after that, unless the answer is found in the session's history |
//! | [`GatewayRoute::Chat`], `POST /v1/chat/completions` | 1 | unless the answer is found in the session's history |
//! | [`GatewayRoute::SessionsSend`], `POST /tools/invoke` | 1, by older gateways more | unless the message is found in the session's history |
//!
//! [`Gateway::probe`] finds out which of them a gateway offers.

mod chat;
mod connection;
mod history;
mod probe;
mod sessions_send;
mod socket;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use reqwest::{StatusCode, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::runtime::{FailureKind, Runtime, Turn, TurnError, TurnOutcome};

/// Added to a turn's limit before the bridge stops waiting for the gateway, which should report the timeout first.
const GRACE: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What the gateway returns where the agent said nothing.
const EMPTY_REPLIES: [&str; 4] = ["", "NO_REPLY", "HEARTBEAT_OK", "No response from OpenClaw."];

/// The gateway's interface by which turns are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatewayRoute {
    /// The chat completions endpoint.
    Chat,
    /// The gateway's own protocol.
    WebSocket,
    /// The tool that older gateways offer.
    SessionsSend,
}

impl fmt::Display for GatewayRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            GatewayRoute::Chat => "chat",
            GatewayRoute::WebSocket => "websocket",
            GatewayRoute::SessionsSend => "sessions_send",
        })
    }
}

impl FromStr for GatewayRoute {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [GatewayRoute::Chat, GatewayRoute::WebSocket, GatewayRoute::SessionsSend]
            .into_iter()
            .find(|route| route.to_string() == text)
            .ok_or_else(|| format!("a route is chat, websocket or sessions_send, not {text:?}"))
    }
}

/// One gateway and how to talk to it.
#[derive(Clone)]
pub struct Gateway {
    http: reqwest::Client,
    url: Url,
    token: String,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("url", &self.url.as_str()).finish_non_exhaustive()
    }
}

impl Gateway {
    /// Creates a client for the gateway at this address, with its token.
    pub fn new(url: &str, token: String) -> Result<Self, String> {
        // An error means that another part of the program has installed a provider already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let url = Url::parse(url).map_err(|error| format!("{url:?} is no gateway address: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err("a gateway address begins with http:// or https://".into());
        }
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            // The prompt holds private messages: it must not follow a redirect to another host.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| format!("cannot speak HTTP: {error}"))?;
        Ok(Self { http, url, token })
    }

    /// Creates the runtime for this route; for `None` it probes for the first route that the gateway offers.
    pub fn route(self, route: Option<GatewayRoute>) -> OpenClaw {
        OpenClaw { gateway: self, wanted: route, found: Mutex::new(None) }
    }

    fn post(&self, path: &str) -> reqwest::RequestBuilder {
        let mut url = self.url.clone();
        url.set_path(path);
        self.http.post(url).bearer_auth(&self.token)
    }

    /// Sends a request of a turn and parses its response.
    async fn call<T: DeserializeOwned>(
        &self,
        turn: &Turn,
        request: reqwest::RequestBuilder,
        body: &Value,
    ) -> Result<T, TurnError> {
        let lost = |error| self.request_error(error, turn.timeout);
        let answer = request.json(body).timeout(max_wait(turn)).send().await.map_err(lost)?;
        let status = answer.status();
        let text = answer.text().await.map_err(lost)?;
        if !status.is_success() {
            return Err(http_error(status, &text));
        }
        serde_json::from_str(&text).map_err(|error| {
            TurnError::new(FailureKind::Failed, format!("the gateway's answer makes no sense: {error}"))
        })
    }

    /// The error for a gateway that cannot be reached.
    fn unreachable(&self, why: &str) -> TurnError {
        let url = &self.url;
        TurnError::new(
            FailureKind::Unreachable,
            format!(
                "cannot reach the OpenClaw gateway at {url} ({why}); start it (`openclaw gateway run`), or say where it is with \
                 --gateway-url: its port is gateway.port in openclaw.json"
            ),
        )
    }

    /// Translates a request that got no response in this time.
    fn request_error(&self, error: reqwest::Error, waited: Duration) -> TurnError {
        if error.is_connect() {
            return self.unreachable(if error.is_timeout() { "no answer" } else { "no connection" });
        }
        if error.is_timeout() {
            return timed_out(waited);
        }
        TurnError::new(FailureKind::Lost, format!("the gateway broke off: {}", error.without_url()))
    }
}

/// The error for a turn that took too long.
fn timed_out(waited: Duration) -> TurnError {
    let detail = format!("the agent did not answer within {waited:?}; --turn-timeout gives it longer");
    TurnError::new(FailureKind::Timeout, detail)
}

/// Translates an HTTP error.
fn http_error(status: StatusCode, body: &str) -> TurnError {
    let said: String = body.chars().take(300).collect();
    match status.as_u16() {
        300..=399 => TurnError::new(
            FailureKind::Unreachable,
            format!("the gateway redirects ({status}), which is not followed; give its own address with --gateway-url"),
        ),
        401 | 403 => TurnError::new(
            FailureKind::Unauthorized,
            format!("the gateway does not take the token ({status}); set OPENCLAW_GATEWAY_TOKEN to gateway.auth.token"),
        ),
        404 | 405 => TurnError::new(
            FailureKind::NotOffered,
            format!(
                "the gateway does not offer this route ({status}); enable it in openclaw.json, or choose another with --route"
            ),
        ),
        400 | 413 | 422 => {
            TurnError::new(FailureKind::Refused, format!("the gateway refuses this mail ({status}): {said}"))
        }
        429 | 503 => TurnError::new(FailureKind::Unreachable, format!("the gateway is too busy ({status})")),
        _ => TurnError::new(FailureKind::Failed, format!("the turn failed ({status}): {said}")),
    }
}

/// An OpenClaw gateway, reached by one route.
#[derive(Debug)]
pub struct OpenClaw {
    gateway: Gateway,
    wanted: Option<GatewayRoute>,
    /// The probed route, kept until the gateway turns out to have changed.
    found: Mutex<Option<GatewayRoute>>,
}

impl OpenClaw {
    /// The route to use, if one was chosen or found.
    fn known_route(&self) -> Option<GatewayRoute> {
        self.wanted.or(*self.found.lock())
    }

    /// The route to use, probed for where none was chosen.
    async fn choose(&self) -> Result<GatewayRoute, TurnError> {
        if let Some(route) = self.known_route() {
            return Ok(route);
        }
        let route = self.gateway.probe().await?;
        tracing::info!(gateway = %self.gateway.url, %route, "the gateway offers this route");
        *self.found.lock() = Some(route);
        Ok(route)
    }
}

#[async_trait]
impl Runtime for OpenClaw {
    fn describe(&self) -> String {
        let route = self.known_route().map_or("whatever it offers".into(), |route| route.to_string());
        format!("OpenClaw at {} by {route}", self.gateway.url)
    }

    async fn check(&self) -> Result<(), TurnError> {
        // A probed route is kept while the gateway is unreachable: a gateway that is starting offers some routes before
        // others, and an interrupted turn must be joined by the route that began it.
        if let Some(route) = self.known_route() {
            match self.gateway.offers(route).await {
                Err(error) if error.kind == FailureKind::NotOffered && self.wanted.is_none() => {
                    *self.found.lock() = None
                }
                known => return known,
            }
        }
        self.choose().await.map(|_| ())
    }

    async fn turn(&self, turn: &Turn) -> Result<TurnOutcome, TurnError> {
        let ran = match self.choose().await? {
            GatewayRoute::Chat => chat::turn(&self.gateway, turn).await,
            GatewayRoute::WebSocket => socket::turn(&self.gateway, turn).await,
            GatewayRoute::SessionsSend => sessions_send::turn(&self.gateway, turn).await,
        };
        if ran.as_ref().is_err_and(|error| error.kind == FailureKind::NotOffered) {
            *self.found.lock() = None;
        }
        ran
    }
}

/// How long to wait for the gateway.
fn max_wait(turn: &Turn) -> Duration {
    turn.timeout + (turn.timeout / 4).min(GRACE)
}

/// The agent that a session key such as `agent:main:main` belongs to.
fn agent_of(session_key: &str) -> &str {
    session_key.split(':').nth(1).filter(|agent| !agent.is_empty()).unwrap_or("main")
}

/// Translates the agent's text.
fn outcome_of(text: Option<&str>) -> TurnOutcome {
    match text.map(str::trim) {
        Some(text) if !EMPTY_REPLIES.contains(&text) => TurnOutcome::Reply(text.to_owned()),
        _ => TurnOutcome::NoReply,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_prompt_is_not_sent_on_to_where_a_gateway_redirects() {
        let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gateway = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", gateway.local_addr().unwrap());
        let answer = format!(
            "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://{}/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            elsewhere.local_addr().unwrap()
        );
        let redirects = async {
            let (mut line, _) = gateway.accept().await.unwrap();
            let _ = line.read(&mut [0; 4096]).await.unwrap();
            line.write_all(answer.as_bytes()).await.unwrap();
        };
        let asked = Gateway::new(&url, "token".into()).unwrap().post("/v1/chat/completions").body("mail").send();
        let status = tokio::select! {
            (asked, ()) = async { tokio::join!(asked, redirects) } => asked.unwrap().status(),
            _ = elsewhere.accept() => panic!("the prompt went elsewhere"),
        };
        let error = http_error(status, "");
        assert!(error.to_string().contains("--gateway-url"), "{error}");
    }
}
