//! Cards and heartbeats, in files of each agent, so that a heartbeat touches one small file.
//!
//! Agents of other programs are only in `_registry.json`; [`crate::registry`] keeps that file in step with ours.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use amb_core::card::Presence;
use amb_core::doc::AgentEntry;
use amb_core::limits::HEARTBEAT_TIMEOUT;
use amb_core::suggest::{look_alike, unknown_agent};
use amb_core::{AgentName, Card, Code, OfficeError, Status, TaskId, Timestamp};
use rustix::fs::Access;
use serde::{Deserialize, Serialize};

use crate::files::durable::{self, Wait};
use crate::files::failure::IoContext;
use crate::files::layout::Layout;
use crate::files::lock::FileLock;
use crate::files::open;
use crate::files::step::step;
use crate::office::OfficeState;

/// Bound on the office's own files that are read whole; larger ones are corrupt.
const MAX_BYTES: u64 = 16 << 20;

/// The card of an agent that registered here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RegisteredCard {
    #[serde(flatten)]
    pub(crate) card: Card,
    pub(crate) registered_at: Timestamp,
}

/// What an agent is doing. The mtime of its file is the last heartbeat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PresenceState {
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

impl Default for PresenceState {
    fn default() -> Self {
        Self { status: Status::Idle, current_tasks: Vec::new(), timeout_ms: default_timeout() }
    }
}

impl PresenceState {
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }
}

/// What a sender needs to know about the recipient.
#[derive(Debug, Clone)]
pub(crate) struct RecipientCard {
    pub(crate) card: Card,
    /// Number of tasks that another program's agent reports.
    pub(crate) foreign_tasks: usize,
}

impl OfficeState {
    pub(crate) fn card_file(&self, agent: &AgentName) -> PathBuf {
        self.paths.state(agent).join("card.json")
    }

    fn presence_file(&self, agent: &AgentName) -> PathBuf {
        self.paths.state(agent).join("alive.json")
    }

    /// Locks an agent's card, presence and tasks.
    pub(crate) fn lock_agent(&self, agent: &AgentName) -> Result<FileLock, OfficeError> {
        self.make_state_dir(agent)?;
        FileLock::lock(&self.paths.state(agent).join("agent.lock")).context("could not lock the agent's state")
    }

    /// Like `lock_agent`, for a reader: where nothing can be written, nobody has to be waited for.
    pub(crate) fn lock_agent_to_read(&self, agent: &AgentName) -> Result<Option<FileLock>, OfficeError> {
        if self.check_writable().is_err() { Ok(None) } else { self.lock_agent(agent).map(Some) }
    }

    /// Returns an error if the office's own directory cannot be written to.
    pub(crate) fn check_writable(&self) -> io::Result<()> {
        let own = self.paths.own_dir();
        let there = [&own, &self.paths.root].into_iter().find(|path| path.is_dir());
        there.map_or(Ok(()), |path| Ok(rustix::fs::access(path, Access::WRITE_OK)?))
    }

    /// Creates the directory of an agent's state if it is missing.
    pub(crate) fn make_state_dir(&self, agent: &AgentName) -> Result<(), OfficeError> {
        let context = "could not make a place for the agent's state";
        let state = self.paths.state(agent);
        for directory in [&self.paths.own_dir(), &self.paths.agents(), &state] {
            open::refuse_link(directory).context(context)?;
        }
        if state.is_dir() {
            return Ok(());
        }
        self.record_layout()?;
        durable::make_dir(&state, &self.syncer).context(context)
    }

    /// Returns the card of an agent that registered here, if it can be read.
    pub(crate) fn registered(&self, agent: &AgentName) -> Result<Option<RegisteredCard>, OfficeError> {
        read_json(&self.card_file(agent))
    }

    /// Whether the agent's card is there and cannot be read.
    pub(crate) fn is_card_corrupt(&self, agent: &AgentName) -> Result<bool, OfficeError> {
        // Looked at before it is read: one that is written meanwhile is whole.
        let is_there = fs_err::symlink_metadata(self.card_file(agent)).is_ok();
        Ok(is_there && self.registered(agent)?.is_none())
    }

    /// The card by which it is judged who may write to the agent; none if it never registered. One that cannot be read is an
    /// error, so that a broken `allow_from` is not read as "everybody".
    pub(crate) fn recipient_card(&self, agent: &AgentName) -> Result<Option<RecipientCard>, OfficeError> {
        if let Some(registered) = self.registered(agent)? {
            return Ok(Some(RecipientCard { card: registered.card, foreign_tasks: 0 }));
        }
        if self.paths.layout == Layout::Nanobot
            && let Some(entry) = self.registry_entry(agent)?
        {
            return Ok(Some(RecipientCard { card: entry.card, foreign_tasks: entry.current_tasks.len() }));
        }
        match self.is_card_corrupt(agent)? {
            true => Err(OfficeError::unavailable(format!(
                "the card of {agent} is corrupt, so nobody can write to it; `amb register {agent} --allow-from NAME` sets it anew"
            ))),
            false => Ok(None),
        }
    }

    pub(crate) fn write_card(&self, agent: &AgentName, card: &RegisteredCard) -> Result<(), OfficeError> {
        write_json(self, &self.card_file(agent), card, Wait::Synced)
    }

    /// Returns what a registered agent is doing, and its last heartbeat.
    pub(crate) fn presence(&self, agent: &AgentName) -> Result<Option<(PresenceState, Timestamp)>, OfficeError> {
        let path = self.presence_file(agent);
        let seen = match open::metadata(&path).and_then(|metadata| metadata.modified()) {
            Ok(at) => Timestamp::try_from(at).unwrap_or(Timestamp::UNIX_EPOCH),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if open::is_refused(&error) => {
                tracing::warn!(%error, "reading an agent's heartbeat failed; ignored");
                return Ok(None);
            }
            Err(error) => return Err(error).context("could not read the agent's heartbeat"),
        };
        Ok(Some((read_json(&path)?.unwrap_or_default(), seen)))
    }

    /// Writes an agent's status, which counts as a heartbeat. The caller holds the agent's lock.
    pub(crate) fn write_presence(&self, agent: &AgentName, alive: &PresenceState) -> Result<(), OfficeError> {
        // Heartbeats need not survive a power cut.
        write_json(self, &self.presence_file(agent), alive, Wait::Cached)?;
        // The file system's clock lags behind ours: the heartbeat would be older than the registration.
        self.set_last_heartbeat(agent, self.now())
    }

    /// Writes an agent's current tasks and keeps the time of its last heartbeat: another agent's process may do this.
    pub(crate) fn write_current_tasks(&self, agent: &AgentName, current: Vec<TaskId>) -> Result<(), OfficeError> {
        let Some((mut alive, seen)) = self.presence(agent)? else { return Ok(()) };
        if alive.current_tasks == current {
            return Ok(());
        }
        alive.current_tasks = current;
        self.write_presence(agent, &alive)?;
        self.set_last_heartbeat(agent, seen)
    }

    /// Sets the time of the last heartbeat.
    pub(crate) fn set_last_heartbeat(&self, agent: &AgentName, at: Timestamp) -> Result<(), OfficeError> {
        let times = std::time::SystemTime::from(at);
        step();
        open::regular_with(&self.presence_file(agent), open::options().write(true))
            .and_then(|file| file.set_modified(times))
            .context("could not write the heartbeat")
    }

    /// Returns the agents that registered here.
    pub(crate) fn registered_agents(&self) -> Result<Vec<AgentName>, OfficeError> {
        let mut names = self.names_in(&self.paths.agents())?;
        names.retain(|name| self.card_file(name).exists());
        Ok(names)
    }

    /// Returns the subdirectories whose names are names of agents.
    pub(crate) fn names_in(&self, directory: &std::path::Path) -> Result<Vec<AgentName>, OfficeError> {
        let context = "could not list the agents";
        let mut names = Vec::new();
        for entry in open::entries(directory).context(context)? {
            let entry = entry.context(context)?;
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_dir && let Some(name) = entry.file_name().to_str().and_then(|name| AgentName::parse(name).ok()) {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Returns the public entry of an agent that registered here.
    pub(crate) fn registered_entry(
        &self,
        agent: &AgentName,
        now: Timestamp,
    ) -> Result<Option<AgentEntry>, OfficeError> {
        let Some(registered) = self.registered(agent)? else { return Ok(None) };
        let presence = self.own_presence(agent, now)?.unwrap_or_default();
        Ok(Some(entry(agent.clone(), registered.card, presence, Some(registered.registered_at))))
    }

    /// Returns the presence of an agent that has given heartbeats here, with a card or without.
    fn own_presence(&self, agent: &AgentName, now: Timestamp) -> Result<Option<Presence>, OfficeError> {
        let Some((alive, seen)) = self.presence(agent)? else { return Ok(None) };
        let timeout = alive.timeout();
        // Heartbeats far in the future are from before the clock was set back: a live agent sends another one soon, a
        // dead one would seem alive for long.
        let seen = Some(seen).filter(|seen| {
            Duration::try_from(seen.duration_since(now)).is_ok_and(|ahead| ahead <= timeout) || *seen <= now
        });
        Ok(Some(Presence::at(now, alive.status, seen, alive.current_tasks, timeout)))
    }

    /// Returns all agents, by name.
    pub(crate) fn all_agents(&self, now: Timestamp) -> Result<Vec<AgentEntry>, OfficeError> {
        let mut agents = Vec::new();
        for name in self.registered_agents()? {
            agents.extend(self.registered_entry(&name, now)?);
        }
        match self.paths.layout {
            Layout::Nanobot => {
                for entry in self.registry_entries()? {
                    if agents.iter().any(|known| known.name == entry.name) {
                        continue;
                    }
                    let mut agent = entry.into_agent(now, HEARTBEAT_TIMEOUT);
                    // Its card is another program's, but it may use the office through this one.
                    let own = self.own_presence(&agent.name, now)?;
                    if let Some(own) = own.filter(|own| own.last_seen > agent.presence.last_seen) {
                        agent.presence = own;
                    }
                    agents.push(agent);
                }
                // Agents that use a mailbox and never registered.
                for name in self.names_in(&self.paths.agents())? {
                    if self.paths.inbox(&name).is_dir()
                        && !agents.iter().any(|known| known.name == name)
                        && let Some(presence) = self.own_presence(&name, now)?
                    {
                        agents.push(entry(name, Card::default(), presence, None));
                    }
                }
            }
            Layout::Chipset => {
                // Every mailbox is an agent; the chipset has no cards.
                for name in self.names_in(&self.paths.root)? {
                    if !agents.iter().any(|known| known.name == name) {
                        let presence = self.own_presence(&name, now)?.unwrap_or_default();
                        agents.push(entry(name, Card::default(), presence, None));
                    }
                }
            }
        }
        agents.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(agents)
    }

    /// Returns the recipient's card, or an error that suggests the nearest name. The cost does not grow with the number
    /// of agents, unless the agent belongs to another program and the registry has changed.
    pub(crate) fn recipient(&self, name: &AgentName) -> Result<RecipientCard, OfficeError> {
        if let Some(known) = self.recipient_card(name)? {
            return Ok(known);
        }
        if self.paths.inbox(name).is_dir() {
            return Ok(RecipientCard { card: Card::default(), foreign_tasks: 0 });
        }
        let is_created = self.paths.layout == Layout::Chipset && !self.options.strict_recipients;
        if is_created || self.options.create_recipients {
            return self.new_recipient(name);
        }
        let all_agents = self.all_agents(self.now())?;
        let known = all_agents.iter().map(|agent| agent.name.as_str());
        Err(OfficeError::not_found(unknown_agent(name.as_str(), known)))
    }

    /// An agent that has no card and no mailbox yet: its mailbox is made for what is sent to it.
    pub(crate) fn new_recipient(&self, name: &AgentName) -> Result<RecipientCard, OfficeError> {
        self.check_look_alike(name)?;
        Ok(RecipientCard { card: Card::default(), foreign_tasks: 0 })
    }

    /// Refuses a new name that a person cannot tell from another agent's. Reads names only, no cards.
    pub(crate) fn check_look_alike(&self, name: &AgentName) -> Result<(), OfficeError> {
        let mut names = self.names_in(&self.paths.agents())?;
        names.retain(|other| name.looks_like(other.as_str()) && self.card_file(other).exists());
        match self.paths.layout {
            Layout::Nanobot => names.extend(self.registry_entries()?.into_iter().map(|entry| entry.name)),
            Layout::Chipset => names.extend(self.names_in(&self.paths.root)?),
        }
        match names.iter().find(|other| name.looks_like(other.as_str())) {
            Some(other) => Err(OfficeError::new(Code::Conflict, look_alike(name.as_str(), other.as_str()))),
            None => Ok(()),
        }
    }
}

/// Returns the entry of an agent. A directory has no households and no persons, and pauses no agents.
fn entry(name: AgentName, card: Card, presence: Presence, registered_at: Option<Timestamp>) -> AgentEntry {
    AgentEntry { name, card, presence, registered_at, household: false, person: false, paused: false }
}

/// Reads a state file. A corrupt one counts as missing, with a warning.
pub(crate) fn read_json<T: serde::de::DeserializeOwned>(path: &std::path::Path) -> Result<Option<T>, OfficeError> {
    let error = match open::read(path, MAX_BYTES) {
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(value) => return Ok(Some(value)),
            Err(error) => error.to_string(),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if open::is_refused(&error) => error.to_string(),
        Err(error) => return Err(error).context("could not read the office's own state"),
    };
    tracing::warn!(path = %path.display(), error, "corrupt state file; ignored");
    Ok(None)
}

/// Writes a state file.
pub(crate) fn write_json(
    shared: &OfficeState,
    path: &std::path::Path,
    value: &impl Serialize,
    wait: Wait,
) -> Result<(), OfficeError> {
    let bytes = serde_json::to_vec(value).map_err(OfficeError::internal)?;
    durable::replace(path, &bytes, wait, &shared.syncer).context("could not keep the office's own state")
}
