//! Agents in the directory, as both backends read them.

use amb_core::doc::{AgentEntry, OwnUsage, Profile};
use amb_core::limits::HEARTBEAT_TIMEOUT;
use amb_core::{AgentName, Card, Presence, Quotas, Status, TaskId, Timestamp, Usage};
use uuid::Uuid;

use crate::error::Result;
use crate::query::ProfilePatch;
use crate::{row, words};

/// A row of `agents` with its presence.
#[derive(Debug, Clone)]
pub(crate) struct AgentRow {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) capabilities: String,
    pub(crate) allow_from: String,
    pub(crate) max_concurrent_tasks: i64,
    pub(crate) created_at: Timestamp,
    pub(crate) last_seen: Option<Timestamp>,
    pub(crate) here: Option<bool>,
    /// Tasks under way, a comma between their ids.
    pub(crate) current: Vec<Uuid>,
    /// Whether it is of the viewer's household.
    pub(crate) household: bool,
    pub(crate) person: bool,
}

impl AgentRow {
    /// What the agent says about itself.
    pub(crate) fn card(&self) -> Result<Card> {
        Ok(Card {
            description: self.description.clone(),
            capabilities: row::parse(Some(&self.capabilities))?.unwrap_or_default(),
            allow_from: row::parse(Some(&self.allow_from))?.unwrap_or_default(),
            max_concurrent_tasks: u32::try_from(self.max_concurrent_tasks).unwrap_or(0),
        })
    }

    /// The agent as others see it.
    pub(crate) fn entry(self, now: Timestamp) -> Result<AgentEntry> {
        let claimed = if self.here.unwrap_or(false) { Status::Idle } else { Status::Offline };
        let current: Vec<TaskId> = self.current.iter().copied().map(Into::into).collect();
        Ok(AgentEntry {
            name: row::name(&self.name)?,
            card: self.card()?,
            presence: Presence::at(now, claimed, self.last_seen, current, HEARTBEAT_TIMEOUT),
            registered_at: Some(self.created_at),
            household: self.household,
            person: self.person,
        })
    }
}

/// What only the agent itself sees.
#[derive(Debug, Clone)]
pub(crate) struct OwnRow {
    pub(crate) agent: AgentRow,
    pub(crate) owner_contact: Option<String>,
    pub(crate) discoverable: bool,
    pub(crate) api_key_prefix: String,
    pub(crate) previous_key_until: Option<Timestamp>,
}

impl OwnRow {
    /// The agent as it sees itself.
    pub(crate) fn profile(self, usage: Usage, quotas: Quotas, now: Timestamp) -> Result<Profile> {
        Ok(Profile {
            id: self.agent.id,
            entry: self.agent.entry(now)?,
            owner_contact: self.owner_contact,
            discoverable: self.discoverable,
            api_key_prefix: self.api_key_prefix,
            previous_key_until: self.previous_key_until.filter(|until| now < *until),
            usage: OwnUsage {
                messages: usage.messages,
                bytes: usage.bytes,
                max_messages: quotas.agent_messages,
                max_bytes: quotas.agent_bytes,
            },
        })
    }
}

/// The card and whether strangers find it, after a change; checked as new ones are.
pub(crate) fn patched(own: &OwnRow, patch: ProfilePatch) -> Result<(Card, bool)> {
    let mut card = own.agent.card()?;
    let ProfilePatch { description, capabilities, allow_from, max_concurrent_tasks, discoverable } = patch;
    card.description = description.unwrap_or(card.description);
    card.capabilities = capabilities.unwrap_or(card.capabilities);
    card.allow_from = allow_from.unwrap_or(card.allow_from);
    card.max_concurrent_tasks = max_concurrent_tasks.unwrap_or(card.max_concurrent_tasks);
    card.check()?;
    words::check_card(&card)?;
    Ok((card, discoverable.unwrap_or(own.discoverable)))
}

/// No such agent, with the nearest that the caller may know.
pub(crate) fn unknown(name: &AgentName, known: &[String]) -> crate::StoreError {
    let known = known.iter().map(String::as_str);
    crate::StoreError::not_found(amb_core::suggest::unknown_agent(name.as_str(), known))
}
