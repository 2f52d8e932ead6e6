//! Paths of all files. The office's own files are under `ROOT/.amb`, which no other program's patterns match.
//!
//! ```text
//! ROOT/.amb/.gitignore             keeps everything here out of git; mail may be in git
//! ROOT/.amb/layout                 which layout this is
//! ROOT/.amb/registry.lock          held while _registry.json is replaced; its mtime is the last update
//! ROOT/.amb/registry.seen.json     other programs' entries in _registry.json at that time
//! ROOT/.amb/clock                  latest timestamp given to a message
//! ROOT/.amb/unfinished/            the journal: verbs in progress
//! ROOT/.amb/mount/                 state of the network office that has mounted the directory
//! ROOT/.amb/agents/NAME/card.json  the agent's card, as registered here
//!                      /alive.json its status and tasks; the mtime is the last heartbeat
//!                      /log        messages received and sent, receipts and overdue tasks, one line each
//!                      /log.lock   held while lines are appended
//!                      /known.json saved index of the mailbox, so that the log need not be read whole
//!                      /tasks/     tasks given to the agent; ended ones in tasks/ended/
//!                      /given/     pointers to tasks that the agent gave; ended ones in given/ended/
//!                      /keys/      idempotency keys of its sends
//!                      /mounted.json  marks an agent of the network office that has mounted the directory
//!                      /present.lock  shared by the processes that give the agent's heartbeats
//!                      /claims.lock  held while claims are taken or listed
//!                      /leases/    claims, on file systems without locks
//! ```

use std::path::{Path, PathBuf};

use amb_core::AgentName;

use crate::files::layout::Layout;

const OWN_DIR: &str = ".amb";

/// The file that records the layout of a directory.
pub(crate) fn layout_file(root: &Path) -> PathBuf {
    root.join(OWN_DIR).join("layout")
}

/// Paths of an office's files.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    pub(crate) root: PathBuf,
    pub(crate) layout: Layout,
}

impl Paths {
    pub(crate) fn own_dir(&self) -> PathBuf {
        self.root.join(OWN_DIR)
    }

    pub(crate) fn registry(&self) -> PathBuf {
        self.root.join("_registry.json")
    }

    pub(crate) fn registry_lock(&self) -> PathBuf {
        self.own_dir().join("registry.lock")
    }

    pub(crate) fn registry_seen(&self) -> PathBuf {
        self.own_dir().join("registry.seen.json")
    }

    /// The office's own state of all agents.
    pub(crate) fn agents(&self) -> PathBuf {
        self.own_dir().join("agents")
    }

    /// The office's own state of one agent.
    pub(crate) fn state(&self, agent: &AgentName) -> PathBuf {
        self.agents().join(agent.as_str())
    }

    /// The lease files of an agent's mailbox.
    pub(crate) fn leases(&self, agent: &AgentName) -> PathBuf {
        self.state(agent).join("leases")
    }

    /// The agent's directory, shared with other programs.
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

    /// Directory of handled mail (nanobot) or archived mail (chipset).
    pub(crate) fn processed(&self, agent: &AgentName) -> PathBuf {
        match self.layout {
            Layout::Nanobot => self.home(agent).join("processed"),
            Layout::Chipset => self.home(agent).join("archive"),
        }
    }

    /// Directory of mail that does not parse (nanobot).
    pub(crate) fn corrupt(&self, agent: &AgentName) -> PathBuf {
        self.home(agent).join("corrupt")
    }

    /// Directory of mail whose senders are not in the agent's `allow_from`.
    pub(crate) fn refused(&self, agent: &AgentName) -> PathBuf {
        self.home(agent).join("refused")
    }
}
