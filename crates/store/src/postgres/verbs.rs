//! The store's verbs on PostgreSQL.

use std::time::Duration;

use amb_core::doc::{Connected, ConnectionRequested, History, Inbox, Sent};
use amb_core::office::HistoryPage;
use amb_core::{AgentName, Draft, Entry, SessionId, Timestamp};
use async_trait::async_trait;
use tokio::sync::broadcast;

use super::batch::Outcome;
use super::error::unavailable;
use super::transact::{PATIENCE, transact};
use super::{PostgresStore, agents, connect, inbox, log, open, prune};
use crate::error::Result;
use crate::letter::{Letter, session_uuid};
use crate::store::Store;
use crate::types::{Agent, AgentKey, Ask, KeyHash, NewAgent, Written, to_micros};
use crate::words;

/// How long a key is believed without asking: the time within which a revocation by another process is felt.
const BELIEVED: Duration = Duration::from_secs(1);

/// Runs a look at the database, and gives up on one that does not answer.
macro_rules! look {
    ($store:expr, $client:ident => $body:expr) => {{
        let $client = $store.client().await?;
        match tokio::time::timeout(PATIENCE, $body).await {
            Ok(seen) => seen,
            Err(_) => {
                drop(deadpool_postgres::Object::take($client));
                Err(unavailable())
            }
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

    fn hints(&self) -> Option<broadcast::Receiver<AgentKey>> {
        Some(self.subscribe())
    }

    async fn register_agent(&self, new: NewAgent, now: Timestamp) -> Result<Agent> {
        words::check_agent(&new)?;
        let now = to_micros(now);
        Ok(transact!(self, tx => agents::register(&tx, &new, now))?)
    }

    async fn agent_by_key_hash(&self, hash: KeyHash, now: Timestamp) -> Result<Option<Agent>> {
        let age = match self.known.get(&hash, now) {
            Ok(agent) => return Ok(Some(agent)),
            Err(age) => age,
        };
        let found = look!(self, client => agents::by_key(&client, hash, now))?;
        Ok(found.map(|(agent, until)| {
            let believed = now.saturating_add(BELIEVED).unwrap_or(now);
            self.known.remember(age, hash, &agent, Some(until.map_or(believed, |until| until.min(believed))));
            agent
        }))
    }

    async fn agent_by_name(&self, name: &AgentName) -> Result<Option<Agent>> {
        look!(self, client => agents::by_name(&client, name))
    }

    async fn request_connection(
        &self,
        caller: &Agent,
        mut ask: Ask,
        now: Timestamp,
    ) -> Result<Written<ConnectionRequested>> {
        words::check_text("message", ask.intro.as_deref())?;
        ask.expires_at = ask.expires_at.map(to_micros);
        let now = to_micros(now);
        Ok(transact!(self, tx => connect::request(&tx, caller, &ask, now))?)
    }

    async fn approve_connection(&self, caller: &Agent, code: &str, now: Timestamp) -> Result<Written<Connected>> {
        if code.contains('\0') {
            return Err(words::no_code());
        }
        let now = to_micros(now);
        Ok(transact!(self, tx => connect::approve(&tx, caller, code, now))?)
    }

    async fn send(&self, caller: &Agent, draft: Draft, now: Timestamp) -> Result<Written<Sent>> {
        let letter = Letter::new(&caller.name, draft, now)?;
        Ok(match self.lanes.send(caller.clone(), letter).await? {
            Outcome::Repeat(sent) => Written::quiet(sent),
            Outcome::Placed(placed) => {
                let (letter, placed) = *placed;
                Written { answer: letter.sent(&placed), news: vec![letter.into_news(placed)] }
            }
        })
    }

    async fn inbox(&self, caller: &Agent, unread_only: bool, now: Timestamp) -> Result<Inbox> {
        look!(self, client => inbox::inbox(&client, caller, unread_only, now))
    }

    async fn history(
        &self,
        caller: &Agent,
        session: &SessionId,
        page: HistoryPage,
        now: Timestamp,
    ) -> Result<Written<History>> {
        let session = session_uuid(session)?;
        let (history, unread) = look!(self, client => inbox::history(&client, caller, session, &page))?;
        if unread.is_empty() {
            return Ok(Written::quiet(history));
        }
        let now = to_micros(now);
        let news = transact!(self, tx => inbox::mark_read(&tx, caller, &unread, now))?;
        Ok(Written { answer: history, news })
    }

    async fn events(&self, agent: AgentKey, since: u64, limit: usize) -> Result<Vec<Entry>> {
        look!(self, client => log::entries(&client, agent.0, since, limit))
    }

    async fn event_head(&self, agent: AgentKey) -> Result<u64> {
        look!(self, client => log::head(&client, agent.0))
    }

    async fn prune(&self, before: Timestamp) -> Result<u64> {
        let before = to_micros(before);
        Ok(transact!(self, tx => prune::prune(&tx, before))?)
    }
}
