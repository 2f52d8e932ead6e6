//! One socket, from its key to its close.

use std::net::IpAddr;
use std::pin::pin;

use amb_core::OfficeError;
use amb_core::limits::MAX_PAGE_BYTES;
use amb_store::{Agent, KeyHash};
use axum::body::Bytes;
use axum::extract::ws::{Message, Utf8Bytes};
use tokio::time::{Instant, sleep_until, timeout};

use super::SocketOptions;
use super::connection::{CloseReason, TimedSocket, WriteFailure};
use super::frame::{self, ClientFrame};
use crate::app::App;
use crate::caller::who;
use crate::hub::{Next, Subscriber, is_receipt, pauses, text_of};

/// Entries read from the log at once.
const PAGE: usize = 32;
/// Entries sent before the client is listened to again.
const TURN: usize = 64;

/// Waits for the first message, which carries the key.
pub(super) async fn first_message(
    app: &App,
    socket: &mut TimedSocket,
    address: IpAddr,
) -> Result<(Agent, KeyHash, Option<u64>), CloseReason> {
    let said = async {
        loop {
            let answer = match socket.recv().await? {
                Message::Text(text) => match frame::read(&text) {
                    ClientFrame::Auth { api_key, since } => return Ok::<_, CloseReason>((api_key, since)),
                    ClientFrame::Ping => frame::pong(),
                    ClientFrame::Unknown(why) => {
                        frame::error(&format!("say who you are first: {{\"type\":\"auth\",\"api_key\":…}}; {why}"))
                    }
                },
                Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Close(_) => continue,
            };
            socket.send(answer).await.map_err(|_| CloseReason::gone())?;
        }
    };
    tokio::select! {
        said = timeout(app.config.ws_auth_timeout, said) => {
            let (key, since) = said.map_err(|_| CloseReason::no_key())??;
            Ok((who(app, &key, address).await?, KeyHash::of(&key), since))
        }
        () = app.closing.cancelled() => Err(CloseReason::closing()),
    }
}

/// Sends the agent's log until the client or the office closes.
pub(super) async fn listen(
    app: &App,
    socket: &mut TimedSocket,
    agent: &Agent,
    key: KeyHash,
    options: SocketOptions,
    greet: bool,
) -> CloseReason {
    let Some(guard) = app.hub.subscribe(agent.key, Some(key), app.config.ws_per_agent) else {
        return CloseReason::later("too many sockets of this agent".to_owned());
    };
    // After taking the subscriber: what is written from now on is offered there.
    let head = match app.store.event_head(agent.key).await {
        Ok(head) => head,
        Err(error) => return unreadable(&error),
    };
    let mut cursor = match options.from {
        None => head,
        Some(from) if from <= head => from,
        Some(from) => match app.resume(agent, from).await {
            Ok(cursor) => cursor,
            Err(error) => return unreadable(&error),
        },
    };
    guard.subscriber.is_at(cursor);
    match app.store.is_paused(agent.key).await {
        Ok(paused) => guard.subscriber.set_paused(paused),
        Err(error) => return unreadable(&error),
    }
    if cursor < head {
        guard.subscriber.look();
    }
    if greet && socket.send(frame::authenticated(agent.name.as_str(), cursor)).await.is_err() {
        return CloseReason::gone();
    }
    let arrived = cursor;
    let subscriber = &guard.subscriber;
    let receipts = options.receipts;
    let mut listener =
        SocketListener { app, agent, subscriber, socket, cursor: &mut cursor, receipts, arrived, asked: None };
    match listener.run().await {
        Ok(reason) => reason,
        Err(WriteFailure::Gone) => CloseReason::gone(),
        Err(WriteFailure::Slow) => {
            app.metrics.slow.increment(1);
            CloseReason::too_slow(cursor)
        }
    }
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
    cursor: &'a mut u64,
    /// Whether receipts are sent.
    receipts: bool,
    /// The last entry that is known to have arrived: the client answered the ping after it.
    arrived: u64,
    /// The entry before the ping that has not been answered yet.
    asked: Option<u64>,
}

impl SocketListener<'_> {
    async fn run(&mut self) -> Result<CloseReason, WriteFailure> {
        let (interval, patience) = (self.app.config.ws_ping_interval, self.app.config.ws_ping_timeout);
        let mut heard = Instant::now();
        let mut timer = pin!(sleep_until(heard + interval));
        loop {
            if self.subscriber.is_evicted() {
                return Ok(CloseReason::bad_key());
            }
            if let Some(reason) = self.send_entries().await? {
                return Ok(reason);
            }
            tokio::select! {
                () = self.subscriber.woken() => {}
                said = self.socket.recv() => {
                    heard = Instant::now();
                    match said {
                        // The library has the answer ready; nothing can be sent after it.
                        Ok(Message::Close(_)) => return Ok(CloseReason::gone()),
                        Ok(said) => self.hear(said).await?,
                        Err(reason) => return Ok(reason),
                    }
                }
                () = timer.as_mut() => {
                    let now = Instant::now();
                    let silence = now.saturating_duration_since(heard);
                    if silence >= patience {
                        return Ok(CloseReason::silent());
                    }
                    if silence >= interval {
                        self.socket.send(Message::Ping(Bytes::new())).await?;
                        timer.as_mut().reset((now + interval).min(heard + patience));
                    } else {
                        timer.as_mut().reset(heard + interval);
                    }
                }
                () = self.app.closing.cancelled() => return Ok(CloseReason::closing()),
            }
        }
    }

    /// Sends new entries, at most [`TURN`].
    async fn send_entries(&mut self) -> Result<Option<CloseReason>, WriteFailure> {
        let mut sent = 0;
        while sent < TURN {
            match self.subscriber.next(*self.cursor) {
                Next::Wait => break,
                Next::Send(number, text) => {
                    self.feed(number, text).await?;
                    sent += 1;
                }
                Next::Look => {
                    let page = match self.app.store.events(self.agent.key, *self.cursor, PAGE).await {
                        Ok(page) => page,
                        Err(error) => return Ok(Some(unreadable(&error))),
                    };
                    let (count, mut bytes) = (page.len(), 0);
                    sent += count;
                    for entry in page {
                        let (Some(number), Some(text)) = (entry.cursor.as_number(), text_of(&entry)) else {
                            continue;
                        };
                        bytes += text.len();
                        self.feed(number, text).await?;
                    }
                    // A page ends by its count or by its bytes. One that ended by its bytes has most of them: the entry
                    // that did not fit is a quarter of a page at most.
                    if count == PAGE || bytes >= MAX_PAGE_BYTES / 2 {
                        self.subscriber.look();
                    }
                }
            }
        }
        if sent >= TURN {
            // There may be more: continue after reading from the client.
            self.subscriber.again();
        }
        let waited = self.subscriber.waited();
        let from = Instant::now();
        if sent > 0 {
            self.ask().await?;
            self.socket.flush().await?;
            self.app.metrics.pushed.increment(sent as u64);
            self.app.ring.counters.pushed(waited.unwrap_or_default() + from.elapsed());
        }
        Ok(None)
    }

    /// Pings after the entries up to here, one ping at a time.
    async fn ask(&mut self) -> Result<(), WriteFailure> {
        if self.asked.is_none() && self.arrived < *self.cursor {
            self.asked = Some(*self.cursor);
            self.socket.feed(Message::Ping(Bytes::copy_from_slice(&self.cursor.to_be_bytes()))).await?;
        }
        Ok(())
    }

    /// A pong: everything sent before its ping has arrived.
    async fn answered(&mut self, payload: &[u8]) -> Result<(), WriteFailure> {
        let Some(asked) = self.asked.filter(|asked| asked.to_be_bytes() == payload) else { return Ok(()) };
        self.app.deliveries.arrived(self.agent, self.arrived, asked);
        (self.arrived, self.asked) = (asked, None);
        self.ask().await?;
        self.socket.flush().await
    }

    async fn feed(&mut self, number: u64, text: Utf8Bytes) -> Result<(), WriteFailure> {
        if let Some(paused) = pauses(&text, &self.agent.name) {
            self.subscriber.set_paused(paused);
        }
        if self.receipts || !is_receipt(&text) {
            self.socket.feed(Message::Text(text)).await?;
        }
        *self.cursor = number;
        self.subscriber.is_at(number);
        Ok(())
    }

    async fn hear(&mut self, said: Message) -> Result<(), WriteFailure> {
        let answer = match said {
            Message::Text(text) => match frame::read(&text) {
                ClientFrame::Ping => frame::pong(),
                ClientFrame::Auth { .. } => frame::error("this socket knows who you are already"),
                ClientFrame::Unknown(why) => frame::error(why),
            },
            Message::Binary(_) => frame::error("messages are text"),
            // The library answers pings by itself.
            Message::Pong(payload) => return self.answered(&payload).await,
            Message::Ping(_) | Message::Close(_) => return Ok(()),
        };
        self.socket.send(answer).await
    }
}
