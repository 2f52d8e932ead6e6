//! The directory of a mailbox's ring ledgers and its lease.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use amb_core::MessageId;

use crate::file;
use crate::hooks::HookMemory;
use crate::ledger::RingLedger;
use crate::process::Process;

/// The UUID namespace in which session keys are hashed into file names; it must never change.
const SESSIONS: uuid::Uuid = uuid::Uuid::from_u128(0x7b0f_41c9_2e86_5d13_a4f7_90c2_6d1b_38e5);
/// Ledgers that were not written for this long are removed.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 3_600);

/// A client's session: the client's name and its session id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionKey {
    /// The client.
    pub client: String,
    /// Its own id of the session.
    pub session: String,
}

impl SessionKey {
    /// A hash of the session id, which may be a secret of the client.
    pub(crate) fn hash(&self) -> String {
        uuid::Uuid::new_v5(&SESSIONS, self.session.as_bytes()).simple().to_string()
    }

    fn file(&self, what: &str) -> String {
        format!("{}-{}.{what}.json", self.client, self.hash())
    }
}

/// What the `amb mcp` processes of the same client have recorded.
#[derive(Debug, Default)]
pub struct SiblingState {
    /// Messages that the client was shown.
    pub shown: HashSet<MessageId>,
    /// Whether a call of `mailbox_wait` is open.
    pub wait_open: bool,
}

/// The directory of one mailbox.
#[derive(Debug, Clone)]
pub struct WakeDirectory {
    root: PathBuf,
}

impl WakeDirectory {
    /// Uses this directory, which is created by the first write.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The ledger of a session, empty where there is none.
    pub fn ledger(&self, key: &SessionKey) -> io::Result<RingLedger> {
        let kept: Option<RingLedger> = file::read(&self.root.join(key.file("ledger")))?;
        let (client, session) = (key.client.clone(), key.session.clone());
        Ok(kept.unwrap_or_else(|| RingLedger { client, session, ..RingLedger::default() }))
    }

    /// Writes a session's ledger.
    pub fn save(&self, key: &SessionKey, ledger: &RingLedger) -> io::Result<()> {
        file::write(&self.root.join(key.file("ledger")), ledger)
    }

    /// Forgets a session.
    pub fn remove(&self, key: &SessionKey) -> io::Result<()> {
        match fs_err::remove_file(self.root.join(key.file("ledger"))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// What the client that started this process was shown, and whether it waits for messages now. For hooks and
    /// plugins, which are children of the same client as its `amb mcp`.
    pub fn sibling_state(&self) -> io::Result<SiblingState> {
        let ancestors = Process::me().ancestors();
        let mut state = SiblingState::default();
        for ledger in self.ledgers()? {
            let is_ours = ledger.parent.is_some_and(|parent| ancestors.contains(&parent.pid) && parent.is_alive());
            if is_ours && ledger.process.is_some_and(|process| process.is_alive()) {
                state.wait_open |= ledger.wait_open;
                state.shown.extend(ledger.shown);
            }
        }
        Ok(state)
    }

    /// All ledgers, the most recently rung first.
    pub fn ledgers(&self) -> io::Result<Vec<RingLedger>> {
        let mut all: Vec<RingLedger> = Vec::new();
        for path in self.files()? {
            if path.to_str().is_some_and(|path| path.ends_with(".ledger.json")) {
                all.extend(file::read(&path)?);
            }
        }
        all.sort_by_key(|ledger| std::cmp::Reverse(ledger.rung_at));
        Ok(all)
    }

    /// The state of a session's hooks.
    pub fn hooks(&self, key: &SessionKey) -> io::Result<HookMemory> {
        Ok(file::read(&self.root.join(key.file("hook")))?.unwrap_or_default())
    }

    /// Changes the state of a session's hooks, under a lock.
    pub fn change_hooks<T>(&self, key: &SessionKey, change: impl FnOnce(&mut HookMemory) -> T) -> io::Result<T> {
        let _locked = file::lock(&self.root.join("hook.lock"))?;
        let before = self.hooks(key)?;
        let mut memory = before.clone();
        let result = change(&mut memory);
        if memory != before {
            file::write(&self.root.join(key.file("hook")), &memory)?;
        }
        Ok(result)
    }

    /// Removes the files of sessions that ended long ago.
    pub fn clean(&self) -> io::Result<()> {
        for path in self.files()? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let ours = [".ledger.json", ".hook.json", ".tmp"].iter().any(|end| name.ends_with(end));
            let written = fs_err::metadata(&path).and_then(|about| about.modified());
            let age = written.map(|at| SystemTime::now().duration_since(at).unwrap_or_default());
            if ours && age.is_ok_and(|age| age > MAX_AGE) {
                fs_err::remove_file(&path)?;
            }
        }
        Ok(())
    }

    fn files(&self) -> io::Result<Vec<PathBuf>> {
        match fs_err::read_dir(&self.root) {
            Ok(entries) => entries.map(|entry| entry.map(|entry| entry.path())).collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_of_one_client_share_what_it_was_shown() {
        let home = tempfile::tempdir().unwrap();
        let place = WakeDirectory::new(home.path());
        // The parent of the tests is an ancestor of this process; one with another start time is not.
        let parent = Process::parent().unwrap();
        let gone = Process { began: parent.began + 1, ..parent };
        for (n, process, parent, wait_open) in [
            (1, Process::me(), parent, true),
            (2, gone, parent, true),
            (3, Process::me(), gone, true),
            (4, Process::me(), Process::me(), true),
        ] {
            let key = SessionKey { client: "gemini".into(), session: n.to_string() };
            let shown = vec![format!("m{n}").parse().unwrap()];
            let ledger = RingLedger {
                process: Some(process),
                parent: Some(parent),
                shown,
                wait_open,
                ..place.ledger(&key).unwrap()
            };
            place.save(&key, &ledger).unwrap();
        }
        let siblings = place.sibling_state().unwrap();
        assert_eq!((siblings.shown, siblings.wait_open), (HashSet::from(["m1".parse().unwrap()]), true));
        for n in 1..=5 {
            place.remove(&SessionKey { client: "gemini".into(), session: n.to_string() }).unwrap();
        }
        assert!(place.ledgers().unwrap().is_empty() && !place.sibling_state().unwrap().wait_open);
    }

    #[test]
    fn each_session_has_its_own_ledger_whatever_its_id() {
        let home = tempfile::tempdir().unwrap();
        let place = WakeDirectory::new(home.path().join("wake"));
        let key = |session: &str| SessionKey { client: "codex".into(), session: session.into() };
        for (n, session) in ["a", "../../b", "c/d"].iter().enumerate() {
            let mut ledger = place.ledger(&key(session)).unwrap();
            assert_eq!(ledger.total, 0);
            ledger.total = n as u64 + 1;
            place.save(&key(session), &ledger).unwrap();
        }
        assert_eq!(place.ledger(&key("../../b")).unwrap().total, 2);
        assert_eq!(place.ledgers().unwrap().len(), 3);
        place.change_hooks(&key("a"), |memory| memory.remember("m1")).unwrap();
        assert!(place.hooks(&key("a")).unwrap().knows("m1") && !place.hooks(&key("c/d")).unwrap().knows("m1"));
        place.clean().unwrap();
        assert_eq!(place.ledgers().unwrap().len(), 3, "nothing is old");
    }
}
