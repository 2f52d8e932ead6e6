//! Follows the agent's log over a WebSocket: reconnects with backoff and resumes from its cursor, so that no entry is
//! lost or repeated.

use std::time::Duration;

use amb_core::{Backoff, Code, Cursor, Entry, OfficeError};
use futures_util::{SinkExt, StreamExt};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::url::ServerUrl;

type ClientSocket = WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>;

/// Interval of pings.
const PING_INTERVAL: Duration = Duration::from_secs(25);
/// A connection on which nothing arrives for this long, not even a pong, is dead.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Entries queued for a slow caller before reading stops; the server keeps the rest.
const QUEUE_CAPACITY: usize = 256;
/// Close code for a bad key.
const BAD_KEY: u16 = 4001;

/// Follows an agent's log from a cursor until it is dropped.
#[derive(Debug)]
pub struct EventFollower {
    entries: mpsc::Receiver<Result<Entry, OfficeError>>,
    task: JoinHandle<()>,
}

impl EventFollower {
    pub(crate) fn start(server: &ServerUrl, key: SecretString, since: Cursor) -> Self {
        crate::use_ring();
        let (sender, entries) = mpsc::channel(QUEUE_CAPACITY);
        let task = tokio::spawn(follow(server.clone(), key, since, sender));
        Self { entries, task }
    }

    /// Returns the next entry. An error is final: the key is no longer valid.
    pub async fn next(&mut self) -> Option<Result<Entry, OfficeError>> {
        self.entries.recv().await
    }
}

impl Drop for EventFollower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How a connection ended.
enum Disconnect {
    /// Reconnect.
    Lost(String),
    /// The server rejects the key.
    Refused(OfficeError),
    /// The receiver was dropped.
    ReceiverDropped,
}

async fn follow(
    server: ServerUrl,
    key: SecretString,
    mut since: Cursor,
    entries: mpsc::Sender<Result<Entry, OfficeError>>,
) {
    let mut backoff = Backoff::default();
    loop {
        let ended = match connect(&server, &key, &since).await {
            Ok(socket) => read(socket, &mut since, &entries, &mut backoff).await,
            Err(ended) => ended,
        };
        match ended {
            Disconnect::ReceiverDropped => return,
            Disconnect::Refused(error) => {
                // The receiver may be gone.
                let _ = entries.send(Err(error)).await;
                return;
            }
            Disconnect::Lost(why) => {
                let wait = backoff.pause();
                tracing::debug!(%server, why, ?wait, "WebSocket lost; reconnecting from its cursor");
                tokio::select! {
                    () = sleep(wait) => {}
                    () = entries.closed() => return,
                }
            }
        }
    }
}

async fn connect(server: &ServerUrl, key: &SecretString, since: &Cursor) -> Result<ClientSocket, Disconnect> {
    let mut url = server.socket();
    url.query_pairs_mut().append_pair("since", since.as_str());
    let mut request = url.as_str().into_client_request().map_err(|error| Disconnect::Lost(error.to_string()))?;
    let mut value = HeaderValue::from_str(key.expose_secret()).map_err(|_| refused())?;
    value.set_sensitive(true);
    request.headers_mut().insert("x-api-key", value);
    match timeout(CONNECT_TIMEOUT, connect_async(request)).await {
        Err(_) => Err(Disconnect::Lost("connect timeout".into())),
        Ok(Err(tungstenite::Error::Http(answer))) if answer.status() == 401 => Err(refused()),
        Ok(Err(error)) => Err(Disconnect::Lost(error.to_string())),
        Ok(Ok((socket, _))) => Ok(socket),
    }
}

fn refused() -> Disconnect {
    Disconnect::Refused(OfficeError::new(Code::Unauthorized, "the server does not know this API key"))
}

async fn read(
    mut socket: ClientSocket,
    since: &mut Cursor,
    entries: &mpsc::Sender<Result<Entry, OfficeError>>,
    backoff: &mut Backoff,
) -> Disconnect {
    let mut ping = tokio::time::interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
    let mut last_received = Instant::now();
    loop {
        let frame = tokio::select! {
            frame = socket.next() => frame,
            _ = ping.tick() => {
                if last_received.elapsed() > IDLE_TIMEOUT {
                    return Disconnect::Lost("idle timeout".into());
                }
                if let Err(error) = socket.send(Message::text(r#"{"type":"ping"}"#)).await {
                    return Disconnect::Lost(error.to_string());
                }
                continue;
            }
            () = entries.closed() => {
                let _ = socket.close(None).await;
                return Disconnect::ReceiverDropped;
            }
        };
        last_received = Instant::now();
        match frame {
            Some(Ok(Message::Text(text))) => {
                let Some(entry) = entry(&text) else { continue };
                let cursor = entry.cursor.clone();
                if entries.send(Ok(entry)).await.is_err() {
                    return Disconnect::ReceiverDropped;
                }
                *since = cursor;
                // Only a received entry counts as a success.
                backoff.reset();
            }
            Some(Ok(Message::Close(Some(close)))) if u16::from(close.code) == BAD_KEY => return refused(),
            Some(Ok(Message::Close(close))) => {
                return Disconnect::Lost(close.map_or("closed".into(), |close| close.reason.to_string()));
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return Disconnect::Lost(error.to_string()),
            None => return Disconnect::Lost("closed".into()),
        }
    }
}

/// Parses an entry of the log; `None` for pongs and unknown frames.
fn entry(text: &str) -> Option<Entry> {
    #[derive(Deserialize)]
    struct Typed {
        #[serde(rename = "type")]
        kind: String,
    }
    match serde_json::from_str(text) {
        Ok(entry) => Some(entry),
        Err(error) => {
            let kind = serde_json::from_str::<Typed>(text).map(|typed| typed.kind).unwrap_or_default();
            if kind != "pong" {
                tracing::debug!(%error, kind, "skipped an unknown frame");
            }
            None
        }
    }
}
