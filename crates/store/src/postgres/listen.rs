//! Hearing of what other processes put into logs.
//!
//! A transaction that puts something into logs notifies [`CHANNEL`] with the numbers of their agents. Each process
//! listens on a connection of its own, and again on a new one when that is lost.

use std::time::Duration;

use tokio::sync::broadcast;
use tokio::task::AbortHandle;
use tokio_postgres::{AsyncMessage, Config};

use super::tls::Tls;
use crate::types::AgentKey;

/// Where logs are said to have grown.
pub(super) const CHANNEL: &str = "amb_log";
/// Hints kept for a slow listener; one that falls behind looks everywhere.
const HINTS: usize = 4_096;

/// Listens while it lives.
#[derive(Debug)]
pub(super) struct Listener {
    hints: broadcast::Sender<AgentKey>,
    task: AbortHandle,
}

impl Listener {
    pub(super) fn start(config: Config, tls: Tls) -> Self {
        let (hints, _) = broadcast::channel(HINTS);
        let task = tokio::spawn(listen_for_ever(config, tls, hints.clone())).abort_handle();
        Self { hints, task }
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<AgentKey> {
        self.hints.subscribe()
    }

    pub(super) fn stop(&self) {
        self.task.abort();
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen_for_ever(config: Config, tls: Tls, hints: broadcast::Sender<AgentKey>) {
    let mut wait = Duration::from_millis(100);
    loop {
        match listen(&config, &tls, &hints).await {
            Ok(()) => wait = Duration::from_millis(100),
            Err(error) => tracing::warn!(%error, "cannot listen for what other processes do; trying again"),
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(Duration::from_secs(5));
    }
}

/// Listens until the connection ends.
async fn listen(config: &Config, tls: &Tls, hints: &broadcast::Sender<AgentKey>) -> Result<(), tokio_postgres::Error> {
    let (client, mut connection) = config.connect(tls.clone()).await?;
    let (sender, mut notices) = tokio::sync::mpsc::channel(256);
    let driver = tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(notice) = message
                && sender.send(notice).await.is_err()
            {
                return;
            }
        }
    });
    // The driver ends with this function, and its connection with it.
    let _driver = AbortOnDrop(driver.abort_handle());
    client.batch_execute(&format!("LISTEN {CHANNEL}")).await?;
    while let Some(notice) = notices.recv().await {
        for agent in notice.payload().split(',').filter_map(|number| number.parse().ok()) {
            // No receiver is no failure: nobody is connected who wants to know.
            let _ = hints.send(AgentKey(agent));
        }
    }
    Ok(())
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
