//! Files in mailboxes that are no messages, and the registry.

use std::path::Path;

use amb_core::OfficeError;
use amb_core::wire::registry::Registry;

use super::{Examination, Kind, files_in};
use crate::durable::{self, Wait};
use crate::layout::Layout;
use crate::letter::{self, Unreadable};
use crate::office::Desk;

impl Desk {
    pub(super) fn examine_mail(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        let paths = &self.shared.paths;
        let (inbox, corrupt) = (paths.inbox(&self.me), paths.corrupt(&self.me));
        for (name, path) in files_in(&inbox)? {
            if !letter::is_mail(paths.layout, &name) {
                continue;
            }
            if let Err(Unreadable::Bad(why)) = letter::open(paths.layout, &self.me, &path, &name) {
                examination.found(
                    Kind::CorruptMessage,
                    &path,
                    format!("not a message: {why}"),
                    format!("moved to {}", corrupt.display()),
                    || self.move_between(&path, &corrupt, &name),
                )?;
            }
        }
        for (name, path) in files_in(&corrupt)? {
            // Somebody has mended it by hand: it can be delivered after all.
            if letter::is_mail(paths.layout, &name) && letter::open(paths.layout, &self.me, &path, &name).is_ok() {
                examination.found(
                    Kind::MendedMessage,
                    &path,
                    "put aside as corrupt, but a whole message now",
                    "moved back to the mailbox",
                    || self.move_between(&path, &inbox, &name),
                )?;
            }
        }
        Ok(())
    }

    fn move_between(&self, path: &Path, directory: &Path, name: &str) -> std::io::Result<()> {
        durable::make_dir(directory, &self.shared.syncer)?;
        durable::move_into(path, directory, name, self.shared.paths.suffix())?;
        self.shared.syncer.sync(directory)
    }

    pub(super) fn examine_registry(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        if self.shared.paths.layout != Layout::Nanobot {
            return Ok(());
        }
        let path = self.shared.paths.registry();
        let ours = self.shared.our_agents()?;
        let problem = match fs_err::read(&path) {
            Err(_) if ours.is_empty() => None,
            Err(error) => Some(format!("cannot be read: {error}")),
            Ok(bytes) => match Registry::parse(&bytes) {
                Err(error) => Some(format!("does not parse: {error}")),
                Ok(registry) => {
                    let missing: Vec<_> =
                        ours.iter().filter(|name| !registry.contains(name)).map(|name| name.as_str()).collect();
                    let bad: Vec<_> = registry.entries().filter_map(|entry| Some(entry.err()?.0.to_owned())).collect();
                    match (missing.as_slice(), bad.as_slice()) {
                        ([], []) => None,
                        ([], _) => Some(format!("the entries of {} are not understood", bad.join(", "))),
                        _ => Some(format!("does not list {}", missing.join(", "))),
                    }
                }
            },
        };
        let Some(problem) = problem else { return Ok(()) };
        if examination.mend {
            self.shared.fold_now(Wait::Synced)?;
        }
        let remedy =
            "written again from the agents' own files and what can be read of it; a broken one is kept in .amb";
        examination.found(Kind::BrokenRegistry, &path, problem, remedy, || Ok(()))
    }
}
