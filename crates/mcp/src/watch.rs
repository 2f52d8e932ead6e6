//! One reader of the mailbox's log, which hints to all who listen in this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use amb_core::event::EventPage;
use amb_core::{AgentName, Backoff, Cursor, Event, MessageId, OfficeError, SessionId};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use crate::lazy_mailbox::LazyMailbox;

/// How long one look at the log waits. Short enough that an office which forgets a waiter costs little.
const LOOK: Duration = Duration::from_secs(25);
/// Changes a slow listener may fall behind before it is told to look at everything.
const BACKLOG: usize = 256;

/// A hint: something in the mailbox is not what it was.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// The thread that changed, where it is one thread.
    pub(crate) session: Option<SessionId>,
    /// The mail that came, where it is mail.
    pub(crate) mail: Option<(MessageId, AgentName)>,
    /// Who wants to connect, where that is the news.
    pub(crate) request_from: Option<AgentName>,
}

/// Reads the log while anybody listens. Started once, on first use.
#[derive(Clone)]
pub(crate) struct Watch {
    inner: Arc<Inner>,
}

struct Inner {
    mailbox: LazyMailbox,
    changes: broadcast::Sender<Change>,
    /// Whether the reader knows its place in the log: from then on no change escapes it.
    ready: watch::Sender<bool>,
    started: AtomicBool,
    closing: CancellationToken,
}

impl Watch {
    pub(crate) fn new(mailbox: LazyMailbox, closing: CancellationToken) -> Self {
        let (changes, _) = broadcast::channel(BACKLOG);
        let ready = watch::Sender::new(false);
        Self { inner: Arc::new(Inner { mailbox, changes, ready, started: AtomicBool::new(false), closing }) }
    }

    /// Changes from now on.
    pub(crate) fn listen(&self) -> broadcast::Receiver<Change> {
        let receiver = self.inner.changes.subscribe();
        if !self.inner.started.swap(true, Ordering::SeqCst) {
            tokio::spawn(run(Arc::clone(&self.inner)));
        }
        receiver
    }

    /// Whether every change from now on is told.
    pub(crate) fn is_ready(&self) -> bool {
        *self.inner.ready.borrow()
    }

    /// Waits until every change from then on is told, or the door closes.
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

async fn run(inner: Arc<Inner>) {
    let mut cursor = None;
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
    loop {
        let page = tokio::select! {
            page = look(&inner.mailbox, cursor.clone()) => page,
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
                    // The office does not know our place any more: begin again at its end.
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

async fn look(mailbox: &LazyMailbox, since: Option<Cursor>) -> Result<EventPage, OfficeError> {
    mailbox.office().await?.events(since, LOOK).await
}

fn change(event: Event) -> Option<Change> {
    let none = Change { session: None, mail: None, request_from: None };
    match event {
        Event::NewMessage(new) => {
            Some(Change { session: Some(new.session_id), mail: Some((new.message_id, new.from_agent)), ..none })
        }
        Event::ConnectionRequest { from_agent, .. } => Some(Change { request_from: Some(from_agent), ..none }),
        Event::ConnectionApproved { .. } | Event::ConnectionChanged { .. } | Event::TaskOverdue { .. } => Some(none),
        // These change nothing in the caller's own mail.
        Event::Receipt { .. } | Event::HouseholdChanged { .. } | Event::SteppedIn(_) | Event::Unknown => None,
    }
}
