//! The store's verbs on PostgreSQL.

use amb_core::doc::Inbox;
use amb_core::{Event, Timestamp, Usage};
use async_trait::async_trait;
use tokio::sync::broadcast;

use super::engine::PgReader;
use super::error::unavailable;
use super::transact::{InUse, PATIENCE, transact};
use super::{PostgresStore, open, replicas, search};
use crate::engine::Query;
use crate::error::Result;
use crate::query::InboxPage;
use crate::quota::Stored;
use crate::replicas::{Charge, Charged, Hint, ListenerState, Replicas, StaleListener};
use crate::store::Store;
use crate::types::{Agent, AgentKey, LogEntry};
use crate::unindexed::{Index, Indexed};
use crate::verbs::{page_of_sessions, pending};
use crate::{StoreError, row};

/// Reads from the database, with a timeout.
macro_rules! look {
    ($store:expr, $client:ident => $body:expr) => {{
        let client = InUse::new($store.client().await?);
        let $client: &deadpool_postgres::Object = &client;
        match tokio::time::timeout(PATIENCE, $body).await {
            Ok(seen) => {
                client.finished();
                seen.map_err(StoreError::from)
            }
            Err(_) => Err(unavailable()),
        }
    }};
}

#[async_trait]
impl Store for PostgresStore {
    async fn ready(&self) -> Result<()> {
        open::ready(self).await
    }

    async fn close(&self) {
        self.shut().await;
    }

    fn hints(&self) -> Option<broadcast::Receiver<Hint>> {
        Some(self.subscribe())
    }

    async fn hint(&self, grown: &[(AgentKey, u64)]) -> Result<()> {
        look!(self, client => replicas::hint(client, self.me, grown))
    }

    async fn heartbeat(&self, hears: bool) -> Result<Replicas> {
        look!(self, client => replicas::heartbeat(client, self.me, hears))
    }

    async fn charge(&self, charges: &[Charge]) -> Result<Vec<Charged>> {
        look!(self, client => replicas::charge(client, charges))
    }

    async fn forgive(&self) -> Result<()> {
        look!(self, client => replicas::forgive(client))
    }

    async fn stale_listeners(&self, listeners: &[ListenerState], now: Timestamp) -> Result<Vec<StaleListener>> {
        look!(self, client => replicas::stale_listeners(client, listeners, now))
    }

    async fn office_usage(&self) -> Result<Usage> {
        let sum =
            "SELECT CAST(coalesce(sum(messages), 0) AS bigint), CAST(coalesce(sum(bytes), 0) AS bigint) FROM usage";
        let (messages, bytes) = look!(self, client => async { PgReader(client).one(sum, &[]).await })?;
        let stored = Stored { messages, bytes };
        self.account.set_office(stored);
        Ok(stored.usage())
    }

    async fn inbox_page(&self, caller: &Agent, page: InboxPage, now: Timestamp) -> Result<Inbox> {
        let (sessions, pending) = look!(self, client => async {
            // Both statements travel together.
            let (mut first, mut second) = (PgReader(client), PgReader(client));
            tokio::try_join!(page_of_sessions(&mut first, caller, &page), pending(&mut second, caller, now))
        })?;
        Ok(row::inbox_page(sessions, page.limit as usize, pending))
    }

    async fn index_mail(&self) -> Result<u64> {
        self.unindexed.index_next(self).await
    }
}

#[async_trait]
impl Index for PostgresStore {
    async fn index(&self, agents: &[AgentKey]) -> Result<Indexed> {
        Ok(transact!(self, tx => search::index(&tx, agents))?)
    }

    async fn behind(&self) -> Result<Vec<AgentKey>> {
        look!(self, client => search::behind(client))
    }
}

impl PostgresStore {
    /// Notes whose logs have new mail, for search.
    pub(super) fn note_mail(&self, entries: &[LogEntry]) {
        for one in entries {
            if matches!(one.entry.event, Event::NewMessage(_)) {
                self.unindexed.add(one.agent);
            }
        }
    }
}
