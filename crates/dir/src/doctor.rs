//! Finds and mends problems in a directory of mailboxes. Never deletes mail.

mod index;
mod mail;
mod state;
mod strays;
mod unfinished;

use std::path::{Path, PathBuf};

use amb_core::{AgentName, OfficeError};
use serde::Serialize;

use crate::files::durable;
use crate::files::failure::IoContext;
use crate::files::open;
use crate::office::{AgentDir, DirOffice};
use crate::transcript::OWNERS;

/// A problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What kind of problem.
    pub kind: FindingKind,
    /// The file or directory.
    pub path: PathBuf,
    /// What is wrong, in one sentence.
    pub detail: String,
    /// What was done about it, or would be.
    pub remedy: String,
    /// Whether it was done.
    pub mended: bool,
}

/// The kinds of problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FindingKind {
    /// A temporary file whose writer is dead.
    StrayTemp,
    /// A file in a mailbox that is no message.
    CorruptMessage,
    /// A message that was put aside as corrupt and has been corrected by hand since.
    MendedMessage,
    /// Files that were put aside because they are not messages.
    CorruptAside,
    /// Messages that were put aside because their sender is not in allow_from.
    RefusedAside,
    /// Files of nanobot's other format, which this office does not read.
    OtherFormat,
    /// Mail of the layout that the directory does not have, which is not read.
    OtherLayout,
    /// A lease that has expired.
    StaleLease,
    /// `_registry.json` is missing, does not parse, or does not list all agents.
    BrokenRegistry,
    /// A file of the office's own that does not parse.
    SpoiltState,
    /// A link in the place of a mailbox, or of a directory in one.
    LinkedDirectory,
    /// Handled mail that is not in the log and therefore in no history.
    NotIndexed,
    /// A task update or receipt that was not written.
    Unfinished,
    /// A directory that cannot be written to.
    NotWritable,
}

/// Findings so far, and whether to mend them.
struct Examination {
    mend: bool,
    findings: Vec<Finding>,
}

impl Examination {
    /// Adds a finding, after mending it if wanted.
    fn found(
        &mut self,
        kind: FindingKind,
        path: &Path,
        detail: impl Into<String>,
        remedy: impl Into<String>,
        mend: impl FnOnce() -> Result<(), OfficeError>,
    ) -> Result<(), OfficeError> {
        if self.mend {
            mend()?;
        }
        self.findings.push(Finding {
            kind,
            path: path.to_owned(),
            detail: detail.into(),
            remedy: remedy.into(),
            mended: self.mend,
        });
        Ok(())
    }

    /// Adds a finding that only a person can mend.
    fn report(&mut self, kind: FindingKind, path: &Path, detail: impl Into<String>, remedy: impl Into<String>) {
        let (path, detail, remedy) = (path.to_owned(), detail.into(), remedy.into());
        self.findings.push(Finding { kind, path, detail, remedy, mended: false });
    }
}

/// Checks everything, and mends what it finds if wanted.
pub async fn examine(office: &DirOffice, mend: bool) -> Result<Vec<Finding>, OfficeError> {
    let mut examination = Examination { mend, findings: Vec::new() };
    if let Err(why) = office.shared.check_writable() {
        examination.mend = false;
        let remedy =
            "let this user write to it; until then mail can be read, and nothing is sent, marked as read or mended";
        examination.report(FindingKind::NotWritable, office.root(), format!("cannot be written to: {why}"), remedy);
    }
    // Any name will do: files that belong to no agent are checked from any mailbox.
    let nobody = AgentName::parse("doctor")?;
    examination = run_check(office, nobody.clone(), examination, AgentDir::examine_locks).await?;
    for agent in office.mailboxes()? {
        examination = run_check(office, agent, examination, AgentDir::examine_agent).await?;
    }
    Ok(run_check(office, nobody, examination, AgentDir::examine_office).await?.findings)
}

async fn run_check(
    office: &DirOffice,
    agent: AgentName,
    mut examination: Examination,
    check: fn(&AgentDir, &mut Examination) -> Result<(), OfficeError>,
) -> Result<Examination, OfficeError> {
    office
        .mailbox(agent)
        .run(move |agent_dir| {
            check(agent_dir, &mut examination)?;
            Ok(examination)
        })
        .await
}

impl AgentDir {
    /// Checks the locks, which all other checks need.
    fn examine_locks(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        for directory in [self.shared.paths.own_dir(), self.shared.journal_dir()] {
            self.examine_odd_files(&directory, examination)?;
        }
        Ok(())
    }

    fn examine_office(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        let paths = &self.shared.paths;
        for directory in [paths.root.clone(), paths.agents()] {
            self.examine_links(&directory, examination)?;
        }
        let transcripts = self.shared.transcripts_root();
        let owners = transcripts.join(OWNERS);
        for directory in [paths.root.clone(), paths.own_dir(), self.shared.journal_dir(), transcripts, owners] {
            self.examine_strays(&directory, examination)?;
        }
        self.examine_journal(examination)?;
        self.examine_other_format(examination);
        self.examine_registry(examination)
    }

    fn examine_agent(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        let paths = &self.shared.paths;
        let found = examination.findings.len();
        for directory in [paths.state(&self.me), paths.state(&self.me).join("keys")] {
            self.examine_odd_files(&directory, examination)?;
        }
        self.examine_links(&paths.home(&self.me), examination)?;
        // Without its locks and directories no other check of the agent can run.
        if examination.findings[found..].iter().any(|finding| !finding.mended) {
            return Ok(());
        }
        for root in [paths.home(&self.me), paths.state(&self.me)] {
            for directory in directories_in(&root)? {
                self.examine_strays(&directory, examination)?;
            }
        }
        self.examine_state(examination)?;
        self.examine_leases(examination)?;
        self.examine_mail(examination)?;
        self.examine_other_layout(examination)?;
        self.examine_tasks(examination)?;
        self.examine_index(examination)?;
        self.examine_receipts(examination)
    }

    /// Moves a file into another directory, under its name or one with random digits before this suffix.
    fn move_aside(&self, path: &Path, directory: &Path, name: &str, suffix: &str) -> Result<(), OfficeError> {
        let moved = durable::make_dir(directory, &self.shared.syncer)
            .and_then(|()| durable::move_into(path, directory, name, suffix))
            .and_then(|_| self.shared.syncer.sync(directory));
        moved.context(&format!("could not mend {}", path.display()))
    }
}

fn remove(path: &Path) -> Result<(), OfficeError> {
    durable::remove(path).context(&format!("could not mend {}", path.display()))
}

/// Returns a directory and its subdirectories, two levels deep: mail may be in the folder of a month.
fn directories_in(root: &Path) -> Result<Vec<PathBuf>, OfficeError> {
    let mut found = if root.is_dir() { vec![root.to_owned()] } else { Vec::new() };
    let mut level = found.clone();
    for _ in 0..2 {
        let mut below = Vec::new();
        for directory in &level {
            let entries = fs_err::read_dir(directory).context("could not look into a directory")?;
            let inside = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            below.extend(inside.map(|entry| entry.path()));
        }
        below.sort();
        found.extend(below.iter().cloned());
        level = below;
    }
    Ok(found)
}

/// Returns the regular files in a directory; empty if it does not exist.
fn files_in(directory: &Path) -> Result<Vec<(String, PathBuf)>, OfficeError> {
    let mut files = listed(directory)?;
    files.retain(|(_, path)| open::metadata(path).is_ok());
    Ok(files)
}

/// Returns everything in a directory except directories: also links and pipes.
fn listed(directory: &Path) -> Result<Vec<(String, PathBuf)>, OfficeError> {
    let context = "could not look into a directory";
    let mut files = Vec::new();
    for entry in open::entries(directory).context(context)? {
        let entry = entry.context(context)?;
        if entry.file_type().is_ok_and(|kind| !kind.is_dir())
            && let Ok(name) = entry.file_name().into_string()
        {
            files.push((name, entry.path()));
        }
    }
    files.sort();
    Ok(files)
}
