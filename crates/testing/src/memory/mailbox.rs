//! One agent's mailbox at an office in memory.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use super::{MemoryMessage, MemoryOffice};
use amb_core::card::{Card, Status};
use amb_core::consent::Consent;
use amb_core::doc::{
    AgentEntry, Connected, Connection, ConnectionChange, ConnectionRequested, History, Inbox, MessageView,
    MessageWithReceipts, SearchHit, Sent, SessionSummary,
};
use amb_core::draft::Draft;
use amb_core::error::{Code, OfficeError};
use amb_core::event::{Cursor, Event, EventPage};
use amb_core::id::{MessageId, SessionId, TaskId};
use amb_core::limits::{INBOX_PREVIEW, MAX_CLAIMED, MAX_EVENTS};
use amb_core::mailbox::{ClaimRequest, HistoryPage, Mailbox, Result, SearchQuery, TaskFilter};
use amb_core::message::Message;
use amb_core::name::AgentName;
use amb_core::receipt::Receipt;
use amb_core::send::{key_reused, no_session};
use amb_core::task::{self, Task, TaskState};
use amb_core::transcript::{Line, TranscriptKey};
use amb_core::wake::WakeReport;

/// One agent's mailbox at a [`MemoryOffice`].
#[derive(Debug, Clone)]
pub struct MemoryMailbox {
    office: Arc<MemoryOffice>,
    me: AgentName,
}

impl MemoryMailbox {
    pub(super) fn new(office: Arc<MemoryOffice>, me: AgentName) -> Self {
        Self { office, me }
    }

    fn connections_or(&self) -> Result<()> {
        match self.office.connections {
            true => Ok(()),
            false => Err(OfficeError::unsupported("this office has no connections: allow_from decides")),
        }
    }
}

fn receipt(stored: &MemoryMessage) -> Receipt {
    Receipt::of(stored.message.to.clone(), stored.message.sent_at, stored.delivered_at, stored.read_at)
}

#[async_trait]
impl Mailbox for MemoryMailbox {
    fn me(&self) -> &AgentName {
        &self.me
    }

    fn describe(&self) -> String {
        "memory".into()
    }

    async fn register(&self, card: Card) -> Result<AgentEntry> {
        card.check()?;
        let now = Timestamp::now();
        let mut state = self.office.lock();
        let agent = state.agents.get_mut(&self.me).ok_or_else(|| OfficeError::not_found("no mailbox"))?;
        agent.card = card;
        agent.status = Status::Idle;
        agent.last_seen = now;
        Ok(state.entry(&self.me, state.agent(&self.me)?, now))
    }

    async fn report_wake(&self, report: &WakeReport) -> Result<()> {
        report.check()?;
        self.office.lock().wake_reports.push(report.clone());
        Ok(())
    }

    async fn agents(&self) -> Result<Vec<AgentEntry>> {
        let now = Timestamp::now();
        let state = self.office.lock();
        Ok(state.agents.iter().map(|(name, agent)| state.entry(name, agent, now)).collect())
    }

    async fn heartbeat(&self) -> Result<()> {
        if let Some(agent) = self.office.lock().agents.get_mut(&self.me) {
            agent.last_seen = Timestamp::now();
            agent.status = Status::Idle;
        }
        Ok(())
    }

    async fn leave(&self) -> Result<()> {
        if let Some(agent) = self.office.lock().agents.get_mut(&self.me) {
            agent.status = Status::Offline;
        }
        Ok(())
    }

    async fn connect(&self, target: &AgentName, intro: Option<String>) -> Result<ConnectionRequested> {
        self.connections_or()?;
        let requested = self.office.lock().request(&self.me, target, intro, Timestamp::now())?;
        self.office.announce();
        Ok(requested)
    }

    async fn approve(&self, code: &str) -> Result<Connected> {
        self.connections_or()?;
        let connected = self.office.lock().approve(&self.me, code, Timestamp::now())?;
        self.office.announce();
        Ok(connected)
    }

    async fn connections(&self) -> Result<Vec<Connection>> {
        self.connections_or()?;
        Ok(self.office.lock().links_of(&self.me))
    }

    async fn change_connection(&self, peer: &AgentName, change: ConnectionChange) -> Result<Connection> {
        self.connections_or()?;
        let changed = self.office.lock().change(&self.me, peer, change, Timestamp::now())?;
        self.office.announce();
        Ok(changed)
    }

    async fn send(&self, draft: Draft) -> Result<Sent> {
        draft.check()?;
        let now = Timestamp::now();
        let sent = {
            let mut state = self.office.lock();
            let key = draft.idempotency_key.clone().map(|key| (self.me.clone(), key));
            if let Some((first, sent)) = key.as_ref().and_then(|key| state.sent.get(key)) {
                return match *first == draft {
                    true => Ok(sent.clone()),
                    false => Err(key_reused()),
                };
            }
            let consent = match self.office.connections {
                true => Consent { connected: state.connected(&self.me, &draft.to), ..Consent::default() },
                false => Consent::DIRECTORY,
            };
            let sent = state.accept(&self.me, draft.clone(), consent, now)?;
            if let Some(key) = key {
                state.sent.insert(key, (draft, sent.clone()));
            }
            sent
        };
        self.office.announce();
        Ok(sent)
    }

    async fn inbox(&self, unread_only: bool) -> Result<Inbox> {
        let state = self.office.lock();
        let mut sessions = Vec::new();
        for (id, session) in state.sessions.iter().filter(|(_, session)| session.members.contains(&self.me)) {
            let mail: Vec<&MemoryMessage> = state
                .mail
                .iter()
                .filter(|stored| stored.message.session.as_ref() == Some(id) && state.shows(stored, &self.me))
                .collect();
            let unread = mail.iter().filter(|stored| stored.message.to == self.me && stored.read_at.is_none()).count();
            let Some(last) = mail.last().filter(|_| !unread_only || unread > 0) else { continue };
            let other = session.members.iter().find(|member| **member != self.me).unwrap_or(&self.me);
            let preview = mail.iter().rev().take(INBOX_PREVIEW);
            sessions.push(SessionSummary {
                session_id: id.clone(),
                subject: session.subject.clone(),
                other_agent_name: other.clone(),
                unread_count: unread as u64,
                last_message_at: last.message.sent_at,
                recent_messages: preview.map(|s| MessageView::of(&s.message, s.read_at.is_some())).collect(),
                group: None,
                ended_by: None,
            });
        }
        sessions.sort_by_key(|session| std::cmp::Reverse(session.last_message_at));
        Ok(Inbox { sessions, pending_connections: state.pending_for(&self.me), next: None })
    }

    async fn read(&self, session: &SessionId, page: HistoryPage) -> Result<History> {
        let now = Timestamp::now();
        let mut state = self.office.lock();
        let found = state.sessions.get(session).ok_or_else(no_session)?;
        if !found.members.contains(&self.me) {
            return Err(OfficeError::new(Code::Forbidden, "that session is between other agents"));
        }
        let subject = found.subject.clone();
        let shown: Vec<MessageId> = state
            .mail
            .iter()
            .filter(|stored| state.shows(stored, &self.me))
            .map(|stored| stored.message.id.clone())
            .collect();
        let mut reached = page.before.is_none();
        let mut messages = Vec::new();
        for stored in state.mail.iter_mut().rev().filter(|stored| stored.message.session.as_ref() == Some(session)) {
            if !shown.contains(&stored.message.id) {
                continue;
            }
            if reached && messages.len() < page.limit as usize {
                if stored.message.to == self.me {
                    stored.read_at.get_or_insert(now);
                }
                messages.push(MessageView::of(&stored.message, stored.read_at.is_some()));
            }
            reached |= page.before.as_ref() == Some(&stored.message.id);
        }
        match reached {
            true => Ok(History { session_id: session.clone(), subject, messages, truncated: false }),
            false => Err(OfficeError::not_found("`before` names no message of this session")),
        }
    }

    async fn message(&self, id: &MessageId) -> Result<MessageWithReceipts> {
        let state = self.office.lock();
        let stored = state.find(&self.me, id)?;
        Ok(MessageWithReceipts {
            message: stored.message.clone(),
            receipts: stored.delivered.then(|| receipt(stored)).into_iter().collect(),
        })
    }

    async fn ack(&self, ids: &[MessageId]) -> Result<u64> {
        let now = Timestamp::now();
        let mut changed = 0;
        {
            let mut state = self.office.lock();
            for id in ids {
                state.find(&self.me, id)?;
            }
            let mut events = Vec::new();
            for stored in state.mail.iter_mut().filter(|s| s.message.to == self.me && ids.contains(&s.message.id)) {
                if stored.read_at.is_none() {
                    stored.read_at = Some(now);
                    changed += 1;
                    let event = Event::Receipt { message_id: stored.message.id.clone(), receipt: receipt(stored) };
                    events.push((stored.message.from.clone(), event));
                }
            }
            for (sender, event) in events {
                state.log(&sender, event);
            }
        }
        self.office.announce();
        Ok(changed)
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Message>> {
        let now = Timestamp::now();
        let until = now + request.lease;
        let mut state = self.office.lock();
        let mut free: Vec<&mut MemoryMessage> = state
            .mail
            .iter_mut()
            .filter(|s| {
                s.message.to == self.me
                    && s.delivered
                    && s.read_at.is_none()
                    && s.claimed_until.is_none_or(|t| t <= now)
            })
            .collect();
        if request.urgent_first {
            free.sort_by_key(|stored| std::cmp::Reverse(stored.message.priority));
        }
        let mut claimed = Vec::new();
        for stored in free.into_iter().take(request.limit) {
            stored.claimed_until = Some(until);
            stored.delivered_at.get_or_insert(now);
            claimed.push(stored.message.clone());
        }
        Ok(claimed)
    }

    async fn release(&self, ids: &[MessageId]) -> Result<()> {
        let mut state = self.office.lock();
        for stored in state.mail.iter_mut().filter(|s| s.message.to == self.me && ids.contains(&s.message.id)) {
            stored.claimed_until = None;
        }
        Ok(())
    }

    async fn renew(&self, ids: &[MessageId], lease: Duration) -> Result<()> {
        let now = Timestamp::now();
        let mut state = self.office.lock();
        for stored in state.mail.iter_mut().filter(|s| s.message.to == self.me && ids.contains(&s.message.id)) {
            if stored.claimed_until.is_some_and(|until| until > now) {
                stored.claimed_until = Some(now + lease);
            }
        }
        Ok(())
    }

    async fn claimed(&self) -> Result<Vec<Message>> {
        let now = Timestamp::now();
        let state = self.office.lock();
        let held = |s: &&MemoryMessage| {
            s.message.to == self.me && s.read_at.is_none() && s.claimed_until.is_some_and(|until| until > now)
        };
        Ok(state.mail.iter().filter(held).take(MAX_CLAIMED).map(|s| s.message.clone()).collect())
    }

    async fn tasks(&self, filter: TaskFilter) -> Result<Vec<Task>> {
        let now = Timestamp::now();
        let state = self.office.lock();
        let mine = state.tasks.values().rev().filter(|task| state.concerns(task, &self.me));
        let shown = mine.filter(|task| filter.wants(&self.me, task)).cloned().map(|mut task| {
            task.overdue = task::is_overdue(task.state, task.deadline, now);
            task.callback = task.callback.filter(|_| task.owner == self.me);
            task
        });
        Ok(shown.collect())
    }

    async fn set_task_state(&self, id: &TaskId, next: TaskState, note: Option<String>) -> Result<Task> {
        let moved = self.office.lock().move_task(&self.me, id, next, note, Timestamp::now());
        self.office.announce();
        moved
    }

    async fn events(&self, since: Option<Cursor>, wait: Duration) -> Result<EventPage> {
        let mut grown = self.office.grown.subscribe();
        let Some(since) = since else {
            let end = self.office.lock().logs.get(&self.me).map_or(0, Vec::len) as u64;
            return Ok(EventPage { events: Vec::new(), cursor: end.into() });
        };
        let from = since.as_number().ok_or_else(|| OfficeError::invalid("`since` is not a cursor of this office"))?;
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            grown.mark_unchanged();
            let events = self.office.lock().entries(&self.me, from, MAX_EVENTS);
            if let Some(last) = events.last() {
                return Ok(EventPage { cursor: last.cursor.clone(), events });
            }
            match tokio::time::timeout_at(deadline, grown.changed()).await {
                Ok(Ok(())) => {}
                _ => return Ok(EventPage { events, cursor: since }),
            }
        }
    }

    async fn transcript_append(&self, key: &TranscriptKey, mut line: Line) -> Result<()> {
        let mut state = self.office.lock();
        let lines = state.transcripts.entry((self.me.clone(), key.clone())).or_default();
        if line.message_id.is_none() || !lines.iter().any(|known| known.message_id == line.message_id) {
            line.ts.get_or_insert_with(|| Timestamp::now().as_millisecond() as f64);
            line.author = Some(self.me.clone());
            lines.push(line);
        }
        Ok(())
    }

    async fn transcript_recent(&self, key: &TranscriptKey, limit: usize) -> Result<Vec<Line>> {
        let state = self.office.lock();
        let lines = state.transcripts.get(&(self.me.clone(), key.clone())).map(Vec::as_slice).unwrap_or_default();
        Ok(lines[lines.len().saturating_sub(limit)..].to_vec())
    }

    async fn search(&self, query: SearchQuery) -> Result<Vec<SearchHit>> {
        let state = self.office.lock();
        let wanted = query.text.to_lowercase();
        let hits = state.mail.iter().rev().filter_map(|stored| {
            let message = &stored.message;
            let mine = state.shows(stored, &self.me);
            let text = message.text();
            let hit = mine
                && query.from.as_ref().is_none_or(|from| *from == message.from)
                && text.to_lowercase().contains(&wanted);
            hit.then(|| SearchHit {
                message_id: message.id.clone(),
                session_id: message.session.clone().unwrap_or_else(|| SessionId::fresh(message.sent_at)),
                subject: message.subject.clone().unwrap_or_default(),
                sender_name: message.from.clone(),
                created_at: message.sent_at,
                snippet: text,
            })
        });
        Ok(hits.take(query.limit.unwrap_or(20) as usize).collect())
    }
}
