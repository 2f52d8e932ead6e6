//! A cache of API keys, so that most requests authenticate without the database.

use std::time::Duration;

use amb_core::Timestamp;
use parking_lot::RwLock;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, UnitWeighter};

use crate::types::{Agent, KeyHash};

/// Most keys in the cache.
const CAPACITY: u64 = 50_000;

/// A bounded cache of API keys and their agents.
#[derive(Debug)]
pub struct KeyCache {
    keys: Cache<KeyHash, CachedKey>,
    /// Held for writing while the cache is cleared, and for reading while a key is inserted.
    state: RwLock<CacheState>,
    /// How long an entry is valid, where another process may revoke the key.
    ttl: Option<Duration>,
}

#[derive(Debug, Default)]
struct CacheState {
    /// Incremented whenever the cache is cleared: the result of a query that began before that is not inserted.
    generation: u64,
    /// Set while notifications of revoked keys do not arrive: nothing is cached then.
    disabled: bool,
}

#[derive(Debug, Clone)]
struct CachedKey {
    agent: Agent,
    valid_until: Option<Timestamp>,
}

impl Default for KeyCache {
    fn default() -> Self {
        // Small at first: most offices are.
        let keys = Cache::with(256, CAPACITY, UnitWeighter, DefaultHashBuilder::default(), DefaultLifecycle::default());
        Self { keys, state: RwLock::default(), ttl: None }
    }
}

/// Clears the cache when dropped; see [`KeyCache::clear_on_drop`].
pub(crate) struct ClearOnDrop<'a>(&'a KeyCache);

impl Drop for ClearOnDrop<'_> {
    fn drop(&mut self) {
        self.0.clear();
    }
}

impl KeyCache {
    /// A cache of keys that other processes may revoke too.
    pub(crate) fn with_ttl(ttl: Duration) -> Self {
        Self { ttl: Some(ttl), ..Self::default() }
    }

    /// Returns the agent of this key if it is cached and valid, else the generation to pass to [`KeyCache::insert`].
    pub(crate) fn get(&self, hash: &KeyHash, now: Timestamp) -> Result<Agent, u64> {
        match self.keys.get(hash) {
            Some(key) if key.valid_until.is_none_or(|until| now < until) => Ok(key.agent),
            _ => Err(self.state.read().generation),
        }
    }

    /// Caches what a query that began in `generation` found, until `until` if that is given.
    pub(crate) fn insert(
        &self,
        generation: u64,
        hash: KeyHash,
        agent: &Agent,
        until: Option<Timestamp>,
        now: Timestamp,
    ) {
        let expires = self.ttl.map(|ttl| now.saturating_add(ttl).unwrap_or(now));
        let valid_until = [until, expires].into_iter().flatten().min();
        let state = self.state.read();
        if state.generation == generation && !state.disabled {
            self.keys.insert(hash, CachedKey { agent: agent.clone(), valid_until });
        }
    }

    /// Clears the cache. Call it after a key was changed and before the request returns.
    pub(crate) fn clear(&self) {
        self.change(|_| {});
    }

    /// Returns a guard that clears the cache, also where the verb is cancelled while the database commits.
    pub(crate) fn clear_on_drop(&self) -> ClearOnDrop<'_> {
        ClearOnDrop(self)
    }

    /// Stops caching: another process may revoke keys without this one being notified.
    pub(crate) fn disable(&self) {
        self.change(|state| state.disabled = true);
    }

    /// Starts caching again: notifications of revoked keys arrive.
    pub(crate) fn enable(&self) {
        self.change(|state| state.disabled = false);
    }

    fn change(&self, change: impl FnOnce(&mut CacheState)) {
        let mut state = self.state.write();
        state.generation += 1;
        self.keys.clear();
        change(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::AgentKey;

    fn agent() -> Agent {
        Agent { key: AgentKey(7), id: uuid::Uuid::nil(), name: "bob".parse().unwrap(), person: false, once: None }
    }

    #[test]
    fn a_disabled_cache_keeps_no_key() {
        let (cache, now) = (KeyCache::default(), Timestamp::now());
        let (hash, agent) = (KeyHash::of("amb_key"), agent());
        let insert = || {
            let generation = cache.get(&hash, now).unwrap_err();
            cache.insert(generation, hash, &agent, None, now);
            cache.get(&hash, now).is_ok()
        };
        assert!(insert());
        cache.disable();
        assert!(!insert());
        let before = cache.get(&hash, now).unwrap_err();
        cache.enable();
        cache.insert(before, hash, &agent, None, now);
        assert!(cache.get(&hash, now).is_err(), "looked up while a key could be revoked without a notification");
        assert!(insert());
    }
}
