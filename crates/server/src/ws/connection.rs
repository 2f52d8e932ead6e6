//! One WebSocket: reading, writing and closing.

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use futures_util::SinkExt;
use tokio::time::{Instant, timeout, timeout_at};

/// How long to wait for the client's close frame.
const GOODBYE: Duration = Duration::from_secs(2);
/// A reason in a close frame has at most 123 bytes.
const MAX_REASON: usize = 123;

/// A WebSocket whose writes time out.
pub(super) struct TimedSocket {
    socket: WebSocket,
    patience: Duration,
    /// Until when the client must have taken the pong to its last ping, where that may not be written yet.
    pong_deadline: Option<Instant>,
}

/// Why no more can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteFailure {
    /// The client does not take what it is sent.
    Slow,
    /// The client is gone.
    Gone,
}

/// Why a socket is closed.
#[derive(Debug)]
pub(super) struct CloseReason {
    code: u16,
    reason: String,
    /// Whether to send a close frame: not where the client is gone or has closed first.
    send_frame: bool,
}

impl CloseReason {
    fn new(code: u16, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), send_frame: true }
    }

    pub(super) fn no_key() -> Self {
        Self::new(4000, "no key in time; send {\"type\":\"auth\",\"api_key\":…} first")
    }

    pub(super) fn bad_key() -> Self {
        Self::new(4001, "this key is not known here")
    }

    pub(super) fn closing() -> Self {
        Self::new(1001, "the office is closing; reconnect with since")
    }

    pub(super) fn silent() -> Self {
        Self::new(1011, "no answer to pings")
    }

    pub(super) fn too_slow(cursor: u64) -> Self {
        Self::new(1013, format!("too slow; reconnect with since={cursor}"))
    }

    pub(super) fn later(reason: String) -> Self {
        Self::new(1013, reason)
    }

    pub(super) fn too_big() -> Self {
        Self::new(1009, "a message of a client's has at most 16 KiB")
    }

    /// The client breaks the rules of WebSockets.
    fn broken(code: u16) -> Self {
        Self::new(code, "this is not how WebSockets speak; reconnect with since")
    }

    pub(super) fn gone() -> Self {
        Self { code: 1006, reason: String::new(), send_frame: false }
    }
}

impl TimedSocket {
    pub(super) fn new(socket: WebSocket, patience: Duration) -> Self {
        Self { socket, patience, pong_deadline: None }
    }

    /// Takes the next message of the client's; safe to be cancelled.
    ///
    /// The library queues a pong for each ping without a bound. So the pong is written before anything more is read: a client
    /// that sends pings and does not read is closed.
    pub(super) async fn recv(&mut self) -> Result<Message, CloseReason> {
        if let Some(deadline) = self.pong_deadline {
            match timeout_at(deadline, self.socket.flush()).await {
                Ok(Ok(())) => self.pong_deadline = None,
                Ok(Err(_)) => return Err(CloseReason::gone()),
                Err(_) => return Err(CloseReason::later("too slow; reconnect with since".to_owned())),
            }
        }
        match self.socket.recv().await {
            Some(Ok(message)) => {
                if matches!(message, Message::Ping(_)) {
                    self.pong_deadline = Some(Instant::now() + self.patience);
                }
                Ok(message)
            }
            None => Err(CloseReason::gone()),
            Some(Err(error)) => {
                // Matched by text, since axum does not expose the error's type.
                let words = error.to_string();
                Err(match () {
                    () if words.contains("too long") => CloseReason::too_big(),
                    () if words.contains("without closing handshake") => CloseReason::gone(),
                    () if words.contains("UTF-8") || words.contains("utf-8") => CloseReason::broken(1007),
                    () if words.contains("protocol error") => CloseReason::broken(1002),
                    () => CloseReason::gone(),
                })
            }
        }
    }

    /// Queues a message. Once this returns `Ok`, the message is sent before any later one.
    pub(super) async fn feed(&mut self, message: Message) -> Result<(), WriteFailure> {
        match timeout(self.patience, self.socket.feed(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(WriteFailure::Gone),
            Err(_) => Err(WriteFailure::Slow),
        }
    }

    /// Writes what is queued.
    pub(super) async fn flush(&mut self) -> Result<(), WriteFailure> {
        match timeout(self.patience, self.socket.flush()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(WriteFailure::Gone),
            Err(_) => Err(WriteFailure::Slow),
        }
    }

    /// Writes one message.
    pub(super) async fn send(&mut self, message: Message) -> Result<(), WriteFailure> {
        self.feed(message).await?;
        self.flush().await
    }

    /// Closes the socket and waits a moment for the client's close frame.
    pub(super) async fn close(mut self, reason: CloseReason) {
        let CloseReason { code, mut reason, send_frame } = reason;
        if !send_frame {
            // The answer to the client's close frame, if there was one.
            let _ = self.flush().await;
            return;
        }
        while reason.len() > MAX_REASON {
            reason.pop();
        }
        let frame = CloseFrame { code, reason: Utf8Bytes::from(reason) };
        if self.send(Message::Close(Some(frame))).await.is_ok() {
            let answer = async { while let Some(Ok(_)) = self.socket.recv().await {} };
            // The socket is dropped with or without an answer.
            let _ = timeout(GOODBYE, answer).await;
        }
    }
}
