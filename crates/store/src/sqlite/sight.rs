//! Whose mail has changed: so that whoever keeps an answer knows for how long it is true, and whoever looks knows whether
//! something moved under its eyes.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::types::{AgentKey, Sight};

/// Agents share counters beyond this many; then a change for one may look like a change for another, never the reverse.
const COUNTERS: usize = 1_024;

/// A counter for each agent.
#[derive(Debug)]
pub(super) struct Counters(Box<[AtomicU64]>);

impl Default for Counters {
    fn default() -> Self {
        Self((0..COUNTERS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Counters {
    pub(super) fn of(&self, agent: AgentKey) -> u64 {
        self.counter(agent.0).load(Ordering::Acquire)
    }

    pub(super) fn count(&self, agent: i64) {
        self.counter(agent).fetch_add(1, Ordering::AcqRel);
    }

    fn counter(&self, agent: i64) -> &AtomicU64 {
        &self.0[agent.unsigned_abs() as usize % COUNTERS]
    }
}

/// Counts the changes of what agents see.
#[derive(Debug, Default)]
pub(super) struct Sights {
    everybody: AtomicU64,
    each: Counters,
}

impl Sights {
    /// What this agent sees now. Both counters only grow, so their sum is the same only if nothing changed.
    pub(super) fn of(&self, agent: AgentKey) -> Sight {
        Sight(self.everybody.load(Ordering::Acquire) + self.each.of(agent))
    }

    /// A transaction is there for others to see. After that, because whoever looks before it sees what was; and before
    /// anybody is told of it.
    pub(super) fn change(&self, changed: &mut Changed) {
        if std::mem::take(&mut changed.everybody) {
            self.everybody.fetch_add(1, Ordering::AcqRel);
        }
        changed.agents.drain(..).for_each(|agent| self.each.count(agent));
    }
}

/// Who sees something else after a transaction.
#[derive(Debug, Default)]
pub(super) struct Changed {
    everybody: bool,
    agents: Vec<i64>,
}

impl Changed {
    /// Perhaps anybody.
    pub(super) fn everybody(&mut self) {
        self.everybody = true;
    }

    /// This agent.
    pub(super) fn agent(&mut self, agent: i64) {
        self.agents.push(agent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sight_is_another_for_whom_something_changed_and_the_same_for_others() {
        let (sights, mut changed) = (Sights::default(), Changed::default());
        let see = || [1, 2, 3].map(|agent| sights.of(AgentKey(agent)));
        let before = see();
        changed.agent(1);
        changed.agent(2);
        assert_eq!(see(), before, "not before it is there");
        sights.change(&mut changed);
        let after = see();
        assert_eq!([after[0] == before[0], after[1] == before[1], after[2] == before[2]], [false, false, true]);
        sights.change(&mut changed);
        assert_eq!(see(), after, "one change is told once");
        changed.everybody();
        sights.change(&mut changed);
        assert!(see().iter().zip(after).all(|(now, then)| *now != then));
    }
}
