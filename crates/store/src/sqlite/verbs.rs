//! The store's verbs on SQLite: what goes to the writer, what to the readers.

use amb_core::doc::{Connected, ConnectionRequested, History, Inbox, Sent};
use amb_core::office::HistoryPage;
use amb_core::{AgentName, Draft, Entry, SessionId, Timestamp};
use async_trait::async_trait;

use super::send::Outcome;
use super::{SqliteStore, agents, inbox, log};
use crate::error::Result;
use crate::letter::{Letter, session_uuid};
use crate::store::Store;
use crate::types::{Agent, AgentKey, Ask, KeyHash, NewAgent, Written, to_micros};
use crate::words;

#[async_trait]
impl Store for SqliteStore {
    async fn ready(&self) -> Result<()> {
        self.writer()?.write(|_| Ok(())).await?;
        self.readers.read(|_| Ok(())).await
    }

    async fn close(&self) {
        self.shut().await;
    }

    async fn register_agent(&self, new: NewAgent, now: Timestamp) -> Result<Agent> {
        words::check_agent(&new)?;
        self.writer()?.write(move |desk| desk.register(new, now)).await
    }

    async fn agent_by_key_hash(&self, hash: KeyHash, now: Timestamp) -> Result<Option<Agent>> {
        let age = match self.known.get(&hash, now) {
            Ok(agent) => return Ok(Some(agent)),
            Err(age) => age,
        };
        let found = self.readers.read(move |db| agents::by_key(db, hash, now)).await?;
        Ok(found.map(|(agent, until)| {
            self.known.remember(age, hash, &agent, until);
            agent
        }))
    }

    async fn agent_by_name(&self, name: &AgentName) -> Result<Option<Agent>> {
        let name = name.clone();
        self.readers.read(move |db| agents::by_name(db, &name)).await
    }

    async fn request_connection(
        &self,
        caller: &Agent,
        ask: Ask,
        now: Timestamp,
    ) -> Result<Written<ConnectionRequested>> {
        words::check_text("message", ask.intro.as_deref())?;
        let caller = caller.clone();
        self.writer()?.write(move |desk| desk.request_connection(&caller, ask, now)).await
    }

    async fn approve_connection(&self, caller: &Agent, code: &str, now: Timestamp) -> Result<Written<Connected>> {
        let (caller, code) = (caller.clone(), code.to_owned());
        self.writer()?.write(move |desk| desk.approve_connection(&caller, &code, now)).await
    }

    async fn send(&self, caller: &Agent, draft: Draft, now: Timestamp) -> Result<Written<Sent>> {
        let letter = Letter::new(&caller.name, draft, now)?;
        let caller = caller.clone();
        // The answer and the news are put together here, off the writer's thread.
        Ok(match self.writer()?.write(move |desk| desk.send(&caller, letter)).await? {
            Outcome::Repeat(sent) => Written::quiet(sent),
            Outcome::Placed(placed) => {
                let (letter, placed) = *placed;
                Written { answer: letter.sent(&placed), news: vec![letter.into_news(placed)] }
            }
        })
    }

    async fn inbox(&self, caller: &Agent, unread_only: bool, now: Timestamp) -> Result<Inbox> {
        let caller = caller.clone();
        self.readers.read(move |db| inbox::inbox(db, &caller, unread_only, now)).await
    }

    async fn history(
        &self,
        caller: &Agent,
        session: &SessionId,
        page: HistoryPage,
        now: Timestamp,
    ) -> Result<Written<History>> {
        let session = session_uuid(session)?;
        let reader = caller.clone();
        let (history, unread) = self.readers.read(move |db| inbox::history(db, &reader, session, &page)).await?;
        if unread.is_empty() {
            return Ok(Written::quiet(history));
        }
        let (caller, now) = (caller.clone(), to_micros(now));
        let news = self.writer()?.write(move |desk| desk.mark_read(&caller, &unread, now)).await?;
        Ok(Written { answer: history, news })
    }

    async fn events(&self, agent: AgentKey, since: u64, limit: usize) -> Result<Vec<Entry>> {
        self.readers.read(move |db| log::entries(db, agent.0, since, limit)).await
    }

    async fn event_head(&self, agent: AgentKey) -> Result<u64> {
        let head = self.readers.read(move |db| log::head(db, agent.0)).await?;
        Ok(u64::try_from(head).unwrap_or(0))
    }

    async fn prune(&self, before: Timestamp) -> Result<u64> {
        self.writer()?.write(move |desk| desk.prune(before)).await
    }
}
