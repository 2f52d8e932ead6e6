//! What a bridge must not forget when it is killed: answers not yet sent, tries, mail given up, and which conversation of
//! the runtime belongs to which session.
//!
//! One small file for each mail under way, written whole; the name is the mail's id in hexadecimal, so that no id of
//! another system can be a path. What decides whether a mail is answered twice or never is synced before the bridge goes
//! on; what only saves work after a kill is not, since a kill does not lose what was written.

use std::fs::TryLockError;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use amb_core::{AgentName, ConnectionId, MessageId, SessionId, Timestamp};
use fs_err::os::unix::fs::OpenOptionsExt;
use serde::{Deserialize, Serialize};

use crate::file::{self, Sync};
use crate::page::Page;
use crate::runtime::{Trouble, TurnError};
use crate::status::Connection;

/// The memory of one agent's bridge. Only one bridge holds it at a time.
#[derive(Debug)]
pub struct Ledger {
    root: PathBuf,
    /// Held while the bridge lives; the kernel lets go of it when the process dies.
    _lock: Option<fs_err::File>,
}

/// A mail that was given up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dead {
    /// Which mail.
    pub message_id: MessageId,
    /// Who sent it.
    pub from: AgentName,
    /// What it was about.
    pub subject: Option<String>,
    /// How often it was tried.
    pub failures: u32,
    /// What kind of trouble ended it.
    pub trouble: Trouble,
    /// What went wrong last.
    pub reason: String,
    /// When it was given up.
    pub at: Timestamp,
    /// How many turns are known to have failed, so that one more is not taken for a repeat of them.
    #[serde(default)]
    pub failed_turns: u32,
    /// The answer, where there is one and only the way back was closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
}

/// The runtime's conversation for a session.
#[derive(Debug, Serialize, Deserialize)]
struct Conversation {
    session: SessionId,
    key: String,
    /// The mail that began it: the one that shows the subject.
    first: MessageId,
}

/// How long a lock may outlive its holder: a command that a killed bridge was just starting has it until it runs, and
/// whoever asks how the bridge is has it for a moment.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks at the lock.
const PAUSE: Duration = Duration::from_millis(20);

impl Ledger {
    /// Opens the ledger for a bridge. A second bridge of the same agent on this machine is refused.
    pub fn open(root: &Path) -> io::Result<Self> {
        // What agents say to each other is for this user alone.
        for part in ["mail", "dead", "again", "sessions", "commands", "conversations"] {
            let path = root.join(part);
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
            made.map_err(|error| io::Error::new(error.kind(), format!("cannot make {}: {error}", path.display())))?;
        }
        let lock =
            fs_err::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(root.join("lock"))?;
        let give_up = Instant::now() + PATIENCE;
        loop {
            match lock.file().try_lock() {
                Ok(()) => return Ok(Self { root: root.to_owned(), _lock: Some(lock) }),
                Err(TryLockError::WouldBlock) if Instant::now() < give_up => std::thread::sleep(PAUSE),
                Err(TryLockError::WouldBlock) => {
                    return Err(io::Error::new(
                        io::ErrorKind::ResourceBusy,
                        format!("another bridge for this agent is running (it holds {})", root.join("lock").display()),
                    ));
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    /// Where a runtime that is a command writes its runs down.
    pub fn commands(&self) -> PathBuf {
        self.root.join("commands")
    }

    /// Where a runtime that keeps conversations by itself remembers them.
    pub fn conversations(&self) -> PathBuf {
        self.root.join("conversations")
    }

    /// Opens the ledger to look at it while a bridge may be running.
    pub fn look(root: &Path) -> Self {
        Self { root: root.to_owned(), _lock: None }
    }

    /// Whether a bridge holds it now.
    pub fn is_held(&self) -> io::Result<bool> {
        match fs_err::File::open(self.root.join("lock")) {
            Ok(file) => match file.file().try_lock_shared() {
                Ok(()) => Ok(false),
                Err(TryLockError::WouldBlock) => Ok(true),
                Err(TryLockError::Error(error)) => Err(error),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn place(&self, part: &str, name: &str) -> PathBuf {
        self.root.join(part).join(file::name(name))
    }

    pub(crate) fn page(&self, id: &MessageId) -> io::Result<Page> {
        Ok(file::read(&self.place("mail", id.as_str()))?.unwrap_or_else(|| Page::new(id.clone())))
    }

    /// The mail that a bridge before this one did not come to the end of.
    pub(crate) fn pages(&self) -> io::Result<Vec<Page>> {
        file::read_all(&self.root.join("mail"))
    }

    /// Keeps a page, also when the machine dies.
    pub(crate) fn write(&self, page: &Page) -> io::Result<()> {
        file::write(&self.place("mail", page.message_id.as_str()), page, Sync::Now)
    }

    /// Keeps a page, also when this process dies.
    pub(crate) fn note(&self, page: &Page) -> io::Result<()> {
        file::write(&self.place("mail", page.message_id.as_str()), page, Sync::Later)
    }

    /// The mail is done with.
    pub(crate) fn close(&self, id: &MessageId) -> io::Result<()> {
        // Should the machine die now, the mail is acknowledged, and the page is found and closed again.
        file::remove(&self.place("mail", id.as_str()), Sync::Later)
    }

    /// Gives a mail up, and keeps it on the list.
    pub(crate) fn bury(&self, dead: &Dead) -> io::Result<()> {
        file::write(&self.place("dead", dead.message_id.as_str()), dead, Sync::Now)
    }

    /// All mail that was given up, the oldest first.
    pub fn dead(&self) -> io::Result<Vec<Dead>> {
        let mut all: Vec<Dead> = file::read_all(&self.root.join("dead"))?;
        all.sort_by_key(|dead| dead.at);
        Ok(all)
    }

    /// Asks the running (or next) bridge to try a mail again that was given up. Answers whether it was on the list.
    pub fn revive(&self, id: &MessageId) -> io::Result<bool> {
        file::rename(&self.place("dead", id.as_str()), &self.place("again", id.as_str()))
    }

    /// Mail that somebody wants tried again.
    pub(crate) fn revived(&self) -> io::Result<Vec<Dead>> {
        file::read_all(&self.root.join("again"))
    }

    /// A revived mail has its page.
    pub(crate) fn taken_up(&self, id: &MessageId) -> io::Result<()> {
        file::remove(&self.place("again", id.as_str()), Sync::Later)
    }

    /// The runtime's conversation for a session, kept from its first mail on; and whether `mail` is a later one.
    pub(crate) fn conversation(
        &self,
        session: &SessionId,
        mail: &MessageId,
        make: impl FnOnce() -> String,
    ) -> io::Result<(String, bool)> {
        let path = self.place("sessions", session.as_str());
        if let Some(known) = file::read::<Conversation>(&path)? {
            return Ok((known.key, known.first != *mail));
        }
        let made = Conversation { session: session.clone(), key: make(), first: mail.clone() };
        file::write(&path, &made, Sync::Later)?;
        Ok((made.key, false))
    }

    /// The requests for a connection of which the runtime has been told.
    pub(crate) fn told_requests(&self) -> io::Result<Vec<ConnectionId>> {
        Ok(file::read(&self.root.join("requests.json"))?.unwrap_or_default())
    }

    pub(crate) fn note_told_requests(&self, told: &[ConnectionId]) -> io::Result<()> {
        file::write(&self.root.join("requests.json"), &told, Sync::Later)
    }

    pub(crate) fn write_status(&self, status: &crate::Status) -> io::Result<()> {
        file::write(&self.root.join("status.json"), status, Sync::Later)
    }

    /// Notes that a bridge failed as a whole, and when it is started again. For whoever keeps it running.
    pub fn note_failed(
        &self,
        agent: &AgentName,
        office: String,
        runtime: String,
        error: &TurnError,
        next_try: Timestamp,
    ) -> io::Result<()> {
        let known = self.status()?;
        let mut status = known.unwrap_or_else(|| crate::Status::new(agent.clone(), office, runtime));
        let now = Timestamp::now();
        let since = match &status.connection {
            Connection::Down { since, .. } => *since,
            _ => now,
        };
        let (trouble, detail) = (error.trouble, error.detail.clone());
        status.connection = Connection::Down { trouble, detail, since, next_try };
        (status.pid, status.updated_at) = (std::process::id(), now);
        (status.under_way, status.last_error) = (Vec::new(), Some(error.detail.clone()));
        self.write_status(&status)
    }

    /// What the bridge last said about itself.
    pub fn status(&self) -> io::Result<Option<crate::Status>> {
        file::read(&self.root.join("status.json"))
    }
}
