//! Leases: claims for file systems without locks.
//!
//! A lease on a message is a file `NAME.N` that says until when it holds. The one with the highest N counts. When it has
//! run out, the process that creates `NAME.N+1` has the message: of several that create a new file, one succeeds.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use amb_core::Timestamp;
use fs_err::os::unix::fs::OpenOptionsExt;

use crate::files::durable;
use crate::files::open;
use crate::files::step::step;
use crate::files::syncer::Syncer;

/// A lease says a moment.
const LARGEST: u64 = 1 << 10;

/// A lease that this process took. Given back when dropped.
#[derive(Debug)]
pub(crate) struct LeaseFile {
    path: PathBuf,
    until: Timestamp,
}

impl LeaseFile {
    /// Takes the lease on a message, unless somebody has it.
    pub(crate) fn take(directory: &Path, name: &str, wanted: Duration, syncer: &Syncer) -> io::Result<Option<Self>> {
        durable::make_dir(directory, syncer)?;
        let now = Timestamp::now();
        let mut next = 0;
        for (number, path) in numbered(directory, name)? {
            if until(&path).is_some_and(|until| until > now) {
                return Ok(None);
            }
            next = next.max(number + 1);
        }
        let until = end(now, wanted);
        let path = directory.join(format!("{name}.{next}"));
        step();
        let made = fs_err::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        match made {
            Ok(mut file) => {
                step();
                file.write_all(format!("{until:.9}").as_bytes())?;
                let lease = Self { path, until };
                let others = numbered(directory, name)?;
                // Another process may have taken and cleaned up since the listing: the highest number counts.
                if others.iter().any(|(number, _)| *number > next) {
                    return Ok(None);
                }
                for (_, old) in others.into_iter().filter(|(number, _)| *number < next) {
                    // Best effort: lower numbers are ignored.
                    let _tidied = durable::remove(&old);
                }
                Ok(Some(lease))
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lengthens the lease, unless it has run out: then somebody else may have the message.
    pub(crate) fn renew(&mut self, wanted: Duration) -> io::Result<()> {
        if !self.holds() {
            return Ok(());
        }
        let until = end(Timestamp::now(), wanted);
        // Overwritten in place, without truncating: a reader in between sees a lease that holds. Both texts have the same length.
        let text = format!("{until:.9}");
        open::regular_with(&self.path, open::options().write(true))?.write_all(text.as_bytes())?;
        self.until = until;
        Ok(())
    }

    /// Whether it has not run out.
    pub(crate) fn holds(&self) -> bool {
        self.until > Timestamp::now()
    }
}

impl Drop for LeaseFile {
    fn drop(&mut self) {
        if self.holds() {
            // Not removed: if the number were free again, a slow rival could take it and believe itself the first.
            let options = open::options().write(true).truncate(true).clone();
            step();
            let _runs_out_anyway = open::regular_with(&self.path, &options)
                .and_then(|mut file| file.write_all(Timestamp::UNIX_EPOCH.to_string().as_bytes()));
        }
    }
}

fn end(now: Timestamp, wanted: Duration) -> Timestamp {
    let end = now.checked_add(jiff::SignedDuration::try_from(wanted).unwrap_or(jiff::SignedDuration::MAX));
    end.unwrap_or(Timestamp::MAX)
}

/// Until when a lease file says that it holds. One that is empty is just being written, unless it has been so for long.
pub(crate) fn until(path: &Path) -> Option<Timestamp> {
    let bytes = open::bytes(path, LARGEST).ok()?;
    if let Some(until) = std::str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok()) {
        return Some(until);
    }
    let age = fs_err::metadata(path).ok()?.modified().ok()?.elapsed().unwrap_or_default();
    (age < Duration::from_secs(1)).then_some(Timestamp::MAX)
}

/// Whether somebody holds a lease on this message.
pub(crate) fn is_held(directory: &Path, name: &str) -> bool {
    let now = Timestamp::now();
    let leases = numbered(directory, name).unwrap_or_default();
    leases.iter().any(|(_, path)| until(path).is_some_and(|until| until > now))
}

/// The lease files of one message.
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
    fn a_lease_is_one_consumers_until_it_is_given_back_or_runs_out() {
        let dir = tempfile::tempdir().unwrap();
        let syncer = Syncer::default();
        let take = |wanted| LeaseFile::take(dir.path(), "m.json", wanted, &syncer).unwrap();
        let held = take(Duration::from_secs(60)).unwrap();
        assert!(take(Duration::from_secs(60)).is_none());
        assert!(LeaseFile::take(dir.path(), "other.json", Duration::from_secs(60), &syncer).unwrap().is_some());
        drop(held);
        let short = take(Duration::ZERO).unwrap();
        assert!(!short.holds());
        assert!(take(Duration::from_secs(60)).is_some(), "it had run out");
    }

    #[test]
    fn a_lease_that_is_renewed_holds_on_and_one_that_ran_out_stays_so() {
        let dir = tempfile::tempdir().unwrap();
        let syncer = Syncer::default();
        let take = |wanted| LeaseFile::take(dir.path(), "m.json", wanted, &syncer).unwrap();
        let mut held = take(Duration::from_secs(60)).unwrap();
        let before = held.until;
        held.renew(Duration::from_secs(3_600)).unwrap();
        assert!(held.until > before && until(&held.path) == Some(held.until));
        assert!(take(Duration::from_secs(60)).is_none());
        held.renew(Duration::ZERO).unwrap();
        assert!(!held.holds());
        let mine = take(Duration::from_secs(60)).unwrap();
        held.renew(Duration::from_secs(3_600)).unwrap();
        assert!(!held.holds(), "somebody else has it now");
        assert!(mine.holds());
    }

    #[test]
    fn of_many_who_want_a_lease_one_gets_it() {
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
