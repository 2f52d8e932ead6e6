//! Ingests mail: reads files in the mailbox that are not in the log yet, checks them, and logs them.
//!
//! Any program may have put the files there, so the office's rules are applied here: a file that is no message goes to
//! `corrupt/` (nanobot) or is skipped (chipset), a message from a sender that is not in `allow_from` goes to
//! `refused/`, and a task that may not be taken on is rejected.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use amb_core::{Card, Kind, Message, MessageId, OfficeError, TaskState};
use parking_lot::MutexGuard;

use crate::files::durable;
use crate::files::failure::IoContext;
use crate::files::layout::Layout;
use crate::files::message_file::{self, ParsedMessage, Unreadable};
use crate::files::open;
use crate::files::version::FileVersion;
use crate::log::index::MailboxIndex;
use crate::log::{Brief, LogLine, Withheld};
use crate::office::AgentDir;

/// A new file, or one that was written again.
struct FreshFile {
    name: String,
    version: FileVersion,
    parsed: ParsedMessage,
    withheld: Option<Withheld>,
}

/// Up to this many ids the log is searched for each; for more it is parsed once.
const MAX_SEARCHED_IDS: usize = 4;

/// Handled messages of other programs that the first ingest logs; the doctor logs the rest.
const MAX_INDEXED_AT_FIRST: usize = 500;

impl AgentDir {
    /// Returns the up-to-date index of the mailbox, after recovering what dead processes left.
    pub(crate) fn ingest(&self) -> Result<MutexGuard<'_, MailboxIndex>, OfficeError> {
        self.shared.recover_journal();
        self.ingest_mail()
    }

    /// Like `ingest`, without the recovery, for callers that have done it.
    pub(crate) fn ingest_mail(&self) -> Result<MutexGuard<'_, MailboxIndex>, OfficeError> {
        self.shared.refuse_links(&self.me)?;
        let mut index = self.index.lock();
        // The log is read before the listing: what is only in the log is gone; what is only in the listing is new, or
        // was logged by another process in between, which the second read of the log tells.
        index.drop_unlogged();
        self.catch_up(&mut index)?;
        if index.is_new() {
            if let Err(error) = self.index_recently_processed() {
                tracing::warn!(%error, "logging mail that was handled before failed");
            }
            self.catch_up(&mut index)?;
        }
        let listed = self.list()?;
        let there: HashSet<&str> = listed.iter().map(|(name, _)| name.as_str()).collect();
        index.known.retain(|name, _| there.contains(name.as_str()));
        let fresh: Vec<(String, FileVersion)> = listed
            .into_iter()
            .filter(|(name, version)| index.known.get(name).is_none_or(|known| known.version != *version))
            .collect();
        if fresh.is_empty() {
            index.bad.clear();
        } else {
            let read = self.parse_fresh(&mut index, fresh)?;
            let decided = self.decide_fresh(&mut index, read)?;
            if !decided.is_empty() {
                self.log_fresh(&mut index, decided)?;
            }
        }
        index.save(&self.shared.paths.state(&self.me), &self.shared.syncer);
        self.move_withheld(&mut index);
        Ok(index)
    }

    /// Applies lines that other processes appended to the log.
    pub(crate) fn catch_up(&self, index: &mut MailboxIndex) -> Result<(), OfficeError> {
        let paths = &self.shared.paths;
        index
            .catch_up(&self.shared.log(&self.me), &paths.state(&self.me), &paths.inbox(&self.me))
            .context("could not read the log")
    }

    /// Logs new mail. Mail that cannot be logged now is only indexed, so that it can still be read.
    fn log_fresh(&self, index: &mut MailboxIndex, fresh: Vec<FreshFile>) -> Result<(), OfficeError> {
        let log = self.shared.log(&self.me);
        let context = "could not add to the log";
        let (lines, appended) = match self.shared.make_state_dir(&self.me).and_then(|()| log.write().context(context)) {
            Ok(mut writer) => {
                self.catch_up(index)?;
                let lines = self.new_log_lines(index, fresh)?;
                let appended = match writer.add(&lines).context(context) {
                    Ok(end) => Ok((end, writer.inode().context(context)?)),
                    Err(error) => Err(error),
                };
                (lines, appended)
            }
            Err(error) => (self.new_log_lines(index, fresh)?, Err(error)),
        };
        match appended {
            Ok((end, inode)) => index.apply_appended(lines, end, inode),
            Err(error) => {
                tracing::warn!(%error, "new mail is shown, but logging it failed; retrying at the next ingest");
                index.add_unlogged(lines, error.to_string());
            }
        }
        Ok(())
    }

    /// Logs, as read, the newest mail that other programs had handled before the first ingest.
    fn index_recently_processed(&self) -> Result<(), OfficeError> {
        let mut handled = self.not_indexed()?;
        if handled.is_empty() {
            return Ok(());
        }
        let layout = self.shared.paths.layout;
        handled.sort_by_cached_key(|(name, _)| std::cmp::Reverse(message_file::time_in_name(layout, name)));
        handled.truncate(MAX_INDEXED_AT_FIRST);
        self.index_processed(handled)
    }

    /// Lists the mail in the mailbox: names and versions, unordered.
    fn list(&self) -> Result<Vec<(String, FileVersion)>, OfficeError> {
        let inbox = self.shared.paths.inbox(&self.me);
        let context = "could not list the mailbox";
        let mut listed = Vec::new();
        for entry in open::entries(&inbox).context(context)? {
            let entry = entry.context(context)?;
            // A link could point at any file of the reader's: only regular files are mail.
            if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
                continue;
            }
            if let Ok(name) = entry.file_name().into_string()
                && message_file::is_mail(self.shared.paths.layout, &name)
                // Otherwise it is gone.
                && let Ok(metadata) = entry.metadata()
            {
                listed.push((name, FileVersion::of(&metadata)));
            }
        }
        Ok(listed)
    }

    /// Parses new files, oldest first. Holds no lock: other processes may do the same.
    fn parse_fresh(
        &self,
        index: &mut MailboxIndex,
        fresh: Vec<(String, FileVersion)>,
    ) -> Result<Vec<FreshFile>, OfficeError> {
        let paths = &self.shared.paths;
        let inbox = paths.inbox(&self.me);
        let mut read = Vec::new();
        let mut still_bad = HashMap::new();
        for (name, version) in fresh {
            let path = inbox.join(&name);
            if paths.layout == Layout::Chipset && index.bad.get(&name) == Some(&version) {
                still_bad.insert(name, version);
                continue;
            }
            match message_file::open(paths.layout, &self.me, &path, &name) {
                Ok(parsed) => read.push(FreshFile { name, version, parsed, withheld: None }),
                Err(gone) if gone.is_gone() => {}
                Err(bad) => {
                    still_bad.insert(name.clone(), version);
                    self.handle_unreadable(&name, &bad)?;
                }
            }
        }
        index.bad = still_bad;
        read.sort_by(|a, b| (a.parsed.message.sent_at, &a.name).cmp(&(b.parsed.message.sent_at, &b.name)));
        Ok(read)
    }

    /// Decides whether new mail is withheld, and opens and moves tasks. In the order in which it was sent, since the first
    /// task with an id keeps it. What cannot be decided now, as on a full disk, is left out until the next ingest.
    fn decide_fresh(&self, index: &mut MailboxIndex, fresh: Vec<FreshFile>) -> Result<Vec<FreshFile>, OfficeError> {
        let card = self.card()?;
        let mut decided = Vec::with_capacity(fresh.len());
        for mut file in fresh {
            match self.withhold_reason(&card, &file.parsed, &file.name) {
                Ok(withheld) => file.withheld = withheld,
                Err(error) => {
                    tracing::warn!(%error, file = file.name, "the task of a message cannot be stored; retrying at the next ingest");
                    index.unlogged = Some(error.to_string());
                    continue;
                }
            }
            self.shared.set_known_task_id(&self.me, &mut file.parsed.message, &file.name)?;
            decided.push(file);
        }
        Ok(decided)
    }

    /// Returns why a message is withheld, if it is. A task gets its record here, before anybody can act on it.
    fn withhold_reason(
        &self,
        card: &Card,
        message_file: &ParsedMessage,
        name: &str,
    ) -> Result<Option<Withheld>, OfficeError> {
        let message = &message_file.message;
        if message.kind == Kind::Task && !message_file.read {
            let record = self.open_found_task(message, name)?;
            let rejected = record.is_some_and(|record| record.by_office && record.task.state == TaskState::Rejected);
            return Ok(rejected.then_some(Withheld::Rejected));
        }
        // An update from the assignee of the agent's own task needs no consent.
        let expected = message_file::is_report(message) && self.is_expected_update(message)?;
        let allowed = expected || card.allow_from.allows(&message.from) || message.from == self.me;
        Ok((!allowed && !message_file.read).then_some(Withheld::Refused))
    }

    /// Returns the lines for files that are not in the log yet. The caller has locked the log.
    fn new_log_lines(&self, index: &MailboxIndex, read: Vec<FreshFile>) -> Result<Vec<LogLine>, OfficeError> {
        let layout = self.shared.paths.layout;
        let mut lines: Vec<LogLine> = Vec::new();
        let mut taken = self.ids_in_log(read.iter().map(|fresh| (fresh.name.as_str(), &fresh.parsed.message)))?;
        for FreshFile { name: f, version, parsed: ParsedMessage { message, read }, withheld } in read {
            let mut brief = Brief::of_found(&message, &self.me, layout, &f);
            let known = index.known.get(&f);
            if known.is_some_and(|known| known.version == version) {
                continue;
            }
            if let Some(known) = known {
                // Written again since we read it, such as to mark it as read: the next ingest reads it again.
                let path = self.shared.paths.inbox(&self.me).join(&f);
                if fs_err::symlink_metadata(&path).map_or(true, |now| FileVersion::of(&now) != version) {
                    continue;
                }
                if message_file::with_known_id(message.clone(), &f, &known.brief.id).is_some() {
                    // The same message: it was marked as read, or another program wrote it again.
                    if brief.is_same_as(&known.brief) && (read || !known.read) {
                        lines.push(LogLine::Seen { f, version, read });
                        continue;
                    }
                    // Changed in place before it was read: the last line about an id counts.
                    if known.is_unread() && known.version.inode == version.inode {
                        brief.id = known.brief.id.clone();
                        lines.push(LogLine::In { f, version, brief, read, withheld });
                        continue;
                    }
                }
            }
            if !taken.insert(brief.id.clone()) && !message_file::has_unique_id(layout, &f, &message) {
                brief.id = message_file::disambiguated_id(&message, &f);
            }
            lines.push(LogLine::In { f, version, brief, read, withheld });
        }
        Ok(lines)
    }

    /// Returns those ids of these messages, each with its file name, that received messages in the log have already.
    /// Ids that are unique anyway are not looked up.
    pub(crate) fn ids_in_log<'a>(
        &self,
        found: impl Iterator<Item = (&'a str, &'a Message)>,
    ) -> Result<HashSet<MessageId>, OfficeError> {
        let layout = self.shared.paths.layout;
        let ids: HashSet<&MessageId> = found
            .filter(|(name, message)| !message_file::has_unique_id(layout, name, message))
            .map(|(_, message)| &message.id)
            .collect();
        let mut taken = HashSet::new();
        if ids.len() <= MAX_SEARCHED_IDS {
            for id in ids {
                let has = |line: &LogLine| matches!(line, LogLine::In { brief, .. } if brief.id == *id);
                if self.shared.last_line(&self.me, id, has)?.is_some() {
                    taken.insert(id.clone());
                }
            }
            return Ok(taken);
        }
        let add = |line| {
            if let LogLine::In { brief, .. } = line
                && ids.contains(&brief.id)
            {
                taken.insert(brief.id);
            }
            ControlFlow::Continue(())
        };
        self.shared.log(&self.me).scan(0, add).context("could not read the log")?;
        Ok(taken)
    }

    /// Handles a file that could not be read as a message.
    fn handle_unreadable(&self, name: &str, why: &Unreadable) -> Result<(), OfficeError> {
        let paths = &self.shared.paths;
        let path = paths.inbox(&self.me).join(name);
        if let Unreadable::Io(error) = why {
            tracing::warn!(file = %path.display(), %error, "reading a message failed; left in place");
            return Ok(());
        }
        if why.may_be_unfinished(&path) {
            return Ok(());
        }
        if paths.layout == Layout::Chipset {
            tracing::warn!(file = %path.display(), %why, "corrupt message file; skipped and left in place");
            return Ok(());
        }
        let corrupt = paths.corrupt(&self.me);
        let moved = open::refuse_link(&corrupt)
            .and_then(|()| durable::make_dir(&corrupt, &self.shared.syncer))
            .and_then(|()| durable::move_into(&path, &corrupt, name, paths.layout.suffix()));
        match moved {
            Ok(Some(_)) => tracing::warn!(file = %path.display(), %why, "corrupt message file; moved to corrupt/"),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(file = %path.display(), %why, %error, "corrupt message file, and moving it failed")
            }
        }
        Ok(())
    }

    /// Moves withheld messages out of the mailbox.
    fn move_withheld(&self, index: &mut MailboxIndex) {
        let withheld: Vec<(String, Withheld, Brief)> = index
            .known
            .iter()
            .filter(|(_, known)| !known.read)
            .filter_map(|(name, known)| Some((name.clone(), known.withheld?, known.brief.clone())))
            .collect();
        for (name, why, brief) in withheld {
            let moved = match why {
                Withheld::Refused => self.move_to_refused(index, &name, &brief),
                Withheld::Rejected => brief
                    .task
                    .as_ref()
                    .map_or(Ok(()), |task| self.finish_rejection(task))
                    .and_then(|()| self.mark_handled(index, std::slice::from_ref(&name)).map(drop)),
            };
            // It is not shown wherever it is, and must not block the rest of the mail.
            if let Err(error) = moved {
                tracing::warn!(%error, file = name, from = %brief.peer, "moving a withheld message failed; retrying at the next ingest");
            }
        }
    }

    /// Moves a message whose sender is not in `allow_from` to `refused/`.
    fn move_to_refused(&self, index: &mut MailboxIndex, name: &str, brief: &Brief) -> Result<(), OfficeError> {
        let paths = &self.shared.paths;
        let path = paths.inbox(&self.me).join(name);
        let refused = paths.refused(&self.me);
        durable::make_dir(&refused, &self.shared.syncer)
            .and_then(|()| durable::move_into(&path, &refused, name, paths.layout.suffix()))
            .context("could not move a refused message aside")?;
        tracing::warn!(
            file = %path.display(), from = %brief.peer,
            "a message from a sender that is not in allow_from; moved to refused/"
        );
        index.known.remove(name);
        Ok(())
    }
}
