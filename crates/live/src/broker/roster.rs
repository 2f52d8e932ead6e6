//! The live goals that this process knows of: filled by a broker, read by every send.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use amb_core::{AgentName, GoalId};
use parking_lot::RwLock;

use super::LiveGoal;
use crate::directory::Peer;

/// Most sources at a time; a source is one part of a process's list of goals.
const MAX_SOURCES: usize = 65_536;
/// Deadline of a source that never expires; its own process withdraws it.
const FOREVER: u64 = u64::MAX;

/// Live goals by agent. Each comes from a source (a part of some process's list) and is valid until the source's
/// deadline.
#[derive(Debug)]
pub struct Roster {
    start: Instant,
    state: RwLock<RosterState>,
}

#[derive(Debug, Default)]
struct RosterState {
    sources: HashMap<Box<str>, RosterSource>,
    agents: HashMap<AgentName, BTreeMap<GoalId, LiveRun>>,
}

#[derive(Debug)]
struct RosterSource {
    goals: Vec<LiveGoal>,
    deadline: Arc<AtomicU64>,
}

#[derive(Debug)]
struct LiveRun {
    description: Arc<str>,
    /// Shared by all goals of a source, so that a heartbeat costs the same however many there are.
    deadline: Arc<AtomicU64>,
}

impl Default for Roster {
    fn default() -> Self {
        Self { start: Instant::now(), state: RwLock::default() }
    }
}

impl Roster {
    /// Replaces a source's list, which is valid for `valid` from now, or until it is replaced.
    pub fn put(&self, source: &str, goals: Vec<LiveGoal>, valid: Option<Duration>) {
        let until = valid.map_or(FOREVER, |valid| self.now().saturating_add(millis(valid)));
        let mut state = self.state.write();
        if let Some(known) = state.sources.get(source)
            && known.goals == goals
        {
            known.deadline.store(until, Ordering::Relaxed);
            return;
        }
        state.remove(source);
        if goals.is_empty() {
            return;
        }
        if state.sources.len() >= MAX_SOURCES {
            state.sweep(self.now());
            if state.sources.len() >= MAX_SOURCES {
                tracing::warn!(source, "too many processes announce goals; this one is not listed");
                return;
            }
        }
        let deadline = Arc::new(AtomicU64::new(until));
        for goal in &goals {
            let run = LiveRun { description: goal.description.as_str().into(), deadline: Arc::clone(&deadline) };
            state.agents.entry(goal.agent_id.clone()).or_default().insert(goal.goal_id, run);
        }
        state.sources.insert(source.into(), RosterSource { goals, deadline });
    }

    /// Removes a source that has ended.
    pub fn remove(&self, source: &str) {
        self.state.write().remove(source);
    }

    /// Frees what has expired. Queries never return it anyway.
    pub fn sweep(&self) {
        let now = self.now();
        self.state.write().sweep(now);
    }

    /// Returns the live goals of one agent, at a cost that does not depend on the number of other agents.
    pub fn goals_of(&self, agent: &str) -> Vec<GoalId> {
        let now = self.now();
        let state = self.state.read();
        let Some(runs) = state.agents.get(agent) else { return Vec::new() };
        runs.iter().filter(|(_, run)| run.lives(now)).map(|(goal, _)| *goal).collect()
    }

    /// Returns every agent with a live goal, by name, with the description of its newest goal.
    pub fn agents(&self) -> Vec<Peer> {
        let now = self.now();
        let state = self.state.read();
        let mut agents: Vec<_> = state
            .agents
            .iter()
            .filter_map(|(name, runs)| {
                let live: Vec<_> = runs.iter().filter(|(_, run)| run.lives(now)).collect();
                let (_, newest) = live.last()?;
                Some(Peer {
                    agent_id: name.clone(),
                    description: newest.description.to_string(),
                    live_goals: live.iter().map(|(goal, _)| **goal).collect(),
                })
            })
            .collect();
        agents.sort_unstable_by(|a, b| a.agent_id.cmp(&b.agent_id));
        agents
    }

    fn now(&self) -> u64 {
        millis(self.start.elapsed())
    }
}

impl RosterState {
    fn remove(&mut self, source: &str) {
        let Some(RosterSource { goals, deadline }) = self.sources.remove(source) else { return };
        for goal in goals {
            let Some(runs) = self.agents.get_mut(&goal.agent_id) else { continue };
            // Another source may have taken the goal over meanwhile.
            if runs.get(&goal.goal_id).is_some_and(|run| Arc::ptr_eq(&run.deadline, &deadline)) {
                runs.remove(&goal.goal_id);
            }
            if runs.is_empty() {
                self.agents.remove(&goal.agent_id);
            }
        }
    }

    fn sweep(&mut self, now: u64) {
        let dead = |source: &RosterSource| source.deadline.load(Ordering::Relaxed) <= now;
        let expired: Vec<_> =
            self.sources.iter().filter(|(_, source)| dead(source)).map(|(name, _)| name.clone()).collect();
        for source in expired {
            self.remove(&source);
        }
    }
}

impl LiveRun {
    fn lives(&self, now: u64) -> bool {
        now < self.deadline.load(Ordering::Relaxed)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(FOREVER - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(agent: &str, id: u128) -> LiveGoal {
        LiveGoal {
            goal_id: GoalId(uuid::Uuid::from_u128(id)),
            agent_id: agent.parse().unwrap(),
            description: format!("{agent} {id}"),
        }
    }

    #[test]
    fn a_source_replaces_its_own_list_and_no_other() {
        let roster = Roster::default();
        roster.put("p1", vec![goal("a", 1), goal("b", 2)], None);
        roster.put("p2", vec![goal("a", 3)], None);
        assert_eq!(roster.goals_of("a").len(), 2);
        roster.put("p1", vec![goal("b", 2)], None);
        assert_eq!(roster.goals_of("a"), [goal("a", 3).goal_id]);
        roster.remove("p2");
        let names: Vec<_> = roster.agents().into_iter().map(|agent| agent.agent_id.to_string()).collect();
        assert_eq!(names, ["b"]);
    }

    #[test]
    fn goals_are_unlisted_after_their_deadline() {
        let roster = Roster::default();
        roster.put("gone", vec![goal("a", 1)], Some(Duration::ZERO));
        roster.put("here", vec![goal("a", 2)], Some(Duration::from_secs(600)));
        assert_eq!(roster.goals_of("a"), [goal("a", 2).goal_id]);
        assert_eq!(roster.agents()[0].description, "a 2");
        roster.put("gone", vec![goal("a", 1)], Some(Duration::from_secs(600)));
        assert_eq!(roster.goals_of("a").len(), 2, "a late heartbeat lists it again");
    }

    #[test]
    fn a_goal_that_moved_to_another_source_survives_the_end_of_the_first() {
        let roster = Roster::default();
        roster.put("old", vec![goal("a", 1)], None);
        roster.put("new", vec![goal("a", 1)], None);
        roster.remove("old");
        assert_eq!(roster.goals_of("a").len(), 1);
    }

    #[test]
    fn sweeping_frees_expired_sources() {
        let roster = Roster::default();
        roster.put("gone", vec![goal("a", 1)], Some(Duration::ZERO));
        roster.sweep();
        let state = roster.state.read();
        assert!(state.sources.is_empty() && state.agents.is_empty());
    }
}
