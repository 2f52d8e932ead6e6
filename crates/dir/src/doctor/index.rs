//! Handled mail that is not in the log: another program handled it, or the log's end was lost in a power cut.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use amb_core::OfficeError;

use super::{Examination, FindingKind, files_in};
use crate::files::failure::Doing;
use crate::files::message_file;
use crate::log::{Brief, LogLine, PositionedLine};
use crate::office::AgentDir;

impl AgentDir {
    pub(super) fn examine_index(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        let missing = self.not_indexed()?;
        if missing.is_empty() {
            return Ok(());
        }
        let detail = format!("{} handled messages are in no history", missing.len());
        if examination.mend {
            self.index(missing)?;
        }
        let path = self.shared.paths.put_away(&self.me);
        examination.found(FindingKind::NotIndexed, &path, detail, "entered in the log", || Ok(()))
    }

    /// Everything that was put away and is not in the log.
    pub(super) fn put_away_and_not_indexed(&self) -> Result<Vec<(String, PathBuf)>, OfficeError> {
        let paths = &self.shared.paths;
        let away = paths.put_away(&self.me);
        let mut there = files_in(&away)?;
        if let Ok(entries) = fs_err::read_dir(&away) {
            for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
                there.extend(files_in(&entry.path())?);
            }
        }
        there.retain(|(name, _)| message_file::is_mail(paths.layout, name));
        if there.is_empty() {
            return Ok(there);
        }
        let known = self.indexed()?;
        there.retain(|(name, _)| !known.contains(name));
        Ok(there)
    }

    /// Messages that were put away, not by the office because it rejects them, and are not in the log.
    pub(crate) fn not_indexed(&self) -> Result<Vec<(String, PathBuf)>, OfficeError> {
        let paths = &self.shared.paths;
        let mut there = self.put_away_and_not_indexed()?;
        // A task that the office rejected when it was sent is in its sender's history alone.
        let rejected = |name: &str, path: &Path| {
            message_file::open(paths.layout, &self.me, path, name)
                .is_ok_and(|message_file| message_file::is_rejected(&message_file.message))
        };
        there.retain(|(name, path)| !rejected(name, path));
        Ok(there)
    }

    /// The files of all messages that are in the log.
    fn indexed(&self) -> Result<HashSet<String>, OfficeError> {
        let lines = self.shared.log(&self.me).find(&["\"in\""]).doing("could not read the log")?;
        let file = |placed: PositionedLine| match placed.line {
            LogLine::In { f, .. } => Some(f),
            _ => None,
        };
        Ok(lines.into_iter().filter_map(file).collect())
    }

    /// Enters messages that were put away in the log, as read.
    pub(crate) fn index(&self, files: Vec<(String, PathBuf)>) -> Result<(), OfficeError> {
        let mut lines = Vec::new();
        for (f, path) in files {
            // What does not parse was put away by another program; it is no mail of ours.
            if let Ok(mut message_file) = message_file::open(self.shared.paths.layout, &self.me, &path, &f) {
                self.shared.name_task(&self.me, &mut message_file.message, &f)?;
                let brief = Brief::of(&message_file.message, &self.me);
                lines.push(LogLine::In { f, i: 0, brief, read: true, withheld: None });
            }
        }
        lines.sort_by_key(|line| match line {
            LogLine::In { brief, .. } => brief.at,
            _ => Default::default(),
        });
        self.shared.make_state(&self.me)?;
        let mut writer = self.shared.log(&self.me).write().doing("could not add to the log")?;
        // Another process may have entered them meanwhile.
        let known = self.indexed()?;
        lines.retain(|line| matches!(line, LogLine::In { f, .. } if !known.contains(f)));
        writer.add(&lines).doing("could not add to the log")?;
        Ok(())
    }
}
