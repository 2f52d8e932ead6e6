//! The store's verbs on PostgreSQL.

use std::time::Duration;

use amb_core::doc::{Inbox, MessagePage, MessageWithReceipts, SearchHit, Sent};
use amb_core::mailbox::SearchQuery;
use amb_core::{Draft, Entry, Event, MessageId, Quotas, Timestamp, Usage};
use async_trait::async_trait;
use tokio::sync::broadcast;

use super::batch::Outcome;
use super::error::unavailable;
use super::transact::{InUse, PATIENCE, transact};
use super::{PostgresStore, agents, groups, inbox, keep, log, open, prune, receipts, replicas, search, usage};
use crate::error::Result;
use crate::outgoing::{OutgoingMessage, message_uuid};
use crate::query::{ExportQuery, InboxPage, MessageQuery, ReadPlace, Removed};
use crate::replicas::{Astray, Charge, Charged, Hint, Replicas, Seated};
use crate::store::Store;
use crate::types::{Agent, AgentKey, Crossing, KeyHash, News, Written, to_micros};
use crate::{StoreError, refusals};

/// How long a key is believed without asking: the time within which a revocation by another process is felt.
const BELIEVED: Duration = Duration::from_secs(1);

/// Runs a look at the database, and gives up on one that does not answer.
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

impl PostgresStore {
    /// Sends a message.
    async fn post(&self, caller: &Agent, message: OutgoingMessage) -> Result<Written<Sent>> {
        let outcome = match self.queue.send(caller.clone(), message).await? {
            Outcome::NoAgent(message) => {
                transact!(self, tx => groups::send(&tx, &self.account, caller, &message, None))?
            }
            outcome => outcome,
        };
        Ok(match outcome {
            Outcome::Repeat(sent) => Written::quiet(sent),
            Outcome::NoAgent(message) => return Err(refusals::not_connected(&message.to)),
            Outcome::Placed(placed) => {
                let (message, placed) = *placed;
                let written = message.into_written(placed);
                self.note_mail(&written.news);
                written
            }
        })
    }
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

    async fn astray(&self, seated: &[Seated], now: Timestamp) -> Result<Vec<Astray>> {
        look!(self, client => replicas::astray(client, seated, now))
    }

    fn set_quotas(&self, quotas: Quotas) {
        self.account.set_quotas(quotas);
    }

    async fn office_usage(&self) -> Result<Usage> {
        let stored = look!(self, client => usage::office(client))?;
        self.account.set_office(stored);
        Ok(stored.usage())
    }

    async fn agent_by_key_hash(&self, hash: KeyHash, now: Timestamp) -> Result<Option<Agent>> {
        let age = match self.known.get(&hash, now) {
            Ok(agent) => return Ok(Some(agent)),
            Err(age) => age,
        };
        let found = look!(self, client => agents::by_key(client, hash, now))?;
        Ok(found.map(|(agent, until)| {
            let believed = now.saturating_add(BELIEVED).unwrap_or(now);
            self.known.remember(age, hash, &agent, Some(until.map_or(believed, |until| until.min(believed))));
            agent
        }))
    }

    async fn send(&self, caller: &Agent, draft: Draft, now: Timestamp) -> Result<Written<Sent>> {
        self.post(caller, OutgoingMessage::new(&caller.name, draft, now)?).await
    }

    async fn carry(&self, caller: &Agent, draft: Draft, crossing: Crossing, now: Timestamp) -> Result<Written<Sent>> {
        self.post(caller, OutgoingMessage::carried(&caller.name, draft, crossing, now)?).await
    }

    async fn inbox_page(&self, caller: &Agent, page: InboxPage, now: Timestamp) -> Result<Inbox> {
        look!(self, client => inbox::inbox(client, caller, &page, now))
    }

    async fn events(&self, agent: AgentKey, since: u64, limit: usize) -> Result<Vec<Entry>> {
        look!(self, client => log::entries(client, agent.0, since, limit))
    }

    async fn event_head(&self, agent: AgentKey) -> Result<u64> {
        look!(self, client => log::head(client, agent.0))
    }

    async fn resume(&self, agent: AgentKey, since: u64) -> Result<u64> {
        look!(self, client => log::resume(client, agent.0, since))
    }

    async fn prune(&self, before: Timestamp) -> Result<u64> {
        let before = to_micros(before);
        Ok(transact!(self, tx => prune::prune(&tx, before))?)
    }

    async fn message(&self, caller: &Agent, id: &MessageId) -> Result<MessageWithReceipts> {
        let id = message_uuid(id)?;
        look!(self, client => receipts::message(client, caller, id))
    }

    async fn messages(&self, caller: &Agent, query: MessageQuery) -> Result<MessagePage> {
        look!(self, client => receipts::messages(client, caller, &query))
    }

    async fn search(&self, caller: &Agent, query: SearchQuery) -> Result<Vec<SearchHit>> {
        look!(self, client => search::search(client, caller, &query))
    }

    async fn index_mail(&self) -> Result<u64> {
        self.index_next().await
    }

    async fn remove_read_mail(&self, before: Timestamp, from: Option<ReadPlace>) -> Result<Removed> {
        let before = to_micros(before);
        Ok(transact!(self, tx => keep::remove_read_mail(&tx, before, from))?)
    }

    async fn export(&self, caller: &Agent, query: ExportQuery) -> Result<Vec<MessageWithReceipts>> {
        let after = query.after.as_ref().map(message_uuid).transpose()?;
        look!(self, client => keep::export(client, caller, after, query.since, query.limit))
    }
}

impl PostgresStore {
    /// Notes whose logs have new mail, for search.
    pub(super) fn note_mail(&self, news: &[News]) {
        for one in news {
            if matches!(one.entry.event, Event::NewMessage(_)) {
                self.unindexed.add(one.agent);
            }
        }
    }
}
