//! Claiming: one message, one consumer at a time, however many processes poll one mailbox.
//!
//! A claim is an advisory lock on the message's file, held by an open file of the consumer's process: when the process
//! dies, however it dies, the kernel gives the lock back and the message can be claimed again. Where the file system has
//! no locks, a claim is a lease: a numbered file with a deadline.

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use amb_core::limits::MAX_CLAIMED;
use amb_core::mailbox::ClaimRequest;
use amb_core::{Message, MessageId, OfficeError};

use crate::files::failure::Doing;
use crate::files::layout::Layout;
use crate::files::lease::{self, LeaseFile};
use crate::files::lock::{FileLock, same_file};
use crate::files::message_file;
use crate::files::open;
use crate::office::{AgentDir, ClaimBy};

/// The messages that this mailbox holds.
#[derive(Debug, Default)]
pub(crate) struct Claims(HashMap<MessageId, Claim>);

#[derive(Debug)]
struct Claim {
    /// Where the message lay when it was claimed.
    path: PathBuf,
    held: ClaimHold,
}

#[derive(Debug)]
enum ClaimHold {
    /// Locked while it is open.
    Lock(File),
    Lease(LeaseFile),
}

impl Claims {
    /// The messages held, with the paths of their files. Forgets those that were handled elsewhere.
    pub(crate) fn files(&mut self) -> Vec<(MessageId, PathBuf)> {
        self.0.retain(|_, claim| claim.holds());
        self.0.iter().map(|(id, claim)| (id.clone(), claim.path.clone())).collect()
    }
}

impl Claim {
    /// Whether the message still lies where it was claimed, and the claim still holds.
    fn holds(&self) -> bool {
        match &self.held {
            ClaimHold::Lock(file) => same_file(file, &self.path),
            ClaimHold::Lease(lease) => lease.holds() && self.path.exists(),
        }
    }
}

impl AgentDir {
    /// Takes unread messages that no other consumer holds.
    pub(crate) fn claim(&self, request: &ClaimRequest) -> Result<Vec<Message>, OfficeError> {
        let mut free: Vec<_> = {
            let index = self.ingest()?;
            let unread = index.known.iter().filter(|(_, known)| known.is_unread());
            unread
                .map(|(name, known)| (known.brief.priority, known.brief.at, name.clone(), known.brief.id.clone()))
                .collect()
        };
        free.sort_by(|a, b| {
            let urgency = if request.urgent_first { b.0.cmp(&a.0) } else { std::cmp::Ordering::Equal };
            urgency.then_with(|| (a.1, &a.2).cmp(&(b.1, &b.2)))
        });
        let mut claims = self.claims.lock();
        claims.0.retain(|_, claim| claim.holds());
        if free.is_empty() {
            return Ok(Vec::new());
        }
        let _turn = self.claiming()?;
        let mut taken = Vec::new();
        for (_, _, name, id) in free {
            if taken.len() >= request.limit {
                break;
            }
            if claims.0.contains_key(&id) {
                continue;
            }
            if let Some((claim, message)) = self.take(&name, &id, request.lease)? {
                claims.0.insert(message.id.clone(), claim);
                taken.push(self.shown(message));
            }
        }
        Ok(taken)
    }

    /// Held while claims are taken or listed: listing tries each lock, and a claim at the same time must not find it taken.
    fn claiming(&self) -> Result<FileLock, OfficeError> {
        FileLock::wait(&self.shared.paths.state(&self.me).join("claims.lock")).doing("could not lock the claims")
    }

    /// What consumers of this mailbox, in any process, hold and have not acknowledged.
    pub(crate) fn claimed(&self) -> Result<Vec<Message>, OfficeError> {
        let unread: Vec<_> = {
            let index = self.ingest()?;
            let unread = index.known.iter().filter(|(_, known)| known.is_unread());
            unread.map(|(name, known)| (name.clone(), known.brief.id.clone())).collect()
        };
        if unread.is_empty() {
            return Ok(Vec::new());
        }
        let paths = &self.shared.paths;
        let (inbox, leases) = (paths.inbox(&self.me), paths.state(&self.me).join("leases"));
        let any_lease = leases.exists();
        let _turn = self.claiming()?;
        let held = |name: &str| is_locked(&inbox.join(name)) || (any_lease && lease::is_held(&leases, name));
        let held = unread.into_iter().filter(|(name, _)| held(name)).take(MAX_CLAIMED);
        let read = |(name, id): (String, MessageId)| {
            let file = open::regular(&inbox.join(&name)).ok()?.into_parts().0;
            let message_file = message_file::read(paths.layout, &self.me, &file, &mut &file, &name).ok()?;
            message_file::known_as(message_file.message, &name, &id).map(|message| self.shown(message))
        };
        // One that cannot be read any more was handled, or is dealt with by the next claim.
        Ok(held.filter_map(read).collect())
    }

    /// Takes one message, unless somebody else has it or it is not there any more.
    fn take(&self, name: &str, id: &MessageId, lease: Duration) -> Result<Option<(Claim, Message)>, OfficeError> {
        let paths = &self.shared.paths;
        let path = paths.inbox(&self.me).join(name);
        let doing = "could not claim a message";
        // For reading alone: closing a file that was open for writing is a hint to everybody who waits at this mailbox.
        let Some(file) = open::if_there(open::regular(&path)).doing(doing)? else { return Ok(None) };
        let mut file = file.into_parts().0;
        let is_locked = match self.shared.options.claims {
            ClaimBy::Lease => false,
            ClaimBy::Lock => match lock_for_reading_or_writing(&mut file, &path) {
                Ok(()) => true,
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => false,
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error).doing(doing),
            },
        };
        let mut leased = None;
        if !is_locked {
            let directory = paths.state(&self.me).join("leases");
            leased = LeaseFile::take(&directory, name, lease, &self.shared.syncer).doing(doing)?;
            if leased.is_none() {
                return Ok(None);
            }
        }
        // It may have been handled, or rewritten, between the listing and the lock.
        if !same_file(&file, &path) {
            return Ok(None);
        }
        let message_file = match message_file::read(paths.layout, &self.me, &file, &mut &file, name) {
            Ok(message_file) if paths.layout == Layout::Chipset && message_file.read => return Ok(None),
            Ok(mut message_file) => {
                self.shared.name_task(&self.me, &mut message_file.message, name)?;
                message_file
            }
            Err(bad) => {
                tracing::warn!(file = %path.display(), %bad, "a message that was noticed before cannot be read now");
                return Ok(None);
            }
        };
        let held = match leased {
            Some(lease) => ClaimHold::Lease(lease),
            None => ClaimHold::Lock(file),
        };
        Ok(message_file::known_as(message_file.message, name, id).map(|message| (Claim { path, held }, message)))
    }

    /// Lengthens the claims that would run out; those by the kernel's lock do not.
    pub(crate) fn renew(&self, ids: &[MessageId], lease: Duration) -> Result<(), OfficeError> {
        let mut claims = self.claims.lock();
        for id in ids {
            if let Some(Claim { held: ClaimHold::Lease(held), .. }) = claims.0.get_mut(id) {
                held.renew(lease).doing("could not keep a claim")?;
            }
        }
        Ok(())
    }

    /// Ends claims; their locks end with their files.
    pub(crate) fn release(&self, ids: &[MessageId]) {
        let mut claims = self.claims.lock();
        for id in ids {
            claims.0.remove(id);
        }
    }
}

/// Locks the file; some network file systems lock only what is open for writing, so it is opened so there.
fn lock_for_reading_or_writing(file: &mut File, path: &Path) -> Result<(), TryLockError> {
    match file.try_lock() {
        Err(TryLockError::Error(error)) if error.raw_os_error() == Some(rustix::io::Errno::BADF.raw_os_error()) => {
            let writable = open::regular_with(path, open::options().read(true).write(true));
            *file = writable.map_err(TryLockError::Error)?.into_parts().0;
            file.try_lock()
        }
        locked => locked,
    }
}

/// Whether a process holds the lock of this message's file.
pub(crate) fn is_locked(path: &Path) -> bool {
    let Ok(file) = open::regular(path) else { return false };
    matches!(file.file().try_lock_shared(), Err(TryLockError::WouldBlock))
}
