//! Acknowledging: to `processed/` (nanobot), or marked as read in its file (chipset).

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use amb_core::{MessageId, OfficeError, Receipt};

use crate::book::Book;
use crate::durable;
use crate::failure::Doing;
use crate::layout::Layout;
use crate::letter;
use crate::log::{Brief, Line};
use crate::office::Desk;
use crate::open;

impl Desk {
    /// Marks messages that came to the agent as handled; answers how many were not yet.
    pub(crate) fn ack(&self, ids: &[MessageId]) -> Result<u64, OfficeError> {
        let mut book = self.notice()?;
        let elsewhere: Vec<&MessageId> = ids.iter().filter(|id| book.by_id(id).is_none()).collect();
        // All are looked up before any is marked, so that an error means that nothing was done.
        let mut archived = Vec::new();
        if !elsewhere.is_empty() {
            drop(book);
            for id in elsewhere {
                match self.line_of(id)? {
                    Some(Line::In { f, brief, .. }) => archived.push((f, brief)),
                    Some(_) => {}
                    None => return Err(OfficeError::not_found(format!("no message {id} of yours"))),
                }
            }
            book = self.notice()?;
        }
        let unread = |id| book.by_id(id).filter(|(_, known)| known.is_unread()).map(|(name, _)| name.clone());
        let mut names: Vec<String> = ids.iter().filter_map(unread).collect();
        names.sort();
        names.dedup();
        // One by one where each is rewritten: a claim holds the old file, and with it its room on the disk.
        let at_once = if self.shared.paths.layout == Layout::Chipset { 1 } else { usize::MAX };
        let mut done = 0;
        for names in names.chunks(at_once.min(names.len()).max(1)) {
            let handled: Vec<_> =
                names.iter().filter_map(|name| Some(book.known.get(name)?.brief.id.clone())).collect();
            done += self.put_away(&mut book, names)?;
            self.forget_claims(&handled);
        }
        drop(book);
        if self.shared.paths.layout == Layout::Chipset {
            for (file, brief) in archived {
                done += u64::from(self.mark_archived(&file, &brief)?);
            }
        }
        self.forget_claims(ids);
        Ok(done)
    }

    /// Puts away messages that lie in the mailbox, by the names of their files, durably; tells their senders. Those that
    /// somebody else has put away meanwhile are not counted.
    pub(crate) fn put_away(&self, book: &mut Book, names: &[String]) -> Result<u64, OfficeError> {
        let mut done = Vec::new();
        match self.shared.paths.layout {
            Layout::Nanobot => {
                let (inbox, away) = (self.shared.paths.inbox(&self.me), self.shared.paths.put_away(&self.me));
                let doing = "could not acknowledge the message";
                for name in names {
                    let moved = match durable::move_into(&inbox.join(name), &away, name, self.shared.paths.suffix()) {
                        // The directory is there but for the first time.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {
                            durable::make_dir(&away, &self.shared.syncer).doing(doing)?;
                            durable::move_into(&inbox.join(name), &away, name, self.shared.paths.suffix())
                        }
                        other => other,
                    };
                    let known = book.known.remove(name);
                    if moved.doing(doing)?.is_some() {
                        done.extend(known);
                    }
                }
                if !done.is_empty() {
                    self.shared.syncer.sync(&away).doing(doing)?;
                    self.shared.syncer.sync(&inbox).doing(doing)?;
                }
            }
            Layout::Chipset => {
                let mut lines = Vec::new();
                for name in names {
                    let path = self.shared.paths.inbox(&self.me).join(name);
                    let marked = self.mark_file(&path)?;
                    if let Some(inode) = marked {
                        lines.push(Line::Seen { f: name.clone(), i: inode, read: true });
                        done.extend(book.known.get(name).cloned());
                    } else if !path.exists() {
                        // Archived meanwhile: marked there.
                        if let Some(known) = book.known.get(name).cloned()
                            && self.mark_archived(name, &known.brief)?
                        {
                            done.push(known);
                        }
                    }
                }
                if !lines.is_empty() {
                    self.shared.make_state(&self.me)?;
                    let log = self.shared.log(&self.me);
                    log.write().and_then(|mut writer| writer.add(&lines)).doing("could not add to the log")?;
                    book.catch_up(&log, &self.shared.paths.state(&self.me)).doing("could not read the log")?;
                }
            }
        }
        self.tell_senders(done.iter().filter(|known| known.withheld.is_none()).map(|known| &known.brief));
        Ok(done.len() as u64)
    }

    /// Marks a file as read; answers its new inode, or nothing if it is marked already or not there.
    fn mark_file(&self, path: &Path) -> Result<Option<u64>, OfficeError> {
        let doing = "could not mark the message as read";
        let bytes = match open::bytes(path, letter::LARGEST) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).doing(doing),
        };
        let Some(marked) = letter::marked_read(&bytes)? else { return Ok(None) };
        match durable::replace_existing(path, &marked, &self.shared.syncer) {
            Ok(()) => {}
            // Moved to the archive between the read and the write, and not brought back.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).doing(doing),
        }
        Ok(Some(fs_err::metadata(path).map(|about| about.ino()).unwrap_or_default()))
    }

    /// Marks a message that was archived unread.
    fn mark_archived(&self, file: &str, brief: &Brief) -> Result<bool, OfficeError> {
        for _ in 0..2 {
            let Some(place) = self.shared.locate(&self.me, file)? else { return Ok(false) };
            if self.mark_file(&place.path)?.is_some() {
                self.tell_senders(std::iter::once(brief));
                return Ok(true);
            }
            if place.path.exists() {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Enters the receipts in the logs of the senders that have one. A receipt is news, not mail: it may fail.
    fn tell_senders<'a>(&self, read: impl Iterator<Item = &'a Brief>) {
        let now = self.shared.now();
        let mut by_sender: BTreeMap<_, Vec<Line>> = BTreeMap::new();
        for brief in read.filter(|brief| brief.peer != self.me) {
            let receipt = Receipt::of(self.me.clone(), brief.at, Some(now), Some(now));
            by_sender.entry(&brief.peer).or_default().push(Line::Receipt { id: brief.id.clone(), receipt });
        }
        for (sender, lines) in by_sender {
            let log = self.shared.log(sender);
            let told = match log.measure() {
                Ok((0, _)) => Ok(0),
                Ok(_) => log.write().and_then(|mut writer| writer.add(&lines)),
                Err(error) => Err(error),
            };
            if let Err(error) = told {
                tracing::warn!(%error, %sender, "could not tell the sender that its message was read");
            }
        }
    }
}
