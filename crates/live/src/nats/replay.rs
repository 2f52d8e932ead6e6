//! Sends what waits in the outbox, in order for each goal.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use amb_core::Timestamp;
use tokio::sync::Notify;
use tokio_util::bytes::Bytes;

use super::wire::Wire;
use crate::broker::BrokerError;
use crate::outbox::Outbox;

/// Pause between two passes while something waits.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Runs for the life of the connection. Woken by a reconnect and by whatever is queued.
pub(super) async fn replay(outbox: Arc<Outbox>, wire: Arc<Wire>, wake: Arc<Notify>) {
    loop {
        if wire.is_connected()
            && let Err(error) = pass(&outbox, &wire).await
        {
            tracing::warn!(%error, "replaying the outbox failed; retrying");
        }
        if outbox.len() == 0 {
            wake.notified().await;
        } else {
            let _ = tokio::time::timeout(RETRY_INTERVAL, wake.notified()).await;
        }
    }
}

/// One pass over the outbox. A goal without a subscriber holds up its own messages only.
async fn pass(outbox: &Outbox, wire: &Wire) -> std::io::Result<()> {
    let mut held_up = HashSet::new();
    for (number, entry) in outbox.waiting() {
        if held_up.contains(&entry.subject) {
            continue;
        }
        match wire.send(&entry.subject, Bytes::from(entry.payload.clone()), Some(&entry.id)).await {
            Ok(_) => outbox.remove(number)?,
            Err(BrokerError::Offline { .. } | BrokerError::Lost { .. }) => return Ok(()),
            // After an outage receivers reconnect one by one, so a missing subscriber is not final at first.
            Err(BrokerError::NoSubscriber) if !outbox.is_too_old(&entry, Timestamp::now()) => {
                held_up.insert(entry.subject.clone());
            }
            Err(error) => outbox.bury(number, &entry, &error.to_string())?,
        }
    }
    Ok(())
}
