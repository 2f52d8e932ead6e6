//! `GET /ws`: the log of a mailbox over a WebSocket.

mod connection;
mod frame;
mod listen;

use std::net::IpAddr;

use amb_core::{Code, OfficeError};
use amb_store::{Agent, KeyHash};
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;
use crate::request::{ClientAddress, Params, Problem, authenticate, cursor, key_in};
use connection::{CloseReason, TimedSocket};

/// Maximum size of a client's message; known ones are tiny.
const MAX_CLIENT_MESSAGE: usize = 16 * 1024;
/// Small, because there may be ten thousand sockets: the usual size of a client's messages.
const READ_BUFFER: usize = 512;
/// Small entries are collected up to this size before they are written.
const WRITE_BUFFER: usize = 4 * 1024;

/// The key and the cursor of a socket.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WsQuery {
    /// The agent's key. A header or a first message does as well, and keeps it out of proxies' logs.
    api_key: Option<String>,
    /// The cursor of the last entry seen: what came after it is sent first. Without it only what happens from now on, and
    /// no receipts.
    #[serde(default, deserialize_with = "cursor")]
    #[param(minimum = 0)]
    since: Option<u64>,
}

/// Which entries a socket gets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SocketOptions {
    /// Those after this cursor; `None` for those from now on.
    since: Option<u64>,
    /// Whether receipts are sent. A client that never sends a cursor knows only the three original events, and may
    /// take any other for the reply that it waits for, so it gets no receipts.
    receipts: bool,
}

impl SocketOptions {
    fn new(since: Option<u64>) -> Self {
        Self { since, receipts: since.is_some() }
    }
}

/// The log of the caller's mailbox, as it grows
///
/// The key comes as `api_key` in the query, as a header, or as a first message `{"type":"auth","api_key":"…","since":7}`
/// within five seconds. Every entry is one text message, as in `GET /events`; receipts only where `since` was given.
/// `{"type":"ping"}` is answered with `{"type":"pong"}`. Closed with 4000 (no key in time), 4001 (wrong key), 1013 (too slow: come back with `since`),
/// 1001 (the office closes), 1011 (no answer to pings), 1009 (a message of more than 16 KiB), 1002 or 1007 (no WebSocket frame, no UTF-8).
#[utoipa::path(get, path = "/ws", tag = "events", security(()), params(WsQuery),
    responses(
        (status = 101, description = "A WebSocket"),
        (status = 422, description = "`since` is no number"),
        (status = 426, description = "Not a WebSocket handshake"),
        (status = 503, description = "The database does not answer, so it is not known whose key it is"),
    ))]
pub(crate) async fn ws(
    State(app): State<App>,
    ClientAddress(address): ClientAddress,
    Params(query): Params<WsQuery>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(rejection) => return not_a_handshake(&rejection),
    };
    let mut options = SocketOptions::new(query.since);
    let authenticated = match query.api_key.as_deref().or_else(|| key_in(&headers)) {
        None => Ok(None),
        Some(key) => match authenticate(&app, key, address).await {
            Ok((agent, key)) => {
                // Before the handshake is answered, so that the socket gets everything sent after the client sees it
                // open.
                if options.since.is_none() {
                    options.since = match app.store.event_head(agent.key).await {
                        Ok(head) => Some(head),
                        Err(error) => return Problem::from(error).into_response(),
                    };
                }
                Ok(Some((agent, key)))
            }
            // A browser does not show a page why a handshake failed, but it shows the close code.
            Err(error) if error.code() == Code::Unauthorized => Err(CloseReason::bad_key()),
            Err(error) => return Problem::from(error).into_response(),
        },
    };
    let token = app.tasks.token();
    upgrade
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(WRITE_BUFFER)
        .max_message_size(MAX_CLIENT_MESSAGE)
        .max_frame_size(MAX_CLIENT_MESSAGE)
        .on_upgrade(move |socket| async move {
            app.metrics.sockets.increment(1.0);
            run(&app, socket, address, authenticated, options).await;
            app.metrics.sockets.decrement(1.0);
            drop(token);
        })
}

async fn run(
    app: &App,
    socket: WebSocket,
    address: IpAddr,
    authenticated: Result<Option<(Agent, KeyHash)>, CloseReason>,
    options: SocketOptions,
) {
    let mut socket = TimedSocket::new(socket, app.config.ws_slow_timeout);
    let reason = match authenticated {
        Err(reason) => reason,
        Ok(Some((agent, key))) => listen::listen(app, &mut socket, &agent, key, options, false).await,
        Ok(None) => match listen::auth_message(app, &mut socket, address).await {
            Err(reason) => reason,
            Ok((agent, key, since)) => {
                let options = since.map_or(options, |since| SocketOptions::new(Some(since)));
                listen::listen(app, &mut socket, &agent, key, options, true).await
            }
        },
    };
    socket.close(reason).await;
}

fn not_a_handshake(rejection: &WebSocketUpgradeRejection) -> Response {
    let detail = format!("this is a WebSocket endpoint: {}", rejection.body_text());
    let mut response = Problem::new(StatusCode::UPGRADE_REQUIRED, "upgrade_required", detail).into_response();
    let headers = response.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    response
}

impl From<OfficeError> for CloseReason {
    fn from(error: OfficeError) -> Self {
        match error.code() {
            Code::Unauthorized => Self::bad_key(),
            _ => Self::later(error.detail().to_owned()),
        }
    }
}
