//! The processes of a running command, so that a bridge can kill what a killed bridge before it has left running.
//!
//! A run is recorded before its command starts. Its processes are found again by the leader of their process group, and
//! by a variable in the environment of everything that the command started. Without `/proc` none are found.

use std::path::{Path, PathBuf};
use std::time::Duration;

use amb_wake::{Process, kill_group};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use crate::file::{self, Sync};

/// The variable that marks all processes of a run.
pub(crate) const MARK: &str = "AMB_RUN_ID";

/// How long to wait for killed processes to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The record of a run on disk.
#[derive(Debug, Serialize, Deserialize)]
struct RunRecord {
    /// The value of [`MARK`].
    run: String,
    /// The leader of the process group, once the command has started.
    leader: Option<Process>,
}

/// A running command. Dropping it kills the process group and removes the record.
pub(crate) struct CommandRun {
    id: String,
    record: Option<PathBuf>,
    group: Option<u32>,
}

impl CommandRun {
    /// Records a run that is about to start, where there is a directory for records.
    pub(crate) fn prepare(records: Option<&Path>) -> std::io::Result<Self> {
        let id = amb_core::id::fresh_uuid(amb_core::Timestamp::now()).simple().to_string();
        let record = records.map(|records| records.join(file::name(&id)));
        let run = Self { id, record, group: None };
        run.save(None)?;
        Ok(run)
    }

    /// The value of [`MARK`] for its processes.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Records the started process, which leads its group.
    pub(crate) fn started(&mut self, pid: Option<u32>) -> std::io::Result<()> {
        self.group = pid;
        self.save(pid.and_then(Process::with_pid))
    }

    fn save(&self, leader: Option<Process>) -> std::io::Result<()> {
        match &self.record {
            Some(path) => file::write(path, &RunRecord { run: self.id.clone(), leader }, Sync::Later),
            None => Ok(()),
        }
    }
}

impl Drop for CommandRun {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.group.map(kill_group) {
            tracing::trace!(%error, "all processes of the command had ended");
        }
        if let Some(path) = &self.record
            && let Err(error) = file::remove(path, Sync::Later)
        {
            tracing::warn!(%error, "cannot remove the record of an ended command");
        }
    }
}

/// Kills everything that the recorded runs of a killed bridge have left running, and waits for its end.
pub(crate) async fn end_leftovers(records: Option<&Path>) -> std::io::Result<()> {
    let Some(records) = records else { return Ok(()) };
    let runs: Vec<RunRecord> = file::read_all(records)?;
    let killed: Vec<Process> = runs.iter().flat_map(kill_run).collect();
    let deadline = Instant::now() + KILL_TIMEOUT;
    while killed.iter().any(Process::is_alive) && Instant::now() < deadline {
        sleep(POLL_INTERVAL).await;
    }
    for record in &runs {
        file::remove(&records.join(file::name(&record.run)), Sync::Later)?;
    }
    if !killed.is_empty() {
        tracing::warn!(processes = killed.len(), "killed processes that an earlier bridge had left running");
    }
    Ok(())
}

/// Kills the processes of a run; returns them.
fn kill_run(record: &RunRecord) -> Vec<Process> {
    let mark = format!("{MARK}={}", record.run);
    let leader = record.leader.filter(Process::is_alive);
    let is_of_run =
        |process: &Process| leader.is_some_and(|leader| process.is_in_group(&leader)) || process.has_variable(&mark);
    let mut processes = Process::all();
    processes.retain(is_of_run);
    for process in &processes {
        if let Err(error) = process.kill() {
            tracing::debug!(%error, pid = process.pid, "it had ended");
        }
    }
    // Includes what was started while the list was read.
    if let Some(Err(error)) = leader.map(|leader| kill_group(leader.pid)) {
        tracing::trace!(%error, "all processes of the command had ended");
    }
    processes
}
