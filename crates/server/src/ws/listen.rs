//! One WebSocket, from authentication to its close.

use std::net::IpAddr;
use std::pin::pin;

use amb_core::OfficeError;
use amb_core::limits::MAX_PAGE_BYTES;
use amb_store::{Agent, KeyHash};
use axum::body::Bytes;
use axum::extract::ws::{Message, Utf8Bytes};
use tokio::time::{Instant, sleep_until, timeout};

use super::SocketOptions;
use super::connection::{CloseReason, TimedSocket, WriteError};
use super::frame::{self, ClientFrame};
use crate::app::App;
use crate::hub::{Next, Subscriber, entry_text, is_receipt, paused_by};
use crate::request::authenticate;

/// Entries read from the log at once.
const PAGE: usize = 32;
/// Entries sent before messages of the client are read again.
const TURN: usize = 64;

/// Waits for the `auth` message. Returns the agent, its key, and the cursor to continue from.
pub(super) async fn auth_message(
    app: &App,
    socket: &mut TimedSocket,
    address: IpAddr,
) -> Result<(Agent, KeyHash, Option<u64>), CloseReason> {
    let auth = async {
        loop {
            let reply = match socket.recv().await? {
                Message::Text(text) => match frame::parse(&text) {
                    ClientFrame::Auth { api_key, since } => return Ok::<_, CloseReason>((api_key, since)),
                    ClientFrame::Ping => frame::pong(),
                    ClientFrame::Invalid(why) => {
                        frame::error(&format!("say who you are first: {{\"type\":\"auth\",\"api_key\":…}}; {why}"))
                    }
                },
                Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Close(_) => continue,
            };
            socket.send(reply).await.map_err(|_| CloseReason::gone())?;
        }
    };
    tokio::select! {
        auth = timeout(app.config.ws_auth_timeout, auth) => {
            let (key, since) = auth.map_err(|_| CloseReason::no_key())??;
            let (agent, hash) = authenticate(app, &key, address).await?;
            Ok((agent, hash, since))
        }
        () = app.closing.cancelled() => Err(CloseReason::closing()),
    }
}

/// Sends the agent's log until the client or the office closes the socket.
pub(super) async fn listen(
    app: &App,
    socket: &mut TimedSocket,
    agent: &Agent,
    key: KeyHash,
    options: SocketOptions,
    confirm: bool,
) -> CloseReason {
    let Some(guard) = app.hub.subscribe(agent.key, key, app.config.ws_per_agent) else {
        return CloseReason::later("too many sockets of this agent".to_owned());
    };
    let subscriber = &*guard.subscriber;
    let (cursor, head) = match start(app, agent, options.since, subscriber).await {
        Ok(found) => found,
        Err(error) => return unreadable(&error),
    };
    if cursor < head {
        subscriber.read_log();
    }
    if confirm && socket.send(frame::authenticated(agent.name.as_str(), cursor)).await.is_err() {
        return CloseReason::gone();
    }
    let receipts = options.receipts;
    let mut listener =
        SocketListener { app, agent, subscriber, socket, cursor, receipts, delivered: cursor, pinged: None };
    match listener.run().await {
        Ok(reason) => reason,
        Err(WriteError::Disconnected) => CloseReason::gone(),
        Err(WriteError::Timeout) => {
            app.metrics.slow.increment(1);
            CloseReason::too_slow(listener.cursor)
        }
    }
}

/// Sets up the subscriber. Returns the cursor to continue from, and the end of the log.
async fn start(
    app: &App,
    agent: &Agent,
    since: Option<u64>,
    subscriber: &Subscriber,
) -> Result<(u64, u64), OfficeError> {
    // The agent is subscribed already, so entries written after this are offered.
    let head = app.store.event_head(agent.key).await?;
    let cursor = match since {
        None => head,
        Some(since) if since <= head => since,
        Some(since) => app.resume(agent, since).await?,
    };
    subscriber.set_cursor(cursor);
    subscriber.set_paused(app.store.is_paused(agent.key).await?);
    Ok((cursor, head))
}

fn unreadable(error: &OfficeError) -> CloseReason {
    tracing::warn!(%error, cause = ?std::error::Error::source(error), "reading the log for a WebSocket failed");
    CloseReason::later("the office cannot read its log now; reconnect with since".to_owned())
}

struct SocketListener<'a> {
    app: &'a App,
    agent: &'a Agent,
    subscriber: &'a Subscriber,
    socket: &'a mut TimedSocket,
    /// The last entry that was sent.
    cursor: u64,
    /// Whether receipts are sent.
    receipts: bool,
    /// The last entry that was delivered: the client answered the ping after it.
    delivered: u64,
    /// The last entry before the ping that is not answered yet.
    pinged: Option<u64>,
}

impl SocketListener<'_> {
    async fn run(&mut self) -> Result<CloseReason, WriteError> {
        let (interval, limit) = (self.app.config.ws_ping_interval, self.app.config.ws_ping_timeout);
        let mut last_received = Instant::now();
        let mut timer = pin!(sleep_until(last_received + interval));
        loop {
            if self.subscriber.is_evicted() {
                return Ok(CloseReason::bad_key());
            }
            if let Some(reason) = self.send_entries().await? {
                return Ok(reason);
            }
            tokio::select! {
                () = self.subscriber.notified() => {}
                received = self.socket.recv() => {
                    last_received = Instant::now();
                    match received {
                        // The library has queued its reply; nothing can be sent after it.
                        Ok(Message::Close(_)) => return Ok(CloseReason::gone()),
                        Ok(message) => self.handle(message).await?,
                        Err(reason) => return Ok(reason),
                    }
                }
                () = timer.as_mut() => {
                    let now = Instant::now();
                    let idle = now.saturating_duration_since(last_received);
                    if idle >= limit {
                        return Ok(CloseReason::silent());
                    }
                    if idle >= interval {
                        self.socket.send(Message::Ping(Bytes::new())).await?;
                        timer.as_mut().reset((now + interval).min(last_received + limit));
                    } else {
                        timer.as_mut().reset(last_received + interval);
                    }
                }
                () = self.app.closing.cancelled() => return Ok(CloseReason::closing()),
            }
        }
    }

    /// Sends new entries, about [`TURN`]. Returns a reason to close, if there is one.
    async fn send_entries(&mut self) -> Result<Option<CloseReason>, WriteError> {
        let mut sent = 0;
        while sent < TURN {
            match self.subscriber.next(self.cursor) {
                Next::Wait => break,
                Next::Send(number, text) => {
                    self.feed(number, text).await?;
                    sent += 1;
                }
                Next::ReadLog => {
                    let page = match self.app.store.events(self.agent.key, self.cursor, PAGE).await {
                        Ok(page) => page,
                        Err(error) => return Ok(Some(unreadable(&error))),
                    };
                    let (count, mut bytes) = (page.len(), 0);
                    sent += count;
                    for entry in page {
                        let (Some(number), Some(text)) = (entry.cursor.as_number(), entry_text(&entry)) else {
                            continue;
                        };
                        bytes += text.len();
                        self.feed(number, text).await?;
                    }
                    // A page is limited by its count and by its bytes. One limited by its bytes is more than half full:
                    // an entry has at most a quarter of a page's bytes.
                    if count == PAGE || bytes >= MAX_PAGE_BYTES / 2 {
                        self.subscriber.read_log();
                    }
                }
            }
        }
        if sent >= TURN {
            // There may be more: continue after messages of the client were read.
            self.subscriber.notify();
        }
        let waited = self.subscriber.take_wait();
        let from = Instant::now();
        if sent > 0 {
            self.ping().await?;
            self.socket.flush().await?;
            self.app.metrics.pushed.increment(sent as u64);
            self.app.stats.counters.pushed(waited.unwrap_or_default() + from.elapsed());
        }
        Ok(None)
    }

    /// Pings after the entries sent so far, unless a ping is unanswered.
    async fn ping(&mut self) -> Result<(), WriteError> {
        if self.pinged.is_none() && self.delivered < self.cursor {
            self.pinged = Some(self.cursor);
            self.socket.feed(Message::Ping(Bytes::copy_from_slice(&self.cursor.to_be_bytes()))).await?;
        }
        Ok(())
    }

    /// Handles a pong: everything sent before its ping was delivered.
    async fn ponged(&mut self, payload: &[u8]) -> Result<(), WriteError> {
        let Some(pinged) = self.pinged.filter(|pinged| pinged.to_be_bytes() == payload) else { return Ok(()) };
        self.app.deliveries.delivered(self.agent, self.delivered, pinged);
        (self.delivered, self.pinged) = (pinged, None);
        self.ping().await?;
        self.socket.flush().await
    }

    async fn feed(&mut self, number: u64, text: Utf8Bytes) -> Result<(), WriteError> {
        if let Some(paused) = paused_by(&text, &self.agent.name) {
            self.subscriber.set_paused(paused);
        }
        if self.receipts || !is_receipt(&text) {
            self.socket.feed(Message::Text(text)).await?;
        }
        self.cursor = number;
        self.subscriber.set_cursor(number);
        Ok(())
    }

    async fn handle(&mut self, message: Message) -> Result<(), WriteError> {
        let reply = match message {
            Message::Text(text) => match frame::parse(&text) {
                ClientFrame::Ping => frame::pong(),
                ClientFrame::Auth { .. } => frame::error("this socket knows who you are already"),
                ClientFrame::Invalid(why) => frame::error(why),
            },
            Message::Binary(_) => frame::error("messages are text"),
            // The library answers pings by itself.
            Message::Pong(payload) => return self.ponged(&payload).await,
            Message::Ping(_) | Message::Close(_) => return Ok(()),
        };
        self.socket.send(reply).await
    }
}
