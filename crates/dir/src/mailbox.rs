//! [`Mailbox`] over files. Runs blocking work on tokio's blocking threads.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use amb_core::card::heartbeat_timeout;
use amb_core::doc::{AgentEntry, History, Inbox, MessageWithReceipts, Sent};
use amb_core::event::{Cursor, EventPage};
use amb_core::mailbox::{ClaimRequest, HistoryPage, Mailbox, Result, TaskFilter};
use amb_core::transcript::{Line, TranscriptKey};
use amb_core::{
    AgentName, Card, Code, Draft, Message, MessageId, OfficeError, SessionId, Status, Task, TaskId, TaskState,
};
use async_trait::async_trait;

use crate::files::durable::{self, Wait};
use crate::files::failure::IoContext;
use crate::files::layout::Layout;
use crate::files::lock::FileLock;
use crate::office::{AgentDir, DirMailbox};
use crate::registry::presence::{PresenceState, RegisteredCard};

impl DirMailbox {
    /// Runs blocking work.
    pub(crate) async fn run<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&AgentDir) -> Result<T> + Send + 'static,
    {
        let agent_dir = Arc::clone(&self.agent_dir);
        tokio::task::spawn_blocking(move || work(&agent_dir)).await.map_err(OfficeError::internal)?
    }

    /// Registers the agent with this heartbeat interval.
    pub async fn register_polling(&self, card: Card, poll_interval: Duration) -> Result<AgentEntry> {
        self.run(move |agent_dir| agent_dir.register(card, poll_interval)).await
    }

    /// Sets the agent's status, which counts as a heartbeat, and, if given, the current tasks that it shows until one
    /// of its tasks here changes.
    pub async fn set_status(&self, status: Status, current_tasks: Option<Vec<TaskId>>) -> Result<()> {
        self.run(move |agent_dir| agent_dir.check_local()?.write_status(status, current_tasks)).await
    }
}

impl AgentDir {
    fn register(&self, card: Card, poll_interval: Duration) -> Result<AgentEntry> {
        self.check_local()?;
        // A registered agent keeps its plain name, even if another program registers a look-alike later.
        if !self.me.is_plain() || !self.shared.card_file(&self.me).exists() {
            self.shared.check_look_alike(&self.me)?;
        }
        let entry = self.write_registration(card, poll_interval)?;
        self.shared.ensure_listed(&self.me)?;
        Ok(entry)
    }

    /// Writes the agent's card, without checking whether the caller may.
    pub(crate) fn write_registration(&self, card: Card, poll_interval: Duration) -> Result<AgentEntry> {
        card.check()?;
        self.shared.make_mailbox(&self.me)?;
        if self.shared.paths.layout == Layout::Nanobot {
            let processed = self.shared.paths.processed(&self.me);
            durable::make_dir(&processed, &self.shared.syncer).context("could not make the mailbox")?;
        }
        // Mail that has arrived was accepted under the old card, and stays accepted. Under a corrupt one nothing is accepted.
        if !self.shared.is_card_corrupt(&self.me)? {
            drop(self.ingest()?);
        }
        {
            let _locked = self.shared.lock_agent(&self.me)?;
            let before = self.shared.registered(&self.me)?;
            let registered_at = before.map_or_else(|| self.shared.now(), |before| before.registered_at);
            self.shared.write_card(&self.me, &RegisteredCard { card, registered_at })?;
            let timeout_ms = u64::try_from(heartbeat_timeout(poll_interval).as_millis()).unwrap_or(u64::MAX);
            let current_tasks = self.shared.current_tasks(&self.me)?;
            self.shared.write_presence(&self.me, &PresenceState { status: Status::Idle, current_tasks, timeout_ms })?;
        }
        self.shared.update_registry(Wait::Synced)?;
        let entry = self.shared.registered_entry(&self.me, self.shared.now())?;
        entry.ok_or_else(|| OfficeError::unavailable("the card was written and is gone; try again"))
    }

    fn heartbeat(&self) -> Result<()> {
        match self.shared.presence(&self.me)? {
            Some((alive, _)) if alive.status != Status::Offline => {
                self.shared.set_last_heartbeat(&self.me, self.shared.now())?;
                self.be_present();
                self.shared.update_registry_if_due()
            }
            // Back from offline, registered by a process that died between card and status, or never registered.
            _ => {
                self.write_status(Status::Idle, None)?;
                self.be_present();
                Ok(())
            }
        }
    }

    fn leave(&self) -> Result<()> {
        match self.others_are_present()? {
            true => Ok(()),
            false => self.write_status(Status::Offline, None),
        }
    }

    fn present_lock(&self) -> PathBuf {
        self.shared.paths.state(&self.me).join("present.lock")
    }

    /// Tells other processes of the agent that this one gives heartbeats. Without a lock, the first to leave ends for all.
    fn be_present(&self) {
        let mut present = self.present.lock();
        // A mount alone gives the heartbeats of its agents, and they may be more than a process can open files.
        if present.is_none() && !self.shared.is_mounted(&self.me) {
            *present = FileLock::share(&self.present_lock()).unwrap_or_default();
        }
    }

    /// Whether another process gives heartbeats of the agent. This one does no longer.
    fn others_are_present(&self) -> Result<bool> {
        let path = self.present_lock();
        if !path.exists() {
            return Ok(false);
        }
        // Of two that leave at once, the second sees that it is the last.
        let _locked = self.shared.lock_agent(&self.me)?;
        *self.present.lock() = None;
        Ok(matches!(FileLock::try_lock(&path), Ok(None)))
    }

    /// Writes the agent's status, and updates the registry.
    fn write_status(&self, status: Status, current_tasks: Option<Vec<TaskId>>) -> Result<()> {
        let has_mailbox = self.shared.paths.inbox(&self.me).is_dir();
        if !has_mailbox && self.shared.registered(&self.me)?.is_none() && self.shared.presence(&self.me)?.is_none() {
            // Not locked: that would create state for an unknown name.
            return Err(self.unregistered());
        }
        let locked = self.shared.lock_agent(&self.me)?;
        let alive = match self.shared.presence(&self.me)? {
            Some((alive, _)) => alive,
            None => PresenceState { current_tasks: self.shared.current_tasks(&self.me)?, ..PresenceState::default() },
        };
        let current_tasks = current_tasks.unwrap_or(alive.current_tasks);
        self.shared.write_presence(&self.me, &PresenceState { status, current_tasks, ..alive })?;
        drop(locked);
        self.shared.update_registry(Wait::Cached)
    }

    /// Refuses an unknown name, which is most likely misspelt: its mailbox would just look empty. Agents without a card
    /// are known by their mailbox, or by what they have sent.
    fn check_known(&self) -> Result<&Self> {
        let paths = &self.shared.paths;
        if paths.home(&self.me).is_dir() || paths.state(&self.me).is_dir() {
            return Ok(self);
        }
        self.shared.recipient(&self.me).map(|_| self).map_err(|error| match error.code() {
            Code::NotFound => {
                OfficeError::not_found(format!("{} (`amb register {}` enters a new one)", error.detail(), self.me))
            }
            _ => error,
        })
    }

    fn unregistered(&self) -> OfficeError {
        OfficeError::not_found(format!("{} is not registered here; `amb register {0}` does that", self.me))
    }
}

#[async_trait]
impl Mailbox for DirMailbox {
    fn me(&self) -> &AgentName {
        &self.agent_dir.me
    }

    fn describe(&self) -> String {
        let paths = &self.agent_dir.shared.paths;
        format!("directory {} ({})", paths.root.display(), paths.layout)
    }

    async fn register(&self, card: Card) -> Result<AgentEntry> {
        let poll_interval = self.agent_dir.shared.options.poll_interval;
        self.register_polling(card, poll_interval).await
    }

    async fn agents(&self) -> Result<Vec<AgentEntry>> {
        self.run(|agent_dir| agent_dir.shared.all_agents(agent_dir.shared.now())).await
    }

    async fn heartbeat(&self) -> Result<()> {
        self.run(AgentDir::heartbeat).await
    }

    async fn leave(&self) -> Result<()> {
        self.run(AgentDir::leave).await
    }

    async fn send(&self, draft: Draft) -> Result<Sent> {
        self.run(move |agent_dir| agent_dir.send(draft)).await
    }

    async fn inbox(&self, unread_only: bool) -> Result<Inbox> {
        self.run(move |agent_dir| agent_dir.check_known()?.inbox(unread_only)).await
    }

    async fn read(&self, session: &SessionId, page: HistoryPage) -> Result<History> {
        let session = session.clone();
        self.run(move |agent_dir| agent_dir.check_local()?.check_known()?.read(&session, &page)).await
    }

    async fn message(&self, id: &MessageId) -> Result<MessageWithReceipts> {
        let id = id.clone();
        self.run(move |agent_dir| agent_dir.check_known()?.message(&id)).await
    }

    async fn ack(&self, ids: &[MessageId]) -> Result<u64> {
        let ids = ids.to_vec();
        self.run(move |agent_dir| agent_dir.check_local()?.check_known()?.ack(&ids)).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Message>> {
        self.run(move |agent_dir| agent_dir.check_local()?.claim(&request)).await
    }

    async fn release(&self, ids: &[MessageId]) -> Result<()> {
        self.agent_dir.release(ids);
        Ok(())
    }

    async fn renew(&self, ids: &[MessageId], lease: Duration) -> Result<()> {
        let ids = ids.to_vec();
        self.run(move |agent_dir| agent_dir.renew(&ids, lease)).await
    }

    async fn claimed(&self) -> Result<Vec<Message>> {
        self.run(|agent_dir| agent_dir.check_local()?.claimed()).await
    }

    async fn tasks(&self, filter: TaskFilter) -> Result<Vec<Task>> {
        self.run(move |agent_dir| agent_dir.check_known()?.tasks(&filter)).await
    }

    async fn task(&self, id: &TaskId) -> Result<Task> {
        let id = id.clone();
        self.run(move |agent_dir| agent_dir.check_known()?.task(&id)).await
    }

    async fn set_task_state(&self, id: &TaskId, state: TaskState, note: Option<String>) -> Result<Task> {
        let id = id.clone();
        self.run(move |agent_dir| agent_dir.check_local()?.check_known()?.set_task_state(&id, state, note)).await
    }

    async fn events(&self, since: Option<Cursor>, wait: Duration) -> Result<EventPage> {
        self.events_after(since, wait).await
    }

    async fn transcript_append(&self, key: &TranscriptKey, line: Line) -> Result<()> {
        self.agent_dir.shared.transcripts()?.append(key, line).await
    }

    async fn transcript_recent(&self, key: &TranscriptKey, limit: usize) -> Result<Vec<Line>> {
        self.agent_dir.shared.transcripts()?.recent(key, limit).await
    }
}
