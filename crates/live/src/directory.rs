//! The agents that can be written to: configured and live ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use amb_core::{AgentName, GoalId};
use parking_lot::RwLock;
use serde::Serialize;

use crate::broker::Broker;

/// An agent, as others see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Peer {
    /// Its name.
    pub agent_id: AgentName,
    /// What it is for.
    pub description: String,
    /// Its live goals, oldest first where the ids are ours. None for an agent that is known but does not run now.
    pub live_goals: Vec<GoalId>,
}

/// Agents with their descriptions and live goals: those that were added, and those in the broker's roster.
pub struct PeerDirectory {
    broker: Arc<dyn Broker>,
    configured: RwLock<BTreeMap<AgentName, Configured>>,
}

#[derive(Default)]
struct Configured {
    description: String,
    goals: BTreeSet<GoalId>,
}

impl PeerDirectory {
    /// A directory of the agents that are live on a broker.
    pub fn new(broker: Arc<dyn Broker>) -> Self {
        Self { broker, configured: RwLock::default() }
    }

    /// Adds an agent that exists whether it runs now or not.
    pub fn add(&self, agent: AgentName, description: impl Into<String>) {
        let mut configured = self.configured.write();
        configured.entry(agent).or_default().description = description.into();
    }

    /// Adds a goal that is announced by no broker, such as one of another runtime.
    pub fn add_goal(&self, agent: AgentName, goal: GoalId) {
        let mut configured = self.configured.write();
        configured.entry(agent).or_default().goals.insert(goal);
    }

    /// The live goals of one agent, or `None` if there is no such agent.
    pub fn live_goals(&self, agent: &str) -> Option<Vec<GoalId>> {
        let mut goals = self.broker.roster().goals_of(agent);
        let configured = self.configured.read();
        match configured.get(agent) {
            Some(configured) => {
                add_goals(&mut goals, &configured.goals);
                Some(goals)
            }
            None if goals.is_empty() => None,
            None => Some(goals),
        }
    }

    /// Everybody, by name.
    pub fn peers(&self) -> Vec<Peer> {
        let live = self.broker.roster().agents().into_iter();
        let mut peers: BTreeMap<AgentName, Peer> = live.map(|peer| (peer.agent_id.clone(), peer)).collect();
        for (name, configured) in &*self.configured.read() {
            let peer = peers.entry(name.clone()).or_insert_with(|| Peer {
                agent_id: name.clone(),
                description: String::new(),
                live_goals: Vec::new(),
            });
            if !configured.description.is_empty() {
                peer.description.clone_from(&configured.description);
            }
            add_goals(&mut peer.live_goals, &configured.goals);
        }
        peers.into_values().collect()
    }

    /// Returns the known name nearest to an unknown one.
    pub(crate) fn nearest(&self, wanted: &str) -> Option<String> {
        let peers = self.peers();
        amb_core::suggest::nearest(wanted, peers.iter().map(|peer| peer.agent_id.as_str())).map(str::to_owned)
    }
}

/// Adds the goals that are not listed yet.
fn add_goals(listed: &mut Vec<GoalId>, goals: &BTreeSet<GoalId>) {
    for goal in goals {
        if !listed.contains(goal) {
            listed.push(*goal);
        }
    }
}
