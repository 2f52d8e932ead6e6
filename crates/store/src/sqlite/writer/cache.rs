//! The writer's caches. Only the writer changes the database, so an entry is valid until the writer itself invalidates
//! it; readers do not use them.

use std::hash::Hash;

use amb_core::{AgentName, Consent};
use quick_cache::unsync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, UnitWeighter};
use uuid::Uuid;

use crate::quota::Stored;
use crate::verbs::{RecipientRow, SessionRow};

/// Most entries of one cache.
const CAPACITY: u64 = 50_000;

fn cache<K: Eq + Hash, V>() -> Cache<K, V> {
    // Small at first: most offices are.
    Cache::with(64, CAPACITY, UnitWeighter, DefaultHashBuilder::default(), DefaultLifecycle::default())
}

/// Rows that a send needs.
#[derive(Debug)]
pub(in crate::sqlite) struct Caches {
    /// Registered agents by exact name.
    pub(in crate::sqlite) peers: Cache<AgentName, RecipientRow>,
    /// Whether two agents may write to each other; the smaller id first.
    pub(in crate::sqlite) consent: Cache<(i64, i64), Consent>,
    /// Row ids of sessions by pair and folded subject.
    pub(in crate::sqlite) by_subject: Cache<(i64, i64, Box<str>), i64>,
    /// Row ids of sessions by public id.
    pub(in crate::sqlite) by_public_id: Cache<Uuid, i64>,
    pub(in crate::sqlite) sessions: Cache<i64, SessionRow>,
    /// The number of the newest entry of each log.
    pub(in crate::sqlite) heads: Cache<i64, i64>,
    /// How much each agent stores.
    pub(in crate::sqlite) stored: Cache<i64, Stored>,
}

impl Default for Caches {
    fn default() -> Self {
        Self {
            peers: cache(),
            consent: cache(),
            by_subject: cache(),
            by_public_id: cache(),
            sessions: cache(),
            heads: cache(),
            stored: cache(),
        }
    }
}

impl Caches {
    /// Clears all caches, after a rollback.
    pub(in crate::sqlite) fn clear(&mut self) {
        self.peers.clear();
        self.consent.clear();
        self.by_subject.clear();
        self.by_public_id.clear();
        self.sessions.clear();
        self.heads.clear();
        self.stored.clear();
    }
}
