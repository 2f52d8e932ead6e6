//! Ingests mail: files in the mailbox that are not in the log yet are read once, checked, and logged.
//!
//! Files may have been put there by any program, so this is where the office's rules meet mail that it did not carry
//! itself: a file that is no message goes to `corrupt/` (nanobot) or is passed over (chipset), a message from a sender
//! that the agent does not hear goes to `refused/`, and a task that may not be taken on is rejected.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::PathBuf;
use std::time::Duration;

use amb_core::{Card, Kind, MessageId, OfficeError, TaskState};
use parking_lot::MutexGuard;

use crate::files::durable;
use crate::files::failure::Doing;
use crate::files::layout::Layout;
use crate::files::message_file::{self, ParsedMessage, Unreadable};
use crate::files::open;
use crate::log::index::MailboxIndex;
use crate::log::{Brief, Log, LogLine, Withheld};
use crate::office::AgentDir;

/// A file that ends too soon is given this long: its writer may not be done.
const UNFINISHED: Duration = Duration::from_secs(1);

/// A file that is new: its name, inode and message, and why it is not to be shown.
type Fresh = (String, u64, ParsedMessage, Option<Withheld>);

/// Of mail that was handled before this office came, this much gets into the log; the doctor enters the rest.
const INDEXED_AT_FIRST: usize = 500;

impl AgentDir {
    /// Returns the index, brought up to date with the mailbox, after finishing what dead processes left.
    pub(crate) fn ingest(&self) -> Result<MutexGuard<'_, MailboxIndex>, OfficeError> {
        self.shared.finish_begun();
        self.ingest_mail()
    }

    /// Like `ingest`, without finishing what others left, for callers that do that.
    pub(crate) fn ingest_mail(&self) -> Result<MutexGuard<'_, MailboxIndex>, OfficeError> {
        self.shared.refuse_links(&self.me)?;
        let mut index = self.index.lock();
        let (state, log, inbox) = self.log_and_places();
        let doing = "could not read the log";
        // In this order: what the log has and a later listing has not is gone; what the listing has and the log has not
        // is new, or was entered by another process in between, which the second look at the log tells.
        index.try_again();
        index.catch_up(&log, &state, &inbox).doing(doing)?;
        if index.is_new() {
            if let Err(error) = self.index_recent() {
                tracing::warn!(%error, "mail that was handled before could not be entered in the log");
            }
            index.catch_up(&log, &state, &inbox).doing(doing)?;
        }
        let listed = self.list()?;
        let there: HashSet<&str> = listed.iter().map(|(name, _)| name.as_str()).collect();
        index.known.retain(|name, _| there.contains(name.as_str()));
        let fresh: Vec<(String, u64)> = listed
            .into_iter()
            .filter(|(name, inode)| index.known.get(name).is_none_or(|known| known.inode != *inode))
            .collect();
        if fresh.is_empty() {
            index.bad.clear();
            index.write_down(&state, &self.shared.syncer);
            return self.settle(index);
        }
        let read = self.read_fresh(&mut index, fresh)?;
        if !read.is_empty() {
            self.enter(&mut index, read)?;
        }
        index.write_down(&state, &self.shared.syncer);
        self.settle(index)
    }

    /// Where the agent's state is, its log, and where its mail arrives.
    pub(crate) fn log_and_places(&self) -> (PathBuf, Log, PathBuf) {
        let paths = &self.shared.paths;
        (paths.state(&self.me), self.shared.log(&self.me), paths.inbox(&self.me))
    }

    /// Enters new mail in the log. If that cannot be done now, the mail is shown all the same.
    fn enter(&self, index: &mut MailboxIndex, read: Vec<Fresh>) -> Result<(), OfficeError> {
        let (state, log, inbox) = self.log_and_places();
        let doing = "could not add to the log";
        let locked = self.shared.make_state(&self.me).and_then(|()| log.write().doing(doing));
        let mut writer = match locked {
            Ok(writer) => writer,
            Err(error) => {
                tracing::warn!(%error, "new mail is shown but not entered in the log");
                let lines = self.lines_for(index, read)?;
                index.show_only(lines, error.to_string());
                return Ok(());
            }
        };
        index.catch_up(&log, &state, &inbox).doing("could not read the log")?;
        let lines = self.lines_for(index, read)?;
        match writer.add(&lines).doing(doing) {
            Ok(end) => {
                let inode = writer.inode().doing(doing)?;
                index.added(lines, end, inode);
            }
            Err(error) => {
                tracing::warn!(%error, "new mail is shown but not entered in the log");
                index.show_only(lines, error.to_string());
            }
        }
        Ok(())
    }

    /// The first look at a mailbox that other programs have used: what was handled last gets into the log, as read.
    fn index_recent(&self) -> Result<(), OfficeError> {
        let mut handled = self.not_indexed()?;
        if handled.is_empty() {
            return Ok(());
        }
        let layout = self.shared.paths.layout;
        handled.sort_by_cached_key(|(name, _)| std::cmp::Reverse(message_file::time_in(layout, name)));
        handled.truncate(INDEXED_AT_FIRST);
        self.index(handled)
    }

    /// The mail in the mailbox: names and inodes, in no order.
    fn list(&self) -> Result<Vec<(String, u64)>, OfficeError> {
        let inbox = self.shared.paths.inbox(&self.me);
        let Some(entries) = open::if_there(fs_err::read_dir(&inbox)).doing("could not list the mailbox")? else {
            return Ok(Vec::new());
        };
        let mut listed = Vec::new();
        for entry in entries {
            let entry = entry.doing("could not list the mailbox")?;
            // A link could point at any file of the reader's: only files are mail.
            if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
                continue;
            }
            if let Ok(name) = entry.file_name().into_string()
                && message_file::is_mail(self.shared.paths.layout, &name)
            {
                listed.push((name, entry.ino()));
            }
        }
        Ok(listed)
    }

    /// Opens the files that are new, oldest first. Holds no lock: others may be doing the same.
    fn read_fresh(&self, index: &mut MailboxIndex, fresh: Vec<(String, u64)>) -> Result<Vec<Fresh>, OfficeError> {
        let paths = &self.shared.paths;
        let inbox = paths.inbox(&self.me);
        let card = self.card()?;
        let mut read = Vec::new();
        let mut still_bad = HashMap::new();
        for (name, inode) in fresh {
            let path = inbox.join(&name);
            let version =
                fs_err::symlink_metadata(&path).map(|about| (inode, about.mtime_nsec() ^ about.mtime(), about.len()));
            if let (Ok(version), Some(bad)) = (&version, index.bad.get(&name))
                && version == bad
                && paths.layout == Layout::Chipset
            {
                still_bad.insert(name, *version);
                continue;
            }
            match message_file::open(paths.layout, &self.me, &path, &name) {
                Ok(mut message_file) => {
                    let withheld = self.judge(&card, &message_file, &name)?;
                    self.shared.name_task(&self.me, &mut message_file.message, &name)?;
                    read.push((name, inode, message_file, withheld));
                }
                Err(gone) if gone.is_gone() => {}
                Err(bad) => {
                    if let Ok(version) = version {
                        still_bad.insert(name.clone(), version);
                    }
                    self.pass_over(&name, &bad)?;
                }
            }
        }
        index.bad = still_bad;
        read.sort_by(|a, b| (a.2.message.sent_at, &a.0).cmp(&(b.2.message.sent_at, &b.0)));
        Ok(read)
    }

    /// Checks whether the message may be shown. A task gets its record here, before anybody can act on it.
    fn judge(&self, card: &Card, message_file: &ParsedMessage, name: &str) -> Result<Option<Withheld>, OfficeError> {
        let message = &message_file.message;
        if message.kind == Kind::Task && !message_file.read {
            let record = self.open_task_found(message, name)?;
            let rejected = record.is_some_and(|record| record.by_office && record.task.state == TaskState::Rejected);
            return Ok(rejected.then_some(Withheld::Rejected));
        }
        // An update on one's own task comes from whom one asked; nobody else's allowance matters.
        let asked = message.kind == Kind::TaskUpdate && self.asked(message)?;
        let heard = asked || card.allow_from.allows(&message.from) || message.from == self.me;
        Ok((!heard && !message_file.read).then_some(Withheld::Refused))
    }

    /// The lines for what is new also to the log, which this process has locked.
    fn lines_for(&self, index: &MailboxIndex, read: Vec<Fresh>) -> Result<Vec<LogLine>, OfficeError> {
        let mut lines: Vec<LogLine> = Vec::new();
        for (f, i, message_file, withheld) in read {
            let mut brief = Brief::of(&message_file.message, &self.me);
            let known = index.known.get(&f);
            if known.is_some_and(|known| known.inode == i) {
                continue;
            }
            if let Some(known) = known {
                // Rewritten since we read it, as somebody quicker does who marks it as read: the next look reads it again.
                let path = self.shared.paths.inbox(&self.me).join(&f);
                if fs_err::symlink_metadata(&path).map_or(true, |about| about.ino() != i) {
                    continue;
                }
                // The same message in a new file: somebody marked it, or a program that rewrites files touched it.
                let same = Brief { id: known.brief.id.clone(), ..brief.clone() } == known.brief;
                if same
                    && (message_file.read || !known.read)
                    && message_file::known_as(message_file.message.clone(), &f, &known.brief.id).is_some()
                {
                    lines.push(LogLine::Seen { f, i, read: message_file.read });
                    continue;
                }
            }
            if !message_file::is_unique(self.shared.paths.layout, &f, &message_file.message)
                && self.is_taken(index, &lines, &brief.id)?
            {
                brief.id = message_file::second_id(&message_file.message, &f);
            }
            lines.push(LogLine::In { f, i, brief, read: message_file.read, withheld });
        }
        Ok(lines)
    }

    /// Whether another message has this id already.
    fn is_taken(&self, index: &MailboxIndex, lines: &[LogLine], id: &MessageId) -> Result<bool, OfficeError> {
        let has = |line: &LogLine| matches!(line, LogLine::In { brief, .. } if brief.id == *id);
        if lines.iter().any(has) || index.by_id(id).is_some() {
            return Ok(true);
        }
        Ok(self.shared.last_line(&self.me, id, has)?.is_some())
    }

    /// Handles a file that is no message.
    fn pass_over(&self, name: &str, why: &Unreadable) -> Result<(), OfficeError> {
        let paths = &self.shared.paths;
        let path = paths.inbox(&self.me).join(name);
        if let Unreadable::Io(error) = why {
            tracing::warn!(file = %path.display(), %error, "a message could not be read; it stays where it is");
            return Ok(());
        }
        let age = fs_err::metadata(&path).and_then(|about| about.modified()).ok().and_then(|at| at.elapsed().ok());
        if why.is_cut_off() && age.is_some_and(|age| age < UNFINISHED) {
            return Ok(());
        }
        if paths.layout == Layout::Chipset {
            tracing::warn!(file = %path.display(), %why, "corrupt message file; skipped and left in place");
            return Ok(());
        }
        let corrupt = paths.corrupt(&self.me);
        let moved = open::refuse_link(&corrupt)
            .and_then(|()| durable::make_dir(&corrupt, &self.shared.syncer))
            .and_then(|()| durable::move_into(&path, &corrupt, name, paths.suffix()));
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
    fn settle<'a>(
        &'a self,
        mut index: MutexGuard<'a, MailboxIndex>,
    ) -> Result<MutexGuard<'a, MailboxIndex>, OfficeError> {
        let withheld: Vec<(String, Withheld, Brief)> = index
            .known
            .iter()
            .filter(|(_, known)| !known.read)
            .filter_map(|(name, known)| Some((name.clone(), known.withheld?, known.brief.clone())))
            .collect();
        for (name, why, brief) in withheld {
            let settled = match why {
                Withheld::Refused => self.put_refused_aside(&mut index, &name, &brief),
                Withheld::Rejected => brief
                    .task
                    .as_ref()
                    .map_or(Ok(()), |task| self.finish_rejection(task))
                    .and_then(|()| self.put_away(&mut index, std::slice::from_ref(&name)).map(drop)),
            };
            // It is not shown, wherever it lies; the rest of the mail must not wait for it.
            if let Err(error) = settled {
                tracing::warn!(%error, file = name, from = %brief.peer, "what is withheld stays where it is; the next look tries again");
            }
        }
        Ok(index)
    }

    /// Moves a message aside whose sender is not in `allow_from`.
    fn put_refused_aside(&self, index: &mut MailboxIndex, name: &str, brief: &Brief) -> Result<(), OfficeError> {
        let paths = &self.shared.paths;
        let path = paths.inbox(&self.me).join(name);
        let refused = paths.refused(&self.me);
        durable::make_dir(&refused, &self.shared.syncer)
            .and_then(|()| durable::move_into(&path, &refused, name, paths.suffix()))
            .doing("could not move a refused message aside")?;
        tracing::warn!(
            file = %path.display(), from = %brief.peer,
            "a message from a sender that is not in allow_from; moved to refused/"
        );
        index.known.remove(name);
        Ok(())
    }
}
