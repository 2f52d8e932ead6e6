//! Files in mailboxes that are not messages, and the registry.

use std::io::ErrorKind;
use std::path::PathBuf;

use amb_core::OfficeError;
use amb_core::wire::registry::Registry;

use super::{Examination, FindingKind, listed};
use crate::files::durable::Wait;
use crate::files::failure::IoContext;
use crate::files::layout::Layout;
use crate::files::message_file::{self, Unreadable};
use crate::files::open;
use crate::files::paths::Paths;
use crate::office::AgentDir;
use crate::registry::MAX_BYTES;

impl AgentDir {
    pub(super) fn examine_mail(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        let paths = &self.shared.paths;
        let suffix = paths.layout.suffix();
        let (inbox, corrupt) = (paths.inbox(&self.me), paths.corrupt(&self.me));
        let (mut aside, refused) = (listed(&corrupt)?, listed(&paths.refused(&self.me))?);
        self.examine_unread_names(examination)?;
        for (name, path) in listed(&inbox)? {
            if !message_file::is_mail(paths.layout, &name) {
                continue;
            }
            let Err(unreadable) = message_file::open(paths.layout, &self.me, &path, &name) else { continue };
            if unreadable.may_be_unfinished(&path) {
                continue;
            }
            let why = match MailProblem::of(unreadable) {
                MailProblem::Gone => continue,
                MailProblem::Unopened(why) => {
                    let detail = format!("cannot be opened: {why}");
                    let remedy = "let this user read it, or move it out of the mailbox";
                    examination.report(FindingKind::CorruptMessage, &path, detail, remedy);
                    continue;
                }
                MailProblem::NotMail(why) => why,
            };
            if paths.layout == Layout::Chipset && message_file::time_in_name(paths.layout, &name).is_none() {
                let detail = format!("not a message, and not named like one: {why}");
                examination.report(FindingKind::CorruptMessage, &path, detail, "move it out of the mailbox");
            } else {
                examination.found(
                    FindingKind::CorruptMessage,
                    &path,
                    format!("not a message: {why}"),
                    format!("moved to {}", corrupt.display()),
                    || self.move_aside(&path, &corrupt, &name, suffix),
                )?;
            }
        }
        let other: Vec<_> = listed(&inbox)?.into_iter().filter(|(name, _)| is_other_format(name)).collect();
        if paths.layout == Layout::Nanobot && !other.is_empty() {
            let detail =
                format!("{} of nanobot's p2p/v1 format, which is not read here: {}", counted(&other), names(&other));
            examination.report(FindingKind::OtherFormat, &inbox, detail, OTHER_FORMAT);
        }
        for (name, path) in aside.clone() {
            // Corrected by hand: it can be delivered.
            if message_file::is_mail(paths.layout, &name)
                && message_file::open(paths.layout, &self.me, &path, &name).is_ok()
            {
                aside.retain(|(_, whole)| *whole != path);
                examination.found(
                    FindingKind::MendedMessage,
                    &path,
                    "put aside as corrupt, but a whole message now",
                    "moved back to the mailbox",
                    || self.move_aside(&path, &inbox, &name, suffix),
                )?;
            }
        }
        if !aside.is_empty() {
            let detail = format!("{} put aside as corrupt: {}", files(aside.len()), names(&aside));
            let remedy = "correct it and run `amb doctor --mend`, which delivers it, or remove it";
            examination.report(FindingKind::CorruptAside, &corrupt, detail, remedy);
        }
        if !refused.is_empty() {
            let (counted, names) = (files(refused.len()), names(&refused));
            let (detail, remedy) = match self.shared.is_mounted(&self.me) {
                true => (
                    format!("{counted} put aside, which the server that mounts this directory did not take: {names}"),
                    "its log says why; send them again in a form that it takes, or remove them".to_owned(),
                ),
                false => (
                    format!("{counted} put aside, from senders not in allow_from: {names}"),
                    format!(
                        "`amb register {} --allow-from NAME` admits a sender, then move its files back to {}; or remove \
                         them",
                        self.me,
                        inbox.display()
                    ),
                ),
            };
            examination.report(FindingKind::RefusedAside, &paths.refused(&self.me), detail, remedy);
        }
        Ok(())
    }

    /// Finds directories in which a nanobot of the other format keeps its state.
    pub(super) fn examine_other_format(&self, examination: &mut Examination) {
        let root = &self.shared.paths.root;
        for path in ["_links", "_windows"].map(|name| root.join(name)) {
            if self.shared.paths.layout == Layout::Nanobot && path.is_dir() {
                let detail = "made by a nanobot that speaks p2p/v1, which is not read here";
                examination.report(FindingKind::OtherFormat, &path, detail, OTHER_FORMAT);
            }
        }
    }

    /// What is named like mail and is not read for its name or because it is a directory.
    fn examine_unread_names(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        let paths = &self.shared.paths;
        let context = "could not look into a directory";
        let Some(entries) = open::if_exists(fs_err::read_dir(paths.inbox(&self.me))).context(context)? else {
            return Ok(());
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.context(context)?;
            let name = entry.file_name();
            if !name.as_encoded_bytes().ends_with(paths.layout.suffix().as_bytes()) {
                continue;
            }
            let why = match name.to_str() {
                None => "its name is not UTF-8",
                Some(name) if name.starts_with('.') => "its name begins with a dot",
                Some(_) if entry.file_type().is_ok_and(|kind| kind.is_dir()) => "it is a directory",
                Some(_) => continue,
            };
            found.push((entry.path(), why));
        }
        found.sort();
        for (path, why) in found {
            let detail = format!("named like mail, and not read: {why}");
            let remedy = "rename it if it is mail, or move it out of the mailbox";
            examination.report(FindingKind::CorruptMessage, &path, detail, remedy);
        }
        Ok(())
    }

    /// Mail that was written under the other layout.
    pub(super) fn examine_other_layout(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        let paths = &self.shared.paths;
        let other = match paths.layout {
            Layout::Nanobot => Layout::Chipset,
            Layout::Chipset => Layout::Nanobot,
        };
        let directory = Paths { layout: other, ..paths.clone() }.inbox(&self.me);
        let mut found = listed(&directory)?;
        found.retain(|(name, _)| message_file::time_in_name(other, name).is_some());
        if !found.is_empty() {
            let detail =
                format!("{} of the layout {other}, which is not read here: {}", counted(&found), names(&found));
            let remedy = format!(
                "move the directory's files to THERE/{} of a new directory, where `amb --dir THERE --layout {other} --as {} \
                 inbox` reads them; or remove them",
                directory.strip_prefix(&paths.root).unwrap_or(&directory).display(),
                self.me
            );
            examination.report(FindingKind::OtherLayout, &directory, detail, remedy);
        }
        Ok(())
    }

    pub(super) fn examine_registry(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        if self.shared.paths.layout != Layout::Nanobot {
            return Ok(());
        }
        let path = self.shared.paths.registry();
        let ours = self.shared.registered_agents()?;
        let read = open::read(&path, MAX_BYTES);
        let refused = read.as_ref().is_err_and(open::is_refused);
        let problem = match read {
            Err(error) if error.kind() == ErrorKind::NotFound && ours.is_empty() => None,
            Err(error) => Some(format!("cannot be read: {error}")),
            Ok(bytes) => match Registry::parse(&bytes) {
                Err(error) => Some(format!("does not parse: {error}")),
                Ok(registry) => {
                    let missing: Vec<_> =
                        ours.iter().filter(|name| !registry.contains(name)).map(|name| name.as_str()).collect();
                    let bad = registry.entries().filter_map(|entry| Some(entry.err()?.0.to_owned()));
                    let (bad, foreign): (Vec<_>, Vec<_>) =
                        bad.partition(|key| ours.iter().any(|name| name.as_str() == key));
                    if !foreign.is_empty() {
                        let detail = format!("the entries of {} are not understood", foreign.join(", "));
                        let remedy = "correct or remove them, or leave them to the program that wrote them";
                        examination.report(FindingKind::BrokenRegistry, &path, detail, remedy);
                    }
                    match (missing.as_slice(), bad.as_slice()) {
                        ([], []) => None,
                        ([], _) => Some(format!("the entries of {} are not understood", bad.join(", "))),
                        _ => Some(format!("does not list {}", missing.join(", "))),
                    }
                }
            },
        };
        let Some(problem) = problem else { return Ok(()) };
        let remedy =
            "written again from the agents' own files and what can be read of it; a broken one is kept in .amb";
        examination.found(FindingKind::BrokenRegistry, &path, problem, remedy, || {
            if refused {
                let strays = self.shared.paths.own_dir().join("strays");
                self.move_aside(&path, &strays, "_registry.json", ".json")?;
            }
            self.shared.update_registry(Wait::Synced)
        })
    }
}

/// Why a file in a mailbox could not be read.
#[derive(Debug, PartialEq)]
enum MailProblem {
    /// It was handled meanwhile.
    Gone,
    /// It may be a message; the file system does not let us read it.
    Unopened(String),
    NotMail(String),
}

impl MailProblem {
    fn of(why: Unreadable) -> Self {
        match why {
            Unreadable::Io(error) if error.kind() == ErrorKind::NotFound => MailProblem::Gone,
            Unreadable::Io(error) if !open::is_refused(&error) => MailProblem::Unopened(error.to_string()),
            why => MailProblem::NotMail(why.to_string()),
        }
    }
}

/// Remedy for files of the other format.
const OTHER_FORMAT: &str =
    "give the sender the mailbox channel of the package amb-mailbox, and remove what is done with";

/// Whether this is a file name of p2p/v1: `task_7_from_boss_0a1b2c3d.json`, or the same of results and bids.
fn is_other_format(name: &str) -> bool {
    let Some(stem) = name.strip_suffix(".json") else { return false };
    let kind = ["task_", "result_", "bid_"].iter().any(|kind| stem.starts_with(kind));
    let number = stem.rsplit('_').next().unwrap_or_default();
    kind && stem.contains("_from_") && number.len() == 8 && number.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn counted(files: &[(String, PathBuf)]) -> String {
    if files.len() == 1 { "1 file".into() } else { format!("{} files", files.len()) }
}

fn files(count: usize) -> String {
    if count == 1 { "1 file was".into() } else { format!("{count} files were") }
}

/// Lists the first three names.
fn names(files: &[(String, PathBuf)]) -> String {
    let mut names: Vec<&str> = files.iter().take(3).map(|(name, _)| name.as_str()).collect();
    if files.len() > names.len() {
        names.push("…");
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    // Tests may run as root, whom no mode keeps from reading.
    #[test]
    fn a_message_that_cannot_be_opened_is_reported_and_not_called_corrupt() {
        let denied = Unreadable::Io(io::Error::new(ErrorKind::PermissionDenied, "denied"));
        assert_eq!(MailProblem::of(denied), MailProblem::Unopened("denied".into()));
        assert_eq!(MailProblem::of(Unreadable::Io(ErrorKind::NotFound.into())), MailProblem::Gone);
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path(), &link).unwrap();
        let refused = open::regular(&link).unwrap_err();
        assert!(matches!(MailProblem::of(Unreadable::Io(refused)), MailProblem::NotMail(_)));
    }
}
