//! Hints from other processes.
//!
//! A process tells others what it did by NOTIFY; each listens on a connection of its own, and on a new one when that is lost.
//! Notifications in between are lost too, so the receivers then get the hint to look at everything.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::task::AbortHandle;
use tokio_postgres::{AsyncMessage, Config, Notification};
use uuid::Uuid;

use super::tls::Tls;
use crate::known::KnownKeys;
use crate::replicas::Hint;
use crate::types::AgentKey;

/// Channel for logs that grew. Payload: the process, then `AGENT:NUMBER` for each log.
pub(super) const LOGS: &str = "amb_log";
/// Channel for keys that end. Payload: an agent.
pub(super) const KEYS: &str = "amb_keys";
/// Channel for processes that start and stop. Payload: the process.
pub(super) const REPLICAS: &str = "amb_replicas";
/// Hints kept for a slow receiver; one that falls behind looks at everything.
const HINTS: usize = 4_096;

/// Listens while it lives.
#[derive(Debug)]
pub(super) struct NotificationListener {
    hints: broadcast::Sender<Hint>,
    task: AbortHandle,
}

/// What to do with what is heard.
#[derive(Debug)]
struct Ear {
    /// This process, whose own notifications are ignored.
    me: Uuid,
    known: Arc<KnownKeys>,
    hints: broadcast::Sender<Hint>,
}

impl NotificationListener {
    pub(super) fn start(config: Config, tls: Tls, me: Uuid, known: Arc<KnownKeys>) -> Self {
        let (hints, _) = broadcast::channel(HINTS);
        known.go_deaf();
        let ear = Ear { me, known, hints: hints.clone() };
        let task = tokio::spawn(listen_for_ever(config, tls, ear)).abort_handle();
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

async fn listen_for_ever(config: Config, tls: Tls, ear: Ear) {
    const FIRST: Duration = Duration::from_millis(100);
    let mut wait = FIRST;
    loop {
        let listened = listen(&config, &tls, &ear).await;
        ear.known.go_deaf();
        match listened {
            Ok(()) => wait = FIRST,
            Err(error) => tracing::warn!(%error, "cannot listen for what other processes do; trying again"),
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(Duration::from_secs(5));
    }
}

/// Listens until the connection ends.
async fn listen(config: &Config, tls: &Tls, ear: &Ear) -> Result<(), tokio_postgres::Error> {
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
    client.batch_execute(&format!("LISTEN {LOGS}; LISTEN {KEYS}; LISTEN {REPLICAS}")).await?;
    ear.known.hear();
    ear.tell(Hint::Missed);
    while let Some(notice) = notices.recv().await {
        ear.hear(&notice);
    }
    Ok(())
}

impl Ear {
    fn hear(&self, notice: &Notification) {
        let mut words = notice.payload().split_ascii_whitespace();
        match notice.channel() {
            KEYS => {
                // Before anybody is sent away: whoever comes back with an old key is looked up anew.
                self.known.forget();
                let agents = words.filter_map(|number| number.parse().ok());
                agents.for_each(|agent| self.tell(Hint::Keys(AgentKey(agent))));
            }
            _ if words.next().and_then(|who| Uuid::try_parse(who).ok()) == Some(self.me) => {}
            LOGS => {
                let grown = words.filter_map(|word| word.split_once(':'));
                let grown = grown.filter_map(|(agent, up_to)| Some((agent.parse().ok()?, up_to.parse().ok()?)));
                grown.for_each(|(agent, up_to)| self.tell(Hint::Grew(AgentKey(agent), up_to)));
            }
            REPLICAS => self.tell(Hint::Replicas),
            _ => {}
        }
    }

    fn tell(&self, hint: Hint) {
        // Without a receiver nobody is connected who needs it.
        let _ = self.hints.send(hint);
    }
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
