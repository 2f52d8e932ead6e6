//! Finds and mends what is wrong with a directory of mailboxes. Mending removes no mail.

mod index;
mod mail;
mod state;
mod strays;
mod unfinished;

use std::path::{Path, PathBuf};

use amb_core::{AgentName, OfficeError};
use serde::Serialize;

use crate::files::failure::Doing;
use crate::files::open;
use crate::office::{AgentDir, DirOffice};
use crate::transcript::OWNERS;

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What kind of thing.
    pub kind: FindingKind,
    /// Where.
    pub path: PathBuf,
    /// What is wrong with it, in one sentence.
    pub detail: String,
    /// What was done, or would be done, about it.
    pub remedy: String,
    /// Whether it was done.
    pub mended: bool,
}

/// The kinds of things that go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FindingKind {
    /// A temporary file whose writer is gone.
    StrayTemp,
    /// A file in a mailbox that is no message.
    CorruptMessage,
    /// A message that was put aside as corrupt and has been mended by hand since.
    MendedMessage,
    /// Files that were put aside because they are no messages.
    CorruptAside,
    /// Messages that were put aside because their sender is not in allow_from.
    RefusedAside,
    /// Files of nanobot's other format, which this office does not read.
    OtherFormat,
    /// A claim whose time is over.
    StaleLease,
    /// `_registry.json` is missing, does not parse, or does not list everybody.
    BrokenRegistry,
    /// A file of the office's own that does not parse.
    SpoiltState,
    /// A link in the place of a mailbox, or of a directory in one.
    LinkedDirectory,
    /// Handled mail that is not in the log, and so in no history.
    NotIndexed,
    /// A task update or receipt that was not written.
    Unfinished,
}

/// What an examination has found so far.
struct Examination {
    mend: bool,
    findings: Vec<Finding>,
}

impl Examination {
    /// Notes a finding, after mending it if that is wanted.
    fn found(
        &mut self,
        kind: FindingKind,
        path: &Path,
        detail: impl Into<String>,
        remedy: impl Into<String>,
        mend: impl FnOnce() -> std::io::Result<()>,
    ) -> Result<(), OfficeError> {
        if self.mend {
            mend().doing(&format!("could not mend {}", path.display()))?;
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

    /// Notes a finding that only a person can mend.
    fn needs_a_person(&mut self, kind: FindingKind, path: &Path, detail: impl Into<String>, remedy: impl Into<String>) {
        let (path, detail, remedy) = (path.to_owned(), detail.into(), remedy.into());
        self.findings.push(Finding { kind, path, detail, remedy, mended: false });
    }
}

/// Looks at everything, and mends what it finds if wanted.
pub async fn examine(office: &DirOffice, mend: bool) -> Result<Vec<Finding>, OfficeError> {
    let mut examination = Examination { mend, findings: Vec::new() };
    // Any name will do: what belongs to no agent is checked from any mailbox.
    let nobody = AgentName::parse("doctor")?;
    examination = in_turn(office, nobody.clone(), examination, AgentDir::examine_locks).await?;
    for agent in office.mailboxes()? {
        examination = in_turn(office, agent, examination, AgentDir::examine_agent).await?;
    }
    Ok(in_turn(office, nobody, examination, AgentDir::examine_office).await?.findings)
}

async fn in_turn(
    office: &DirOffice,
    agent: AgentName,
    mut examination: Examination,
    look: fn(&AgentDir, &mut Examination) -> Result<(), OfficeError>,
) -> Result<Examination, OfficeError> {
    office
        .mailbox(agent)
        .run(move |agent_dir| {
            look(agent_dir, &mut examination)?;
            Ok(examination)
        })
        .await
}

impl AgentDir {
    /// What everything else needs.
    fn examine_locks(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        for directory in [self.shared.paths.side(), self.shared.unfinished_dir()] {
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
        for directory in [paths.root.clone(), paths.side(), self.shared.unfinished_dir(), transcripts, owners] {
            self.examine_strays(&directory, examination)?;
        }
        self.examine_notes(examination)?;
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
        // Without its locks and directories nothing more can be said of the agent.
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
        self.examine_tasks(examination)?;
        self.examine_index(examination)?;
        self.examine_receipts(examination)
    }
}

/// A directory and those below it, none if it is not there. Mail lies at most two below, in a month.
fn directories_in(root: &Path) -> Result<Vec<PathBuf>, OfficeError> {
    let mut found = if root.is_dir() { vec![root.to_owned()] } else { Vec::new() };
    let mut level = found.clone();
    for _ in 0..2 {
        let mut below = Vec::new();
        for directory in &level {
            let entries = fs_err::read_dir(directory).doing("could not look into a directory")?;
            let inside = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            below.extend(inside.map(|entry| entry.path()));
        }
        below.sort();
        found.extend(below.iter().cloned());
        level = below;
    }
    Ok(found)
}

/// The regular files in a directory, none if it is not there.
fn files_in(directory: &Path) -> Result<Vec<(String, PathBuf)>, OfficeError> {
    let mut files = listed(directory)?;
    files.retain(|(_, path)| open::about(path).is_ok());
    Ok(files)
}

/// Everything in a directory but directories: also links, pipes and the like.
fn listed(directory: &Path) -> Result<Vec<(String, PathBuf)>, OfficeError> {
    let Some(entries) = open::if_there(fs_err::read_dir(directory)).doing("could not look into a directory")? else {
        return Ok(Vec::new());
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.doing("could not look into a directory")?;
        if entry.file_type().is_ok_and(|kind| !kind.is_dir())
            && let Ok(name) = entry.file_name().into_string()
        {
            files.push((name, entry.path()));
        }
    }
    files.sort();
    Ok(files)
}
