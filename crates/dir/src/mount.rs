//! A directory that a network office has mounted: who of its agents live there, and who lives here.
//!
//! An agent of the network office stands in the directory with a card, a mailbox and signs of life like any other, and
//! with a mark that says whose it is: nobody else may register under its name, write in it or take its mail through this office.

use std::path::{Path, PathBuf};
use std::time::Duration;

use amb_core::doc::AgentEntry;
use amb_core::{AgentName, Card, Code, MessageId, OfficeError, Task, TaskId, TaskState, Timestamp};
use serde::{Deserialize, Serialize};

use crate::files::durable::{self, Wait};
use crate::files::failure::Doing;
use crate::files::lock::FileLock;
use crate::files::open;
use crate::office::{AgentDir, DirMailbox, DirOffice, OfficeState};
use crate::registry::presence::{read_json, write_json};

/// The right to carry mail in and out of a directory; one process has it at a time, until it drops it or dies.
#[derive(Debug)]
pub struct MountLock {
    _locked: FileLock,
    state: PathBuf,
}

impl MountLock {
    /// The directory for the state of the process that has mounted this one.
    pub fn state(&self) -> &Path {
        &self.state
    }
}

/// Where an agent of the directory lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// Here.
    Directory,
    /// In the network office that has mounted the directory.
    Office,
    /// It lived in the network office, and a program here has registered under its name since.
    Taken,
}

/// The mark: when the card was entered. Another time means that somebody else entered another one.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct MountMark {
    registered_at: Timestamp,
}

impl OfficeState {
    fn mark_file(&self, agent: &AgentName) -> PathBuf {
        self.paths.state(agent).join("mounted.json")
    }

    /// Whether a network office has this name here.
    fn is_marked(&self, agent: &AgentName) -> bool {
        self.mark_file(agent).exists()
    }

    fn home_of(&self, agent: &AgentEntry) -> Result<Home, OfficeError> {
        if !self.is_marked(&agent.name) {
            return Ok(Home::Directory);
        }
        let mark: Option<MountMark> = read_json(&self.mark_file(&agent.name))?;
        // A mark of no time is one whose card was being entered when its process ended.
        let mark = mark.map(|mark| mark.registered_at).filter(|at| *at != Timestamp::UNIX_EPOCH);
        let taken = mark.is_some_and(|mark| agent.registered_at.is_some_and(|registered| registered != mark));
        Ok(if taken { Home::Taken } else { Home::Office })
    }
}

impl AgentDir {
    /// Refuses to act for an agent that lives in the network office: there it has a key, here anybody could say so.
    pub(crate) fn check_lives_here(&self) -> Result<(), OfficeError> {
        if !self.shared.is_marked(&self.me) {
            return Ok(());
        }
        let detail = format!(
            "{} is an agent of the network office that has mounted this directory; choose another name, or act there",
            self.me
        );
        Err(OfficeError::new(Code::Conflict, detail))
    }

    fn register_mounted(&self, card: Card, poll_interval: Duration) -> Result<AgentEntry, OfficeError> {
        self.shared.make_state(&self.me)?;
        if !self.shared.is_marked(&self.me) {
            // Marked before it can be found: nobody takes it for an agent of the directory.
            let mark = MountMark { registered_at: Timestamp::UNIX_EPOCH };
            write_json(&self.shared, &self.shared.mark_file(&self.me), &mark, Wait::Synced)?;
        }
        let entry = self.enter_card(card, poll_interval)?;
        if let Some(registered_at) = entry.registered_at {
            let mark = MountMark { registered_at };
            if read_json::<MountMark>(&self.shared.mark_file(&self.me))?.as_ref() != Some(&mark) {
                write_json(&self.shared, &self.shared.mark_file(&self.me), &mark, Wait::Synced)?;
            }
        }
        Ok(entry)
    }

    fn give_up_mounted(&self) -> Result<(), OfficeError> {
        open::if_there(fs_err::remove_file(self.shared.mark_file(&self.me))).doing("could not remove the mark")?;
        Ok(())
    }
}

impl DirOffice {
    /// Takes the right to carry mail in and out, unless another process has it. May block for a moment.
    pub fn lock_mount(&self) -> Result<Option<MountLock>, OfficeError> {
        let doing = "could not mount the directory";
        self.shared.note_layout()?;
        let state = self.shared.paths.side().join("mount");
        durable::make_dir(&state, &self.shared.syncer).doing(doing)?;
        let locked = FileLock::attempt(&state.join("lock")).doing(doing)?;
        Ok(locked.map(|locked| MountLock { _locked: locked, state }))
    }

    /// Everybody, by name, and where they live.
    pub async fn everybody(&self) -> Result<Vec<(AgentEntry, Home)>, OfficeError> {
        let shared = self.shared.clone();
        let listed = tokio::task::spawn_blocking(move || {
            let everybody = shared.everybody(shared.now())?;
            everybody.into_iter().map(|agent| Ok((agent.clone(), shared.home_of(&agent)?))).collect()
        });
        listed.await.map_err(OfficeError::internal)?
    }
}

impl DirMailbox {
    /// Enters the card of an agent of the network office, or replaces it, and marks the name as that office's.
    pub async fn register_mounted(&self, card: Card, poll_interval: Duration) -> Result<AgentEntry, OfficeError> {
        self.run(move |agent_dir| agent_dir.register_mounted(card, poll_interval)).await
    }

    /// Marks messages as handled that the agent has handled in the network office.
    pub async fn ack_mounted(&self, ids: &[MessageId]) -> Result<u64, OfficeError> {
        let ids = ids.to_vec();
        self.run(move |agent_dir| agent_dir.ack(&ids)).await
    }

    /// Rejects a task that does not get to the agent in the network office.
    pub async fn reject_mounted(&self, id: &TaskId, why: String) -> Result<Task, OfficeError> {
        let id = id.clone();
        self.run(move |agent_dir| agent_dir.set_task_state(&id, TaskState::Rejected, Some(why))).await
    }

    /// Takes the mark back: a program here has the name now.
    pub async fn give_up_mounted(&self) -> Result<(), OfficeError> {
        self.run(AgentDir::give_up_mounted).await
    }
}
