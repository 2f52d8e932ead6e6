//! Several processes on one database: what they tell each other, and what they share.

use std::time::Duration;

use uuid::Uuid;

use crate::types::{AgentKey, KeyHash};

/// What another process says. A hint to look, never the entry itself: one may be lost or come twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// The log of this agent has entries up to this number.
    Grew(AgentKey, u64),
    /// A key of this agent's has ended, or will.
    Keys(AgentKey),
    /// A process came or went.
    Replicas,
    /// Hints may have been missed: look everywhere.
    Missed,
}

/// The processes on this database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replicas {
    /// Which office this is; the same for all of them, and for no other office.
    pub office: Uuid,
    /// How many there are besides this one.
    pub others: u32,
    /// Whether all the others said that hints reach them by another way than [`Store::hint`](crate::Store::hint).
    pub others_hear: bool,
}

impl Replicas {
    /// A process that has its database to itself.
    pub const ALONE: Self = Self { office: Uuid::nil(), others: 0, others_hear: true };
}

/// A listener: whose log it reads, how far it is, and the key it came with.
#[derive(Debug, Clone, Copy)]
pub struct ListenerState {
    /// Whose log.
    pub agent: AgentKey,
    /// The last entry it has.
    pub at: u64,
    /// Its key, where that is to be looked at.
    pub key: Option<KeyHash>,
}

/// A listener that must do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaleListener {
    /// Which one: its place among those asked about.
    pub index: usize,
    /// The newest entry of its log.
    pub head: u64,
    /// Its key is no longer one.
    pub key_ended: bool,
}

/// Something spent of a limit that holds for all processes together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    /// Which limit.
    pub of: &'static str,
    /// Whose.
    pub key: String,
    /// How long it takes to earn back what is spent.
    pub cost: Duration,
    /// How much may be owed at once.
    pub room: Duration,
    /// In which way.
    pub how: How,
}

/// How something is charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// Only where there is room.
    IfRoom,
    /// It has happened already: charged even where there is no room.
    Done,
    /// It was charged before, and is given back.
    Back,
}

/// What became of a [`Charge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charged {
    /// There was no room, and nothing was charged.
    pub refused: bool,
    /// How long it takes until all that is owed is earned back.
    pub owed: Duration,
}

impl Charged {
    /// Of a limit that this process keeps alone.
    pub const NOTHING: Self = Self { refused: false, owed: Duration::ZERO };
}
