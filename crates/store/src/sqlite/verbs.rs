//! The store's verbs on SQLite: what goes to the writer, what to the readers.

use std::time::Duration;

use amb_core::doc::{
    Access, AgentEntry, Appended, ChainTask, Connected, Connection, ConnectionChange, ConnectionRequested, Group,
    History, Household, Inbox, Machine, MessagePage, MessageWithReceipts, NumberedLine, PendingConnection, Profile,
    SearchHit, Sent,
};
use amb_core::mailbox::{ClaimRequest, HistoryPage, SearchQuery, TaskFilter};
use amb_core::transcript::{Line, TranscriptKey};
use amb_core::{
    AgentName, Draft, Entry, Kind, Message, MessageId, Quotas, SessionId, Task, TaskId, TaskState, Timestamp, Usage,
};
use async_trait::async_trait;
use uuid::Uuid;

use super::send::Outcome;
use super::writer::WriteTx;
use super::{
    SqliteStore, agents, consent, directory, disk_space, groups, household, inbox, keep, log, receipts, search, tasks,
    transcripts, usage,
};
use crate::error::Result;
use crate::outgoing::{self, OutgoingMessage, message_uuid, session_uuid};
use crate::query::{AgentsPage, ExportQuery, Handed, InboxPage, MessageQuery, ProfilePatch, ReadPlace, Removed};
use crate::replicas::{Astray, Seated};
use crate::store::Store;
use crate::tasks::task_uuid;
use crate::types::{Agent, AgentKey, Ask, Crossing, KeyHash, NewAgent, NewKey, ViewVersion, Written, to_micros};
use crate::{StoreError, words};

/// Sessions in an inbox that is put together at once, without a thread for it.
const SMALL_INBOX: usize = 64;

impl SqliteStore {
    /// Sends a letter. The answer and the news are put together here, off the writer's thread.
    async fn post(&self, caller: &Agent, letter: OutgoingMessage) -> Result<Written<Sent>> {
        let caller = caller.clone();
        let (writer, task) = (self.writer()?, letter.kind == Kind::Task);
        let send = move |tx: &mut WriteTx| tx.send(&caller, letter);
        let outcome = if task { writer.write_own(send).await? } else { writer.write_unguarded(send).await? };
        Ok(match outcome {
            Outcome::Repeat(sent) => Written::quiet(sent),
            Outcome::Placed(placed) => {
                let (letter, placed) = *placed;
                letter.into_written(placed)
            }
        })
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn ready(&self) -> Result<()> {
        // The disk first: where that is full, it is what an operator has to hear of.
        let path = self.path.clone();
        tokio::task::spawn_blocking(move || disk_space::check(&path)).await.map_err(StoreError::internal)??;
        self.writer()?.write_own(|_| Ok(())).await?;
        self.readers().look(|_| Ok(())).await
    }

    async fn close(&self) {
        self.shut().await;
    }

    async fn astray(&self, seated: &[Seated], now: Timestamp) -> Result<Vec<Astray>> {
        let seated = seated.to_vec();
        self.readers().read(move |db| log::astray(db, &seated, now)).await
    }

    fn set_quotas(&self, quotas: Quotas) {
        self.account.set_quotas(quotas);
    }

    async fn office_usage(&self) -> Result<Usage> {
        Ok(self.account.office().usage())
    }

    async fn register_agent(&self, new: NewAgent, now: Timestamp) -> Result<Written<Agent>> {
        words::check_agent(&new)?;
        let now = to_micros(now);
        self.writer()?.write(move |tx| tx.register(new, now)).await
    }

    async fn agent_by_key_hash(&self, hash: KeyHash, now: Timestamp) -> Result<Option<Agent>> {
        let age = match self.known.get(&hash, now) {
            Ok(agent) => return Ok(Some(agent)),
            Err(age) => age,
        };
        let found = self.readers().look(move |db| agents::by_key(db, hash, now)).await?;
        Ok(found.map(|(agent, until)| {
            self.known.remember(age, hash, &agent, until);
            agent
        }))
    }

    async fn agent_by_name(&self, name: &AgentName) -> Result<Option<Agent>> {
        let name = name.clone();
        self.readers().look(move |db| agents::by_name(db, &name)).await
    }

    async fn has_household(&self) -> Result<bool> {
        self.readers().look(household::is_founded).await
    }

    async fn found_household(&self, owner: KeyHash, only_first: bool, now: Timestamp) -> Result<Option<Uuid>> {
        let now = to_micros(now);
        self.writer()?.write(move |tx| tx.found_household(owner, only_first, now)).await
    }

    async fn renew_household(&self, member: &AgentName, owner: KeyHash, now: Timestamp) -> Result<()> {
        let member = member.clone();
        self.writer()?.write(move |tx| tx.renew_household(&member, owner, now)).await
    }

    async fn household(&self, caller: &Agent, now: Timestamp) -> Result<Household> {
        let caller = caller.clone();
        self.readers().read(move |db| household::household(db, &caller, now)).await
    }

    async fn add_machine(&self, caller: &Agent, label: &str, token: KeyHash, now: Timestamp) -> Result<Machine> {
        words::check_text("label", Some(label))?;
        let (caller, label, now) = (caller.clone(), label.to_owned(), to_micros(now));
        self.writer()?.write(move |tx| tx.add_machine(&caller, &label, token, now)).await
    }

    async fn revoke_machine(&self, caller: &Agent, id: Uuid, now: Timestamp) -> Result<Written<()>> {
        let (caller, now) = (caller.clone(), to_micros(now));
        self.writer()?.write(move |tx| tx.revoke_machine(&caller, id, now)).await
    }

    async fn leave_household(&self, caller: &Agent, member: &AgentName, now: Timestamp) -> Result<Written<()>> {
        let (caller, member, now) = (caller.clone(), member.clone(), to_micros(now));
        self.writer()?.write(move |tx| tx.leave_household(&caller, &member, now)).await
    }

    async fn request_connection(
        &self,
        caller: &Agent,
        ask: Ask,
        now: Timestamp,
    ) -> Result<Written<ConnectionRequested>> {
        words::check_text("message", ask.intro.as_deref())?;
        let caller = caller.clone();
        self.writer()?.write(move |tx| tx.once(&caller, now, |tx| tx.request_connection(&caller, ask, now))).await
    }

    async fn approve_connection(&self, caller: &Agent, code: &str, now: Timestamp) -> Result<Written<Connected>> {
        let (caller, code) = (caller.clone(), code.to_owned());
        self.writer()?.write(move |tx| tx.once(&caller, now, |tx| tx.approve_connection(&caller, &code, now))).await
    }

    async fn accept_connection(&self, caller: &Agent, from: &AgentName, now: Timestamp) -> Result<Written<Connected>> {
        let (caller, from) = (caller.clone(), from.clone());
        self.writer()?.write(move |tx| tx.accept_connection(&caller, &from, now)).await
    }

    async fn send(&self, caller: &Agent, draft: Draft, now: Timestamp) -> Result<Written<Sent>> {
        self.post(caller, OutgoingMessage::new(&caller.name, draft, now)?).await
    }

    async fn carry(&self, caller: &Agent, draft: Draft, crossing: Crossing, now: Timestamp) -> Result<Written<Sent>> {
        self.post(caller, OutgoingMessage::carried(&caller.name, draft, crossing, now)?).await
    }

    fn view_version(&self, agent: AgentKey) -> Option<ViewVersion> {
        Some(self.versions.of(agent))
    }

    async fn inbox_page(&self, caller: &Agent, page: InboxPage, now: Timestamp) -> Result<Inbox> {
        let small = self.readers().look(|db| inbox::inbox(db, caller, &page, now, Some(SMALL_INBOX))).await?;
        if let Some(inbox) = small {
            return Ok(inbox);
        }
        let caller = caller.clone();
        let whole = self.readers().read(move |db| inbox::inbox(db, &caller, &page, now, None)).await?;
        Ok(whole.unwrap_or_default())
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
        let (history, unread) = self.readers().look(move |db| inbox::history(db, &reader, session, &page)).await?;
        if unread.is_empty() {
            return Ok(Written::quiet(history));
        }
        let (caller, now) = (caller.clone(), to_micros(now));
        let news = self.writer()?.write_own(move |tx| tx.mark_read(&caller, &unread, now)).await?;
        Ok(Written { answer: history, news })
    }

    async fn events(&self, agent: AgentKey, since: u64, limit: usize) -> Result<Vec<Entry>> {
        self.readers().look(move |db| log::entries(db, agent.0, since, limit)).await
    }

    async fn event_head(&self, agent: AgentKey) -> Result<u64> {
        let head = self.readers().look(move |db| log::head(db, agent.0)).await?;
        Ok(u64::try_from(head).unwrap_or(0))
    }

    async fn resume(&self, agent: AgentKey, since: u64) -> Result<u64> {
        self.readers().look(move |db| log::resume(db, agent.0, since)).await
    }

    async fn prune(&self, before: Timestamp) -> Result<u64> {
        self.writer()?.write(move |tx| tx.prune(before)).await
    }

    async fn agents(&self, caller: &Agent, page: AgentsPage, now: Timestamp) -> Result<Vec<AgentEntry>> {
        let caller = caller.clone();
        self.readers().read(move |db| directory::agents(db, &caller, &page, now)).await
    }

    async fn agent(&self, caller: &Agent, name: &AgentName, now: Timestamp) -> Result<AgentEntry> {
        let (caller, name) = (caller.clone(), name.clone());
        self.readers().look(move |db| directory::agent(db, &caller, &name, now)).await
    }

    async fn profile(&self, caller: &Agent, now: Timestamp) -> Result<Profile> {
        let caller = caller.clone();
        let look = |db: &_| Ok((directory::own(db, &caller)?, usage::stored_by(db, caller.key.0)?.usage()));
        let (own, usage) = self.readers().look(look).await?;
        own.profile(usage, self.account.quotas(), now)
    }

    async fn update_profile(&self, caller: &Agent, patch: ProfilePatch, now: Timestamp) -> Result<Profile> {
        let caller = caller.clone();
        let (own, stored) = self.writer()?.write(move |tx| tx.update_profile(&caller, patch)).await?;
        own.profile(stored.usage(), self.account.quotas(), now)
    }

    async fn seen(&self, agents: &[AgentKey], now: Timestamp) -> Result<()> {
        let agents = agents.to_vec();
        self.writer()?.write_own(move |tx| tx.seen(&agents, true, now)).await
    }

    async fn leave(&self, caller: &Agent, now: Timestamp) -> Result<()> {
        let caller = caller.key;
        self.writer()?.write_own(move |tx| tx.seen(&[caller], false, now)).await
    }

    async fn rotate_key(
        &self,
        caller: &Agent,
        shown: KeyHash,
        new: NewKey,
        old_until: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<()> {
        let caller = caller.clone();
        self.writer()?.write_own(move |tx| tx.rotate_key(&caller, shown, &new, old_until, now)).await
    }

    async fn issue_key(&self, name: &AgentName, new: NewKey) -> Result<Agent> {
        let name = name.clone();
        self.writer()?.write_own(move |tx| tx.issue_key(&name, &new)).await
    }

    async fn delete_agent(&self, caller: &Agent, shown: KeyHash, now: Timestamp) -> Result<Written<()>> {
        let (caller, now) = (caller.clone(), to_micros(now));
        self.writer()?.write(move |tx| tx.delete_agent(&caller, shown, now)).await
    }

    async fn connections(&self, caller: &Agent, _now: Timestamp) -> Result<Vec<Connection>> {
        let caller = caller.clone();
        self.readers().read(move |db| consent::connections(db, &caller)).await
    }

    async fn pending_connections(&self, caller: &Agent, now: Timestamp) -> Result<Vec<PendingConnection>> {
        let caller = caller.clone();
        self.readers().look(move |db| inbox::pending(db, &caller, now)).await
    }

    async fn change_connection(
        &self,
        caller: &Agent,
        peer: &AgentName,
        change: ConnectionChange,
        now: Timestamp,
    ) -> Result<Written<Connection>> {
        let (caller, peer, now) = (caller.clone(), peer.clone(), to_micros(now));
        self.writer()?.write(move |tx| tx.change_connection(&caller, &peer, change, now)).await
    }

    async fn expire_connections(&self, now: Timestamp) -> Result<Written<u64>> {
        self.writer()?.write(move |tx| tx.expire_connections(now)).await
    }

    async fn message(&self, caller: &Agent, id: &MessageId) -> Result<MessageWithReceipts> {
        let (caller, id) = (caller.clone(), message_uuid(id)?);
        self.readers().look(move |db| receipts::message(db, &caller, id)).await
    }

    async fn messages(&self, caller: &Agent, query: MessageQuery) -> Result<MessagePage> {
        let caller = caller.clone();
        self.readers().read(move |db| receipts::messages(db, &caller, &query)).await
    }

    async fn ack(&self, caller: &Agent, ids: &[MessageId], now: Timestamp) -> Result<Written<u64>> {
        let (caller, ids, now) = (caller.clone(), ids.to_vec(), to_micros(now));
        self.writer()?.write_own(move |tx| tx.ack(&caller, &ids, now)).await
    }

    async fn delivered(&self, caller: &Agent, after: u64, up_to: u64, now: Timestamp) -> Result<Written<Handed>> {
        let (caller, now) = (caller.clone(), to_micros(now));
        self.writer()?.write_own(move |tx| tx.delivered(&caller, after, up_to, now)).await
    }

    async fn claim(&self, caller: &Agent, request: ClaimRequest, now: Timestamp) -> Result<Written<Vec<Message>>> {
        let (caller, now) = (caller.clone(), to_micros(now));
        self.writer()?.write_own(move |tx| tx.claim(&caller, &request, now)).await
    }

    async fn release(&self, caller: &Agent, ids: &[MessageId]) -> Result<()> {
        let (caller, ids) = (caller.clone(), ids.to_vec());
        self.writer()?.write_own(move |tx| tx.release(&caller, &ids)).await
    }

    async fn renew(&self, caller: &Agent, ids: &[MessageId], lease: Duration, now: Timestamp) -> Result<()> {
        let (caller, ids, now) = (caller.clone(), ids.to_vec(), to_micros(now));
        self.writer()?.write_own(move |tx| tx.renew(&caller, &ids, lease, now)).await
    }

    async fn send_all(
        &self,
        caller: &Agent,
        to: &[AgentName],
        draft: Draft,
        now: Timestamp,
    ) -> Result<Written<Vec<Sent>>> {
        let (caller, to) = (caller.clone(), to.to_vec());
        let caller = outgoing::under_key_of(caller, &to, &draft)?;
        let send = move |tx: &mut WriteTx| {
            tx.once(&caller, now, |tx| {
                let sent = tx.send_all(&caller, &to, &draft, now)?;
                Ok(Written::gather(sent.into_iter().map(|(letter, placed)| letter.into_written(placed))))
            })
        };
        self.writer()?.write(send).await
    }

    async fn tasks(&self, caller: &Agent, filter: TaskFilter, limit: u32) -> Result<Vec<Task>> {
        let caller = caller.clone();
        self.readers().read(move |db| tasks::list(db, &caller, &filter, limit)).await
    }

    async fn task(&self, caller: &Agent, id: &TaskId) -> Result<Task> {
        let (key, id) = (caller.key.0, task_uuid(id)?);
        self.readers().look(move |db| tasks::find(db, key, id)?.task(key)).await
    }

    async fn task_chain(&self, caller: &Agent, id: &TaskId) -> Result<Vec<ChainTask>> {
        let (caller, id) = (caller.clone(), task_uuid(id)?);
        self.readers().read(move |db| tasks::chain(db, &caller, id)).await
    }

    async fn set_task_state(
        &self,
        caller: &Agent,
        id: &TaskId,
        state: TaskState,
        note: Option<String>,
        now: Timestamp,
    ) -> Result<Written<Task>> {
        words::check_text("note", note.as_deref())?;
        let (caller, id, now) = (caller.clone(), task_uuid(id)?, to_micros(now));
        self.writer()?
            .write(move |tx| tx.once(&caller, now, |tx| tx.set_task_state(&caller, id, state, note, now)))
            .await
    }

    async fn sweep_overdue(&self, now: Timestamp) -> Result<Written<u64>> {
        let now = to_micros(now);
        self.writer()?.write(move |tx| tx.sweep_overdue(now)).await
    }

    async fn transcript_append(
        &self,
        caller: &Agent,
        owner: Option<&AgentName>,
        key: &TranscriptKey,
        line: Line,
        now: Timestamp,
    ) -> Result<Appended> {
        words::check_text("message_id", line.message_id.as_deref())?;
        let (caller, owner, key) = (caller.clone(), owner.cloned(), key.clone());
        let append = move |tx: &mut WriteTx| {
            tx.once(&caller, now, |tx| {
                tx.transcript_append(&caller, owner.as_ref(), &key, line, now).map(Written::quiet)
            })
        };
        self.writer()?.write_own(append).await.map(|written| written.answer)
    }

    async fn transcript_recent(
        &self,
        caller: &Agent,
        owner: Option<&AgentName>,
        key: &TranscriptKey,
        limit: usize,
    ) -> Result<Vec<NumberedLine>> {
        let (caller, owner, key) = (caller.clone(), owner.cloned(), key.clone());
        self.readers().read(move |db| transcripts::recent(db, &caller, owner.as_ref(), &key, limit)).await
    }

    async fn transcript_after(
        &self,
        caller: &Agent,
        owner: Option<&AgentName>,
        key: &TranscriptKey,
        after: u64,
        limit: usize,
    ) -> Result<Vec<NumberedLine>> {
        let (caller, owner, key) = (caller.clone(), owner.cloned(), key.clone());
        self.readers().read(move |db| transcripts::after(db, &caller, owner.as_ref(), &key, after, limit)).await
    }

    async fn transcript_share(
        &self,
        caller: &Agent,
        key: &TranscriptKey,
        with: &AgentName,
        access: Option<Access>,
        _now: Timestamp,
    ) -> Result<()> {
        let (caller, key, with) = (caller.clone(), key.clone(), with.clone());
        self.writer()?.write_own(move |tx| tx.transcript_share(&caller, &key, &with, access)).await
    }

    async fn search(&self, caller: &Agent, query: SearchQuery) -> Result<Vec<SearchHit>> {
        let caller = caller.clone();
        self.readers().read(move |db| search::search(db, &caller, &query)).await
    }

    async fn index_mail(&self) -> Result<u64> {
        self.index_next().await
    }

    async fn create_group(&self, caller: &Agent, name: &AgentName, now: Timestamp) -> Result<Group> {
        let (caller, name, now) = (caller.clone(), name.clone(), to_micros(now));
        self.writer()?
            .write(move |tx| tx.once(&caller, now, |tx| tx.create_group(&caller, &name, now).map(Written::quiet)))
            .await
            .map(|written| written.answer)
    }

    async fn groups(&self, caller: &Agent) -> Result<Vec<Group>> {
        let caller = caller.clone();
        self.readers().read(move |db| groups::groups(db, &caller)).await
    }

    async fn invite_to_group(
        &self,
        caller: &Agent,
        group: &AgentName,
        agent: &AgentName,
        now: Timestamp,
    ) -> Result<Written<Group>> {
        let (caller, group, agent) = (caller.clone(), group.clone(), agent.clone());
        self.writer()?
            .write(move |tx| tx.once(&caller, now, |tx| tx.invite_to_group(&caller, &group, &agent, now)))
            .await
    }

    async fn remove_from_group(&self, caller: &Agent, group: &AgentName, agent: &AgentName) -> Result<Group> {
        let (caller, group, agent) = (caller.clone(), group.clone(), agent.clone());
        self.writer()?.write(move |tx| tx.remove_from_group(&caller, &group, &agent)).await
    }

    async fn join_group(&self, caller: &Agent, group: &AgentName, joined: bool, _now: Timestamp) -> Result<Group> {
        let (caller, group) = (caller.clone(), group.clone());
        self.writer()?.write(move |tx| tx.join_group(&caller, &group, joined)).await
    }

    async fn remove_read_mail(&self, before: Timestamp, from: Option<ReadPlace>) -> Result<Removed> {
        let (old, next) = self.readers().read(move |db| keep::old_mail(db, before, from)).await?;
        if old.is_empty() {
            return Ok(Removed { messages: 0, next });
        }
        let (messages, old) = self.writer()?.write(move |tx| Ok((tx.remove_mail(&old)?, old))).await?;
        self.forget(old).await?;
        Ok(Removed { messages, next })
    }

    async fn export(&self, caller: &Agent, query: ExportQuery) -> Result<Vec<MessageWithReceipts>> {
        let (caller, after) = (caller.clone(), query.after.as_ref().map(message_uuid).transpose()?);
        self.readers().read(move |db| keep::export(db, &caller, after, query.since, query.limit)).await
    }
}
