//! What a bridge must not forget when it is killed: answers not yet sent, tries, mail given up, and which conversation of
//! the runtime belongs to which session.
//!
//! One small file for each mail under way, written whole and synced before the bridge goes on; the name is the mail's id
//! in hexadecimal, so that no id of another system can be a path.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use amb_core::{AgentName, MessageId, SessionId, Timestamp};
use fs_err::os::unix::fs::OpenOptionsExt;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::runtime::{Outcome, Trouble};

/// The memory of one agent's bridge. Only one bridge holds it at a time.
#[derive(Debug)]
pub struct Ledger {
    root: PathBuf,
    /// Held while the bridge lives; the kernel lets go of it when the process dies.
    _lock: Option<fs_err::File>,
}

/// What is remembered of a mail under way.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Page {
    /// How often a turn was tried and failed.
    #[serde(default)]
    pub(crate) failures: u32,
    /// What came of the turn, once it is known.
    #[serde(default)]
    pub(crate) outcome: Option<Answer>,
    /// What went wrong last.
    #[serde(default)]
    pub(crate) last_error: Option<String>,
}

/// An [`Outcome`] as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Reply(String),
    NoReply,
}

impl From<Outcome> for Answer {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Reply(text) => Answer::Reply(text),
            Outcome::NoReply => Answer::NoReply,
        }
    }
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
}

impl Ledger {
    /// Opens the ledger for a bridge. A second bridge of the same agent on this machine is refused.
    pub fn open(root: &Path) -> io::Result<Self> {
        for part in ["mail", "dead", "again"] {
            fs_err::create_dir_all(root.join(part))?;
        }
        let lock =
            fs_err::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(root.join("lock"))?;
        match lock.file().try_lock() {
            Ok(()) => Ok(Self { root: root.to_owned(), _lock: Some(lock) }),
            Err(std::fs::TryLockError::WouldBlock) => Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!("another bridge for this agent is running (it holds {})", root.join("lock").display()),
            )),
            Err(std::fs::TryLockError::Error(error)) => Err(error),
        }
    }

    /// Opens the ledger to look at it while a bridge may be running.
    pub fn look(root: &Path) -> Self {
        Self { root: root.to_owned(), _lock: None }
    }

    fn mail(&self, id: &MessageId) -> PathBuf {
        self.root.join("mail").join(file_name(id))
    }

    pub(crate) fn page(&self, id: &MessageId) -> io::Result<Page> {
        Ok(read(&self.mail(id))?.unwrap_or_default())
    }

    pub(crate) fn write(&self, id: &MessageId, page: &Page) -> io::Result<()> {
        write(&self.mail(id), page)
    }

    /// The mail is done with.
    pub(crate) fn close(&self, id: &MessageId) -> io::Result<()> {
        remove(&self.mail(id))
    }

    /// Gives a mail up, and keeps it on the list.
    pub(crate) fn bury(&self, dead: &Dead) -> io::Result<()> {
        write(&self.root.join("dead").join(file_name(&dead.message_id)), dead)
    }

    /// All mail that was given up, the oldest first.
    pub fn dead(&self) -> io::Result<Vec<Dead>> {
        let mut all = Vec::new();
        for path in files(&self.root.join("dead"))? {
            all.extend(read::<Dead>(&path)?);
        }
        all.sort_by_key(|dead| dead.at);
        Ok(all)
    }

    /// Asks the running (or next) bridge to try a mail again that was given up. Answers whether it was on the list.
    pub fn revive(&self, id: &MessageId) -> io::Result<bool> {
        let name = file_name(id);
        match fs_err::rename(self.root.join("dead").join(&name), self.root.join("again").join(&name)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Mail that somebody wants tried again.
    pub(crate) fn revived(&self) -> io::Result<Vec<MessageId>> {
        let mut all = Vec::new();
        for path in files(&self.root.join("again"))? {
            all.extend(read::<Dead>(&path)?.map(|dead| dead.message_id));
        }
        Ok(all)
    }

    /// A revived mail was taken up.
    pub(crate) fn taken_up(&self, id: &MessageId) -> io::Result<()> {
        remove(&self.root.join("again").join(file_name(id)))
    }

    /// The runtime's conversation for a session, kept from its first mail on.
    pub(crate) fn session_key(&self, session: &SessionId, make: impl FnOnce() -> String) -> io::Result<(String, bool)> {
        let path = self.root.join("sessions.json");
        let mut known: BTreeMap<SessionId, String> = read(&path)?.unwrap_or_default();
        if let Some(key) = known.get(session) {
            return Ok((key.clone(), true));
        }
        let key = make();
        known.insert(session.clone(), key.clone());
        write(&path, &known)?;
        Ok((key, false))
    }

    pub(crate) fn write_status(&self, status: &crate::Status) -> io::Result<()> {
        write(&self.root.join("status.json"), status)
    }

    /// What the bridge last said about itself.
    pub fn status(&self) -> io::Result<Option<crate::Status>> {
        read(&self.root.join("status.json"))
    }
}

fn file_name(id: &MessageId) -> String {
    let mut name: String = id.as_str().bytes().map(|byte| format!("{byte:02x}")).collect();
    // A file name has 255 bytes at most; ids of ours have 36 characters, those of others 200 at most.
    if name.len() > 240 {
        let hash = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, id.as_str().as_bytes());
        name.truncate(200);
        name.push_str(&hash.simple().to_string());
    }
    name + ".json"
}

fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs_err::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            paths.push(path);
        }
    }
    Ok(paths)
}

fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs_err::read(path) {
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(value) => Ok(Some(value)),
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()))),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whole or not at all, and on disk when this returns.
fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let draft = path.with_extension("tmp");
    let mut file = fs_err::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&draft)?;
    serde_json::to_writer(&mut file, value)?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    fs_err::rename(&draft, path)?;
    sync_parent(path)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs_err::remove_file(path) {
        Ok(()) => sync_parent(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) => fs_err::File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}
