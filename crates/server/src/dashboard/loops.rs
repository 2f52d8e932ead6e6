//! The last loops that the office stopped, in memory.

use std::collections::VecDeque;

use amb_core::{AgentName, OfficeError, Timestamp};
use amb_store::{Agent, Member};
use parking_lot::Mutex;

/// Maximum number of entries, of all agents.
const CAPACITY: usize = 200;

/// A message that was refused because its recipient was in its trace, or it had no hops left.
#[derive(Debug, Clone)]
pub(crate) struct Stopped {
    pub(crate) at: Timestamp,
    pub(crate) from: AgentName,
    pub(crate) to: AgentName,
    /// The detail of the sender's error.
    pub(crate) reason: String,
}

impl Stopped {
    /// A message that was refused just now.
    pub(crate) fn now(from: &Agent, to: &AgentName, why: &OfficeError) -> Self {
        let reason = why.detail().to_owned();
        Self { at: Timestamp::now(), from: from.name.clone(), to: to.clone(), reason }
    }
}

/// The last loops that were stopped since this process started.
#[derive(Default)]
pub(crate) struct Loops(Mutex<VecDeque<Stopped>>);

impl Loops {
    pub(crate) fn record(&self, stopped: Stopped) {
        let mut loops = self.0.lock();
        if loops.len() >= CAPACITY {
            loops.pop_front();
        }
        loops.push_back(stopped);
    }

    /// Returns the loops whose sender is one of these members, newest first. A refused message is visible only to the
    /// household of its sender.
    pub(super) fn of(&self, members: &[Member]) -> Vec<Stopped> {
        let theirs = |stopped: &&Stopped| members.iter().any(|member| member.name == stopped.from);
        self.0.lock().iter().rev().filter(theirs).take(20).cloned().collect()
    }
}
