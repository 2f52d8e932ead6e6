//! Leases: claims for file systems without locks.
//!
//! A lease on a message is a file `NAME.N` that contains its deadline. The highest N counts. After the deadline the
//! process that creates `NAME.N+1` has the message: of several that create the same new file, one succeeds.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use amb_core::Timestamp;
use fs_err::os::unix::fs::OpenOptionsExt;

use crate::files::durable;
use crate::files::open;
use crate::files::step::step;
use crate::files::syncer::Syncer;

/// Bound on a lease file, which holds one timestamp.
const MAX_BYTES: u64 = 1 << 10;

/// A lease that this process holds. Released on drop.
#[derive(Debug)]
pub(crate) struct LeaseFile {
    path: PathBuf,
    deadline: Timestamp,
}

impl LeaseFile {
    /// Takes the lease on a message, unless another consumer holds it.
    pub(crate) fn take(directory: &Path, name: &str, length: Duration, syncer: &Syncer) -> io::Result<Option<Self>> {
        durable::make_dir(directory, syncer)?;
        let now = Timestamp::now();
        let mut next = 0;
        for (number, path) in numbered(directory, name)? {
            if deadline_in(&path).is_some_and(|deadline| deadline > now) {
                return Ok(None);
            }
            next = next.max(number + 1);
        }
        let deadline = deadline_after(now, length);
        let path = directory.join(format!("{name}.{next}"));
        step();
        let made = fs_err::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        match made {
            Ok(mut file) => {
                step();
                file.write_all(format!("{deadline:.9}").as_bytes())?;
                let lease = Self { path, deadline };
                let others = numbered(directory, name)?;
                // Another process may have taken a lease and cleaned up since the listing: the highest number counts.
                if others.iter().any(|(number, _)| *number > next) {
                    return Ok(None);
                }
                for (_, old) in others.into_iter().filter(|(number, _)| *number < next) {
                    let _best_effort = durable::remove(&old);
                }
                Ok(Some(lease))
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Extends the lease, unless it has expired: then another consumer may have the message.
    pub(crate) fn renew(&mut self, length: Duration) -> io::Result<()> {
        if !self.holds() {
            return Ok(());
        }
        let deadline = deadline_after(Timestamp::now(), length);
        // Overwritten in place, without truncating, so that a concurrent reader sees a valid lease. Both texts have the
        // same length.
        let text = format!("{deadline:.9}");
        open::regular_with(&self.path, open::options().write(true))?.write_all(text.as_bytes())?;
        self.deadline = deadline;
        Ok(())
    }

    /// Whether it has not expired.
    pub(crate) fn holds(&self) -> bool {
        self.deadline > Timestamp::now()
    }
}

impl Drop for LeaseFile {
    fn drop(&mut self) {
        if self.holds() {
            // Not removed: if the number were free again, a slow competitor could take it a second time.
            let options = open::options().write(true).truncate(true).clone();
            step();
            let _expires_anyway = open::regular_with(&self.path, &options)
                .and_then(|mut file| file.write_all(Timestamp::UNIX_EPOCH.to_string().as_bytes()));
        }
    }
}

fn deadline_after(now: Timestamp, length: Duration) -> Timestamp {
    let deadline = now.checked_add(jiff::SignedDuration::try_from(length).unwrap_or(jiff::SignedDuration::MAX));
    deadline.unwrap_or(Timestamp::MAX)
}

/// Returns the deadline in a lease file. An empty file counts as live for a second: its writer may not be done.
pub(crate) fn deadline_in(path: &Path) -> Option<Timestamp> {
    let bytes = open::read(path, MAX_BYTES).ok()?;
    if let Some(deadline) = std::str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok()) {
        return Some(deadline);
    }
    let age = fs_err::metadata(path).ok()?.modified().ok()?.elapsed().unwrap_or_default();
    (age < Duration::from_secs(1)).then_some(Timestamp::MAX)
}

/// Whether any process holds a lease on this message.
pub(crate) fn is_held(directory: &Path, name: &str) -> bool {
    let now = Timestamp::now();
    let leases = numbered(directory, name).unwrap_or_default();
    leases.iter().any(|(_, path)| deadline_in(path).is_some_and(|deadline| deadline > now))
}

/// Returns the lease files of one message with their numbers.
fn numbered(directory: &Path, name: &str) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs_err::read_dir(directory)? {
        let path = entry?.path();
        let number =
            path.file_name().and_then(|file| file.to_str()?.strip_prefix(name)?.strip_prefix('.')?.parse().ok());
        found.extend(number.map(|number| (number, path)));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_excludes_others_until_it_is_released_or_expires() {
        let dir = tempfile::tempdir().unwrap();
        let syncer = Syncer::default();
        let take = |length| LeaseFile::take(dir.path(), "m.json", length, &syncer).unwrap();
        let held = take(Duration::from_secs(60)).unwrap();
        assert!(take(Duration::from_secs(60)).is_none());
        assert!(LeaseFile::take(dir.path(), "other.json", Duration::from_secs(60), &syncer).unwrap().is_some());
        drop(held);
        let short = take(Duration::ZERO).unwrap();
        assert!(!short.holds());
        assert!(take(Duration::from_secs(60)).is_some(), "it had expired");
    }

    #[test]
    fn a_live_lease_can_be_renewed_and_an_expired_one_cannot() {
        let dir = tempfile::tempdir().unwrap();
        let syncer = Syncer::default();
        let take = |length| LeaseFile::take(dir.path(), "m.json", length, &syncer).unwrap();
        let mut held = take(Duration::from_secs(60)).unwrap();
        let before = held.deadline;
        held.renew(Duration::from_secs(3_600)).unwrap();
        assert!(held.deadline > before && deadline_in(&held.path) == Some(held.deadline));
        assert!(take(Duration::from_secs(60)).is_none());
        held.renew(Duration::ZERO).unwrap();
        assert!(!held.holds());
        let mine = take(Duration::from_secs(60)).unwrap();
        held.renew(Duration::from_secs(3_600)).unwrap();
        assert!(!held.holds(), "another consumer has it now");
        assert!(mine.holds());
    }

    #[test]
    fn of_concurrent_takers_one_gets_the_lease() {
        let dir = tempfile::tempdir().unwrap();
        let syncer = Syncer::default();
        let won: Vec<_> = std::thread::scope(|scope| {
            let take = || LeaseFile::take(dir.path(), "m.json", Duration::from_secs(60), &syncer).unwrap();
            let handles: Vec<_> = (0..8).map(|_| scope.spawn(take)).collect();
            handles.into_iter().filter_map(|handle| handle.join().unwrap()).collect()
        });
        assert_eq!(won.len(), 1);
    }
}
