//! The verbs of [`Store`] itself on SQLite.

use amb_core::doc::Inbox;
use amb_core::{Timestamp, Usage};
use async_trait::async_trait;

use super::SqliteStore;
use super::engine::run;
use super::files::disk_space;
use super::writer::{Isolation, log};
use crate::engine::Changes;
use crate::error::Result;
use crate::query::InboxPage;
use crate::replicas::{ListenerState, StaleListener};
use crate::store::Store;
use crate::types::{Agent, AgentKey, ViewVersion};
use crate::verbs::{all_sessions, page_of_sessions, pending};
use crate::{StoreError, row};

/// Most sessions of an inbox that is read on the thread of the request.
const SMALL_INBOX: u32 = 64;

#[async_trait]
impl Store for SqliteStore {
    async fn ready(&self) -> Result<()> {
        // The disk first: a full disk is the error that an operator has to see.
        let path = self.path.clone();
        tokio::task::spawn_blocking(move || disk_space::check(&path)).await.map_err(StoreError::internal)??;
        self.writer()?.write(Isolation::Savepoint(Changes::Logs), |_| Ok(())).await?;
        self.readers.read_short(|_| Ok(())).await
    }

    async fn close(&self) {
        drop(self.writer.lock().take());
        self.readers.close();
        drop(self.checkpoints.lock().take());
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // Joining waits for the last transaction; the thread logs its own failures.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
        drop(self.lock.lock().take());
    }

    async fn stale_listeners(&self, listeners: &[ListenerState], now: Timestamp) -> Result<Vec<StaleListener>> {
        let listeners = listeners.to_vec();
        self.readers.read_long(move |db| log::stale_listeners(db, &listeners, now)).await
    }

    async fn office_usage(&self) -> Result<Usage> {
        Ok(self.account.office().usage())
    }

    fn view_version(&self, agent: AgentKey) -> Option<ViewVersion> {
        Some(self.versions.of(agent))
    }

    async fn inbox_page(&self, caller: &Agent, page: InboxPage, now: Timestamp) -> Result<Inbox> {
        let limit = page.limit as usize;
        let small = self.readers.read_short(|db| {
            let Some(sessions) = run(all_sessions(db, caller, &page, page.limit.min(SMALL_INBOX)))? else {
                return Ok(None);
            };
            Ok(Some(row::inbox_page(sessions, limit, run(pending(db, caller, now))?)))
        });
        if let Some(inbox) = small.await? {
            return Ok(inbox);
        }
        let caller = caller.clone();
        let large = move |db: &mut rusqlite::Connection| {
            let sessions = run(page_of_sessions(db, &caller, &page))?;
            Ok(row::inbox_page(sessions, limit, run(pending(db, &caller, now))?))
        };
        self.readers.read_long(large).await
    }

    async fn index_mail(&self) -> Result<u64> {
        self.index_queue.index_next(self).await
    }
}
