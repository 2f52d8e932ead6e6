//! Loops that the office stopped: the last of them, in memory.

use std::collections::VecDeque;

use amb_core::{AgentName, OfficeError, Timestamp};
use amb_store::{Agent, Member};
use parking_lot::Mutex;

/// Most entries that are kept, of all agents.
const KEPT: usize = 200;

/// A message that was refused because it went round, or had no hops left.
#[derive(Debug, Clone)]
pub(crate) struct Stopped {
    pub(crate) at: Timestamp,
    pub(crate) from: AgentName,
    pub(crate) to: AgentName,
    /// Why, in the words that the sender got.
    pub(crate) reason: String,
}

impl Stopped {
    /// A message of this agent's that was refused just now.
    pub(crate) fn now(from: &Agent, to: &AgentName, why: &OfficeError) -> Self {
        let reason = why.detail().to_owned();
        Self { at: Timestamp::now(), from: from.name.clone(), to: to.clone(), reason }
    }
}

/// The last loops that were stopped since this process began.
#[derive(Default)]
pub(crate) struct Loops(Mutex<VecDeque<Stopped>>);

impl Loops {
    /// Notes one.
    pub(crate) fn note(&self, stopped: Stopped) {
        let mut kept = self.0.lock();
        if kept.len() >= KEPT {
            kept.pop_front();
        }
        kept.push_back(stopped);
    }

    /// Those whose sender is one of these, newest first: what was refused is visible to its sender's side alone.
    pub(super) fn of(&self, members: &[Member]) -> Vec<Stopped> {
        let kept = self.0.lock();
        let theirs = |stopped: &&Stopped| members.iter().any(|member| member.name == stopped.from);
        kept.iter().rev().filter(theirs).take(20).cloned().collect()
    }
}
