//! Whose view of its mail has changed, so that whoever keeps a response knows for how long it is true.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::types::{AgentKey, ViewVersion};

/// Agents share counters beyond this many; then a change for one may look like a change for another, never the reverse.
const COUNTERS: usize = 1_024;

/// Counts the changes of what agents see.
#[derive(Debug)]
pub(in crate::sqlite) struct ViewVersions {
    everybody: AtomicU64,
    each: Box<[AtomicU64]>,
}

impl Default for ViewVersions {
    fn default() -> Self {
        Self { everybody: AtomicU64::new(0), each: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl ViewVersions {
    /// The version that this agent sees now. Both counters only grow, so their sum is the same only if nothing changed.
    pub(in crate::sqlite) fn of(&self, agent: AgentKey) -> ViewVersion {
        ViewVersion(self.everybody.load(Ordering::Acquire) + self.counter(agent.0).load(Ordering::Acquire))
    }

    fn counter(&self, agent: i64) -> &AtomicU64 {
        &self.each[agent.unsigned_abs() as usize % COUNTERS]
    }

    /// To be called between the commit of a transaction and its answers: a reader before the commit sees what was.
    pub(in crate::sqlite) fn change(&self, changed: &mut Changed) {
        if std::mem::take(&mut changed.everybody) {
            self.everybody.fetch_add(1, Ordering::AcqRel);
        }
        for agent in changed.agents.drain(..) {
            self.counter(agent).fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// Who sees something else after a transaction.
#[derive(Debug, Default)]
pub(in crate::sqlite) struct Changed {
    everybody: bool,
    agents: Vec<i64>,
}

impl Changed {
    /// Perhaps anybody.
    pub(in crate::sqlite) fn everybody(&mut self) {
        self.everybody = true;
    }

    /// This agent.
    pub(in crate::sqlite) fn agent(&mut self, agent: i64) {
        self.agents.push(agent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_another_for_whom_something_changed_and_the_same_for_others() {
        let (versions, mut changed) = (ViewVersions::default(), Changed::default());
        let see = || [1, 2, 3].map(|agent| versions.of(AgentKey(agent)));
        let before = see();
        changed.agent(1);
        changed.agent(2);
        assert_eq!(see(), before, "not before it is there");
        versions.change(&mut changed);
        let after = see();
        assert_eq!([after[0] == before[0], after[1] == before[1], after[2] == before[2]], [false, false, true]);
        versions.change(&mut changed);
        assert_eq!(see(), after, "one change is told once");
        changed.everybody();
        versions.change(&mut changed);
        assert!(see().iter().zip(after).all(|(now, then)| *now != then));
    }
}
