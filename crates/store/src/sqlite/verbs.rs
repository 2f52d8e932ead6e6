//! The store's verbs on SQLite: what goes to the writer, what to the readers.

use amb_core::doc::Inbox;
use amb_core::{Timestamp, Usage};
use async_trait::async_trait;
use futures_util::FutureExt;

use super::SqliteStore;
use super::engine::run;
use super::files::disk_space;
use super::writer::{Isolation, log};
use crate::error::Result;
use crate::query::InboxPage;
use crate::replicas::{ListenerState, StaleListener};
use crate::store::Store;
use crate::types::{Agent, AgentKey, ViewVersion};
use crate::verbs::{all_sessions, page_of_sessions, pending};
use crate::{StoreError, row};

/// Sessions of an inbox that is read on the thread that serves the request.
const SMALL_INBOX: u32 = 64;

#[async_trait]
impl Store for SqliteStore {
    async fn ready(&self) -> Result<()> {
        // The disk first: a full disk is what an operator has to know.
        let path = self.path.clone();
        tokio::task::spawn_blocking(move || disk_space::check(&path)).await.map_err(StoreError::internal)??;
        self.writer()?.write(Isolation::Own, |_| Ok(())).await?;
        self.readers().look(|_| Ok(())).await
    }

    async fn close(&self) {
        self.shut().await;
    }

    async fn stale_listeners(&self, listeners: &[ListenerState], now: Timestamp) -> Result<Vec<StaleListener>> {
        let listeners = listeners.to_vec();
        self.readers().read(move |db| log::stale_listeners(db, &listeners, now)).await
    }

    async fn office_usage(&self) -> Result<Usage> {
        Ok(self.account.office().usage())
    }

    fn view_version(&self, agent: AgentKey) -> Option<ViewVersion> {
        Some(self.versions.of(agent))
    }

    async fn inbox_page(&self, caller: &Agent, page: InboxPage, now: Timestamp) -> Result<Inbox> {
        let limit = page.limit as usize;
        let few = self.readers().look(|db| {
            let Some(sessions) = run(all_sessions(db, caller, &page, page.limit.min(SMALL_INBOX)).boxed())? else {
                return Ok(None);
            };
            Ok(Some(row::inbox_page(sessions, limit, run(pending(db, caller, now).boxed())?)))
        });
        if let Some(inbox) = few.await? {
            return Ok(inbox);
        }
        let caller = caller.clone();
        let many = move |db: &mut rusqlite::Connection| {
            let sessions = run(page_of_sessions(db, &caller, &page).boxed())?;
            Ok(row::inbox_page(sessions, limit, run(pending(db, &caller, now).boxed())?))
        };
        self.readers().read(many).await
    }

    async fn index_mail(&self) -> Result<u64> {
        self.unindexed.index_next(self).await
    }
}
