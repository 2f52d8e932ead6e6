//! A session as its members see it.

use amb_core::doc::History;
use amb_core::mailbox::HistoryPage;
use amb_core::{SessionId, Timestamp};
use async_trait::async_trait;
use futures_util::FutureExt;

use super::receipts::mark;
use crate::engine::{Changes, Engine, Look, Mark, read, write};
use crate::error::Result;
use crate::outgoing::session_uuid;
use crate::types::{Agent, Written, to_micros};

/// Reading sessions.
#[async_trait]
pub trait Sessions: Engine {
    /// A page of a session, newest first; what it shows is marked as read, and the senders' logs get the receipts.
    /// `not_found` where there is no such session, `forbidden` where the caller is not in it. A `before` that is not in
    /// the session is `not_found`.
    async fn history(
        &self,
        caller: &Agent,
        session: &SessionId,
        page: HistoryPage,
        now: Timestamp,
    ) -> Result<Written<History>> {
        let asked = (caller.clone(), session_uuid(session)?, page);
        let (history, unread) = read(self, Look::Short, asked, |db, (caller, session, page)| {
            async move { db.history(caller, *session, page).await }.boxed()
        })
        .await?;
        if unread.is_empty() {
            return Ok(Written::quiet(history));
        }
        let asked = (caller.clone(), unread, to_micros(now));
        let marked = write(self, Changes::Logs, asked, |tx, (caller, unread, now)| {
            mark(tx, caller, unread, Mark::Read, *now).boxed()
        });
        Ok(Written { answer: history, entries: marked.await?.entries })
    }
}

impl<E: Engine> Sessions for E {}
