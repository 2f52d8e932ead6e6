//! One reader of the mailbox's log for all listeners of this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use amb_core::event::EventPage;
use amb_core::{AgentName, Backoff, Cursor, Event, MessageId, OfficeError, SessionId};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use crate::lazy_mailbox::LazyMailbox;

/// How long one read of the log waits. Short, in case an office loses track of a waiter.
const POLL_WAIT: Duration = Duration::from_secs(25);
/// How many changes a slow listener may lag behind before it has to read everything.
const BACKLOG: usize = 256;

/// A hint that the mailbox changed.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// The session that changed, where it is one session.
    pub(crate) session: Option<SessionId>,
    /// The message that arrived, where it is one.
    pub(crate) mail: Option<(MessageId, AgentName)>,
    /// Who asks for a connection, where that is the change.
    pub(crate) request_from: Option<AgentName>,
}

/// Reads the log while anybody listens. Started once, on first use.
#[derive(Clone)]
pub(crate) struct LogWatch {
    inner: Arc<LogReader>,
}

struct LogReader {
    mailbox: LazyMailbox,
    changes: broadcast::Sender<Change>,
    /// Whether the reader has a cursor: from then on no change is missed.
    ready: watch::Sender<bool>,
    started: AtomicBool,
    closing: CancellationToken,
}

impl LogWatch {
    pub(crate) fn new(mailbox: LazyMailbox, closing: CancellationToken) -> Self {
        let (changes, _) = broadcast::channel(BACKLOG);
        let ready = watch::Sender::new(false);
        Self { inner: Arc::new(LogReader { mailbox, changes, ready, started: AtomicBool::new(false), closing }) }
    }

    /// Subscribes to changes from now on.
    pub(crate) fn listen(&self) -> broadcast::Receiver<Change> {
        let receiver = self.inner.changes.subscribe();
        if !self.inner.started.swap(true, Ordering::SeqCst) {
            tokio::spawn(run(Arc::clone(&self.inner)));
        }
        receiver
    }

    /// Whether no change is missed from now on.
    pub(crate) fn is_ready(&self) -> bool {
        *self.inner.ready.borrow()
    }

    /// Waits until no change is missed from then on, or the server closes.
    pub(crate) async fn ready(&self) {
        let mut ready = self.inner.ready.subscribe();
        tokio::select! {
            _ = ready.wait_for(|ready| *ready) => {}
            () = self.inner.closing.cancelled() => {}
        }
    }

    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.inner.closing
    }
}

async fn run(inner: Arc<LogReader>) {
    let mut cursor = None;
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
    loop {
        let page = tokio::select! {
            page = read_log(&inner.mailbox, cursor.clone()) => page,
            () = inner.closing.cancelled() => return,
        };
        match page {
            Ok(EventPage { events, cursor: next }) => {
                cursor = Some(next);
                backoff.reset();
                inner.ready.send_replace(true);
                for change in events.into_iter().filter_map(|entry| change(entry.event)) {
                    // Nobody listening is no failure: the log keeps what happened.
                    let _ = inner.changes.send(change);
                }
            }
            Err(error) => {
                tracing::warn!(%error, code = %error.code(), "cannot read the mailbox's log; trying again");
                if matches!(error.code(), amb_core::Code::Invalid | amb_core::Code::Gone) {
                    // The office no longer has this cursor: start again at the end of the log.
                    cursor = None;
                }
                tokio::select! {
                    () = tokio::time::sleep(error.wait().unwrap_or(backoff.pause())) => {}
                    () = inner.closing.cancelled() => return,
                }
            }
        }
    }
}

async fn read_log(mailbox: &LazyMailbox, since: Option<Cursor>) -> Result<EventPage, OfficeError> {
    mailbox.office().await?.events(since, POLL_WAIT).await
}

fn change(event: Event) -> Option<Change> {
    let none = Change { session: None, mail: None, request_from: None };
    match event {
        Event::NewMessage(new) => {
            Some(Change { session: Some(new.session_id), mail: Some((new.message_id, new.from_agent)), ..none })
        }
        Event::ConnectionRequest { from_agent, .. } => Some(Change { request_from: Some(from_agent), ..none }),
        Event::ConnectionApproved { .. } | Event::ConnectionChanged { .. } | Event::TaskOverdue { .. } => Some(none),
        // These change nothing in the caller's own mailbox.
        Event::Receipt { .. } | Event::HouseholdChanged { .. } | Event::SteppedIn(_) | Event::Unknown => None,
    }
}
