//! Hints from other processes.
//!
//! Processes notify each other by NOTIFY. Each listens on its own connection and reconnects when that is lost.
//! Notifications in between are lost too, so the subscribers then get [`Hint::Missed`].

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::task::AbortHandle;
use tokio_postgres::{AsyncMessage, Config, Notification};
use uuid::Uuid;

use super::tls::Tls;
use crate::key_cache::KeyCache;
use crate::replicas::Hint;
use crate::types::AgentKey;

/// Channel for logs that grew. Payload: the sending process, then `AGENT:NUMBER` for each log.
pub(super) const LOGS: &str = "amb_log";
/// Channel for revoked keys. Payload: an agent.
pub(super) const KEYS: &str = "amb_keys";
/// Channel for processes that start and stop. Payload: the process.
pub(super) const REPLICAS: &str = "amb_replicas";
/// Hints buffered for a slow subscriber; one that falls behind checks everything.
const HINT_BUFFER: usize = 4_096;

/// A task that listens until this is dropped.
#[derive(Debug)]
pub(super) struct NotificationListener {
    hints: broadcast::Sender<Hint>,
    task: AbortHandle,
}

/// Handles notifications.
#[derive(Debug)]
struct NotificationHandler {
    /// This process, whose own notifications are ignored.
    me: Uuid,
    key_cache: Arc<KeyCache>,
    hints: broadcast::Sender<Hint>,
}

impl NotificationListener {
    pub(super) fn start(config: Config, tls: Tls, me: Uuid, key_cache: Arc<KeyCache>) -> Self {
        let (hints, _) = broadcast::channel(HINT_BUFFER);
        key_cache.disable();
        let handler = NotificationHandler { me, key_cache, hints: hints.clone() };
        let task = tokio::spawn(keep_listening(config, tls, handler)).abort_handle();
        Self { hints, task }
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<Hint> {
        self.hints.subscribe()
    }

    pub(super) fn stop(&self) {
        self.task.abort();
    }
}

impl Drop for NotificationListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn keep_listening(config: Config, tls: Tls, handler: NotificationHandler) {
    const FIRST: Duration = Duration::from_millis(100);
    let mut wait = FIRST;
    loop {
        let listened = listen(&config, &tls, &handler).await;
        handler.key_cache.disable();
        match listened {
            Ok(()) => wait = FIRST,
            Err(error) => tracing::warn!(%error, "cannot listen for notifications of other processes; retrying"),
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(Duration::from_secs(5));
    }
}

/// Listens until the connection ends.
async fn listen(config: &Config, tls: &Tls, handler: &NotificationHandler) -> Result<(), tokio_postgres::Error> {
    let (client, mut connection) = config.connect(tls.clone()).await?;
    let (sender, mut notifications) = tokio::sync::mpsc::channel(256);
    let driver = tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(notification) = message
                && sender.send(notification).await.is_err()
            {
                return;
            }
        }
    });
    // Ends the driver, and its connection, with this function.
    let _driver = AbortOnDrop(driver.abort_handle());
    client.batch_execute(&format!("LISTEN {LOGS}; LISTEN {KEYS}; LISTEN {REPLICAS}")).await?;
    handler.key_cache.enable();
    handler.send(Hint::Missed);
    while let Some(notification) = notifications.recv().await {
        handler.handle(&notification);
    }
    Ok(())
}

impl NotificationHandler {
    fn handle(&self, notification: &Notification) {
        let mut words = notification.payload().split_ascii_whitespace();
        match notification.channel() {
            KEYS => {
                // Before sockets are closed: a client that reconnects with an old key must not be found in the cache.
                self.key_cache.clear();
                let agents = words.filter_map(|number| number.parse().ok());
                agents.for_each(|agent| self.send(Hint::Keys(AgentKey(agent))));
            }
            _ if words.next().and_then(|who| Uuid::try_parse(who).ok()) == Some(self.me) => {}
            LOGS => {
                let grown = words.filter_map(|word| word.split_once(':'));
                let grown = grown.filter_map(|(agent, up_to)| Some((agent.parse().ok()?, up_to.parse().ok()?)));
                grown.for_each(|(agent, up_to)| self.send(Hint::Grew(AgentKey(agent), up_to)));
            }
            REPLICAS => self.send(Hint::Replicas),
            _ => {}
        }
    }

    fn send(&self, hint: Hint) {
        // An error means that there is no subscriber.
        let _ = self.hints.send(hint);
    }
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
