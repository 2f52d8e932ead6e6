//! Messages that wait on disk until the broker is reachable: bounded, fsynced, in order.

mod entry;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use amb_core::Timestamp;
use fs_err as fs;
use parking_lot::Mutex;

pub(crate) use entry::OutboxEntry;

/// Most undeliverable messages kept in `dead/`; beyond it the oldest is deleted.
const MAX_DEAD: usize = 1_000;

/// Where an outbox is and how much it takes.
#[derive(Debug, Clone)]
pub struct OutboxOptions {
    /// Its directory, for one process at a time.
    pub dir: PathBuf,
    /// Messages, at most.
    pub max_messages: usize,
    /// Bytes, at most.
    pub max_bytes: u64,
    /// How long a message is tried while its goal does not listen; then it is moved to `dead/` with the reason.
    pub max_age: Duration,
}

impl OutboxOptions {
    /// The usual bounds: 10,000 messages, 64 MiB, one hour.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), max_messages: 10_000, max_bytes: 64 * 1024 * 1024, max_age: Duration::from_secs(3_600) }
    }
}

#[derive(Debug)]
pub(crate) enum NotQueued {
    Full(String),
    Io(io::Error),
}

/// A directory with one file a message, named by its number. Every file is complete: it was synced under a temporary
/// name first.
#[derive(Debug)]
pub(crate) struct Outbox {
    options: OutboxOptions,
    state: Mutex<OutboxState>,
    /// Held while the outbox is open: two processes that replay one outbox would send everything twice.
    _lock: std::fs::File,
}

#[derive(Debug, Default)]
struct OutboxState {
    next: u64,
    bytes: u64,
    waiting: BTreeMap<u64, Arc<OutboxEntry>>,
    by_subject: HashMap<Box<str>, usize>,
}

impl Outbox {
    /// Opens an outbox, with what an earlier process left in it.
    pub(crate) fn open(options: OutboxOptions) -> io::Result<Self> {
        fs::create_dir_all(options.dir.join("dead"))?;
        let lock = lock(&options.dir.join("lock"))?;
        let mut state = OutboxState { next: 1, ..OutboxState::default() };
        for file in fs::read_dir(&options.dir)? {
            let path = file?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if name.ends_with(".tmp") {
                // Never accepted: its sender got no success.
                fs::remove_file(&path)?;
            } else if let Some(number) = name.strip_suffix(".json").and_then(|number| number.parse::<u64>().ok()) {
                match OutboxEntry::read(&path) {
                    Ok(entry) => state.add(number, Arc::new(entry)),
                    Err(error) => {
                        tracing::warn!(%error, "corrupt entry in the outbox; moved to dead/");
                        fs::rename(&path, options.dir.join("dead").join(name))?;
                    }
                }
                state.next = state.next.max(number + 1);
            }
        }
        Ok(Self { options, state: Mutex::new(state), _lock: lock })
    }

    /// Adds a message. It is durable when this returns.
    pub(crate) async fn add(self: &Arc<Self>, entry: OutboxEntry) -> Result<(), NotQueued> {
        let outbox = Arc::clone(self);
        let written = tokio::task::spawn_blocking(move || outbox.add_blocking(entry)).await;
        written.unwrap_or_else(|stopped| Err(NotQueued::Io(io::Error::other(stopped))))
    }

    fn add_blocking(&self, entry: OutboxEntry) -> Result<(), NotQueued> {
        let size = entry.payload.len() as u64;
        // Holds the lock during the write, so that numbers are on disk in order and the bounds are exact. Outages are
        // rare and a sync takes milliseconds.
        let mut state = self.state.lock();
        if state.waiting.len() >= self.options.max_messages {
            return Err(NotQueued::Full(format!("{} messages wait", state.waiting.len())));
        }
        if state.bytes + size > self.options.max_bytes {
            return Err(NotQueued::Full(format!("{} bytes wait", state.bytes)));
        }
        let number = state.next;
        entry.write(&self.path(number)).map_err(NotQueued::Io)?;
        state.next += 1;
        state.add(number, Arc::new(entry));
        Ok(())
    }

    /// Whether a message for this subject waits; a later one must wait too, or it would overtake.
    pub(crate) fn holds(&self, subject: &str) -> bool {
        self.state.lock().by_subject.contains_key(subject)
    }

    /// What waits, oldest first.
    pub(crate) fn waiting(&self) -> Vec<(u64, Arc<OutboxEntry>)> {
        self.state.lock().waiting.iter().map(|(number, entry)| (*number, Arc::clone(entry))).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Number of messages in `dead/`.
    pub(crate) fn dead(&self) -> io::Result<usize> {
        Ok(fs::read_dir(self.options.dir.join("dead"))?.count())
    }

    /// Removes a message that was delivered.
    pub(crate) fn remove(&self, number: u64) -> io::Result<()> {
        fs::remove_file(self.path(number))?;
        self.state.lock().remove(number);
        Ok(())
    }

    /// Whether a message has been tried long enough.
    pub(crate) fn is_too_old(&self, entry: &OutboxEntry, now: Timestamp) -> bool {
        let age = now.duration_since(entry.queued_at);
        Duration::try_from(age).is_ok_and(|age| age > self.options.max_age)
    }

    /// Moves a message that cannot be delivered to `dead/`, with the reason.
    pub(crate) fn bury(&self, number: u64, entry: &OutboxEntry, why: &str) -> io::Result<()> {
        let dead = self.options.dir.join("dead");
        let mut names: Vec<_> = fs::read_dir(&dead)?.filter_map(|file| Some(file.ok()?.path())).collect();
        if names.len() >= MAX_DEAD {
            names.sort_unstable();
            for oldest in &names[..=names.len() - MAX_DEAD] {
                tracing::warn!(entry = %oldest.display(), "too many undeliverable messages; the oldest is deleted");
                fs::remove_file(oldest)?;
            }
        }
        OutboxEntry { why: Some(why.into()), ..entry.clone() }.write(&dead.join(format!("{number:020}.json")))?;
        tracing::warn!(subject = %entry.subject, why, "a queued peer message could not be delivered; it is in dead/");
        self.remove(number)
    }

    fn path(&self, number: u64) -> PathBuf {
        self.options.dir.join(format!("{number:020}.json"))
    }
}

impl OutboxState {
    fn add(&mut self, number: u64, entry: Arc<OutboxEntry>) {
        self.bytes += entry.payload.len() as u64;
        *self.by_subject.entry(entry.subject.as_str().into()).or_default() += 1;
        self.waiting.insert(number, entry);
    }

    fn remove(&mut self, number: u64) {
        let Some(entry) = self.waiting.remove(&number) else { return };
        self.bytes -= entry.payload.len() as u64;
        if let Some(count) = self.by_subject.get_mut(entry.subject.as_str()) {
            *count -= 1;
            if *count == 0 {
                self.by_subject.remove(entry.subject.as_str());
            }
        }
    }
}

fn lock(path: &Path) -> io::Result<std::fs::File> {
    let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(path)?.into_parts().0;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(io::Error::other(format!(
            "{} is held by another process; give each process an outbox of its own",
            path.display()
        ))),
        Err(std::fs::TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(subject: &str, payload: &str) -> OutboxEntry {
        OutboxEntry {
            id: format!("{subject}/{payload}"),
            subject: subject.into(),
            queued_at: "2026-04-30T14:00:00Z".parse().unwrap(),
            payload: payload.into(),
            why: None,
        }
    }

    fn payloads(outbox: &Outbox) -> Vec<String> {
        outbox.waiting().into_iter().map(|(_, entry)| entry.payload.clone()).collect()
    }

    #[tokio::test]
    async fn queued_messages_survive_the_process_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let options = OutboxOptions::new(dir.path());
        let outbox = Arc::new(Outbox::open(options.clone()).unwrap());
        for payload in ["one", "two", "three"] {
            outbox.add(entry("s", payload)).await.unwrap();
        }
        outbox.remove(outbox.waiting()[0].0).unwrap();
        drop(outbox);
        fs::write(dir.path().join("00000000000000000009.json.tmp"), "half a mess").unwrap();
        let outbox = Arc::new(Outbox::open(options).unwrap());
        assert_eq!(payloads(&outbox), ["two", "three"]);
        assert!(outbox.holds("s") && !outbox.holds("t"));
        outbox.add(entry("t", "four")).await.unwrap();
        assert_eq!(payloads(&outbox), ["two", "three", "four"]);
    }

    #[tokio::test]
    async fn a_full_outbox_refuses() {
        let dir = tempfile::tempdir().unwrap();
        let options = OutboxOptions { max_messages: 2, max_bytes: 10, ..OutboxOptions::new(dir.path()) };
        let outbox = Arc::new(Outbox::open(options).unwrap());
        assert!(matches!(outbox.add(entry("s", "more than ten bytes")).await, Err(NotQueued::Full(_))));
        outbox.add(entry("s", "a")).await.unwrap();
        outbox.add(entry("s", "b")).await.unwrap();
        assert!(matches!(outbox.add(entry("s", "c")).await, Err(NotQueued::Full(_))));
        assert_eq!(outbox.len(), 2);
    }

    #[tokio::test]
    async fn a_dead_letter_is_kept_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let outbox = Arc::new(Outbox::open(OutboxOptions::new(dir.path())).unwrap());
        outbox.add(entry("s", "a")).await.unwrap();
        let (number, entry) = outbox.waiting().remove(0);
        outbox.bury(number, &entry, "the goal has ended").unwrap();
        assert_eq!((outbox.len(), outbox.dead().unwrap()), (0, 1));
        let kept = OutboxEntry::read(&dir.path().join("dead").join(format!("{number:020}.json"))).unwrap();
        assert_eq!(kept.why.as_deref(), Some("the goal has ended"));
    }

    #[test]
    fn one_outbox_serves_one_process() {
        let dir = tempfile::tempdir().unwrap();
        let first = Outbox::open(OutboxOptions::new(dir.path())).unwrap();
        let error = Outbox::open(OutboxOptions::new(dir.path())).unwrap_err();
        assert!(error.to_string().contains("another process"), "{error}");
        drop(first);
        Outbox::open(OutboxOptions::new(dir.path())).unwrap();
    }

    #[test]
    fn an_unreadable_entry_does_not_stop_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("00000000000000000001.json"), "{").unwrap();
        entry("s", "a").write(&dir.path().join("00000000000000000002.json")).unwrap();
        let outbox = Outbox::open(OutboxOptions::new(dir.path())).unwrap();
        assert_eq!(payloads(&outbox), ["a"]);
        assert_eq!(outbox.dead().unwrap(), 1);
    }
}
