//! The bridge's durable state: answers not sent yet, attempts, dead letters, and which conversation of the runtime
//! belongs to which session.
//!
//! One small file for each message in progress, replaced as a whole; its name is the message's id in hexadecimal, so
//! that no foreign id can be a path. What decides whether a message is answered twice or never is synced before the
//! bridge goes on; what only saves work after a kill is not, since a kill does not lose what was written.

use std::fs::TryLockError;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use amb_core::{AgentName, ConnectionId, MessageId, SessionId, Timestamp};
use fs_err::os::unix::fs::OpenOptionsExt;
use serde::{Deserialize, Serialize};

use crate::entry::LedgerEntry;
use crate::file::{self, Sync};
use crate::runtime::{FailureKind, TurnError};
use crate::status::BridgeStatus;

/// The durable state of one agent's bridge. Only one bridge has it open at a time.
#[derive(Debug)]
pub struct Ledger {
    root: PathBuf,
    /// Locked while the bridge lives; the kernel releases it when the process dies.
    _lock: Option<fs_err::File>,
}

/// A message that was given up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The message's id.
    pub message_id: MessageId,
    /// Who sent it.
    pub from: AgentName,
    /// Its subject.
    pub subject: Option<String>,
    /// How many attempts failed.
    pub failures: u32,
    /// The kind of the last failure.
    pub trouble: FailureKind,
    /// The last error.
    pub reason: String,
    /// When it was given up.
    pub at: Timestamp,
    /// How many turns are known to have failed; the next turn has another key than those.
    #[serde(default)]
    pub failed_turns: u32,
    /// The answer, where there is one that could not be delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
}

/// The runtime's conversation for a session.
#[derive(Debug, Serialize, Deserialize)]
struct SessionConversation {
    session: SessionId,
    key: String,
    /// The first message of the session: its prompt shows the subject.
    first: MessageId,
}

/// How long opening waits for the lock. It may outlive its holder: a command that a killed bridge was starting inherits
/// it until exec, and `amb bridge status` takes it briefly.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval between attempts to take the lock.
const LOCK_RETRY: Duration = Duration::from_millis(20);

impl Ledger {
    /// Opens the ledger for a bridge. A second bridge of the same agent on this machine is refused.
    pub fn open(root: &Path) -> io::Result<Self> {
        // The files hold messages: for this user alone.
        for part in ["mail", "dead", "again", "sessions", "commands", "conversations"] {
            let path = root.join(part);
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
            made.map_err(|error| io::Error::new(error.kind(), format!("cannot make {}: {error}", path.display())))?;
        }
        let lock =
            fs_err::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(root.join("lock"))?;
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            match lock.file().try_lock() {
                Ok(()) => return Ok(Self { root: root.to_owned(), _lock: Some(lock) }),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(LOCK_RETRY),
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

    /// The directory of the records of running commands.
    pub fn commands(&self) -> PathBuf {
        self.root.join("commands")
    }

    /// The directory in which a runtime stores its conversations.
    pub fn conversations(&self) -> PathBuf {
        self.root.join("conversations")
    }

    /// Opens the ledger for reading while a bridge may be running.
    pub fn open_read_only(root: &Path) -> Self {
        Self { root: root.to_owned(), _lock: None }
    }

    /// Whether a bridge has it open now.
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

    fn path(&self, part: &str, name: &str) -> PathBuf {
        self.root.join(part).join(file::name(name))
    }

    pub(crate) fn entry(&self, id: &MessageId) -> io::Result<LedgerEntry> {
        Ok(file::read(&self.path("mail", id.as_str()))?.unwrap_or_else(|| LedgerEntry::new(id.clone())))
    }

    /// The entries of messages that are not finished.
    pub(crate) fn entries(&self) -> io::Result<Vec<LedgerEntry>> {
        file::read_all(&self.root.join("mail"))
    }

    /// Writes an entry durably.
    pub(crate) fn write(&self, entry: &LedgerEntry) -> io::Result<()> {
        file::write(&self.path("mail", entry.message_id.as_str()), entry, Sync::Now)
    }

    /// Writes an entry that survives a kill, not necessarily a power cut.
    pub(crate) fn write_unsynced(&self, entry: &LedgerEntry) -> io::Result<()> {
        file::write(&self.path("mail", entry.message_id.as_str()), entry, Sync::Later)
    }

    /// Removes the entry of a finished message.
    pub(crate) fn close(&self, id: &MessageId) -> io::Result<()> {
        // After a power cut the entry may be back; the message is acknowledged, so it is removed again.
        file::remove(&self.path("mail", id.as_str()), Sync::Later)
    }

    pub(crate) fn add_dead_letter(&self, dead: &DeadLetter) -> io::Result<()> {
        file::write(&self.path("dead", dead.message_id.as_str()), dead, Sync::Now)
    }

    /// All dead letters, the oldest first.
    pub fn dead_letters(&self) -> io::Result<Vec<DeadLetter>> {
        let mut all: Vec<DeadLetter> = file::read_all(&self.root.join("dead"))?;
        all.sort_by_key(|dead| dead.at);
        Ok(all)
    }

    /// Asks the running (or next) bridge to retry a dead letter. Returns whether it exists.
    pub fn revive(&self, id: &MessageId) -> io::Result<bool> {
        file::rename(&self.path("dead", id.as_str()), &self.path("again", id.as_str()))
    }

    /// The dead letters to be retried.
    pub(crate) fn revived(&self) -> io::Result<Vec<DeadLetter>> {
        file::read_all(&self.root.join("again"))
    }

    /// Removes a request for a retry, once the message has its entry.
    pub(crate) fn remove_revived(&self, id: &MessageId) -> io::Result<()> {
        file::remove(&self.path("again", id.as_str()), Sync::Later)
    }

    /// The runtime's conversation for a session, fixed by its first message; and whether `mail` is a later one.
    pub(crate) fn conversation(
        &self,
        session: &SessionId,
        mail: &MessageId,
        make: impl FnOnce() -> String,
    ) -> io::Result<(String, bool)> {
        let path = self.path("sessions", session.as_str());
        if let Some(known) = file::read::<SessionConversation>(&path)? {
            return Ok((known.key, known.first != *mail));
        }
        let made = SessionConversation { session: session.clone(), key: make(), first: mail.clone() };
        file::write(&path, &made, Sync::Later)?;
        Ok((made.key, false))
    }

    /// The connection requests that were reported to the runtime.
    pub(crate) fn reported_requests(&self) -> io::Result<Vec<ConnectionId>> {
        Ok(file::read(&self.root.join("requests.json"))?.unwrap_or_default())
    }

    pub(crate) fn set_reported_requests(&self, ids: &[ConnectionId]) -> io::Result<()> {
        file::write(&self.root.join("requests.json"), &ids, Sync::Later)
    }

    pub(crate) fn write_status(&self, status: &BridgeStatus) -> io::Result<()> {
        file::write(&self.root.join("status.json"), status, Sync::Later)
    }

    /// Records that a bridge failed as a whole and when it is restarted, for a supervisor.
    pub fn note_failed(
        &self,
        agent: &AgentName,
        office: String,
        runtime: String,
        error: &TurnError,
        next_try: Timestamp,
    ) -> io::Result<()> {
        let known = self.status()?;
        let mut status = known.unwrap_or_else(|| BridgeStatus::new(agent.clone(), office, runtime));
        status.set_down(error, next_try);
        (status.pid, status.updated_at) = (std::process::id(), Timestamp::now());
        (status.under_way, status.last_error) = (Vec::new(), Some(error.detail.clone()));
        self.write_status(&status)
    }

    /// The last status that the bridge wrote.
    pub fn status(&self) -> io::Result<Option<BridgeStatus>> {
        file::read(&self.root.join("status.json"))
    }
}
