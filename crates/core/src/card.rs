//! An agent's card, whose messages it accepts, and whether it is alive.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::OfficeError;
use crate::id::TaskId;
use crate::limits::*;
use crate::name::AgentName;

/// At a server, the end of the description of an agent of a mounted directory.
pub const MOUNTED_DIRECTORY: &str = "(mounted directory)";

/// What an agent tells others about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Card {
    /// A short description.
    #[serde(default)]
    pub description: String,
    /// What it can do, in its own words.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// Whose messages it accepts.
    #[serde(default)]
    pub allow_from: AllowFrom,
    /// How many tasks it accepts at once.
    #[serde(default = "default_max_concurrent_tasks")]
    pub max_concurrent_tasks: u32,
}

fn default_max_concurrent_tasks() -> u32 {
    DEFAULT_MAX_CONCURRENT_TASKS
}

impl Default for Card {
    fn default() -> Self {
        Self {
            description: String::new(),
            capabilities: Vec::new(),
            allow_from: AllowFrom::default(),
            max_concurrent_tasks: DEFAULT_MAX_CONCURRENT_TASKS,
        }
    }
}

impl Card {
    /// Checks lengths and names.
    pub fn check(&self) -> Result<(), OfficeError> {
        if self.description.chars().count() > MAX_DESCRIPTION_CHARS {
            return Err(OfficeError::invalid(format!("description has at most {MAX_DESCRIPTION_CHARS} characters")));
        }
        if self.capabilities.len() > MAX_CAPABILITIES
            || self.capabilities.iter().any(|c| c.is_empty() || c.chars().count() > MAX_CAPABILITY_CHARS)
        {
            return Err(OfficeError::invalid(format!(
                "capabilities are at most {MAX_CAPABILITIES} words of 1 to {MAX_CAPABILITY_CHARS} characters"
            )));
        }
        if self.allow_from.0.len() > MAX_ALLOW_FROM {
            return Err(OfficeError::invalid(format!("allow_from has at most {MAX_ALLOW_FROM} names")));
        }
        for name in self.allow_from.0.iter().filter(|name| *name != "*") {
            AgentName::parse(name)?;
        }
        Ok(())
    }

    /// Checks a card that a client gives a server, which accepts only plain names.
    pub fn check_for_server(&self) -> Result<(), OfficeError> {
        self.check()?;
        for name in self.allow_from.0.iter().filter(|name| *name != "*") {
            AgentName::parse_plain(name)?;
        }
        Ok(())
    }
}

/// Whose messages an agent accepts: `*` is everybody, an empty list nobody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AllowFrom(pub Vec<String>);

impl Default for AllowFrom {
    fn default() -> Self {
        Self(vec!["*".into()])
    }
}

impl AllowFrom {
    /// Whether this sender is accepted in a directory, where names are file names and case-sensitive.
    pub fn allows(&self, sender: &AgentName) -> bool {
        self.0.iter().any(|entry| entry == "*" || entry == sender.as_str())
    }

    /// Whether this sender is listed by name. Across a mount `*` means only the agents of the directory, so a sender of
    /// another office has to be listed.
    pub fn names(&self, sender: &AgentName) -> bool {
        self.0.iter().any(|entry| entry == sender.as_str())
    }

    /// Whether this sender is accepted in the network office, where names are case-insensitive.
    pub fn allows_in_any_case(&self, sender: &AgentName) -> bool {
        self.0.iter().any(|entry| entry == "*" || sender.eq_ignore_case(entry))
    }
}

/// The status of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Online, without a task.
    Idle,
    /// Online, with at least one task.
    Busy,
    /// Without a heartbeat for a while, or signed off. Its mail waits.
    #[default]
    Offline,
}

impl Status {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Idle => "idle",
            Status::Busy => "busy",
            Status::Offline => "offline",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Status {
    type Err = OfficeError;

    fn from_str(text: &str) -> Result<Self, OfficeError> {
        [Status::Idle, Status::Busy, Status::Offline]
            .into_iter()
            .find(|status| status.as_str() == text)
            .ok_or_else(|| OfficeError::invalid(format!("status is idle, busy or offline, not {text:?}")))
    }
}

/// The presence of an agent, as the office derives it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Presence {
    /// Derived from the last heartbeat, never only from a flag that a crashed process failed to set.
    pub status: Status,
    /// The last heartbeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Timestamp>,
    /// Its current tasks.
    #[serde(default)]
    pub current_tasks: Vec<TaskId>,
}

impl Presence {
    /// The presence that an office reports at `now` for an agent that last reported `claimed`.
    pub fn at(
        now: Timestamp,
        claimed: Status,
        last_seen: Option<Timestamp>,
        current_tasks: Vec<TaskId>,
        timeout: Duration,
    ) -> Self {
        let alive = claimed != Status::Offline && last_seen.is_some_and(|seen| is_alive(seen, now, timeout));
        let status = match (alive, current_tasks.is_empty()) {
            (false, _) => Status::Offline,
            (true, true) => claimed,
            (true, false) => Status::Busy,
        };
        Self { status, last_seen, current_tasks }
    }
}

/// Whether a heartbeat at `seen` is still valid at `now`. One from the future (another clock) is.
pub fn is_alive(seen: Timestamp, now: Timestamp, timeout: Duration) -> bool {
    let age = now.duration_since(seen);
    age.is_negative() || age.unsigned_abs() <= timeout
}

/// The heartbeat timeout of an agent that polls at this interval.
pub fn heartbeat_timeout(poll_interval: Duration) -> Duration {
    HEARTBEAT_TIMEOUT.max(poll_interval.saturating_mul(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allow_from_accepts_listed_senders() {
        let coder = "coder".parse().unwrap();
        assert!(AllowFrom::default().allows(&coder));
        assert!(AllowFrom(vec!["writer".into(), "coder".into()]).allows(&coder));
        assert!(!AllowFrom(vec!["writer".into()]).allows(&coder));
        assert!(!AllowFrom(vec![]).allows(&coder), "an empty list is nobody");
        assert!(!AllowFrom::default().names(&coder), "`*` names nobody");
        assert!(AllowFrom(vec!["*".into(), "coder".into()]).names(&coder));
        let shouted = AllowFrom(vec!["CODER".into()]);
        assert!(!shouted.allows(&coder) && shouted.allows_in_any_case(&coder));
        assert!(!AllowFrom(vec!["writer".into()]).allows_in_any_case(&coder));
    }

    #[test]
    fn an_agent_without_heartbeats_is_offline_whatever_it_last_reported() {
        let seen = Timestamp::from_second(1_000).unwrap();
        let at = |second, claimed, tasks: &[&str]| {
            let tasks = tasks.iter().map(|t| t.parse().unwrap()).collect();
            Presence::at(Timestamp::from_second(second).unwrap(), claimed, Some(seen), tasks, HEARTBEAT_TIMEOUT).status
        };
        assert_eq!(at(1_030, Status::Idle, &[]), Status::Idle);
        assert_eq!(at(1_031, Status::Idle, &[]), Status::Offline);
        assert_eq!(at(1_000, Status::Idle, &["t"]), Status::Busy);
        assert_eq!(at(1_000, Status::Offline, &[]), Status::Offline);
        assert_eq!(at(1_030, Status::Busy, &[]), Status::Busy, "an agent may be busy with other work");
        assert_eq!(at(1_031, Status::Busy, &[]), Status::Offline);
        assert_eq!(at(990, Status::Idle, &[]), Status::Idle, "a clock that runs ahead is accepted");
    }

    #[test]
    fn a_slow_poller_gets_three_intervals() {
        assert_eq!(heartbeat_timeout(Duration::from_secs(5)), Duration::from_secs(30));
        assert_eq!(heartbeat_timeout(Duration::from_secs(60)), Duration::from_secs(180));
    }

    #[test]
    fn a_card_is_bounded() {
        assert!(Card::default().check().is_ok());
        assert!(Card { description: "x".repeat(1_001), ..Card::default() }.check().is_err());
        assert!(Card { capabilities: vec![String::new()], ..Card::default() }.check().is_err());
        assert!(Card { allow_from: AllowFrom(vec!["../x".into()]), ..Card::default() }.check().is_err());
    }
}
