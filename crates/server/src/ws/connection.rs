//! One WebSocket: reading, writing and closing.

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use futures_util::SinkExt;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

/// How long to wait for the client's close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum bytes of the reason in a close frame.
const MAX_REASON: usize = 123;

/// A WebSocket whose writes time out.
pub(super) struct TimedSocket {
    socket: WebSocket,
    write_timeout: Duration,
    /// By when the client must have read the pong to its last ping. `None` once that is written.
    pong_deadline: Option<Instant>,
}

/// Why a write failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteError {
    /// The client reads too slowly.
    Timeout,
    /// The client has disconnected.
    Disconnected,
}

/// Why a socket is closed.
#[derive(Debug)]
pub(super) struct CloseReason {
    code: u16,
    reason: String,
    /// Whether to send a close frame: not if the client has disconnected or closed first.
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

    /// The client violates the WebSocket protocol.
    fn protocol_error(code: u16) -> Self {
        Self::new(code, "this is not how WebSockets speak; reconnect with since")
    }

    pub(super) fn gone() -> Self {
        Self { code: 1006, reason: String::new(), send_frame: false }
    }
}

impl TimedSocket {
    pub(super) fn new(socket: WebSocket, write_timeout: Duration) -> Self {
        Self { socket, write_timeout, pong_deadline: None }
    }

    /// Receives the client's next message. Cancel safe.
    ///
    /// The library queues a pong for each ping without a bound, so the pong is written before anything more is read: a client
    /// that sends pings without reading is closed.
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
                    self.pong_deadline = Some(Instant::now() + self.write_timeout);
                }
                Ok(message)
            }
            None => Err(CloseReason::gone()),
            Some(Err(error)) => {
                // Matched by text, since axum does not expose the error's type.
                let text = error.to_string();
                Err(if text.contains("too long") {
                    CloseReason::too_big()
                } else if text.contains("without closing handshake") {
                    CloseReason::gone()
                } else if text.contains("UTF-8") || text.contains("utf-8") {
                    CloseReason::protocol_error(1007)
                } else if text.contains("protocol error") {
                    CloseReason::protocol_error(1002)
                } else {
                    CloseReason::gone()
                })
            }
        }
    }

    /// Queues a message. Once this returns `Ok`, the message is sent before any later one.
    pub(super) async fn feed(&mut self, message: Message) -> Result<(), WriteError> {
        write_result(timeout(self.write_timeout, self.socket.feed(message)).await)
    }

    /// Writes the queued messages.
    pub(super) async fn flush(&mut self) -> Result<(), WriteError> {
        write_result(timeout(self.write_timeout, self.socket.flush()).await)
    }

    /// Writes one message.
    pub(super) async fn send(&mut self, message: Message) -> Result<(), WriteError> {
        self.feed(message).await?;
        self.flush().await
    }

    /// Closes the socket and waits a moment for the client's close frame.
    pub(super) async fn close(mut self, reason: CloseReason) {
        let CloseReason { code, mut reason, send_frame } = reason;
        if !send_frame {
            // Flushes the reply to the client's close frame, if there was one.
            let _ = self.flush().await;
            return;
        }
        while reason.len() > MAX_REASON {
            reason.pop();
        }
        let frame = CloseFrame { code, reason: Utf8Bytes::from(reason) };
        if self.send(Message::Close(Some(frame))).await.is_ok() {
            let closed = async { while let Some(Ok(_)) = self.socket.recv().await {} };
            // The socket is dropped in either case.
            let _ = timeout(CLOSE_TIMEOUT, closed).await;
        }
    }
}

fn write_result(written: Result<Result<(), axum::Error>, Elapsed>) -> Result<(), WriteError> {
    match written {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(WriteError::Disconnected),
        Err(_) => Err(WriteError::Timeout),
    }
}
