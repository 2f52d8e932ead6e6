//! Processes, identified by pid and start time, since a pid alone may be reused. Reads `/proc`.

use std::io;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, getpid, getppid, kill_process, kill_process_group, test_kill_process};
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

    /// The running process with this pid; `None` where `/proc` does not list it.
    pub fn with_pid(pid: u32) -> Option<Self> {
        stat(pid).map(|stat| Self { pid, began: stat.began })
    }

    /// All running processes; none where there is no `/proc`.
    pub fn all() -> Vec<Self> {
        let entries = fs_err::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| Self::with_pid(entry.file_name().to_str()?.parse().ok()?)).collect()
    }

    /// Whether it still runs.
    pub fn is_alive(&self) -> bool {
        match stat(self.pid) {
            Some(found) => found.began == self.began && !found.is_zombie,
            // Without /proc the pid is all there is.
            None if self.began == 0 => raw(self.pid).is_ok_and(|pid| test_kill_process(pid).is_ok()),
            None => false,
        }
    }

    /// Whether it belongs to the process group with this leader.
    pub fn is_in_group(&self, leader: &Self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.group == leader.pid)
    }

    /// Whether its environment has this `NAME=value`. Only this user's processes can be read.
    pub fn has_variable(&self, variable: &str) -> bool {
        fs_err::read(format!("/proc/{}/environ", self.pid))
            .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes()))
    }

    /// Kills it.
    pub fn kill(&self) -> io::Result<()> {
        Ok(kill_process(raw(self.pid)?, Signal::KILL)?)
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

/// Kills all processes of the group that the process with this pid leads.
pub fn kill_group(leader: u32) -> io::Result<()> {
    Ok(kill_process_group(raw(leader)?, Signal::KILL)?)
}

fn raw(pid: u32) -> io::Result<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

struct Stat {
    parent: u32,
    group: u32,
    began: u64,
    is_zombie: bool,
}

fn stat(pid: u32) -> Option<Stat> {
    let line = fs_err::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain anything. After it: state, parent, group, …; the 20th is the start time.
    let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        began: fields.get(19)?.parse().ok()?,
        is_zombie: fields.first() == Some(&"Z"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_with_another_start_time_is_another_process() {
        let me = Process::me();
        assert!(me.is_alive());
        assert!(!Process { began: me.began + 1, ..me }.is_alive());
        assert!(me.ancestors().contains(&Process::parent().unwrap().pid));
    }
}
