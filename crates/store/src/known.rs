//! A cache of API keys, so that most requests authenticate without the database.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use amb_core::Timestamp;

use crate::types::{Agent, KeyHash};

/// Most keys in the cache. A full cache is cleared: simpler than eviction, and rare.
const CAPACITY: usize = 50_000;

/// A bounded cache of keys.
#[derive(Debug, Default)]
pub struct KnownKeys {
    inner: RwLock<Inner>,
    /// How long an entry is valid, where another process may revoke the key.
    believed: Option<Duration>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Rises whenever the cache is cleared: what was looked up before that is not added after it.
    age: u64,
    /// Notifications of revoked keys do not arrive, so nothing is cached.
    deaf: bool,
    keys: HashMap<KeyHash, Known>,
}

#[derive(Debug)]
struct Known {
    agent: Agent,
    until: Option<Timestamp>,
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
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        match inner.keys.get(hash) {
            Some(known) if known.until.is_none_or(|until| now < until) => Ok(known.agent.clone()),
            _ => Err(inner.age),
        }
    }

    /// Caches what a query that began at `age` found, until a moment or without a limit.
    pub(crate) fn remember(&self, age: u64, hash: KeyHash, agent: &Agent, until: Option<Timestamp>, now: Timestamp) {
        let believed = self.believed.map(|span| now.saturating_add(span).unwrap_or(now));
        let until = [until, believed].into_iter().flatten().min();
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if inner.age != age || inner.deaf {
            return;
        }
        if inner.keys.len() >= CAPACITY {
            inner.keys.clear();
        }
        inner.keys.insert(hash, Known { agent: agent.clone(), until });
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
        self.change(|inner| inner.deaf = true);
    }

    /// Caches keys again: notifications of revoked keys arrive.
    pub(crate) fn hear(&self) {
        self.change(|inner| inner.deaf = false);
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.age += 1;
        inner.keys.clear();
        change(&mut inner);
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
