//! The office and its mailboxes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use amb_core::limits::DEFAULT_POLL_INTERVAL;
use amb_core::{AgentName, OfficeError, Timestamp};
use parking_lot::Mutex;

use crate::files::durable::{self, Wait};
use crate::files::failure::Doing;
use crate::files::layout::Layout;
use crate::files::open;
use crate::files::paths::{self, Paths};
use crate::files::step::step;
use crate::files::syncer::Syncer;
use crate::files::watch::DirectoryWatch;
use crate::log::Log;
use crate::log::index::MailboxIndex;
use crate::registry::Cache;
use crate::transcript::TranscriptStore;
use crate::verbs::claim::Claims;

/// Enough for every microsecond until the year 9999.
const STAMP_DIGITS: usize = 20;
/// How far a clock may have been set back with mail still staying in order.
const FOLLOWED: jiff::SignedDuration = jiff::SignedDuration::from_hours(30 * 24);

/// What failed where a link stands in the place of a directory.
const LINKED: &str = "the directory is not used";

/// How an office in a directory behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirOptions {
    /// The layout; none means what is there, or nanobot in an empty directory.
    pub layout: Option<Layout>,
    /// Sending to an agent that never registered makes its mailbox (nanobot; the chipset always does).
    pub create_recipients: bool,
    /// Sending to an agent that nobody knows is an error in the chipset layout too.
    pub strict_recipients: bool,
    /// How often a reader that waits looks for itself, whatever the watching says.
    pub poll_interval: Duration,
    /// How others are kept off a claimed message.
    pub claims: ClaimBy,
    /// Where the records of group chats are; none means among the office's own files.
    pub transcripts: Option<PathBuf>,
}

/// How others are kept off a message that one consumer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClaimBy {
    /// A lock on the message's file, which the kernel gives back when the holder dies; where the file system has no
    /// locks, a lease.
    #[default]
    Lock,
    /// A file with a deadline.
    Lease,
}

impl Default for DirOptions {
    fn default() -> Self {
        Self {
            layout: None,
            create_recipients: false,
            strict_recipients: false,
            poll_interval: DEFAULT_POLL_INTERVAL,
            claims: ClaimBy::default(),
            transcripts: None,
        }
    }
}

/// A directory in which agents on one machine leave mail for each other. Cheap to clone.
#[derive(Debug, Clone)]
pub struct DirOffice {
    pub(crate) shared: Arc<OfficeState>,
}

/// One agent's mailbox there. Cheap to clone; clones hold the same claims.
#[derive(Debug, Clone)]
pub struct DirMailbox {
    pub(crate) agent_dir: Arc<AgentDir>,
}

/// What all mailboxes of one process share.
#[derive(Debug)]
pub(crate) struct OfficeState {
    pub(crate) paths: Paths,
    pub(crate) options: DirOptions,
    pub(crate) syncer: Syncer,
    pub(crate) registry_cache: Cache,
    pub(crate) watch: DirectoryWatch,
    transcripts: OnceLock<TranscriptStore>,
    /// The last time given out, in microseconds.
    clock: AtomicI64,
    /// The last one given to a message.
    stamped: AtomicI64,
    /// It could not be written down: the office has no directory yet.
    not_noted: AtomicBool,
    /// Called when the office's own directory has been created.
    when_made: OnceLock<fn(&Path)>,
}

/// One agent's view of the directory. Its methods block; the mailbox calls them on blocking threads.
#[derive(Debug)]
pub(crate) struct AgentDir {
    pub(crate) shared: Arc<OfficeState>,
    pub(crate) me: AgentName,
    pub(crate) index: Mutex<MailboxIndex>,
    pub(crate) claims: Mutex<Claims>,
}

impl DirOffice {
    /// Opens the office in this directory. The directory need not exist: it is made when something is put into it.
    pub fn open(root: &Path, options: DirOptions) -> Result<Self, OfficeError> {
        if root.exists() && !root.is_dir() {
            let detail = format!("{} is not a directory; name one that is, or that is not there yet", root.display());
            return Err(OfficeError::unavailable(detail));
        }
        let layout = match options.layout {
            Some(layout) => layout,
            None => Layout::detect(root).doing("could not look at the directory")?.unwrap_or(Layout::Nanobot),
        };
        let paths = Paths { root: root.to_owned(), layout };
        // The root itself may be a link: its name was given by the user.
        [paths.side(), paths.agents()].iter().try_for_each(|path| open::refuse_link(path)).doing(LINKED)?;
        let shared = OfficeState {
            paths,
            options,
            syncer: Syncer::default(),
            registry_cache: Cache::default(),
            watch: DirectoryWatch::default(),
            transcripts: OnceLock::new(),
            clock: AtomicI64::new(0),
            stamped: AtomicI64::new(0),
            not_noted: AtomicBool::new(false),
            when_made: OnceLock::new(),
        };
        shared.ignore_in_git();
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Calls this with the office's directory once a verb has made it. Only the first of several is called.
    pub fn when_made(&self, tell: fn(&Path)) {
        let _only_the_first = self.shared.when_made.set(tell);
    }

    /// The mailbox of one agent.
    pub fn mailbox(&self, name: AgentName) -> DirMailbox {
        DirMailbox { agent_dir: Arc::new(self.shared.agent_dir(&name)) }
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.shared.paths.root
    }

    /// Which layout it has.
    pub fn layout(&self) -> Layout {
        self.shared.paths.layout
    }

    /// Names of all agents that have a mailbox or state here, by name.
    pub fn mailboxes(&self) -> Result<Vec<AgentName>, OfficeError> {
        let mut names = self.shared.names_in(&self.shared.paths.root)?;
        names.extend(self.shared.names_in(&self.shared.paths.agents())?);
        names.sort();
        names.dedup();
        Ok(names)
    }
}

impl OfficeState {
    /// The present moment to the microsecond, later than every moment given out before in this process.
    pub(crate) fn now(&self) -> Timestamp {
        later(&self.clock, Timestamp::now())
    }

    /// The moment that a new message gets: later than that of every message sent here before, by any process, though the
    /// clock was set back meanwhile. So mail sorts in the order in which it was sent.
    ///
    /// The latest one stands in a file of 20 digits. It is written without a lock: of two processes that send in the same
    /// instant neither is the first.
    pub(crate) fn stamp(&self) -> Timestamp {
        let now = self.now();
        let Some(clock) = self.latest_stamp() else {
            // Noted once the office has a directory, see `note_stamp`.
            self.not_noted.store(true, Ordering::Relaxed);
            return later(&self.stamped, now);
        };
        let mut digits = [0; STAMP_DIGITS];
        let latest =
            clock.read_exact_at(&mut digits, 0).ok().and_then(|()| std::str::from_utf8(&digits).ok()?.parse().ok());
        let at = match latest.and_then(|latest: i64| Timestamp::from_microsecond(latest).ok()) {
            // One that is much later is an error of the clock before it was set right.
            Some(latest) if latest >= now && latest.duration_since(now) < FOLLOWED => {
                latest.checked_add(jiff::SignedDuration::from_micros(1)).unwrap_or(now)
            }
            _ => now,
        };
        let at = later(&self.stamped, at);
        write_stamp(&clock, at);
        at
    }

    /// Notes the moment of the first message here, which had it before there was a file for it.
    pub(crate) fn note_stamp(&self, at: Timestamp) {
        if self.not_noted.load(Ordering::Relaxed)
            && let Some(clock) = self.latest_stamp()
        {
            self.not_noted.store(false, Ordering::Relaxed);
            // Another process may have noted a later one meanwhile; then neither was the first.
            if clock.metadata().is_ok_and(|about| about.len() == 0) {
                write_stamp(&clock, at);
            }
        }
    }

    /// The file with the latest moment; none where it cannot be written, and then the clock alone counts. Not kept open: a
    /// file system with one open for writing cannot be made read-only.
    fn latest_stamp(&self) -> Option<File> {
        // Its directory is not made for this: a send that fails leaves no office behind.
        let mut options = open::options();
        options.read(true).write(true).create(true).truncate(false);
        Some(open::regular_with(&self.paths.side().join("clock"), &options).ok()?.into_parts().0)
    }

    /// Where the records of group chats are.
    pub(crate) fn transcripts_root(&self) -> PathBuf {
        self.options.transcripts.clone().unwrap_or_else(|| self.paths.side().join("transcripts"))
    }

    /// The records of group chats.
    pub(crate) fn transcripts(&self) -> Result<&TranscriptStore, OfficeError> {
        if let Some(store) = self.transcripts.get() {
            return Ok(store);
        }
        let store = TranscriptStore::open(self.transcripts_root())?;
        Ok(self.transcripts.get_or_init(|| store))
    }

    /// One agent, at work for as long as this is kept.
    pub(crate) fn agent_dir(self: &Arc<Self>, me: &AgentName) -> AgentDir {
        AgentDir { shared: self.clone(), me: me.clone(), index: Mutex::default(), claims: Mutex::default() }
    }

    /// The log of an agent.
    pub(crate) fn log(&self, agent: &AgentName) -> Log {
        Log::at(&self.paths.state(agent))
    }

    /// Writes down which layout this is, so that an empty directory is not taken for the other.
    pub(crate) fn note_layout(&self) -> Result<(), OfficeError> {
        let note = paths::layout_note(&self.paths.root);
        if note.exists() {
            return Ok(());
        }
        let doing = "could not make the office's own directory";
        let is_new = !self.paths.root.is_dir();
        durable::make_dir(&self.paths.side(), &self.syncer).doing(doing)?;
        if is_new && let Some(tell) = self.when_made.get() {
            tell(&self.paths.root);
        }
        self.ignore_in_git();
        let text = format!("{}\n", self.paths.layout);
        durable::replace(&note, text.as_bytes(), Wait::Synced, &self.syncer).doing(doing)
    }

    /// Keeps the office's own files, once they have a directory, out of git: mail may be kept there. Where this cannot be
    /// written, nothing else depends on it.
    fn ignore_in_git(&self) {
        let side = self.paths.side();
        let ignore = side.join(".gitignore");
        if side.is_dir()
            && fs_err::symlink_metadata(&ignore).is_err()
            && let Err(error) = durable::replace(&ignore, b"*\n", Wait::Cached, &self.syncer)
        {
            tracing::debug!(%error, "the office's own files are not ignored by git");
        }
    }

    /// Refuses links in the place of an agent's directories: mail would be written to or read from somewhere else.
    pub(crate) fn refuse_links(&self, agent: &AgentName) -> Result<(), OfficeError> {
        let paths = &self.paths;
        let directories = [
            paths.home(agent),
            paths.inbox(agent),
            paths.put_away(agent),
            paths.refused(agent),
            paths.side(),
            paths.agents(),
            paths.state(agent),
        ];
        directories.iter().try_for_each(|path| open::refuse_link(path)).doing(LINKED)
    }

    /// An agent's mailbox has all its directories.
    pub(crate) fn make_mailbox(&self, agent: &AgentName) -> Result<PathBuf, OfficeError> {
        self.refuse_links(agent)?;
        let inbox = self.paths.inbox(agent);
        if !inbox.is_dir() {
            self.note_layout()?;
            durable::make_dir(&inbox, &self.syncer).doing("could not make the mailbox")?;
        }
        Ok(inbox)
    }
}

fn write_stamp(clock: &File, at: Timestamp) {
    let text = format!("{:0width$}\n", at.as_microsecond().max(0), width = STAMP_DIGITS);
    step();
    if let Err(error) = clock.write_all_at(text.as_bytes(), 0) {
        tracing::debug!(%error, "the moment of a message could not be noted");
    }
}

/// This moment to the microsecond, or the next one after the last that was given out here.
fn later(last: &AtomicI64, at: Timestamp) -> Timestamp {
    let at = at.as_microsecond();
    let given = last.fetch_max(at, Ordering::Relaxed);
    let micros = if given < at { at } else { last.fetch_add(1, Ordering::Relaxed) + 1 };
    Timestamp::from_microsecond(micros).unwrap_or_else(|_| Timestamp::now())
}
