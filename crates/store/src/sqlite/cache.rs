//! What the writer knows without asking. Only the writer changes the database, so what it knows stays true until it
//! changes it itself; readers never look here.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use amb_core::{AgentName, Card, Consent};
use uuid::Uuid;

use crate::quota::Stored;

/// Most entries of one map. A full map is emptied: simpler than choosing, and rare.
const CAPACITY: usize = 50_000;

/// A map that never holds more than [`CAPACITY`].
#[derive(Debug)]
pub(super) struct Bounded<K, V>(HashMap<K, V>);

impl<K, V> Default for Bounded<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash, V> Bounded<K, V> {
    pub(super) fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: std::borrow::Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.0.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    pub(super) fn put(&mut self, key: K, value: V) {
        if self.0.len() >= CAPACITY && !self.0.contains_key(&key) {
            self.0.clear();
        }
        self.0.insert(key, value);
    }

    pub(super) fn remove(&mut self, key: &K) {
        self.0.remove(key);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// An agent, as far as sending to it goes.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) id: i64,
    pub(super) name: AgentName,
    pub(super) card: Arc<Card>,
    pub(super) deleted: bool,
    pub(super) paused: bool,
}

/// A session, as far as sending in it goes.
#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) id: i64,
    pub(super) public_id: Uuid,
    pub(super) subject: Arc<str>,
    /// Its two members; `None` for a group.
    pub(super) pair: Option<(i64, i64)>,
    pub(super) group: Option<i64>,
    /// The person who ended it.
    pub(super) ended_by: Option<Arc<str>>,
}

/// All that the writer knows.
#[derive(Debug, Default)]
pub(super) struct Caches {
    /// Agents by name, deleted ones too.
    pub(super) peers: Bounded<AgentName, Peer>,
    /// What lets pairs write to each other, the smaller number first.
    pub(super) consent: Bounded<(i64, i64), Consent>,
    /// Sessions by pair and folded subject.
    pub(super) by_subject: Bounded<(i64, i64, Box<str>), i64>,
    /// Sessions by the id that the world sees.
    pub(super) by_public_id: Bounded<Uuid, i64>,
    pub(super) sessions: Bounded<i64, Session>,
    /// The number of the newest entry in each log.
    pub(super) heads: Bounded<i64, i64>,
    /// What each agent has stored.
    pub(super) stored: Bounded<i64, Stored>,
}

impl Caches {
    /// Forgets everything, as after a rollback.
    pub(super) fn clear(&mut self) {
        self.peers.clear();
        self.consent.clear();
        self.by_subject.clear();
        self.by_public_id.clear();
        self.sessions.clear();
        self.heads.clear();
        self.stored.clear();
    }
}
