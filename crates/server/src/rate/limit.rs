//! One rate limit with a state for each key: GCRA, decided by the crate `governor`.
//!
//! The states are kept here, not in the crate's own map, because they change without a request too: what other replicas
//! spent is added, and a charge can be refunded.

use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dashmap::DashMap;
use governor::clock::MonotonicClock;
use governor::nanos::Nanos;
use governor::state::StateStore;
use governor::{Quota, RateLimiter};

use super::Rate;

/// A limit in units of time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rates {
    /// How long it takes to earn one request.
    pub(super) each: Duration,
    /// How much may be owed at once.
    pub(super) room: Duration,
}

#[derive(Debug, Default)]
struct KeyState {
    /// When everything spent is earned back, since the start of the limit (GCRA's theoretical arrival time).
    earned: Nanos,
    /// Requests let pass since the last [`Limit::take_spent`].
    spent: u32,
}

/// States by key, shared by [`Limit`] and its `RateLimiter`.
struct States<K: Hash + Eq>(Arc<DashMap<K, KeyState>>);

impl<K: Hash + Eq + Clone> StateStore for States<K> {
    type Key = K;

    fn measure_and_replace<T, F, E>(&self, key: &K, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let mut state = match self.0.get_mut(key) {
            Some(state) => state,
            None => self.0.entry(key.clone()).or_default(),
        };
        let (answer, earned) = decide(Some(state.earned))?;
        state.earned = earned;
        state.spent = state.spent.saturating_add(1);
        Ok(answer)
    }
}

/// See the module.
pub(super) struct Limit<K: Hash + Eq + Clone> {
    name: &'static str,
    rates: Rates,
    /// The limiter counts from the same moment.
    start: Instant,
    states: Arc<DashMap<K, KeyState>>,
    limiter: RateLimiter<K, States<K>, MonotonicClock>,
}

impl<K: Hash + Eq + Clone> Limit<K> {
    pub(super) fn new(name: &'static str, rate: Rate) -> Self {
        let states = Arc::new(DashMap::new());
        let burst = NonZeroU32::new(rate.burst).unwrap_or(NonZeroU32::MIN);
        // `each` is never zero; if it were, one a nanosecond is no limit either.
        let quota = Quota::with_period(rate.each()).unwrap_or(Quota::per_second(NonZeroU32::MAX)).allow_burst(burst);
        Self {
            name,
            rates: Rates { each: rate.each(), room: rate.room() },
            start: Instant::now(),
            limiter: RateLimiter::new(quota, States(states.clone()), MonotonicClock),
            states,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn rates(&self) -> Rates {
        self.rates
    }

    /// Spends one, or returns how long to wait until there is one.
    pub(super) fn take(&self, key: &K) -> Result<(), Duration> {
        self.limiter.check_key(key).map_err(|refused| refused.wait_time_from(Instant::now()))
    }

    /// Refunds one.
    pub(super) fn give_back(&self, key: &K) {
        if let Some(mut state) = self.states.get_mut(key) {
            state.earned = state.earned.saturating_sub(self.rates.each.into());
            state.spent = state.spent.saturating_sub(1);
        }
    }

    /// Raises the debt of a key to what all replicas together spent.
    pub(super) fn owe(&self, key: &K, owed: Duration) {
        let earned = self.now() + Nanos::from(owed);
        let mut state = self.states.entry(key.clone()).or_default();
        state.earned = state.earned.max(earned);
    }

    /// Returns the keys that spent more than `little` since the last call, and how much.
    pub(super) fn take_spent(&self, little: u32) -> Vec<(K, u32)> {
        let spent = self.states.iter_mut().map(|mut state| (state.key().clone(), std::mem::take(&mut state.spent)));
        spent.filter(|(_, spent)| *spent > little).collect()
    }

    /// Drops the states that equal a fresh one.
    pub(super) fn sweep(&self) {
        let now = self.now();
        self.states.retain(|_, state| state.earned > now);
        self.states.shrink_to_fit();
    }

    fn now(&self) -> Nanos {
        self.start.elapsed().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(burst: u32) -> Limit<u8> {
        Limit::new("test", Rate { count: 1, period: Duration::from_secs(3_600), burst })
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let limit = limit(2);
        for _ in 0..10 {
            assert!(limit.take(&1).is_ok());
            limit.give_back(&1);
        }
        assert!(limit.take(&1).is_ok() && limit.take(&1).is_ok() && limit.take(&1).is_err());
    }

    #[test]
    fn a_burst_passes_and_no_more() {
        let limit = limit(3);
        assert!((0..3).all(|_| limit.take(&1).is_ok()));
        let wait = limit.take(&1).unwrap_err();
        assert!(wait <= Duration::from_secs(3_600) && wait > Duration::from_secs(3_000), "{wait:?}");
        assert!(limit.take(&2).is_ok(), "another is not touched");
    }

    #[test]
    fn what_is_owed_elsewhere_counts_here() {
        let limit = limit(3);
        limit.owe(&1, Duration::from_secs(2 * 3_600));
        assert!(limit.take(&1).is_ok());
        assert!(limit.take(&1).is_err());
    }

    #[test]
    fn who_spends_little_is_not_named_and_nobody_twice() {
        let limit = limit(100);
        (0..5).for_each(|_| limit.take(&1).unwrap());
        limit.take(&2).unwrap();
        assert_eq!(limit.take_spent(1), [(1, 5)]);
        assert_eq!(limit.take_spent(0), []);
    }

    #[test]
    fn an_idle_state_is_dropped() {
        let limit = Limit::new("test", Rate { count: 1, period: Duration::from_nanos(1), burst: 10 });
        limit.take(&1).unwrap();
        std::thread::yield_now();
        limit.sweep();
        assert!(limit.states.is_empty());
    }
}
