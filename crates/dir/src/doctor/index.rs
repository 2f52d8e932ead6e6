//! Handled mail that is not in the log: another program handled it, or a power cut truncated the log.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use amb_core::{Message, OfficeError};

use super::{Examination, FindingKind, files_in};
use crate::files::failure::IoContext;
use crate::files::message_file;
use crate::files::version::FileVersion;
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
            files.retain(|(name, path)| !known.contains_key(name) && !self.is_renamed(&known, name, path));
        }
        Ok(files)
    }

    /// Whether this is a logged message whose file got another name because its own was taken among the processed.
    fn is_renamed(&self, known: &HashMap<String, Vec<Brief>>, name: &str, path: &Path) -> bool {
        let layout = self.shared.paths.layout;
        let stem = message_file::stem(layout, name).rsplit_once('_').map(|(stem, _)| stem);
        let Some(name) = stem.map(|stem| format!("{stem}{}", layout.suffix())) else { return false };
        let Some(logged) = known.get(&name) else { return false };
        let Ok(message_file) = message_file::open(layout, &self.me, path, &name) else { return false };
        logged.iter().any(|brief| message_file::as_logged(message_file.message.clone(), &name, brief).is_some())
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

    /// Returns all received messages in the log, by file name.
    fn indexed(&self) -> Result<HashMap<String, Vec<Brief>>, OfficeError> {
        let mut known: HashMap<String, Vec<Brief>> = HashMap::new();
        for line in self.shared.log(&self.me).find(&["\"in\""]).context("could not read the log")? {
            if let LogLine::In { f, brief, .. } = line {
                known.entry(f).or_default().push(brief);
            }
        }
        Ok(known)
    }

    /// Logs processed messages, as read.
    pub(crate) fn index_processed(&self, files: Vec<(String, PathBuf)>) -> Result<(), OfficeError> {
        let layout = self.shared.paths.layout;
        let mut messages = Vec::new();
        for (f, path) in files {
            // Another program put files there that do not parse; they are skipped.
            if let Ok(mut message_file) = message_file::open(layout, &self.me, &path, &f) {
                self.shared.set_known_task_id(&self.me, &mut message_file.message, &f)?;
                messages.push((f, message_file.message));
            }
        }
        messages.sort_by_key(|(_, message)| message.sent_at);
        self.shared.make_state_dir(&self.me)?;
        let mut writer = self.shared.log(&self.me).write().context("could not add to the log")?;
        // Another process may have logged them meanwhile.
        let known = self.indexed()?;
        messages.retain(|(f, _)| !known.contains_key(f));
        let mut taken = self.ids_in_log(messages.iter().map(|(f, message)| (f.as_str(), message)))?;
        let line = |(f, message): (String, Message)| {
            let mut brief = Brief::of_found(&message, &self.me, layout, &f);
            if !taken.insert(brief.id.clone()) && !message_file::has_unique_id(layout, &f, &message) {
                brief.id = message_file::disambiguated_id(&message, &f);
            }
            LogLine::In { f, version: FileVersion::NONE, brief, read: true, withheld: None }
        };
        let lines: Vec<LogLine> = messages.into_iter().map(line).collect();
        writer.add(&lines).context("could not add to the log")?;
        Ok(())
    }
}
