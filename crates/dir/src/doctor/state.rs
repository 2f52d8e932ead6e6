//! The office's own files: corrupt ones, and files of the wrong type.

use std::path::Path;

use amb_core::wire::Stamp;
use amb_core::{AgentName, OfficeError};
use serde_json::Value;

use super::{Examination, FindingKind, listed};
use crate::files::layout::Layout;
use crate::files::open;
use crate::log::index::MAX_SAVED_BYTES;
use crate::office::AgentDir;
use crate::registry::presence::RegisteredCard;

impl AgentDir {
    /// Finds locks, logs and other files that are not regular files, such as a pipe: every verb that needs them fails,
    /// and so would the other checks.
    pub(super) fn examine_odd_files(&self, directory: &Path, examination: &mut Examination) -> Result<(), OfficeError> {
        let aside = self.shared.paths.own_dir().join("spoilt");
        for (name, path) in listed(directory)? {
            // JSON files are checked by `examine_state`.
            if name.ends_with(".json") || open::metadata(&path).is_ok() || fs_err::symlink_metadata(&path).is_err() {
                continue;
            }
            examination.found(
                FindingKind::SpoiltState,
                &path,
                "a file of the office's own is not a regular file",
                format!("moved to {}; it is made again", aside.display()),
                || self.move_aside(&path, &aside, &format!("{}-{name}", self.me), ""),
            )?;
        }
        Ok(())
    }

    /// Finds links in the place of directories: nothing is written or read through them.
    pub(super) fn examine_links(&self, directory: &Path, examination: &mut Examination) -> Result<(), OfficeError> {
        for (name, path) in listed(directory)? {
            let is_link = fs_err::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink());
            if is_link && path.is_dir() && (AgentName::parse(&name).is_ok() || name == ".amb") {
                let detail = "a link stands in the place of a directory; mail is neither read nor written through it";
                let remedy = "put the directory itself in its place";
                examination.report(FindingKind::LinkedDirectory, &path, detail, remedy);
            }
        }
        Ok(())
    }

    /// A card that cannot be read. It says who may write to the agent, so it is not moved away: without it everybody might.
    fn examine_card(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        let shared = &self.shared;
        if !shared.is_card_corrupt(&self.me)? {
            return Ok(());
        }
        let path = shared.card_file(&self.me);
        let listed = match shared.paths.layout {
            Layout::Nanobot => shared.registry_entry(&self.me).ok().flatten(),
            Layout::Chipset => None,
        };
        let Some(listed) = listed else {
            let detail = format!("the card of {} is corrupt, so nobody can write to it", self.me);
            let remedy = format!(
                "`amb register {} --allow-from NAME` sets it anew; without --allow-from everybody may write to it",
                self.me
            );
            examination.report(FindingKind::SpoiltState, &path, detail, remedy);
            return Ok(());
        };
        if examination.mend {
            let registered_at = listed.registered_at.as_ref().map_or_else(|| shared.now(), Stamp::at);
            let _locked = shared.lock_agent(&self.me)?;
            shared.write_card(&self.me, &RegisteredCard { card: listed.card, registered_at })?;
        }
        let detail = format!("the card of {} is corrupt; the one in _registry.json counts", self.me);
        examination.found(FindingKind::SpoiltState, &path, detail, "written again from _registry.json", || Ok(()))
    }

    pub(super) fn examine_state(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        self.examine_card(examination)?;
        let card = self.shared.card_file(&self.me);
        let state = self.shared.paths.state(&self.me);
        let aside = self.shared.paths.own_dir().join("spoilt");
        for directory in ["", "tasks", "tasks/ended", "given", "given/ended", "keys"] {
            for (name, path) in listed(&state.join(directory))? {
                if !name.ends_with(".json") || path == card {
                    continue;
                }
                // Any other error: it may have vanished meanwhile.
                let problem = match open::read(&path, MAX_SAVED_BYTES) {
                    Ok(bytes) => serde_json::from_slice::<Value>(&bytes).err().map(|error| error.to_string()),
                    Err(error) if open::is_refused(&error) => Some(error.to_string()),
                    Err(_) => None,
                };
                if let Some(problem) = problem {
                    examination.found(
                        FindingKind::SpoiltState,
                        &path,
                        format!("a file of the office's own does not parse: {problem}"),
                        format!("moved to {}; it is made again from the mail", aside.display()),
                        || self.move_aside(&path, &aside, &format!("{}-{name}", self.me), ".json"),
                    )?;
                }
            }
        }
        Ok(())
    }
}
