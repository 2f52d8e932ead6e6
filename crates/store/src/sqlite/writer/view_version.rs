//! Versions of what each agent sees of its mail, so that a cached response can be checked for staleness.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::types::{AgentKey, ViewVersion};

/// Agents share counters beyond this many; then a change for one may look like a change for another, never the reverse.
const COUNTERS: usize = 1_024;

/// Change counters of the agents' views.
#[derive(Debug)]
pub(in crate::sqlite) struct ViewVersions {
    all: AtomicU64,
    each: Box<[AtomicU64]>,
}

impl Default for ViewVersions {
    fn default() -> Self {
        Self { all: AtomicU64::new(0), each: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl ViewVersions {
    /// Returns the current version of this agent's view. Both counters only grow, so an equal sum means that nothing
    /// changed.
    pub(in crate::sqlite) fn of(&self, agent: AgentKey) -> ViewVersion {
        ViewVersion(self.all.load(Ordering::Acquire) + self.counter(agent.0).load(Ordering::Acquire))
    }

    fn counter(&self, agent: i64) -> &AtomicU64 {
        &self.each[agent.unsigned_abs() as usize % COUNTERS]
    }

    /// Increments the versions of the changed views. Call it between the commit of a transaction and its answers.
    pub(in crate::sqlite) fn bump(&self, changed: &mut ChangedViews) {
        if std::mem::take(&mut changed.all) {
            self.all.fetch_add(1, Ordering::AcqRel);
        }
        for agent in changed.agents.drain(..) {
            self.counter(agent).fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// The agents whose views a transaction changes.
#[derive(Debug, Default)]
pub(in crate::sqlite) struct ChangedViews {
    all: bool,
    agents: Vec<i64>,
}

impl ChangedViews {
    pub(in crate::sqlite) fn add_all(&mut self) {
        self.all = true;
    }

    pub(in crate::sqlite) fn add(&mut self, agent: i64) {
        self.agents.push(agent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_bumps_the_versions_of_its_agents_only() {
        let (versions, mut changed) = (ViewVersions::default(), ChangedViews::default());
        let current = || [1, 2, 3].map(|agent| versions.of(AgentKey(agent)));
        let before = current();
        changed.add(1);
        changed.add(2);
        assert_eq!(current(), before, "not before the commit");
        versions.bump(&mut changed);
        let after = current();
        assert_eq!([after[0] == before[0], after[1] == before[1], after[2] == before[2]], [false, false, true]);
        versions.bump(&mut changed);
        assert_eq!(current(), after, "one change is counted once");
        changed.add_all();
        versions.bump(&mut changed);
        assert!(current().iter().zip(after).all(|(now, then)| *now != then));
    }
}
