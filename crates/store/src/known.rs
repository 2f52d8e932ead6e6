//! A cache of API keys, so that most requests authenticate without the database.

use std::time::Duration;

use amb_core::Timestamp;
use parking_lot::RwLock;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, UnitWeighter};

use crate::types::{Agent, KeyHash};

/// Most keys in the cache.
const CAPACITY: u64 = 50_000;

/// A bounded cache of keys.
#[derive(Debug)]
pub struct KnownKeys {
    keys: Cache<KeyHash, KnownKey>,
    /// Held for writing while the cache is cleared, and for reading while a key is added.
    state: RwLock<KeyCacheState>,
    /// How long an entry is valid, where another process may revoke the key.
    believed: Option<Duration>,
}

#[derive(Debug, Default)]
struct KeyCacheState {
    /// Rises whenever the cache is cleared: what was looked up before that is not added after it.
    age: u64,
    /// Notifications of revoked keys do not arrive, so nothing is cached.
    deaf: bool,
}

#[derive(Debug, Clone)]
struct KnownKey {
    agent: Agent,
    until: Option<Timestamp>,
}

impl Default for KnownKeys {
    fn default() -> Self {
        // It grows from few: most offices are small.
        let keys = Cache::with(256, CAPACITY, UnitWeighter, DefaultHashBuilder::default(), DefaultLifecycle::default());
        Self { keys, state: RwLock::default(), believed: None }
    }
}

/// See [`KnownKeys::forget_afterwards`].
pub(crate) struct ForgetAfterwards<'a>(&'a KnownKeys);

impl Drop for ForgetAfterwards<'_> {
    fn drop(&mut self) {
        self.0.forget();
    }
}

impl KnownKeys {
    /// Keys that other processes may end too.
    pub(crate) fn shared(believed: Duration) -> Self {
        Self { believed: Some(believed), ..Self::default() }
    }

    /// Whose key this is, if that is in the cache and still valid; else the age to give to [`KnownKeys::remember`].
    pub(crate) fn get(&self, hash: &KeyHash, now: Timestamp) -> Result<Agent, u64> {
        match self.keys.get(hash) {
            Some(known) if known.until.is_none_or(|until| now < until) => Ok(known.agent),
            _ => Err(self.state.read().age),
        }
    }

    /// Caches what a query that began at `age` found, until a moment or without a limit.
    pub(crate) fn remember(&self, age: u64, hash: KeyHash, agent: &Agent, until: Option<Timestamp>, now: Timestamp) {
        let believed = self.believed.map(|span| now.saturating_add(span).unwrap_or(now));
        let until = [until, believed].into_iter().flatten().min();
        let state = self.state.read();
        if state.age == age && !state.deaf {
            self.keys.insert(hash, KnownKey { agent: agent.clone(), until });
        }
    }

    /// Clears the cache; to be called after a key was changed and before the request returns.
    pub(crate) fn forget(&self) {
        self.change(|_| {});
    }

    /// Clears the cache when the guard is dropped: also where the verb is cancelled while the database commits.
    pub(crate) fn forget_afterwards(&self) -> ForgetAfterwards<'_> {
        ForgetAfterwards(self)
    }

    /// Caches nothing from now on: another process may revoke keys without a notification.
    pub(crate) fn go_deaf(&self) {
        self.change(|state| state.deaf = true);
    }

    /// Caches keys again: notifications of revoked keys arrive.
    pub(crate) fn hear(&self) {
        self.change(|state| state.deaf = false);
    }

    fn change(&self, change: impl FnOnce(&mut KeyCacheState)) {
        let mut state = self.state.write();
        state.age += 1;
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
    fn who_would_not_hear_that_a_key_ended_remembers_none() {
        let (known, now) = (KnownKeys::default(), Timestamp::now());
        let (hash, agent) = (KeyHash::of("amb_key"), agent());
        let remember = || {
            let age = known.get(&hash, now).unwrap_err();
            known.remember(age, hash, &agent, None, now);
            known.get(&hash, now).is_ok()
        };
        assert!(remember());
        known.go_deaf();
        assert!(!remember());
        let before = known.get(&hash, now).unwrap_err();
        known.hear();
        known.remember(before, hash, &agent, None, now);
        assert!(known.get(&hash, now).is_err(), "looked up while a key could end without a word");
        assert!(remember());
    }
}
