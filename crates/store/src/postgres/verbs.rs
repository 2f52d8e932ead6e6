//! The verbs of [`Store`] itself on PostgreSQL.

use std::time::Duration;

use amb_core::doc::Inbox;
use amb_core::{Event, Timestamp, Usage};
use async_trait::async_trait;
use tokio::sync::broadcast;

use super::engine::PgReader;
use super::error::unavailable;
use super::transact::{InUse, TIMEOUT, transact};
use super::{PostgresStore, open, replicas, search};
use crate::engine::Query;
use crate::error::Result;
use crate::index_queue::{Index, Indexed};
use crate::query::InboxPage;
use crate::quota::Stored;
use crate::replicas::{Charge, Charged, Hint, ListenerState, Replicas, StaleListener};
use crate::store::Store;
use crate::types::{Agent, AgentKey, LogEntry};
use crate::verbs::{page_of_sessions, pending};
use crate::{StoreError, row};

/// Runs `$body`, a future of `Result<T, Failed>`, on a connection of the pool called `$client`, with a timeout.
macro_rules! query {
    ($store:expr, $client:ident => $body:expr) => {{
        let client = InUse::new($store.client().await?);
        let $client: &deadpool_postgres::Object = &client;
        match tokio::time::timeout(TIMEOUT, $body).await {
            Ok(outcome) => {
                client.finished();
                outcome.map_err(StoreError::from)
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
        self.queue.close().await;
        if let Ok(client) = self.client().await {
            // Where this fails, the other processes detect the missing heartbeat.
            let _ = tokio::time::timeout(Duration::from_secs(1), replicas::sign_off(&client, self.me)).await;
        }
        self.listener.stop();
        self.pool.close();
    }

    fn hints(&self) -> Option<broadcast::Receiver<Hint>> {
        Some(self.listener.subscribe())
    }

    async fn hint(&self, grown: &[(AgentKey, u64)]) -> Result<()> {
        query!(self, client => replicas::hint(client, self.me, grown))
    }

    async fn heartbeat(&self, uses_broker: bool) -> Result<Replicas> {
        query!(self, client => replicas::heartbeat(client, self.me, uses_broker))
    }

    async fn charge(&self, charges: &[Charge]) -> Result<Vec<Charged>> {
        query!(self, client => replicas::charge(client, charges))
    }

    async fn prune_rate_limits(&self) -> Result<()> {
        query!(self, client => replicas::prune_rate_limits(client))
    }

    async fn stale_listeners(&self, listeners: &[ListenerState], now: Timestamp) -> Result<Vec<StaleListener>> {
        query!(self, client => replicas::stale_listeners(client, listeners, now))
    }

    async fn office_usage(&self) -> Result<Usage> {
        let sum =
            "SELECT CAST(coalesce(sum(messages), 0) AS bigint), CAST(coalesce(sum(bytes), 0) AS bigint) FROM usage";
        let stored: Stored = query!(self, client => async { PgReader(client).one(sum, &[]).await })?;
        self.account.set_office(stored);
        Ok(stored.usage())
    }

    async fn inbox_page(&self, caller: &Agent, page: InboxPage, now: Timestamp) -> Result<Inbox> {
        let (sessions, pending) = query!(self, client => async {
            // Both statements are pipelined.
            let (mut first, mut second) = (PgReader(client), PgReader(client));
            tokio::try_join!(page_of_sessions(&mut first, caller, &page), pending(&mut second, caller, now))
        })?;
        Ok(row::inbox_page(sessions, page.limit as usize, pending))
    }

    async fn index_mail(&self) -> Result<u64> {
        self.index_queue.index_next(self).await
    }
}

#[async_trait]
impl Index for PostgresStore {
    async fn index(&self, agents: &[AgentKey]) -> Result<Indexed> {
        Ok(transact!(self, tx => search::index(&tx, agents))?)
    }

    async fn behind(&self) -> Result<Vec<AgentKey>> {
        query!(self, client => search::behind(client))
    }
}

impl PostgresStore {
    /// Queues the agents that got new mail for indexing.
    pub(super) fn queue_for_indexing(&self, entries: &[LogEntry]) {
        for one in entries {
            if matches!(one.entry.event, Event::NewMessage(_)) {
                self.index_queue.add(one.agent);
            }
        }
    }
}
