//! Acts of a person in the name of an agent of the household. The act and its events are one transaction.

use amb_core::doc::ConnectionChange;
use amb_core::stepping_in::{Act, ConnectionAct};
use amb_core::{AgentName, Timestamp};

use super::log_act;
use crate::engine::{Tried, Tx};
use crate::error::Result;
use crate::refusals;
use crate::types::{Agent, Ask, ConnectionDecision, NewKey, to_micros};
use crate::verbs::agents::{agent_named, issue};
use crate::verbs::connections::{approve, change_connection, request};
use crate::verbs::household::{self, household_of};

impl ConnectionDecision {
    /// Checks the texts, and rounds the times, for the database.
    pub(super) fn checked(self) -> Result<Self> {
        match self {
            Self::Ask(ask) => {
                refusals::check_text("message", ask.intro.as_deref())?;
                Ok(Self::Ask(Ask { expires_at: ask.expires_at.map(to_micros), ..ask }))
            }
            Self::Approve { code } if code.contains('\0') => Err(refusals::no_code()),
            other => Ok(other),
        }
    }
}

/// Returns the household whose person the caller is, and its agent of this name.
async fn member(tx: &mut dyn Tx, caller: &Agent, name: &AgentName) -> Tried<(i64, Agent)> {
    let household = household::person(tx, caller).await?;
    match agent_named(tx, name).await? {
        Some(agent) if household_of(tx, agent.key.0).await? == Some(household) => Ok((household, agent)),
        _ => Err(refusals::no_household_member(name).into()),
    }
}

/// Logs the act to the agent and the person, whose mailboxes are locked. Fails, which rolls the act back, where the
/// agent has left the household meanwhile.
async fn log_in_name(
    tx: &mut dyn Tx,
    caller: &Agent,
    (household, agent): (i64, &Agent),
    act: &Act,
    now: Timestamp,
) -> Tried<()> {
    if household_of(tx, agent.key.0).await? != Some(household) {
        return Err(refusals::no_household_member(&agent.name).into());
    }
    log_act(tx, vec![agent.key.0, caller.key.0], &caller.name, act, now).await
}

pub(super) async fn decide(
    tx: &mut dyn Tx,
    caller: &Agent,
    name: &AgentName,
    decision: &ConnectionDecision,
    now: Timestamp,
) -> Tried<AgentName> {
    let (household, agent) = member(tx, caller, name).await?;
    let me = Some(caller.key.0);
    let (did, with) = match decision {
        ConnectionDecision::Approve { code } => {
            (ConnectionAct::Approved, approve(tx, &agent, code, me, now).await?.connected_agent_name)
        }
        ConnectionDecision::Ask(ask) => {
            (ConnectionAct::Asked, request(tx, &agent, ask, me, now).await?.target_agent_name)
        }
        ConnectionDecision::Change { peer, change } => {
            let did = match change {
                ConnectionChange::Reject => ConnectionAct::Rejected,
                ConnectionChange::Revoke => ConnectionAct::Revoked,
                ConnectionChange::Block => ConnectionAct::Blocked,
                ConnectionChange::Unblock => ConnectionAct::Unblocked,
            };
            (did, change_connection(tx, &agent, peer, *change, me, now).await?.agent_name)
        }
    };
    let act = Act::Connection { agent: agent.name.clone(), with: with.clone(), did };
    log_in_name(tx, caller, (household, &agent), &act, now).await?;
    Ok(with)
}

pub(super) async fn renew_key(
    tx: &mut dyn Tx,
    caller: &Agent,
    name: &AgentName,
    new: &NewKey,
    now: Timestamp,
) -> Tried<Agent> {
    let (household, agent) = member(tx, caller, name).await?;
    if agent.key == caller.key {
        return Err(refusals::persons_key_stays().into());
    }
    tx.lock(&[agent.key.0, caller.key.0]).await?;
    let agent = issue(tx, &agent.name, new).await?;
    let act = Act::KeyRenewed { agent: agent.name.clone() };
    log_in_name(tx, caller, (household, &agent), &act, now).await?;
    Ok(agent)
}
