//! Presence: cards and heartbeats in files of each agent, so that a heartbeat touches one small file.
//!
//! Agents of other programs stand in `_registry.json` alone; [`crate::registry`] keeps that file and ours in step.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use amb_core::card::Presence;
use amb_core::doc::AgentEntry;
use amb_core::limits::HEARTBEAT_TIMEOUT;
use amb_core::suggest::{look_alike, unknown_agent};
use amb_core::{AgentName, Card, Code, OfficeError, Status, TaskId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::files::durable::{self, Wait};
use crate::files::failure::Doing;
use crate::files::layout::Layout;
use crate::files::lock::FileLock;
use crate::files::open;
use crate::files::step::step;
use crate::office::OfficeState;

/// A file of the office's own that is larger is spoilt: none that is read whole comes near.
const LARGEST: u64 = 16 << 20;

/// What an agent said about itself when it registered here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RegisteredCard {
    #[serde(flatten)]
    pub(crate) card: Card,
    pub(crate) registered_at: Timestamp,
}

/// What an agent is doing. The file's mtime is its last heartbeat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Alive {
    pub(crate) status: Status,
    #[serde(default)]
    pub(crate) current_tasks: Vec<TaskId>,
    /// Heartbeat timeout after which the agent is offline.
    #[serde(default = "default_timeout")]
    pub(crate) timeout_ms: u64,
}

fn default_timeout() -> u64 {
    u64::try_from(HEARTBEAT_TIMEOUT.as_millis()).unwrap_or(30_000)
}

impl Default for Alive {
    fn default() -> Self {
        Self { status: Status::Idle, current_tasks: Vec::new(), timeout_ms: default_timeout() }
    }
}

impl Alive {
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }
}

/// Whether and how an agent can be written to.
#[derive(Debug, Clone)]
pub(crate) struct RecipientCard {
    pub(crate) card: Card,
    /// How many tasks another program's agent says it has.
    pub(crate) foreign_tasks: usize,
}

impl OfficeState {
    pub(crate) fn card_file(&self, agent: &AgentName) -> PathBuf {
        self.paths.state(agent).join("card.json")
    }

    fn alive_file(&self, agent: &AgentName) -> PathBuf {
        self.paths.state(agent).join("alive.json")
    }

    /// Held while an agent's card, signs of life or tasks change.
    pub(crate) fn lock_agent(&self, agent: &AgentName) -> Result<FileLock, OfficeError> {
        self.make_state(agent)?;
        FileLock::wait(&self.paths.state(agent).join("agent.lock")).doing("could not lock the agent's state")
    }

    /// Our own state of an agent has a place to be.
    pub(crate) fn make_state(&self, agent: &AgentName) -> Result<(), OfficeError> {
        let state = self.paths.state(agent);
        for directory in [self.paths.side(), self.paths.agents(), state.clone()] {
            open::refuse_link(&directory).doing("could not make a place for the agent's state")?;
        }
        if state.is_dir() {
            return Ok(());
        }
        self.note_layout()?;
        durable::make_dir(&state, &self.syncer).doing("could not make a place for the agent's state")
    }

    /// The card of an agent that registered here.
    pub(crate) fn registered(&self, agent: &AgentName) -> Result<Option<RegisteredCard>, OfficeError> {
        read_json(&self.card_file(agent))
    }

    pub(crate) fn write_card(&self, agent: &AgentName, card: &RegisteredCard) -> Result<(), OfficeError> {
        write_json(self, &self.card_file(agent), card, Wait::Synced)
    }

    /// What an agent of ours is doing, and when it was last heard.
    pub(crate) fn alive(&self, agent: &AgentName) -> Result<Option<(Alive, Timestamp)>, OfficeError> {
        let path = self.alive_file(agent);
        let seen = match open::about(&path).and_then(|about| about.modified()) {
            Ok(at) => Timestamp::try_from(at).unwrap_or(Timestamp::UNIX_EPOCH),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if open::is_refusal(&error) => {
                tracing::warn!(%error, "reading an agent's heartbeat failed; ignored");
                return Ok(None);
            }
            Err(error) => return Err(error).doing("could not read the agent's signs of life"),
        };
        Ok(Some((read_json(&path)?.unwrap_or_default(), seen)))
    }

    /// Writes an agent's status, which is a heartbeat too. The caller holds the agent's lock.
    pub(crate) fn write_alive(&self, agent: &AgentName, alive: &Alive) -> Result<(), OfficeError> {
        // Heartbeats need not survive a power cut.
        write_json(self, &self.alive_file(agent), alive, Wait::Cached)?;
        // The file system's clock lags behind ours: by it, an agent would have been heard before it registered.
        self.touch(agent, self.now())
    }

    /// A change that is no sign of life, such as a task that another agent's process rejected: the old time is kept.
    pub(crate) fn write_tasks_of(&self, agent: &AgentName, current: Vec<TaskId>) -> Result<(), OfficeError> {
        let Some((mut alive, seen)) = self.alive(agent)? else { return Ok(()) };
        if alive.current_tasks == current {
            return Ok(());
        }
        alive.current_tasks = current;
        self.write_alive(agent, &alive)?;
        self.touch(agent, seen)
    }

    /// Sets the time of the last heartbeat.
    pub(crate) fn touch(&self, agent: &AgentName, at: Timestamp) -> Result<(), OfficeError> {
        let times = std::time::SystemTime::from(at);
        step();
        open::regular_with(&self.alive_file(agent), open::options().write(true))
            .and_then(|file| file.set_modified(times))
            .doing("could not note the sign of life")
    }

    /// Names of all agents that have state of ours and a card.
    pub(crate) fn our_agents(&self) -> Result<Vec<AgentName>, OfficeError> {
        let mut names = self.names_in(&self.paths.agents())?;
        names.retain(|name| self.card_file(name).exists());
        Ok(names)
    }

    /// Directories whose names are names of agents.
    pub(crate) fn names_in(&self, directory: &std::path::Path) -> Result<Vec<AgentName>, OfficeError> {
        let Some(entries) = open::if_there(fs_err::read_dir(directory)).doing("could not list the agents")? else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.doing("could not list the agents")?;
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_dir && let Some(name) = entry.file_name().to_str().and_then(|name| AgentName::parse(name).ok()) {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// An agent of ours as others see it.
    pub(crate) fn our_entry(&self, agent: &AgentName, now: Timestamp) -> Result<Option<AgentEntry>, OfficeError> {
        let Some(registered) = self.registered(agent)? else { return Ok(None) };
        let (alive, seen) = match self.alive(agent)? {
            Some((alive, seen)) => (alive, Some(seen)),
            None => (Alive { status: Status::Offline, ..Alive::default() }, None),
        };
        let timeout = alive.timeout();
        // The clock was set back since: a live agent gives another sign soon, of a dead one this would be true for long.
        let seen = seen.filter(|seen| {
            Duration::try_from(seen.duration_since(now)).is_ok_and(|ahead| ahead <= timeout) || *seen <= now
        });
        Ok(Some(AgentEntry {
            name: agent.clone(),
            card: registered.card,
            presence: Presence::at(now, alive.status, seen, alive.current_tasks, timeout),
            registered_at: Some(registered.registered_at),
            household: false,
            person: false,
            paused: false,
        }))
    }

    /// Everybody, by name.
    pub(crate) fn everybody(&self, now: Timestamp) -> Result<Vec<AgentEntry>, OfficeError> {
        let mut agents = Vec::new();
        for name in self.our_agents()? {
            agents.extend(self.our_entry(&name, now)?);
        }
        match self.paths.layout {
            Layout::Nanobot => {
                for entry in self.registry_entries()? {
                    if !agents.iter().any(|known| known.name == entry.name) {
                        agents.push(entry.into_agent(now, HEARTBEAT_TIMEOUT));
                    }
                }
            }
            Layout::Chipset => {
                // Every mailbox is an agent; the chipset says no more about them.
                for name in self.names_in(&self.paths.root)? {
                    if !agents.iter().any(|known| known.name == name) {
                        let (card, presence) = (Card::default(), Presence::default());
                        agents.push(AgentEntry {
                            name,
                            card,
                            presence,
                            registered_at: None,
                            household: false,
                            person: false,
                            paused: false,
                        });
                    }
                }
            }
        }
        agents.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(agents)
    }

    /// The agent that mail shall go to, or an error that names the nearest. Costs the same however many agents there are,
    /// unless the agent belongs to another program and the registry has changed.
    pub(crate) fn recipient(&self, name: &AgentName) -> Result<RecipientCard, OfficeError> {
        if let Some(registered) = self.registered(name)? {
            return Ok(RecipientCard { card: registered.card, foreign_tasks: 0 });
        }
        if self.paths.layout == Layout::Nanobot
            && let Some(entry) = self.registry_entry(name)?
        {
            return Ok(RecipientCard { card: entry.card, foreign_tasks: entry.current_tasks.len() });
        }
        let unregistered = RecipientCard { card: Card::default(), foreign_tasks: 0 };
        if self.paths.inbox(name).is_dir() {
            return Ok(unregistered);
        }
        let appears = self.paths.layout == Layout::Chipset && !self.options.strict_recipients;
        if appears || self.options.create_recipients {
            self.check_look_alike(name)?;
            return Ok(unregistered);
        }
        let everybody = self.everybody(self.now())?;
        let known = everybody.iter().map(|agent| agent.name.as_str());
        Err(OfficeError::not_found(unknown_agent(name.as_str(), known)))
    }

    /// Refuses a new name that a person cannot tell from another agent's. Costs nothing where it is plain.
    pub(crate) fn check_look_alike(&self, name: &AgentName) -> Result<(), OfficeError> {
        if name.is_plain() {
            return Ok(());
        }
        let everybody = self.everybody(self.now())?;
        match everybody.iter().find(|other| name.looks_like(other.name.as_str())) {
            Some(other) => Err(OfficeError::new(Code::Conflict, look_alike(name.as_str(), other.name.as_str()))),
            None => Ok(()),
        }
    }
}

/// Reads a file of ours; one that does not parse counts as missing, with a warning.
pub(crate) fn read_json<T: serde::de::DeserializeOwned>(path: &std::path::Path) -> Result<Option<T>, OfficeError> {
    match open::bytes(path, LARGEST) {
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "corrupt state file; ignored");
                Ok(None)
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if open::is_refusal(&error) => {
            tracing::warn!(%error, "corrupt state file; ignored");
            Ok(None)
        }
        Err(error) => Err(error).doing("could not read the office's own state"),
    }
}

/// Writes a file of ours.
pub(crate) fn write_json(
    shared: &OfficeState,
    path: &std::path::Path,
    value: &impl Serialize,
    wait: Wait,
) -> Result<(), OfficeError> {
    let bytes = serde_json::to_vec(value).map_err(OfficeError::internal)?;
    durable::replace(path, &bytes, wait, &shared.syncer).doing("could not keep the office's own state")
}
