//! Where everything lies. What is ours alone lies under `ROOT/.amb`, which no other program's patterns match.
//!
//! ```text
//! ROOT/.amb/.gitignore             everything here: mail may be kept in git, these files not
//! ROOT/.amb/layout                 which layout this is
//! ROOT/.amb/registry.lock          held while _registry.json is replaced; its time of change is when that was last done
//! ROOT/.amb/registry.seen.json     entries of other programs that were in _registry.json then
//! ROOT/.amb/clock                  the latest moment that a message was given
//! ROOT/.amb/unfinished/            what processes are about to do, see `journal`
//! ROOT/.amb/mount/                 state of the network office that has mounted the directory
//! ROOT/.amb/agents/NAME/card.json  what the agent said when it registered here
//!                      /alive.json its status and tasks; its time of change is the last heartbeat
//!                      /log        everything that came to or went from the agent, one line each
//!                      /log.lock   held while lines are added
//!                      /known.json index of the mailbox, so that the log need not be read whole
//!                      /tasks/     tasks given to the agent; ended ones in tasks/ended/
//!                      /given/     pointers to tasks that the agent gave; ended ones in given/ended/
//!                      /keys/      idempotency keys of its sends
//!                      /callbacks/ callbacks it set on tasks
//!                      /mounted.json  the agent lives in the network office that has mounted the directory
//!                      /claims.lock  held while messages are claimed, or looked at for claims
//!                      /leases/    claims, on file systems without locks
//! ```

use std::path::{Path, PathBuf};

use amb_core::AgentName;

use crate::files::layout::Layout;

const SIDE: &str = ".amb";

/// The note that says which layout a directory has.
pub(crate) fn layout_note(root: &Path) -> PathBuf {
    root.join(SIDE).join("layout")
}

/// Where an office's files are.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    pub(crate) root: PathBuf,
    pub(crate) layout: Layout,
}

impl Paths {
    pub(crate) fn side(&self) -> PathBuf {
        self.root.join(SIDE)
    }

    pub(crate) fn registry(&self) -> PathBuf {
        self.root.join("_registry.json")
    }

    pub(crate) fn registry_lock(&self) -> PathBuf {
        self.side().join("registry.lock")
    }

    pub(crate) fn registry_seen(&self) -> PathBuf {
        self.side().join("registry.seen.json")
    }

    /// Our own state of all agents.
    pub(crate) fn agents(&self) -> PathBuf {
        self.side().join("agents")
    }

    /// Our own state of one agent.
    pub(crate) fn state(&self, agent: &AgentName) -> PathBuf {
        self.agents().join(agent.as_str())
    }

    /// The agent's directory, which other programs know.
    pub(crate) fn home(&self, agent: &AgentName) -> PathBuf {
        self.root.join(agent.as_str())
    }

    /// Where new mail for the agent arrives.
    pub(crate) fn inbox(&self, agent: &AgentName) -> PathBuf {
        match self.layout {
            Layout::Nanobot => self.home(agent).join("inbox"),
            Layout::Chipset => self.home(agent),
        }
    }

    /// Where mail goes that needs no more attention: handled (nanobot) or old (chipset).
    pub(crate) fn put_away(&self, agent: &AgentName) -> PathBuf {
        match self.layout {
            Layout::Nanobot => self.home(agent).join("processed"),
            Layout::Chipset => self.home(agent).join("archive"),
        }
    }

    /// Where nanobot mail that does not parse goes.
    pub(crate) fn corrupt(&self, agent: &AgentName) -> PathBuf {
        self.home(agent).join("corrupt")
    }

    /// Where mail of senders goes that the agent does not hear.
    pub(crate) fn refused(&self, agent: &AgentName) -> PathBuf {
        self.home(agent).join("refused")
    }

    /// How the names of message files end.
    pub(crate) fn suffix(&self) -> &'static str {
        match self.layout {
            Layout::Nanobot => ".msg.json",
            Layout::Chipset => ".json",
        }
    }
}
