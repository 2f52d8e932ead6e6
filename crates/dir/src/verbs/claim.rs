//! Claims messages: one consumer at a time has a message, however many processes poll the mailbox.
//!
//! A claim is an advisory lock on the message's file. When the consumer's process dies, the kernel releases the lock
//! and the message can be claimed again. On file systems without locks a claim is a lease: a numbered file with a
//! deadline.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use amb_core::limits::MAX_CLAIMED;
use amb_core::mailbox::ClaimRequest;
use amb_core::{Message, MessageId, OfficeError};

use crate::files::failure::IoContext;
use crate::files::layout::Layout;
use crate::files::lease::{self, LeaseFile};
use crate::files::lock::{FileLock, same_file};
use crate::files::message_file;
use crate::files::open;
use crate::log::Brief;
use crate::office::{AgentDir, ClaimBy};

/// A message that this mailbox holds.
#[derive(Debug)]
pub(crate) struct Claim {
    /// Path of the message when it was claimed.
    pub(crate) path: PathBuf,
    held: ClaimHold,
}

#[derive(Debug)]
enum ClaimHold {
    /// Locked while it is open.
    Lock(File),
    Lease(LeaseFile),
}

impl Claim {
    /// The name of the message's file.
    pub(crate) fn file_name(&self) -> Option<String> {
        Some(self.path.file_name()?.to_str()?.to_owned())
    }

    /// Whether the message is still where it was claimed, and the claim has not expired.
    pub(crate) fn holds(&self) -> bool {
        match &self.held {
            ClaimHold::Lock(file) => same_file(file, &self.path),
            ClaimHold::Lease(lease) => lease.holds() && self.path.exists(),
        }
    }
}

impl AgentDir {
    /// Claims unread messages that no other consumer holds.
    pub(crate) fn claim(&self, request: &ClaimRequest) -> Result<Vec<Message>, OfficeError> {
        let mut free: Vec<_> = {
            let index = self.ingest()?;
            let unread = index.known.iter().filter(|(_, known)| known.is_unread());
            unread.map(|(name, known)| (name.clone(), known.brief.clone(), known.version.inode)).collect()
        };
        free.sort_by(|a, b| {
            let urgency =
                if request.urgent_first { b.1.priority.cmp(&a.1.priority) } else { std::cmp::Ordering::Equal };
            urgency.then_with(|| (a.1.at, &a.0).cmp(&(b.1.at, &b.0)))
        });
        let mut claims = self.claims.lock();
        claims.retain(|_, claim| claim.holds());
        if free.is_empty() {
            return Ok(Vec::new());
        }
        let _locked = self.lock_claims()?;
        let mut taken = Vec::new();
        for (name, brief, inode) in free {
            if taken.len() >= request.limit {
                break;
            }
            if claims.contains_key(&brief.id) {
                continue;
            }
            if let Some((claim, message)) = self.try_claim(&name, (&brief, inode), request.lease)? {
                claims.insert(message.id.clone(), claim);
                taken.push(self.redacted(message));
            }
        }
        Ok(taken)
    }

    /// Held while claims are taken or listed: listing tries each lock, which must not make a concurrent claim fail.
    fn lock_claims(&self) -> Result<FileLock, OfficeError> {
        FileLock::lock(&self.shared.paths.state(&self.me).join("claims.lock")).context("could not lock the claims")
    }

    /// Returns the messages that consumers of this mailbox, in any process, have claimed and not acknowledged.
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
        let (inbox, leases) = (paths.inbox(&self.me), paths.leases(&self.me));
        let any_lease = leases.exists();
        let _locked = self.lock_claims()?;
        let held = |name: &str| is_locked(&inbox.join(name)) || (any_lease && lease::is_held(&leases, name));
        let held = unread.into_iter().filter(|(name, _)| held(name)).take(MAX_CLAIMED);
        let read = |(name, id): (String, MessageId)| {
            let message_file = message_file::open(paths.layout, &self.me, &inbox.join(&name), &name).ok()?;
            message_file::with_known_id(message_file.message, &name, &id).map(|message| self.redacted(message))
        };
        // One that can no longer be read was handled meanwhile, or is corrupt, which the next claim reports.
        Ok(held.filter_map(read).collect())
    }

    /// Claims one message, unless another consumer has it or it is gone.
    fn try_claim(
        &self,
        name: &str,
        (logged, inode): (&Brief, u64),
        lease: Duration,
    ) -> Result<Option<(Claim, Message)>, OfficeError> {
        let paths = &self.shared.paths;
        let path = paths.inbox(&self.me).join(name);
        let context = "could not claim a message";
        // Read-only: closing a file that was open for writing would wake every process that watches this mailbox.
        let Some(file) = open::if_exists(open::regular(&path)).context(context)? else { return Ok(None) };
        let mut file = file.into_parts().0;
        let is_locked = match self.shared.options.claims {
            ClaimBy::Lease => false,
            ClaimBy::Lock => match lock_for_reading_or_writing(&mut file, &path) {
                Ok(()) => true,
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => false,
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error).context(context),
            },
        };
        let mut leased = None;
        if !is_locked {
            leased = LeaseFile::take(&paths.leases(&self.me), name, lease, &self.shared.syncer).context(context)?;
            if leased.is_none() {
                return Ok(None);
            }
        }
        // It may have been handled or rewritten between the listing and the lock.
        if !same_file(&file, &path) {
            return Ok(None);
        }
        let message_file = match message_file::read(paths.layout, &self.me, &file, name) {
            Ok(message_file) if paths.layout == Layout::Chipset && message_file.read => return Ok(None),
            Ok(mut message_file) => {
                self.shared.set_known_task_id(&self.me, &mut message_file.message, name)?;
                message_file
            }
            Err(bad) => {
                tracing::warn!(file = %path.display(), %bad, "a message in the log cannot be read now");
                return Ok(None);
            }
        };
        let message = match file.metadata().context(context)?.ino() == inode {
            // Also if another program has changed its content in place.
            true => message_file::with_known_id(message_file.message, name, &logged.id),
            false => message_file::as_logged(message_file.message, name, logged),
        };
        let held = match leased {
            Some(lease) => ClaimHold::Lease(lease),
            None => ClaimHold::Lock(file),
        };
        Ok(message.map(|message| (Claim { path, held }, message)))
    }

    /// Extends the claims that are leases; locks do not expire.
    pub(crate) fn renew(&self, ids: &[MessageId], lease: Duration) -> Result<(), OfficeError> {
        let mut claims = self.claims.lock();
        for id in ids {
            if let Some(Claim { held: ClaimHold::Lease(held), .. }) = claims.get_mut(id) {
                held.renew(lease).context("could not keep a claim")?;
            }
        }
        Ok(())
    }

    /// Releases claims; closing a file releases its lock.
    pub(crate) fn release(&self, ids: &[MessageId]) {
        let mut claims = self.claims.lock();
        for id in ids {
            claims.remove(id);
        }
    }
}

/// Locks the file. Some network file systems lock only files that are open for writing, so it is reopened for those.
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
