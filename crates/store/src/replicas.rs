//! Several processes on one database: hints, heartbeats and shared rate limits.

use std::time::Duration;

use uuid::Uuid;

use crate::types::{AgentKey, KeyHash};

/// A hint of another process to read a log. Never the entry itself: a hint may be lost or come twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// The log of this agent has entries up to this number.
    Grew(AgentKey, u64),
    /// A key of this agent was revoked, or is in its grace period.
    Keys(AgentKey),
    /// A process started or stopped.
    Replicas,
    /// Hints may have been missed: check every log.
    Missed,
}

/// The processes on this database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replicas {
    /// The id of the office, which all of them share.
    pub office: Uuid,
    /// The number of processes besides this one.
    pub others: u32,
    /// Whether all the others get hints by a broker, so that they do not need [`Store::hint`](crate::Store::hint).
    pub others_use_broker: bool,
}

impl Replicas {
    /// The state of a process that has its database to itself.
    pub const ALONE: Self = Self { office: Uuid::nil(), others: 0, others_use_broker: true };
}

/// A listener: whose log it reads, its cursor, and its key.
#[derive(Debug, Clone, Copy)]
pub struct ListenerState {
    /// The agent whose log it reads.
    pub agent: AgentKey,
    /// The number of the last entry it got.
    pub at: u64,
    /// The key to check, if any.
    pub key: Option<KeyHash>,
}

/// A listener that has to read its log, or to be disconnected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaleListener {
    /// Its index in the list that was checked.
    pub index: usize,
    /// The number of the newest entry of its log.
    pub head: u64,
    /// Whether its key is no longer valid.
    pub key_ended: bool,
}

/// A charge against a rate limit that all processes share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    /// The name of the limit.
    pub of: &'static str,
    /// Whom it limits.
    pub key: String,
    /// The time that it takes to earn this charge back.
    pub cost: Duration,
    /// Most time that may be owed at once.
    pub room: Duration,
    /// Whether it may be refused.
    pub mode: ChargeMode,
}

/// How a [`Charge`] is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChargeMode {
    /// Refused where it would exceed the limit.
    IfRoom,
    /// Charged even where it exceeds the limit, because it has happened already.
    Always,
    /// Gives an earlier charge back.
    Refund,
}

/// The result of a [`Charge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charged {
    /// Whether the limit was reached, and nothing was charged.
    pub refused: bool,
    /// The time until everything owed is earned back.
    pub owed: Duration,
}

impl Charged {
    /// The result for a limit that only this process charges.
    pub const NOTHING: Self = Self { refused: false, owed: Duration::ZERO };
}
