//! Serves one client on a pair of streams.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use amb_core::limits::HEARTBEAT_TIMEOUT;
use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

use crate::channel;
use crate::handler::Handler;
use crate::lazy_mailbox::LazyMailbox;
use crate::options::{McpOptions, ServeError};
use crate::wake::Waker;
use crate::watch::LogWatch;

/// How long marking the agent as offline may take.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves the client on the process's standard streams until it closes its side. Nothing but JSON goes to standard
/// output.
pub async fn serve_stdio(mailbox: impl Into<LazyMailbox>, options: McpOptions) -> Result<(), ServeError> {
    let (read, write) = rmcp::transport::io::stdio_pipes();
    serve_io(mailbox, options, read, write).await
}

/// Serves one client on any pair of streams, one JSON message a line, until it closes its side.
pub async fn serve_io<R, W>(
    mailbox: impl Into<LazyMailbox>,
    options: McpOptions,
    read: R,
    write: W,
) -> Result<(), ServeError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let mailbox = mailbox.into();
    let closing = CancellationToken::new();
    // However this function ends, all tasks that it started end with it.
    let _ends = closing.clone().drop_guard();
    let watch = LogWatch::new(mailbox.clone(), closing.clone());
    let options = Arc::new(options);
    let handler = Handler::new(mailbox.clone(), Arc::clone(&options), watch.clone(), None);
    let (seen, client) = (handler.memory(), handler.client());
    seen.connect(&mailbox).await;
    let running = match handler.serve((EofReader { read, closing: closing.clone() }, write)).await {
        Ok(running) => running,
        // A client that connects and disconnects without a request is no failure.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(ServeError::Handshake(Box::new(error))),
    };
    running.service().note_client_of_handshake(running.peer());
    let waking = options.wake.clone().map(|options| {
        let (mailbox, seen, watch, client) = (mailbox.clone(), Arc::clone(&seen), watch.clone(), client.clone());
        tokio::spawn(Waker { options, mailbox, seen, watch, client }.run())
    });
    if options.channel {
        let peer = running.peer().clone();
        tokio::spawn(channel::notify_of_mail(peer, mailbox.clone(), seen, watch, options.peers.clone(), client));
    }
    let alive = options.heartbeat.then(|| tokio::spawn(send_heartbeats(mailbox, closing.clone())));
    running.waiting().await.map_err(ServeError::Task)?;
    closing.cancel();
    if let Some(waking) = waking {
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, waking).await;
    }
    if let Some(alive) = alive {
        // The client is gone: an office that takes longer sees the missing heartbeats instead.
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, alive).await;
    }
    Ok(())
}

/// Sends heartbeats while the client is connected, and marks the agent as offline at the end.
async fn send_heartbeats(mailbox: LazyMailbox, closing: CancellationToken) {
    let mut beat = tokio::time::interval(HEARTBEAT_TIMEOUT / 3);
    let mut failing = false;
    loop {
        tokio::select! {
            _ = beat.tick() => {}
            () = closing.cancelled() => break,
        }
        let alive = async { mailbox.office().await?.heartbeat().await };
        match alive.await {
            Ok(()) => failing = false,
            // Logged once for each outage.
            Err(error) if !failing => {
                failing = true;
                tracing::warn!(%error, code = %error.code(), "heartbeat failed");
            }
            Err(_) => {}
        }
    }
    if failing {
        return;
    }
    let left = async { mailbox.office().await?.leave().await };
    if let Err(error) = left.await {
        tracing::debug!(%error, "cannot mark the agent as offline");
    }
}

/// A reader that signals the end of its stream, so that an open wait does not keep the process running.
struct EofReader<R> {
    read: R,
    closing: CancellationToken,
}

impl<R: AsyncRead + Unpin> AsyncRead for EofReader<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.read).poll_read(context, buffer);
        let ended = match &polled {
            Poll::Ready(Ok(())) => buffer.filled().len() == before && buffer.remaining() > 0,
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        };
        if ended {
            self.closing.cancel();
        }
        polled
    }
}
