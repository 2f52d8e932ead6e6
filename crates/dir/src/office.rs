//! The office and its mailboxes.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use amb_core::limits::DEFAULT_POLL_INTERVAL;
use amb_core::{AgentName, MessageId, OfficeError, Timestamp};
use parking_lot::Mutex;

use crate::files::durable::{self, Wait};
use crate::files::failure::IoContext;
use crate::files::layout::{self, Layout};
use crate::files::lock::FileLock;
use crate::files::open;
use crate::files::paths::{self, Paths};
use crate::files::step::step;
use crate::files::syncer::Syncer;
use crate::files::watch::DirectoryWatch;
use crate::log::index::MailboxIndex;
use crate::log::{Log, LogLine};
use crate::registry::Cache;
use crate::transcript::TranscriptStore;
use crate::verbs::claim::Claim;

/// Digits in the clock file: enough for every microsecond until the year 9999.
const STAMP_DIGITS: usize = 20;
/// How far a clock may be set back while new mail still sorts after old mail.
const MAX_CLOCK_SETBACK: jiff::SignedDuration = jiff::SignedDuration::from_hours(30 * 24);

/// Error context where a link stands in the place of a directory.
const REFUSED_LINK: &str = "the directory is not used";

/// Options of an office in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirOptions {
    /// The layout; `None` means detected, or nanobot in an empty directory. One that an existing directory does not have is an
    /// error.
    pub layout: Option<Layout>,
    /// Sending to an agent that never registered creates its mailbox (nanobot; the chipset always does).
    pub create_recipients: bool,
    /// Sending to an unknown agent is an error in the chipset layout too.
    pub strict_recipients: bool,
    /// Interval at which a waiting reader polls, besides the kernel's events.
    pub poll_interval: Duration,
    /// How claims exclude other consumers.
    pub claims: ClaimBy,
    /// Directory of the transcripts; `None` means among the office's own files.
    pub transcripts: Option<PathBuf>,
}

/// How a claim excludes other consumers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClaimBy {
    /// A lock on the message's file, which the kernel releases when the holder dies; a lease on file systems without
    /// locks.
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

/// State shared by all mailboxes of one process.
#[derive(Debug)]
pub(crate) struct OfficeState {
    pub(crate) paths: Paths,
    pub(crate) options: DirOptions,
    pub(crate) syncer: Syncer,
    pub(crate) registry_cache: Cache,
    pub(crate) watch: DirectoryWatch,
    transcripts: OnceLock<TranscriptStore>,
    /// The last time returned by `now`, in microseconds.
    clock: AtomicI64,
    /// The last time given to a message, in microseconds.
    last_stamp: AtomicI64,
    /// Whether `last_stamp` is not on disk yet, since the office has no directory.
    stamp_unrecorded: AtomicBool,
    /// Whether the directory has recorded this layout, as far as was checked.
    layout_recorded: AtomicBool,
    /// Called when the office's own directory has been created.
    when_made: OnceLock<fn(&Path)>,
}

/// One agent's view of the directory. Its methods block; the mailbox calls them on blocking threads.
#[derive(Debug)]
pub(crate) struct AgentDir {
    pub(crate) shared: Arc<OfficeState>,
    pub(crate) me: AgentName,
    pub(crate) index: Mutex<MailboxIndex>,
    pub(crate) claims: Mutex<HashMap<MessageId, Claim>>,
    /// Shared by all processes that give the agent's heartbeats.
    pub(crate) present: Mutex<Option<FileLock>>,
}

impl DirOffice {
    /// Opens the office in this directory, which is created on the first write.
    pub fn open(root: &Path, options: DirOptions) -> Result<Self, OfficeError> {
        if root.exists() && !root.is_dir() {
            let detail = format!("{} is not a directory; name one that is, or that is not there yet", root.display());
            return Err(OfficeError::unavailable(detail).caused_by(io::Error::from(io::ErrorKind::NotADirectory)));
        }
        let paths = Paths { root: root.to_owned(), layout: Layout::choose(root, options.layout)? };
        // The root itself may be a link: the user has named it.
        [paths.own_dir(), paths.agents()].iter().try_for_each(|path| open::refuse_link(path)).context(REFUSED_LINK)?;
        let shared = OfficeState {
            paths,
            options,
            syncer: Syncer::default(),
            registry_cache: Cache::default(),
            watch: DirectoryWatch::default(),
            transcripts: OnceLock::new(),
            clock: AtomicI64::new(0),
            last_stamp: AtomicI64::new(0),
            stamp_unrecorded: AtomicBool::new(false),
            layout_recorded: AtomicBool::new(false),
            when_made: OnceLock::new(),
        };
        shared.ignore_in_git();
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Calls `tell` with the office's directory once a verb has created it. Only the first registered one is called.
    pub fn when_made(&self, tell: fn(&Path)) {
        let _first_wins = self.shared.when_made.set(tell);
    }

    /// The mailbox of one agent.
    pub fn mailbox(&self, name: AgentName) -> DirMailbox {
        DirMailbox { agent_dir: Arc::new(self.shared.agent_dir(&name)) }
    }

    /// The office's directory.
    pub fn root(&self) -> &Path {
        &self.shared.paths.root
    }

    /// The office's layout.
    pub fn layout(&self) -> Layout {
        self.shared.paths.layout
    }

    /// Returns the agents that have a mailbox or state here, by name.
    pub fn mailboxes(&self) -> Result<Vec<AgentName>, OfficeError> {
        let mut names = self.shared.names_in(&self.shared.paths.root)?;
        // Other folders may lie there, as in a project.
        let is_mailbox = |home: &Path| {
            [Layout::Nanobot, Layout::Chipset].iter().any(|layout| layout.is_mailbox(home))
                || layout::has_our_temp(home)
        };
        names.retain(|name| is_mailbox(&self.shared.paths.home(name)));
        names.extend(self.shared.names_in(&self.shared.paths.agents())?);
        names.sort();
        names.dedup();
        Ok(names)
    }
}

impl OfficeState {
    /// Returns the current time in microseconds, later than every time returned before in this process.
    pub(crate) fn now(&self) -> Timestamp {
        later(&self.clock, Timestamp::now())
    }

    /// Returns the timestamp of a new message: later than that of every message sent here before, by any process, even
    /// if the clock was set back. So mail sorts in the order in which it was sent.
    ///
    /// The latest one is in a file of 20 digits, which is written without a lock: two concurrent sends have no order.
    pub(crate) fn next_stamp(&self) -> Timestamp {
        let now = self.now();
        let Some(clock) = self.open_clock() else {
            // Written once the office has a directory, by `record_first_stamp`.
            self.stamp_unrecorded.store(true, Ordering::Relaxed);
            return later(&self.last_stamp, now);
        };
        let mut digits = [0; STAMP_DIGITS];
        let latest =
            clock.read_exact_at(&mut digits, 0).ok().and_then(|()| std::str::from_utf8(&digits).ok()?.parse().ok());
        let at = match latest.and_then(|latest: i64| Timestamp::from_microsecond(latest).ok()) {
            // A much later one was given by a wrong clock, which has been corrected since.
            Some(latest) if latest >= now && latest.duration_since(now) < MAX_CLOCK_SETBACK => {
                latest.checked_add(jiff::SignedDuration::from_micros(1)).unwrap_or(now)
            }
            _ => now,
        };
        let at = later(&self.last_stamp, at);
        write_stamp(&clock, at);
        at
    }

    /// Writes the timestamp of the first message, which was given before the office had a directory.
    pub(crate) fn record_first_stamp(&self, at: Timestamp) {
        if self.stamp_unrecorded.load(Ordering::Relaxed)
            && let Some(clock) = self.open_clock()
        {
            self.stamp_unrecorded.store(false, Ordering::Relaxed);
            // Not if another process has written one meanwhile.
            if clock.metadata().is_ok_and(|metadata| metadata.len() == 0) {
                write_stamp(&clock, at);
            }
        }
    }

    /// Opens the file with the latest timestamp; `None` if it cannot be written, and then the clock alone counts. Not
    /// kept open: a file system with a file open for writing cannot be remounted read-only.
    fn open_clock(&self) -> Option<File> {
        // Does not create the directory: a failed send leaves no office behind.
        let mut options = open::options();
        options.read(true).write(true).create(true).truncate(false);
        Some(open::regular_with(&self.paths.own_dir().join("clock"), &options).ok()?.into_parts().0)
    }

    /// The directory of the transcripts.
    pub(crate) fn transcripts_root(&self) -> PathBuf {
        self.options.transcripts.clone().unwrap_or_else(|| self.paths.own_dir().join("transcripts"))
    }

    /// The transcripts, opened on first use.
    pub(crate) fn transcripts(&self) -> Result<&TranscriptStore, OfficeError> {
        if let Some(store) = self.transcripts.get() {
            return Ok(store);
        }
        let store = TranscriptStore::open(self.transcripts_root())?;
        Ok(self.transcripts.get_or_init(|| store))
    }

    /// Returns an agent's view of the directory.
    pub(crate) fn agent_dir(self: &Arc<Self>, me: &AgentName) -> AgentDir {
        AgentDir {
            shared: self.clone(),
            me: me.clone(),
            index: Mutex::default(),
            claims: Mutex::default(),
            present: Mutex::default(),
        }
    }

    /// The log of an agent.
    pub(crate) fn log(&self, agent: &AgentName) -> Log {
        Log::at(&self.paths.state(agent))
    }

    /// Appends lines to an agent's log.
    pub(crate) fn append_log(&self, agent: &AgentName, lines: &[LogLine]) -> Result<(), OfficeError> {
        self.make_state_dir(agent)?;
        let appended = self.log(agent).write().and_then(|mut writer| writer.add(lines));
        appended.map(drop).context("could not add to the log")
    }

    /// Whether the directory has recorded this layout; an error if it has recorded the other. Reads the record once.
    fn is_layout_recorded(&self) -> Result<bool, OfficeError> {
        if !self.layout_recorded.load(Ordering::Relaxed) && self.paths.layout.check_recorded(&self.paths.root)? {
            self.layout_recorded.store(true, Ordering::Relaxed);
        }
        Ok(self.layout_recorded.load(Ordering::Relaxed))
    }

    /// Records the layout, so that an empty directory is not taken for the other one.
    pub(crate) fn record_layout(&self) -> Result<(), OfficeError> {
        let file = paths::layout_file(&self.paths.root);
        if self.is_layout_recorded()? || file.exists() {
            return Ok(());
        }
        let context = "could not make the office's own directory";
        let is_new = !self.paths.root.is_dir();
        durable::make_dir(&self.paths.own_dir(), &self.syncer).context(context)?;
        if is_new && let Some(tell) = self.when_made.get() {
            tell(&self.paths.root);
        }
        self.ignore_in_git();
        let text = format!("{}\n", self.paths.layout);
        durable::replace(&file, text.as_bytes(), Wait::Synced, &self.syncer).context(context)
    }

    /// Keeps the office's own files out of git, once they have a directory: mail may be in git. Best effort.
    fn ignore_in_git(&self) {
        let side = self.paths.own_dir();
        let ignore = side.join(".gitignore");
        if side.is_dir()
            && fs_err::symlink_metadata(&ignore).is_err()
            && let Err(error) = durable::replace(&ignore, b"*\n", Wait::Cached, &self.syncer)
        {
            tracing::debug!(%error, "writing .gitignore failed");
        }
    }

    /// Refuses links in the place of an agent's directories: mail would be written or read elsewhere.
    pub(crate) fn refuse_links(&self, agent: &AgentName) -> Result<(), OfficeError> {
        let paths = &self.paths;
        let directories = [
            paths.home(agent),
            paths.inbox(agent),
            paths.processed(agent),
            paths.refused(agent),
            paths.own_dir(),
            paths.agents(),
            paths.state(agent),
        ];
        directories.iter().try_for_each(|path| open::refuse_link(path)).context(REFUSED_LINK)
    }

    /// Creates an agent's mailbox if it is missing, and returns its directory.
    pub(crate) fn make_mailbox(&self, agent: &AgentName) -> Result<PathBuf, OfficeError> {
        self.refuse_links(agent)?;
        let inbox = self.paths.inbox(agent);
        if !inbox.is_dir() {
            self.record_layout()?;
            durable::make_dir(&inbox, &self.syncer).context("could not make the mailbox")?;
        } else {
            self.is_layout_recorded()?;
        }
        Ok(inbox)
    }
}

fn write_stamp(clock: &File, at: Timestamp) {
    let text = format!("{:0width$}\n", at.as_microsecond().max(0), width = STAMP_DIGITS);
    step();
    if let Err(error) = clock.write_all_at(text.as_bytes(), 0) {
        tracing::debug!(%error, "writing the latest timestamp failed");
    }
}

/// Returns this time in microseconds, or the next one after `last`, and stores it there.
fn later(last: &AtomicI64, at: Timestamp) -> Timestamp {
    let at = at.as_microsecond();
    let given = last.fetch_max(at, Ordering::Relaxed);
    let micros = if given < at { at } else { last.fetch_add(1, Ordering::Relaxed) + 1 };
    Timestamp::from_microsecond(micros).unwrap_or_else(|_| Timestamp::now())
}
