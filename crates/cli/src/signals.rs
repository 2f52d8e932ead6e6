//! Waiting for the signals that end a process.

use tokio::signal::unix::{SignalKind, signal};

/// Listens for Ctrl-C and SIGTERM from this call on, not only once the future is awaited.
pub(crate) fn interruption() -> std::io::Result<impl Future<Output = ()>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Waits for Ctrl-C or SIGTERM.
pub(crate) async fn interrupted() -> std::io::Result<()> {
    interruption()?.await;
    Ok(())
}

/// The same for servers, which also stop where signals cannot be received.
pub(crate) async fn shutdown() {
    if let Err(error) = interrupted().await {
        tracing::error!(%error, "cannot listen for signals; stopping");
    }
}
