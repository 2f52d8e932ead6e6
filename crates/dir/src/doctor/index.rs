//! Handled mail that is not in the log: another program handled it, or a power cut truncated the log.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use amb_core::OfficeError;

use super::{Examination, FindingKind, files_in};
use crate::files::failure::IoContext;
use crate::files::message_file;
use crate::log::{Brief, LogLine};
use crate::office::AgentDir;

impl AgentDir {
    pub(super) fn examine_index(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        let missing = self.not_indexed()?;
        if missing.is_empty() {
            return Ok(());
        }
        let detail = format!("{} handled messages are in no history", missing.len());
        let path = self.shared.paths.processed(&self.me);
        examination
            .found(FindingKind::NotIndexed, &path, detail, "entered in the log", || self.index_processed(missing))
    }

    /// Returns all processed messages that are not in the log.
    pub(super) fn processed_and_not_indexed(&self) -> Result<Vec<(String, PathBuf)>, OfficeError> {
        let paths = &self.shared.paths;
        let processed = paths.processed(&self.me);
        let mut files = files_in(&processed)?;
        if let Ok(entries) = fs_err::read_dir(&processed) {
            for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
                files.extend(files_in(&entry.path())?);
            }
        }
        files.retain(|(name, _)| message_file::is_mail(paths.layout, name));
        if !files.is_empty() {
            let known = self.indexed()?;
            files.retain(|(name, _)| !known.contains(name));
        }
        Ok(files)
    }

    /// Returns processed messages that are not in the log, without the tasks that the office rejected.
    pub(crate) fn not_indexed(&self) -> Result<Vec<(String, PathBuf)>, OfficeError> {
        let paths = &self.shared.paths;
        let mut files = self.processed_and_not_indexed()?;
        // A task that the office rejected when it was sent is only in its sender's history.
        let rejected = |name: &str, path: &Path| {
            message_file::open(paths.layout, &self.me, path, name)
                .is_ok_and(|message_file| message_file::is_rejected(&message_file.message))
        };
        files.retain(|(name, path)| !rejected(name, path));
        Ok(files)
    }

    /// Returns the file names of all received messages in the log.
    fn indexed(&self) -> Result<HashSet<String>, OfficeError> {
        let lines = self.shared.log(&self.me).find(&["\"in\""]).context("could not read the log")?;
        let file = |line| match line {
            LogLine::In { f, .. } => Some(f),
            _ => None,
        };
        Ok(lines.into_iter().filter_map(file).collect())
    }

    /// Logs processed messages, as read.
    pub(crate) fn index_processed(&self, files: Vec<(String, PathBuf)>) -> Result<(), OfficeError> {
        let mut lines = Vec::new();
        for (f, path) in files {
            // Another program put files there that do not parse; they are skipped.
            if let Ok(mut message_file) = message_file::open(self.shared.paths.layout, &self.me, &path, &f) {
                self.shared.set_known_task_id(&self.me, &mut message_file.message, &f)?;
                let brief = Brief::of(&message_file.message, &self.me);
                lines.push(LogLine::In { f, i: 0, brief, read: true, withheld: None });
            }
        }
        lines.sort_by_key(|line| match line {
            LogLine::In { brief, .. } => brief.at,
            _ => Default::default(),
        });
        self.shared.make_state_dir(&self.me)?;
        let mut writer = self.shared.log(&self.me).write().context("could not add to the log")?;
        // Another process may have logged them meanwhile.
        let known = self.indexed()?;
        lines.retain(|line| matches!(line, LogLine::In { f, .. } if !known.contains(f)));
        writer.add(&lines).context("could not add to the log")?;
        Ok(())
    }
}
