//! Which processes a command consists of, so that a bridge can end what a killed one before it has left running.
//!
//! A run is written down before its command is started, and known again by three things: the process that leads its
//! group, the moment at which that process began (a pid alone may belong to somebody else by now), and a mark in the
//! environment of everything that it has started. Reads `/proc`; where there is none, nothing is found.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use crate::file::{self, Sync};

/// The variable that marks everything a run has started.
pub(crate) const MARK: &str = "AMB_RUN_ID";

/// How long killed processes are waited for.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A run as it is written down.
#[derive(Debug, Serialize, Deserialize)]
struct RunRecord {
    /// The value of [`MARK`].
    run: String,
    /// The process that leads the group, once it is known.
    leader: Option<RunProcess>,
}

/// A process that cannot be taken for a later one with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct RunProcess {
    pid: u32,
    /// In clock ticks since the machine was started.
    began: u64,
}

/// A run under way. Dropping it kills the group and removes the record.
pub(crate) struct CommandRun {
    id: String,
    place: Option<PathBuf>,
    group: Option<u32>,
}

impl CommandRun {
    /// Writes a run down before it begins, where there is a place for that.
    pub(crate) fn prepare(records: Option<&Path>) -> std::io::Result<Self> {
        let id = amb_core::id::fresh_uuid(amb_core::Timestamp::now()).simple().to_string();
        let place = records.map(|records| records.join(file::name(&id)));
        let run = Self { id, place, group: None };
        run.note(None)?;
        Ok(run)
    }

    /// The value of [`MARK`] for its processes.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The command has begun: this process leads its group.
    pub(crate) fn began(&mut self, pid: Option<u32>) -> std::io::Result<()> {
        self.group = pid;
        let leader = pid.and_then(|pid| Some(RunProcess { pid, began: stat(pid)?.began }));
        self.note(leader)
    }

    fn note(&self, leader: Option<RunProcess>) -> std::io::Result<()> {
        match &self.place {
            Some(place) => file::write(place, &RunRecord { run: self.id.clone(), leader }, Sync::Later),
            None => Ok(()),
        }
    }
}

impl Drop for CommandRun {
    fn drop(&mut self) {
        if let Some(leader) = self.group.and_then(pid) {
            kill_group(leader);
        }
        if let Some(place) = &self.place
            && let Err(error) = file::remove(place, Sync::Later)
        {
            tracing::warn!(%error, "the record of an ended command stays behind");
        }
    }
}

/// Ends everything that runs of a bridge that was killed have left, where runs are written down.
pub(crate) async fn end_leftovers(records: Option<&Path>) -> std::io::Result<()> {
    let Some(records) = records else { return Ok(()) };
    let left: Vec<RunRecord> = file::read_all(records)?;
    let mut ended = Vec::new();
    for record in &left {
        ended.extend(end(record));
    }
    let deadline = Instant::now() + PATIENCE;
    while ended.iter().any(is_alive) && Instant::now() < deadline {
        sleep(LOOK_AGAIN).await;
    }
    for record in &left {
        file::remove(&records.join(file::name(&record.run)), Sync::Later)?;
    }
    if !ended.is_empty() {
        tracing::warn!(processes = ended.len(), "killed what a bridge before this one had left running");
    }
    Ok(())
}

/// Kills what there is of a run.
fn end(record: &RunRecord) -> Vec<RunProcess> {
    let mark = format!("{MARK}={}", record.run);
    let leader = record.leader.filter(is_alive);
    let mut killed = Vec::new();
    for process in all() {
        let Some(found) = stat(process) else { continue };
        let in_group = leader.is_some_and(|leader| found.group == leader.pid);
        if !(in_group || has_mark(process, &mark)) {
            continue;
        }
        if let Some(pid) = pid(process)
            && let Err(error) = kill_process(pid, Signal::KILL)
        {
            tracing::debug!(%error, process, "it had ended");
        }
        killed.push(RunProcess { pid: process, began: found.began });
    }
    if let Some(leader) = leader.and_then(|leader| pid(leader.pid)) {
        // What was started while the list was read.
        kill_group(leader);
    }
    killed
}

fn kill_group(leader: Pid) {
    if let Err(error) = kill_process_group(leader, Signal::KILL) {
        tracing::trace!(%error, "all of it had ended");
    }
}

fn pid(number: u32) -> Option<Pid> {
    i32::try_from(number).ok().and_then(Pid::from_raw)
}

fn all() -> Vec<u32> {
    let entries = fs_err::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn has_mark(process: u32, mark: &str) -> bool {
    // Only this user's processes can be read, and only they can be ours.
    fs_err::read(format!("/proc/{process}/environ"))
        .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes()))
}

fn is_alive(process: &RunProcess) -> bool {
    stat(process.pid).is_some_and(|found| found.began == process.began && !found.is_zombie)
}

struct RunStat {
    group: u32,
    began: u64,
    is_zombie: bool,
}

fn stat(process: u32) -> Option<RunStat> {
    let line = fs_err::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may hold anything. After it: state, parent, group, …; the 20th is the start.
    let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
    Some(RunStat {
        group: fields.get(2)?.parse().ok()?,
        began: fields.get(19)?.parse().ok()?,
        is_zombie: fields.first() == Some(&"Z"),
    })
}
