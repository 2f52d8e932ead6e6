//! A directory with agents, and files as other programs write them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use amb_core::{AgentName, Card, Draft, Mailbox};
use amb_dir::{DirMailbox, DirOffice, DirOptions, Layout};
use tempfile::TempDir;

pub(crate) const LAYOUTS: [Layout; 2] = [Layout::Nanobot, Layout::Chipset];

/// How long a test waits for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    pub(crate) root: TempDir,
    pub(crate) layout: Layout,
}

impl World {
    pub(crate) fn new(layout: Layout) -> Self {
        Self { root: TempDir::new().unwrap(), layout }
    }

    /// In memory where possible: for tests of steps, not of the disk.
    pub(crate) fn in_memory(layout: Layout) -> Self {
        let root = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap();
        Self { root, layout }
    }

    pub(crate) fn path(&self) -> &Path {
        self.root.path()
    }

    /// Opens another office, as another process would.
    pub(crate) fn office(&self) -> DirOffice {
        open(self.path(), self.layout)
    }

    /// A registered agent.
    pub(crate) async fn agent(&self, agent: &str) -> DirMailbox {
        self.agent_with(agent, Card::default()).await
    }

    pub(crate) async fn agent_with(&self, agent: &str, card: Card) -> DirMailbox {
        let mailbox = self.office().mailbox(name(agent));
        mailbox.register(card).await.unwrap();
        mailbox
    }

    pub(crate) fn inbox(&self, agent: &str) -> PathBuf {
        match self.layout {
            Layout::Nanobot => self.path().join(agent).join("inbox"),
            Layout::Chipset => self.path().join(agent),
        }
    }

    /// Returns the names of all files in a directory, hidden ones too.
    pub(crate) fn files(&self, under: &str) -> Vec<String> {
        let Ok(entries) = fs_err::read_dir(self.path().join(under)) else { return Vec::new() };
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.file_type().unwrap().is_file())
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Writes a file into a mailbox, as another program would.
    pub(crate) fn drop_file(&self, agent: &str, file: &str, text: impl AsRef<[u8]>) {
        fs_err::create_dir_all(self.inbox(agent)).unwrap();
        let temp = self.inbox(agent).join(format!(".{file}.tmp"));
        fs_err::write(&temp, text).unwrap();
        fs_err::rename(temp, self.inbox(agent).join(file)).unwrap();
    }
}

pub(crate) fn open(root: &Path, layout: Layout) -> DirOffice {
    DirOffice::open(root, DirOptions { layout: Some(layout), ..DirOptions::default() }).unwrap()
}

pub(crate) fn name(text: &str) -> AgentName {
    AgentName::parse(text).unwrap()
}

pub(crate) fn text(to: &str, text: &str) -> Draft {
    Draft::text(name(to), "Plan", text)
}

/// Returns every temporary file under a directory.
pub(crate) fn temps(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs_err::read_dir(directory).unwrap().flatten() {
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "tmp") {
                found.push(path);
            }
        }
    }
    found
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < give_up, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A nanobot message as another program writes it, with these fields overridden.
pub(crate) fn nanobot_file(from: &str, to: &str, more: serde_json::Value) -> Vec<u8> {
    let mut value = serde_json::json!({
        "id": "msg_1745659200_x", "from": from, "to": to, "timestamp": "2026-04-26T10:00:00Z", "type": "message",
        "ttl": 3, "trace": [from], "content": {"parts": [{"type": "text", "text": "hi"}]},
    });
    for (key, field) in more.as_object().unwrap() {
        match field.is_null() {
            true => drop(value.as_object_mut().unwrap().remove(key)),
            false => value[key] = field.clone(),
        }
    }
    serde_json::to_vec(&value).unwrap()
}

/// A chipset mail file as another program writes it.
pub(crate) fn chipset_file(from: &str, to: &str, more: serde_json::Value) -> Vec<u8> {
    let mut value = serde_json::json!({
        "from": from, "to": to, "type": "coordination", "subject": "Sync", "body": "hi",
        "timestamp": "2026-03-05T10:30:00Z", "read": false, "priority": "normal",
    });
    for (key, field) in more.as_object().unwrap() {
        value[key] = field.clone();
    }
    serde_json::to_vec_pretty(&value).unwrap()
}
