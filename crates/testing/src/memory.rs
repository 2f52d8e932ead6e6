//! An office in memory: the whole trait without durability, for the tests of doors.

mod connections;
mod mail;
mod mailbox;
mod tasks;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

pub use mailbox::MemoryMailbox;

use amb_core::card::{Card, Presence, Status};
use amb_core::doc::{AgentEntry, Sent};
use amb_core::draft::Draft;
use amb_core::error::OfficeError;
use amb_core::event::{Entry, Event};
use amb_core::id::{SessionId, TaskId};
use amb_core::limits::HEARTBEAT_TIMEOUT;
use amb_core::message::Message;
use amb_core::name::AgentName;
use amb_core::suggest::unknown_agent;
use amb_core::task::Task;
use amb_core::transcript::{Line, TranscriptKey};
use amb_core::wake::WakeReport;

/// An office whose messages are gone when the process ends.
#[derive(Debug)]
pub struct MemoryOffice {
    state: Mutex<MemoryState>,
    /// Counts changes, so that a waiting reader knows when to read again.
    grown: watch::Sender<u64>,
    /// Whether agents must connect before they write, as on a server; otherwise only `allow_from` decides, as in a
    /// directory.
    connections: bool,
}

#[derive(Debug, Default)]
struct MemoryState {
    agents: BTreeMap<AgentName, MemoryAgent>,
    mail: Vec<MemoryMessage>,
    sessions: HashMap<SessionId, MemorySession>,
    tasks: BTreeMap<TaskId, Task>,
    logs: HashMap<AgentName, Vec<Event>>,
    connections: Vec<connections::MemoryConnection>,
    sent: HashMap<(AgentName, String), (Draft, Sent)>,
    /// By owner and key.
    transcripts: HashMap<(AgentName, TranscriptKey), Vec<Line>>,
    wake_reports: Vec<WakeReport>,
}

#[derive(Debug)]
struct MemoryAgent {
    card: Card,
    status: Status,
    last_seen: Timestamp,
    registered_at: Timestamp,
}

#[derive(Debug)]
struct MemorySession {
    subject: String,
    members: [AgentName; 2],
}

#[derive(Debug)]
struct MemoryMessage {
    message: Message,
    /// Whether it was delivered to its recipient. If not, only its sender sees it.
    delivered: bool,
    delivered_at: Option<Timestamp>,
    read_at: Option<Timestamp>,
    claimed_until: Option<Timestamp>,
}

impl MemoryOffice {
    /// An office where only `allow_from` decides who may write.
    pub fn new() -> Arc<Self> {
        Self::with_connections(false)
    }

    /// An office where agents write to each other only after a request and its approval, as on a server.
    pub fn with_connections(connections: bool) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), grown: watch::Sender::new(0), connections })
    }

    /// The mailbox of `name`, registered with the default card if it is new.
    pub fn mailbox(self: &Arc<Self>, name: AgentName) -> MemoryMailbox {
        let now = Timestamp::now();
        self.lock().agents.entry(name.clone()).or_insert_with(|| MemoryAgent {
            card: Card::default(),
            status: Status::Idle,
            last_seen: now,
            registered_at: now,
        });
        MemoryMailbox::new(Arc::clone(self), name)
    }

    /// What was reported of wake-ups, oldest first.
    pub fn wake_reports(&self) -> Vec<WakeReport> {
        self.lock().wake_reports.clone()
    }

    fn lock(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock()
    }

    /// Wakes every reader that waits for its log to grow.
    fn announce(&self) {
        self.grown.send_modify(|count| *count += 1);
    }
}

impl MemoryState {
    fn agent(&self, name: &AgentName) -> Result<&MemoryAgent, OfficeError> {
        let known = self.agents.keys().map(AgentName::as_str);
        self.agents.get(name).ok_or_else(|| OfficeError::not_found(unknown_agent(name.as_str(), known)))
    }

    fn current_tasks(&self, name: &AgentName) -> Vec<TaskId> {
        let mine = |task: &&Task| task.assignee == *name && task.state.is_current();
        self.tasks.values().filter(mine).map(|task| task.id.clone()).collect()
    }

    fn entry(&self, name: &AgentName, agent: &MemoryAgent, now: Timestamp) -> AgentEntry {
        let tasks = self.current_tasks(name);
        AgentEntry {
            name: name.clone(),
            card: agent.card.clone(),
            presence: Presence::at(now, agent.status, Some(agent.last_seen), tasks, HEARTBEAT_TIMEOUT),
            registered_at: Some(agent.registered_at),
            household: false,
            person: false,
            paused: false,
        }
    }

    fn log(&mut self, agent: &AgentName, event: Event) {
        self.logs.entry(agent.clone()).or_default().push(event);
    }

    /// Entries after `since`, numbered from 1.
    fn entries(&self, agent: &AgentName, since: u64, most: usize) -> Vec<Entry> {
        let log = self.logs.get(agent).map(Vec::as_slice).unwrap_or_default();
        let numbered = log.iter().enumerate().map(|(at, event)| (at as u64 + 1, event));
        numbered
            .skip_while(|(number, _)| *number <= since)
            .take(most)
            .map(|(number, event)| Entry { event: event.clone(), cursor: number.into() })
            .collect()
    }
}
