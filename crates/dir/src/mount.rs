//! Agents of a network office that has mounted the directory.
//!
//! Such an agent has a card, a mailbox and heartbeats in the directory like any other, and a mark: no program here may
//! register under its name, send as it or read its mail through this office.

use std::path::{Path, PathBuf};
use std::time::Duration;

use amb_core::doc::AgentEntry;
use amb_core::{AgentName, Card, Code, MessageId, OfficeError, Task, TaskId, TaskState, Timestamp};
use serde::{Deserialize, Serialize};

use crate::files::durable::{self, Wait};
use crate::files::failure::IoContext;
use crate::files::lock::FileLock;
use crate::files::open;
use crate::office::{AgentDir, DirMailbox, DirOffice, OfficeState};
use crate::registry::presence::{read_json, write_json};

/// The lock of the one process that has mounted a directory. Released on drop.
#[derive(Debug)]
pub struct MountLock {
    _locked: FileLock,
    state: PathBuf,
}

impl MountLock {
    /// Directory for the state of the mount.
    pub fn state(&self) -> &Path {
        &self.state
    }
}

/// Which side of a mount an agent belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// An agent of the directory.
    Directory,
    /// An agent of the network office that has mounted the directory.
    Office,
    /// It was an agent of the network office, and a program here has registered under its name since.
    Taken,
}

/// The mark: when the mount registered the card. If the card has another time, another program has registered it.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct MountMark {
    registered_at: Timestamp,
}

impl OfficeState {
    fn mark_file(&self, agent: &AgentName) -> PathBuf {
        self.paths.state(agent).join("mounted.json")
    }

    /// Whether this is an agent of the network office.
    pub(crate) fn is_mounted(&self, agent: &AgentName) -> bool {
        self.mark_file(agent).exists()
    }

    fn home_of(&self, agent: &AgentEntry) -> Result<Home, OfficeError> {
        if !self.is_mounted(&agent.name) {
            return Ok(Home::Directory);
        }
        let mark: Option<MountMark> = read_json(&self.mark_file(&agent.name))?;
        // The epoch: the process ended before it had registered the card.
        let mark = mark.map(|mark| mark.registered_at).filter(|at| *at != Timestamp::UNIX_EPOCH);
        let taken = mark.is_some_and(|mark| agent.registered_at.is_some_and(|registered| registered != mark));
        Ok(if taken { Home::Taken } else { Home::Office })
    }
}

impl AgentDir {
    /// Refuses to act for an agent of the network office, where it has a key; here nobody is authenticated.
    pub(crate) fn check_local(&self) -> Result<&Self, OfficeError> {
        if !self.shared.is_mounted(&self.me) {
            return Ok(self);
        }
        let detail = format!(
            "{} is an agent of the network office that has mounted this directory; choose another name, or act there",
            self.me
        );
        Err(OfficeError::new(Code::Conflict, detail))
    }

    fn register_mounted(&self, card: Card, poll_interval: Duration) -> Result<AgentEntry, OfficeError> {
        self.shared.make_state_dir(&self.me)?;
        if !self.shared.is_mounted(&self.me) {
            // Marked before it is listed, so that it is never taken for an agent of the directory.
            let mark = MountMark { registered_at: Timestamp::UNIX_EPOCH };
            write_json(&self.shared, &self.shared.mark_file(&self.me), &mark, Wait::Synced)?;
        }
        let entry = self.write_registration(card, poll_interval)?;
        if let Some(registered_at) = entry.registered_at {
            let mark = MountMark { registered_at };
            if read_json::<MountMark>(&self.shared.mark_file(&self.me))?.as_ref() != Some(&mark) {
                write_json(&self.shared, &self.shared.mark_file(&self.me), &mark, Wait::Synced)?;
            }
        }
        Ok(entry)
    }

    fn unmark_mounted(&self) -> Result<(), OfficeError> {
        open::if_exists(fs_err::remove_file(self.shared.mark_file(&self.me))).context("could not remove the mark")?;
        Ok(())
    }
}

impl DirOffice {
    /// Takes the mount lock, unless another process has it. May block for a moment.
    pub fn lock_mount(&self) -> Result<Option<MountLock>, OfficeError> {
        let context = "could not mount the directory";
        self.shared.record_layout()?;
        let state = self.shared.paths.own_dir().join("mount");
        durable::make_dir(&state, &self.shared.syncer).context(context)?;
        let locked = FileLock::try_lock(&state.join("lock")).context(context)?;
        Ok(locked.map(|locked| MountLock { _locked: locked, state }))
    }

    /// Returns all agents, by name, and the side each belongs to.
    pub async fn all_agents(&self) -> Result<Vec<(AgentEntry, Home)>, OfficeError> {
        let shared = self.shared.clone();
        let listed = tokio::task::spawn_blocking(move || {
            let with_home = |agent: AgentEntry| shared.home_of(&agent).map(|home| (agent, home));
            shared.all_agents(shared.now())?.into_iter().map(with_home).collect()
        });
        listed.await.map_err(OfficeError::internal)?
    }
}

impl DirMailbox {
    /// Registers an agent of the network office, or replaces its card, and marks it.
    pub async fn register_mounted(&self, card: Card, poll_interval: Duration) -> Result<AgentEntry, OfficeError> {
        self.run(move |agent_dir| agent_dir.register_mounted(card, poll_interval)).await
    }

    /// Acknowledges messages that the agent has read in the network office.
    pub async fn ack_mounted(&self, ids: &[MessageId]) -> Result<u64, OfficeError> {
        let ids = ids.to_vec();
        self.run(move |agent_dir| agent_dir.ack(&ids)).await
    }

    /// Rejects a task that cannot be carried to the agent in the network office.
    pub async fn reject_mounted(&self, id: &TaskId, why: String) -> Result<Task, OfficeError> {
        let id = id.clone();
        self.run(move |agent_dir| agent_dir.set_task_state(&id, TaskState::Rejected, Some(why))).await
    }

    /// Removes the mark: a program here has the name now.
    pub async fn unmark_mounted(&self) -> Result<(), OfficeError> {
        self.run(AgentDir::unmark_mounted).await
    }
}
