//! The lease of a mailbox: of several sessions of one agent, only the most recently active one is rung.

use std::io;
use std::path::PathBuf;

use amb_core::Timestamp;
use serde::{Deserialize, Serialize};

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

/// The lease's file.
#[derive(Debug, Clone)]
pub(crate) struct RingLeaseFile {
    pub(crate) path: PathBuf,
}

impl RingLeaseFile {
    fn lock(&self) -> io::Result<fs_err::File> {
        file::lock(&self.path.with_extension("lock"))
    }

    /// The lease, if its holder lives.
    pub(crate) fn held(&self) -> io::Result<Option<Lease>> {
        Ok(file::read::<Lease>(&self.path)?.filter(|lease| lease.process.is_alive()))
    }

    /// Takes or renews the lease; returns whether the caller holds it now.
    pub(crate) fn claim(&self, mine: &Lease) -> io::Result<bool> {
        let _locked = self.lock()?;
        match self.held()? {
            Some(held) if held.process != mine.process && held.active_at >= mine.active_at => Ok(false),
            Some(held) if held == *mine => Ok(true),
            _ => file::write(&self.path, mine).map(|()| true),
        }
    }

    /// Releases the lease, if this process holds it.
    pub(crate) fn release(&self, process: Process) -> io::Result<()> {
        let _locked = self.lock()?;
        match file::read::<Lease>(&self.path)? {
            Some(held) if held.process == process => fs_err::remove_file(&self.path),
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
    fn the_most_recently_active_session_holds_it() {
        let home = tempfile::tempdir().unwrap();
        let file = RingLeaseFile { path: home.path().join("lease.json") };
        let (me, parent) = (Process::me(), Process::parent().unwrap());
        assert!(file.claim(&lease(me, 10)).unwrap());
        assert!(!file.claim(&lease(parent, 9)).unwrap());
        assert!(file.claim(&lease(parent, 11)).unwrap());
        assert!(!file.claim(&lease(me, 10)).unwrap());
        file.release(me).unwrap();
        assert_eq!(file.held().unwrap(), Some(lease(parent, 11)), "only its holder gives it up");
        file.release(parent).unwrap();
        assert_eq!(file.held().unwrap(), None);
    }

    #[test]
    fn a_dead_holder_and_a_reused_pid_hold_nothing() {
        let home = tempfile::tempdir().unwrap();
        let file = RingLeaseFile { path: home.path().join("lease.json") };
        let parent = Process::parent().unwrap();
        let reused = Process { began: parent.began + 1, ..parent };
        assert!(file.claim(&lease(reused, 99)).unwrap());
        assert_eq!(file.held().unwrap(), None);
        assert!(file.claim(&lease(Process::me(), 1)).unwrap());
    }
}
