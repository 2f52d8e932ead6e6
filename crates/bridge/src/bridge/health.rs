//! Whether the runtime is up, and what the bridge reports about itself.

use amb_core::Timestamp;
use tokio::time::Instant;

use super::Bridge;
use crate::error::BridgeError;
use crate::runtime::TurnError;

impl Bridge {
    /// Records that the runtime is down: all messages stay in the office, unread.
    pub(super) fn pause(&mut self, error: &TurnError) -> Result<(), BridgeError> {
        // Turns that fail at the same time count as one outage.
        if self.paused.is_none_or(|until| until <= Instant::now()) {
            self.outages += 1;
        }
        let wait = self.shared.options.backoff.after(self.outages);
        self.paused = Some(Instant::now() + wait);
        let next_try = Timestamp::now().saturating_add(wait).unwrap_or(Timestamp::MAX);
        self.shared.status().set_down(error, next_try);
        self.save_status()
    }

    /// Checks, at the start and after a pause, whether the runtime would take a turn, without running one.
    pub(super) async fn check_runtime(&mut self) -> Result<(), BridgeError> {
        if self.paused.is_none_or(|until| until > Instant::now()) {
            return Ok(());
        }
        match self.shared.runtime.check().await {
            Ok(()) => {
                self.paused = None;
                self.shared.note_ready();
                self.warned = None;
                if let Some(on_ready) = self.shared.options.on_ready.as_ref().filter(|_| !self.ready_reported) {
                    on_ready(&self.shared.runtime.describe());
                }
                self.ready_reported = true;
                Ok(())
            }
            Err(error) => {
                match self.warned.as_ref() == Some(&error.detail) {
                    // The detail is logged once; `amb bridge status` shows it as well.
                    true => {
                        tracing::warn!(kind = ?error.kind, tries = self.outages + 1, "the runtime is still down");
                    }
                    false => {
                        tracing::warn!(kind = ?error.kind, %error, "the runtime is down; mail waits");
                        self.warned = Some(error.detail.clone());
                        self.ready_reported = false;
                    }
                }
                self.shared.note_error(&error.detail);
                self.pause(&error)
            }
        }
    }

    /// Counts the messages that wait in the office while none can be claimed.
    pub(super) async fn count_unread(&mut self) {
        match self.shared.office.inbox(true).await {
            Ok(inbox) => {
                let under_way = self.queue.under_way().len();
                let unread = usize::try_from(inbox.unread()).unwrap_or(usize::MAX);
                self.shared.status().waiting = unread.saturating_sub(under_way);
            }
            Err(error) => tracing::debug!(%error, "cannot count waiting messages"),
        }
    }

    pub(super) fn save_status(&self) -> Result<(), BridgeError> {
        let mut status = self.shared.status();
        if self.has_room() {
            status.waiting = self.queue.len();
        }
        status.under_way = self.queue.under_way();
        status.updated_at = Timestamp::now();
        Ok(self.shared.ledger.write_status(&status)?)
    }
}
