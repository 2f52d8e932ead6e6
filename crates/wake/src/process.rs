//! A process, identified so that a later one with the same pid is another.

use std::path::PathBuf;

use rustix::process::{Pid, getpid, getppid, test_kill_process};
use serde::{Deserialize, Serialize};

/// A process: its pid, and when it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The process id.
    pub pid: u32,
    /// In clock ticks since boot; 0 where the system does not tell.
    pub began: u64,
}

impl Process {
    /// This process.
    pub fn me() -> Self {
        Self::of(getpid())
    }

    /// The process that started this one, while it lives.
    pub fn parent() -> Option<Self> {
        getppid().map(Self::of)
    }

    fn of(pid: Pid) -> Self {
        let pid = pid.as_raw_nonzero().get().unsigned_abs();
        Self { pid, began: stat(pid).map_or(0, |stat| stat.began) }
    }

    /// Whether it still runs.
    pub fn is_alive(&self) -> bool {
        match stat(self.pid) {
            Some(found) => found.began == self.began && !found.is_zombie,
            // Without /proc the pid is all there is.
            None if self.began == 0 => {
                i32::try_from(self.pid).ok().and_then(Pid::from_raw).is_some_and(|pid| test_kill_process(pid).is_ok())
            }
            None => false,
        }
    }

    /// The path of its program, if it still exists and the system tells.
    pub fn executable(&self) -> Option<PathBuf> {
        fs_err::read_link(format!("/proc/{}/exe", self.pid)).ok().filter(|path| path.is_file())
    }

    /// The pids of the processes above this one, nearest first.
    pub fn ancestors(&self) -> Vec<u32> {
        let mut found = Vec::new();
        let mut next = stat(self.pid).map(|stat| stat.parent);
        // Bounded: the table may change while it is read.
        while let Some(pid) = next.filter(|pid| *pid > 1 && found.len() < 32) {
            found.push(pid);
            next = stat(pid).map(|stat| stat.parent);
        }
        found
    }
}

struct Stat {
    parent: u32,
    began: u64,
    is_zombie: bool,
}

fn stat(pid: u32) -> Option<Stat> {
    let line = fs_err::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything. After it: state, parent, …; the 20th is the start.
    let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        began: fields.get(19)?.parse().ok()?,
        is_zombie: fields.first() == Some(&"Z"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_that_began_at_another_time_is_another_process() {
        let me = Process::me();
        assert!(me.is_alive());
        assert!(!Process { began: me.began + 1, ..me }.is_alive());
        assert!(me.ancestors().contains(&Process::parent().unwrap().pid));
    }
}
