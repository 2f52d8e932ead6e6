//! Archives old mail, so that no directory grows without bound.
//!
//! Chipset: mail older than a day, by the time in its name, goes to `archive/`. Nanobot: `processed/` is sorted into
//! monthly folders. Files are renamed without replacing any, and claimed messages stay.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use amb_core::{AgentName, OfficeError, Timestamp};
use serde::Serialize;

use crate::files::durable;
use crate::files::failure::IoContext;
use crate::files::layout::Layout;
use crate::files::lease;
use crate::files::message_file;
use crate::files::open;
use crate::office::{AgentDir, DirOffice};
use crate::verbs::claim::is_locked;
use crate::verbs::deliver::month;

/// How long idempotency keys are kept: no retry comes later.
const KEY_RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);

/// What to archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveOptions {
    /// Only mail older than this.
    pub older_than: Duration,
    /// Leave unread mail (chipset).
    pub keep_unread: bool,
    /// Only report what would be done.
    pub dry_run: bool,
    /// Move at most this many messages of an agent.
    pub most: usize,
}

impl Default for ArchiveOptions {
    fn default() -> Self {
        Self { older_than: Duration::from_secs(24 * 3600), keep_unread: false, dry_run: false, most: usize::MAX }
    }
}

/// What was archived, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ArchiveReport {
    /// Every file that was moved.
    pub moved: Vec<ArchivedFile>,
    /// Old mail that stays because it is unread.
    pub kept_unread: u64,
    /// Old mail that stays because a consumer holds it.
    pub kept_claimed: u64,
}

/// One file that was moved, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArchivedFile {
    /// Whose mail it is.
    pub agent: AgentName,
    /// Old path.
    pub from: PathBuf,
    /// New path.
    pub to: PathBuf,
}

/// Archives old mail of one agent, or of all.
pub async fn archive(
    office: &DirOffice,
    whose: Option<&AgentName>,
    options: ArchiveOptions,
) -> Result<ArchiveReport, OfficeError> {
    let agents = match whose {
        Some(agent) => vec![agent.clone()],
        None => office.mailboxes()?,
    };
    let mut report = ArchiveReport::default();
    for agent in agents {
        let (mailbox, options) = (office.mailbox(agent), options.clone());
        let one = mailbox.run(move |agent_dir| agent_dir.archive(&options)).await?;
        report.moved.extend(one.moved);
        report.kept_unread += one.kept_unread;
        report.kept_claimed += one.kept_claimed;
    }
    Ok(report)
}

/// Interval of [`keep_archiving`].
const INTERVAL: Duration = Duration::from_secs(3600);
/// Most messages it moves between two pauses.
const BATCH: usize = 1_000;
/// Pause between batches, so that others can use the disk.
const PAUSE: Duration = Duration::from_secs(1);

/// Archives an agent's old mail now and every hour, for as long as the future is polled. Unread mail stays, so that an
/// agent that comes back after a day still finds it. Chipset only, whose mailboxes keep mail after it was read.
pub async fn keep_archiving(office: &DirOffice, agent: &AgentName) {
    if office.layout() != Layout::Chipset {
        return;
    }
    let options = ArchiveOptions { keep_unread: true, most: BATCH, ..ArchiveOptions::default() };
    loop {
        let more = match archive(office, Some(agent), options.clone()).await {
            Ok(report) => {
                if !report.moved.is_empty() {
                    tracing::info!(%agent, count = report.moved.len(), "archived old mail");
                }
                report.moved.len() >= BATCH
            }
            Err(error) => {
                tracing::warn!(%agent, %error, "archiving old mail failed; retrying in an hour");
                false
            }
        };
        tokio::time::sleep(if more { PAUSE } else { INTERVAL }).await;
    }
}

/// One run of archiving for one agent.
struct ArchiveRun<'a> {
    agent_dir: &'a AgentDir,
    options: &'a ArchiveOptions,
    cutoff: Timestamp,
    report: ArchiveReport,
}

impl ArchiveRun<'_> {
    fn is_full(&self) -> bool {
        self.report.moved.len() >= self.options.most
    }

    fn archive_mailbox(&mut self) -> Result<(), OfficeError> {
        let AgentDir { shared, me, .. } = self.agent_dir;
        // Ingested before it is moved, so that mail that was old when it arrived is logged too.
        let mut old: Vec<(String, bool)> = {
            let index = self.agent_dir.ingest()?;
            let time = |name: &str, at: Timestamp| message_file::time_in_name(Layout::Chipset, name).unwrap_or(at);
            let old = index.known.iter().filter(|(name, known)| time(name, known.brief.at) < self.cutoff);
            old.map(|(name, known)| (name.clone(), known.is_unread())).collect()
        };
        old.sort();
        let (inbox, archive, leases) = (shared.paths.inbox(me), shared.paths.processed(me), shared.paths.leases(me));
        for (name, unread) in old {
            if self.is_full() {
                break;
            }
            let from = inbox.join(&name);
            if unread && self.options.keep_unread {
                self.report.kept_unread += 1;
            } else if is_locked(&from) || lease::is_held(&leases, &name) {
                self.report.kept_claimed += 1;
            } else {
                self.move_file(&from, &archive, &name)?;
            }
        }
        self.sync(&[&archive, &inbox])
    }

    fn archive_processed(&mut self) -> Result<(), OfficeError> {
        let processed = self.agent_dir.shared.paths.processed(&self.agent_dir.me);
        let context = "could not list the handled mail";
        let mut folders = HashSet::new();
        for entry in open::entries(&processed).context(context)? {
            if self.is_full() {
                break;
            }
            let entry = entry.context(context)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if !message_file::is_mail(Layout::Nanobot, &name) || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
                continue;
            }
            let modified = || Timestamp::try_from(entry.metadata().ok()?.modified().ok()?).ok();
            let Some(at) = message_file::time_in_name(Layout::Nanobot, &name).or_else(modified) else { continue };
            if at < self.cutoff {
                let folder = processed.join(month(at));
                self.move_file(&entry.path(), &folder, &name)?;
                folders.insert(folder);
            }
        }
        let mut touched: Vec<&Path> = folders.iter().map(PathBuf::as_path).collect();
        touched.push(&processed);
        self.sync(&touched)
    }

    fn move_file(&mut self, from: &Path, folder: &Path, name: &str) -> Result<(), OfficeError> {
        let AgentDir { shared, me, .. } = self.agent_dir;
        let context = "could not archive a message";
        let mut to = folder.join(name);
        if !self.options.dry_run {
            durable::make_dir(folder, &shared.syncer).context(context)?;
            match durable::move_into(from, folder, name, shared.paths.layout.suffix()).context(context)? {
                Some(name) => to = folder.join(name),
                // Another process has moved it.
                None => return Ok(()),
            }
        }
        self.report.moved.push(ArchivedFile { agent: me.clone(), from: from.to_owned(), to });
        Ok(())
    }

    /// Syncs the directories that files were moved from and to.
    fn sync(&self, touched: &[&Path]) -> Result<(), OfficeError> {
        if self.options.dry_run || self.report.moved.is_empty() {
            return Ok(());
        }
        let syncer = &self.agent_dir.shared.syncer;
        touched.iter().try_for_each(|path| syncer.sync(path)).context("could not archive a message")
    }
}

impl AgentDir {
    fn archive(&self, options: &ArchiveOptions) -> Result<ArchiveReport, OfficeError> {
        let age = jiff::SignedDuration::try_from(options.older_than).unwrap_or(jiff::SignedDuration::MAX);
        let Ok(cutoff) = self.shared.now().checked_sub(age) else { return Ok(ArchiveReport::default()) };
        let mut run = ArchiveRun { agent_dir: self, options, cutoff, report: ArchiveReport::default() };
        match self.shared.paths.layout {
            Layout::Chipset => run.archive_mailbox()?,
            Layout::Nanobot => run.archive_processed()?,
        }
        if !options.dry_run {
            self.remove_old_keys()?;
        }
        Ok(run.report)
    }

    fn remove_old_keys(&self) -> Result<(), OfficeError> {
        let Ok(entries) = fs_err::read_dir(self.keys_dir()) else { return Ok(()) };
        for entry in entries.flatten() {
            let age = entry.metadata().ok().and_then(|metadata| open::age(&metadata));
            let is_key = entry.path().extension().is_some_and(|extension| extension == "json");
            if is_key && age.is_some_and(|age| age > KEY_RETENTION) {
                durable::remove(&entry.path()).context("could not forget an old idempotency key")?;
            }
        }
        Ok(())
    }
}
