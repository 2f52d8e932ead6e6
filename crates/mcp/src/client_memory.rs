//! What one client has been shown, so that nothing costs tokens twice. Losing it loses no message.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use amb_core::{Cursor, Mailbox, OfficeError, RecentSet};
use parking_lot::Mutex;

use crate::activity::Activity;
use crate::lazy_mailbox::LazyMailbox;
use crate::work::Work;

/// How many ids are remembered. The oldest are dropped first; then a preview may be shown again.
const CAPACITY: usize = 4096;

/// How long connecting waits for an office that is slow or unreachable.
const CONNECT_WAIT: Duration = Duration::from_millis(500);

/// What is remembered about one client.
#[derive(Debug, Default)]
pub(crate) struct ClientMemory {
    ids: Mutex<RecentSet<String, CAPACITY>>,
    /// Where `mailbox_wait` left off in the log, so that an approval between two waits is still reported.
    cursor: Mutex<Option<Cursor>>,
    /// What the model is working on.
    pub(crate) work: Work,
    /// What the client was seen to do.
    pub(crate) activity: Activity,
    /// Open calls of `mailbox_wait`: while there is one, it returns new messages, and no hint is needed.
    waiting: AtomicUsize,
}

impl ClientMemory {
    /// Records that an id was shown; returns whether it was new.
    pub(crate) fn mark_shown(&self, id: &str) -> bool {
        self.ids.lock().insert(id.to_owned())
    }

    pub(crate) fn was_shown(&self, id: &str) -> bool {
        self.ids.lock().contains(id)
    }

    pub(crate) fn cursor(&self) -> Option<Cursor> {
        self.cursor.lock().clone()
    }

    pub(crate) fn set_cursor(&self, cursor: Option<Cursor>) {
        *self.cursor.lock() = cursor;
    }

    /// Sets the cursor when the client connects: events are reported from here on. Where the office is slow or
    /// unreachable, the client's first call sets it instead.
    pub(crate) async fn connect(&self, mailbox: &LazyMailbox) {
        let place = async { self.init_cursor(&**mailbox.office().await?).await };
        match tokio::time::timeout(CONNECT_WAIT, place).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "no cursor yet"),
            Err(_) => tracing::debug!("no cursor yet: the office is slow"),
        }
    }

    /// Sets the cursor to the end of the log, unless there is one.
    pub(crate) async fn init_cursor(&self, office: &dyn Mailbox) -> Result<(), OfficeError> {
        if self.cursor().is_none() {
            let end = office.events(None, Duration::ZERO).await?.cursor;
            self.cursor.lock().get_or_insert(end);
        }
        Ok(())
    }

    /// The latest remembered ids, at most so many.
    pub(crate) fn latest(&self, most: usize) -> Vec<String> {
        self.ids.lock().latest().take(most).cloned().collect()
    }

    /// Counts a wait until the result is dropped.
    pub(crate) fn begin_wait(&self) -> OpenWait<'_> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.activity.hint();
        OpenWait(self)
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }
}

pub(crate) struct OpenWait<'a>(&'a ClientMemory);

impl Drop for OpenWait<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_new_once() {
        let seen = ClientMemory::default();
        assert!(seen.mark_shown("a"));
        assert!(!seen.mark_shown("a"));
        assert!(seen.was_shown("a") && !seen.was_shown("b"));
    }

    #[test]
    fn memory_does_not_grow_without_bound() {
        let seen = ClientMemory::default();
        for n in 0..CAPACITY * 2 {
            assert!(seen.mark_shown(&n.to_string()));
        }
        assert_eq!(seen.ids.lock().latest().count(), CAPACITY);
        assert!(seen.was_shown(&(CAPACITY * 2 - 1).to_string()) && !seen.was_shown("0"));
    }

    #[test]
    fn a_wait_counts_until_it_ends() {
        let seen = ClientMemory::default();
        let one = seen.begin_wait();
        assert!(seen.is_waiting());
        drop(one);
        assert!(!seen.is_waiting());
    }
}
