//! The lease of a mailbox: of several sessions of one agent, only the most recently active one is rung.

use std::io;
use std::path::PathBuf;

use amb_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::directory::WakeDirectory;
use crate::file;
use crate::process::Process;

/// The session that is rung.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The `amb mcp` that rings. A lease whose process is gone has no holder.
    pub process: Process,
    /// Its client.
    pub client: String,
    /// Its client's session.
    pub session: String,
    /// When its client was last active.
    pub active_at: Timestamp,
}

impl WakeDirectory {
    fn lease_path(&self) -> PathBuf {
        self.root().join("lease.json")
    }

    fn lock_lease(&self) -> io::Result<fs_err::File> {
        file::lock(&self.root().join("lease.lock"))
    }

    /// The client session that gets the wake-ups of this mailbox, if the holder of the lease lives.
    pub fn lease(&self) -> io::Result<Option<Lease>> {
        Ok(file::read::<Lease>(&self.lease_path())?.filter(|lease| lease.process.is_alive()))
    }

    /// Takes or renews the lease; returns whether the caller holds it now.
    pub fn claim(&self, mine: &Lease) -> io::Result<bool> {
        let _locked = self.lock_lease()?;
        match self.lease()? {
            Some(held) if held.process != mine.process && held.active_at >= mine.active_at => Ok(false),
            Some(held) if held == *mine => Ok(true),
            _ => file::write(&self.lease_path(), mine).map(|()| true),
        }
    }

    /// Releases the lease, if this process holds it.
    pub fn release(&self, process: Process) -> io::Result<()> {
        let _locked = self.lock_lease()?;
        match file::read::<Lease>(&self.lease_path())? {
            Some(held) if held.process == process => fs_err::remove_file(self.lease_path()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn lease(process: Process, seconds: i64) -> Lease {
        let active_at = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds);
        Lease { process, client: "claude".into(), session: "s".into(), active_at }
    }

    #[test]
    fn the_most_recently_active_session_holds_the_lease() {
        let home = tempfile::tempdir().unwrap();
        let place = WakeDirectory::new(home.path());
        let (me, parent) = (Process::me(), Process::parent().unwrap());
        assert!(place.claim(&lease(me, 10)).unwrap());
        assert!(!place.claim(&lease(parent, 9)).unwrap());
        assert!(place.claim(&lease(parent, 11)).unwrap());
        assert!(!place.claim(&lease(me, 10)).unwrap());
        place.release(me).unwrap();
        assert_eq!(place.lease().unwrap(), Some(lease(parent, 11)), "only its holder gives it up");
        place.release(parent).unwrap();
        assert_eq!(place.lease().unwrap(), None);
    }

    #[test]
    fn a_dead_holder_and_a_reused_pid_hold_nothing() {
        let home = tempfile::tempdir().unwrap();
        let place = WakeDirectory::new(home.path());
        let parent = Process::parent().unwrap();
        let reused = Process { began: parent.began + 1, ..parent };
        assert!(place.claim(&lease(reused, 99)).unwrap());
        assert_eq!(place.lease().unwrap(), None);
        assert!(place.claim(&lease(Process::me(), 1)).unwrap());
    }
}
