//! One agent's backend, in a directory or at a server.

use parking_lot::Mutex;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use amb_client::Client;
use amb_core::doc::Sent;
use amb_core::mailbox::{ClaimRequest, Mailbox, Result};
use amb_core::route::Hop;
use amb_core::{Cursor, Draft, Message, OfficeError, Status, TaskId};
use amb_dir::DirMailbox;
use tokio::time::Instant;

/// Maximum wait of one read of a server's log. Bounded because no entry announces an expired lease.
const MAX_POLL: Duration = Duration::from_secs(20);

pub(crate) enum Backend {
    Directory(DirMailbox),
    Server {
        client: Client,
        /// The position in the log up to which it was read before the last claim.
        cursor: Mutex<Option<Cursor>>,
    },
}

impl Backend {
    pub(crate) fn office(&self) -> &dyn Mailbox {
        match self {
            Backend::Directory(backend) => backend,
            Backend::Server { client, .. } => client,
        }
    }

    /// The directory backend, or an error on a server.
    pub(crate) fn directory(&self) -> Result<&DirMailbox> {
        match self {
            Backend::Directory(backend) => Ok(backend),
            Backend::Server { .. } => Err(OfficeError::unsupported(
                "a server keeps no files for its agents; take mail with `next` and acknowledge it with `ack`",
            )),
        }
    }

    pub(crate) async fn set_status(&self, status: Status, current_tasks: Option<Vec<TaskId>>) -> Result<()> {
        match (self, status) {
            (Backend::Directory(backend), status) => backend.set_status(status, current_tasks).await,
            (Backend::Server { client, .. }, Status::Offline) => client.leave().await,
            // A server knows the tasks of its agents, and reports those with one as busy.
            (Backend::Server { client, .. }, _) => client.heartbeat().await,
        }
    }

    /// Sends; where `within` gives the remaining hops, with no more than these.
    pub(crate) async fn send(&self, draft: Draft, within: Option<Hop>) -> Result<Sent> {
        match (self, within) {
            (Backend::Directory(backend), Some(within)) => backend.send_within(draft, within).await,
            (Backend::Server { .. }, Some(_)) => Err(OfficeError::unsupported(
                "a server counts hops itself; name the message that this follows as `parent` instead of ttl and trace",
            )),
            (backend, None) => backend.office().send(draft).await,
        }
    }

    /// Claims messages, waiting for some up to `wait` or until `stop` ends. A claim that was begun is always finished:
    /// dropping it would keep messages from everybody until its lease, or this process, ends.
    pub(crate) async fn next(
        &self,
        request: ClaimRequest,
        wait: Duration,
        stop: impl Future<Output = ()>,
    ) -> Result<Vec<Message>> {
        match self {
            Backend::Directory(backend) => backend.claim_or_wait(request, wait, stop).await,
            Backend::Server { client, cursor } => next_at(client, cursor, request, wait, stop).await,
        }
    }
}

async fn next_at(
    client: &Client,
    cursor: &Mutex<Option<Cursor>>,
    request: ClaimRequest,
    wait: Duration,
    stop: impl Future<Output = ()>,
) -> Result<Vec<Message>> {
    let known = || cursor.lock();
    let deadline = Instant::now().checked_add(wait);
    let mut stop = pin!(stop);
    // Read before the first claim, so that no message in between is missed.
    let first = known().clone();
    let mut since = match first {
        Some(since) => since,
        None => client.events(None, Duration::ZERO).await?.cursor,
    };
    loop {
        let claimed = client.claim(request.clone()).await?;
        if !claimed.is_empty() {
            return Ok(claimed);
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(Vec::new());
        }
        let poll = left.map_or(MAX_POLL, |left| left.min(MAX_POLL));
        let page = tokio::select! {
            () = &mut stop => return Ok(Vec::new()),
            page = client.events(Some(since.clone()), poll) => page?,
        };
        since = page.cursor;
        *known() = Some(since.clone());
    }
}
