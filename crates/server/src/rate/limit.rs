//! One rate limit with a state for each key: GCRA, decided by the crate `governor`.
//!
//! The states are kept here, not in the crate's own map, because they also change without a request: the spending of
//! other replicas is added, and a charge can be refunded.

use std::fmt::Display;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use amb_core::{Code, OfficeError};
use amb_store::{Charge, ChargeMode, Store};
use dashmap::DashMap;
use governor::clock::MonotonicClock;
use governor::nanos::Nanos;
use governor::state::StateStore;
use governor::{Quota, RateLimiter};

use super::{Rate, whole_seconds};

/// Charges written to the store in one statement.
const CHARGES_AT_ONCE: usize = 1_000;

#[derive(Debug, Default)]
struct KeyState {
    /// When everything spent is earned back, since the limit's `start` (GCRA's theoretical arrival time).
    earned: Nanos,
    /// Requests allowed since the last [`Limit::take_spent`].
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

/// What a limit counts by: an agent, or a network.
pub(super) trait LimitKey: Display + Hash + Eq + Clone {}

impl<K: Display + Hash + Eq + Clone> LimitKey for K {}

/// See the [module](self).
pub(super) struct Limit<K: LimitKey> {
    /// Names the shared account in the store.
    name: &'static str,
    /// The error's text.
    refusal: &'static str,
    rate: Rate,
    /// The `RateLimiter` counts from the same moment.
    start: Instant,
    states: Arc<DashMap<K, KeyState>>,
    /// `None` allows everything.
    limiter: Option<RateLimiter<K, States<K>, MonotonicClock>>,
}

impl<K: LimitKey> Limit<K> {
    /// Without a rate, everything is allowed.
    pub(super) fn new(name: &'static str, refusal: &'static str, rate: Option<Rate>) -> Self {
        let states = Arc::new(DashMap::new());
        let limiter = |rate: Rate| {
            let burst = NonZeroU32::new(rate.burst).unwrap_or(NonZeroU32::MIN);
            // `each` is never zero; if it were, one a nanosecond is no limit either.
            let quota = Quota::with_period(rate.each()).unwrap_or(Quota::per_second(NonZeroU32::MAX));
            RateLimiter::new(quota.allow_burst(burst), States(Arc::clone(&states)), MonotonicClock)
        };
        Self {
            name,
            refusal,
            start: Instant::now(),
            limiter: rate.map(limiter),
            rate: rate.unwrap_or(Rate::per_second(u32::MAX, u32::MAX)),
            states,
        }
    }

    /// Spends one request, in this process alone.
    pub(super) fn spend(&self, key: &K) -> Result<(), OfficeError> {
        let Some(limiter) = &self.limiter else { return Ok(()) };
        limiter.check_key(key).map_err(|refused| self.refuse(refused.wait_time_from(Instant::now())))
    }

    fn refuse(&self, wait: Duration) -> OfficeError {
        let detail = format!("{}; try again in {} s", self.refusal, whole_seconds(wait));
        OfficeError::new(Code::TooManyRequests, detail).retry_after(wait)
    }

    /// Spends one request here and, if that is allowed, one of the account shared by all replicas.
    pub(super) async fn spend_shared(&self, store: &dyn Store, key: &K) -> Result<(), OfficeError> {
        if self.limiter.is_none() {
            return Ok(());
        }
        self.spend(key)?;
        match store.charge(&[self.charge(key, 1, ChargeMode::IfRoom)]).await?.first() {
            Some(charged) if charged.refused => {
                self.raise_debt(key, charged.owed);
                Err(self.refuse((charged.owed + self.rate.each()).saturating_sub(self.rate.room())))
            }
            _ => Ok(()),
        }
    }

    fn charge(&self, key: &K, count: u32, mode: ChargeMode) -> Charge {
        let (cost, room) = (self.rate.each() * count, self.rate.room());
        Charge { of: self.name, key: key.to_string(), cost, room, mode }
    }

    /// Refunds one request, here and to the shared account.
    pub(super) async fn refund(&self, store: &dyn Store, key: &K) {
        if self.limiter.is_none() {
            return;
        }
        self.refund_here(key);
        if let Err(error) = store.charge(&[self.charge(key, 1, ChargeMode::Refund)]).await {
            // The debt expires by itself within a minute.
            tracing::warn!(%error, of = self.name, "refund of a rate limit charge failed");
        }
    }

    fn refund_here(&self, key: &K) {
        if let Some(mut state) = self.states.get_mut(key) {
            state.earned = state.earned.saturating_sub(self.rate.each().into());
            state.spent = state.spent.saturating_sub(1);
        }
    }

    /// See [`Limiter::settle`](super::Limiter::settle).
    pub(super) async fn settle(&self, store: &dyn Store, others: u32, since: Duration) -> Result<(), OfficeError> {
        let earned = since.as_nanos() / self.rate.each().as_nanos();
        let threshold = earned / 10 / (u128::from(others) + 1);
        let spent = self.take_spent(u32::try_from(threshold).unwrap_or(u32::MAX));
        for some in spent.chunks(CHARGES_AT_ONCE) {
            let charges: Vec<_> =
                some.iter().map(|(key, count)| self.charge(key, *count, ChargeMode::Always)).collect();
            for ((key, _), charged) in some.iter().zip(store.charge(&charges).await?) {
                self.raise_debt(key, charged.owed);
            }
        }
        Ok(())
    }

    /// Raises the debt of a key to what all replicas together spent.
    fn raise_debt(&self, key: &K, owed: Duration) {
        let earned = self.now() + Nanos::from(owed);
        let mut state = self.states.entry(key.clone()).or_default();
        state.earned = state.earned.max(earned);
    }

    /// Returns the keys that spent more than `threshold` requests since the last call, and how many.
    pub(super) fn take_spent(&self, threshold: u32) -> Vec<(K, u32)> {
        let spent = self.states.iter_mut().map(|mut state| (state.key().clone(), std::mem::take(&mut state.spent)));
        spent.filter(|(_, spent)| *spent > threshold).collect()
    }

    /// Drops the states of keys without a debt.
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
        Limit::new("test", "too many", Some(Rate { count: 1, period: Duration::from_secs(3_600), burst }))
    }

    #[test]
    fn a_refund_can_be_spent_again() {
        let limit = limit(2);
        for _ in 0..10 {
            assert!(limit.spend(&1).is_ok());
            limit.refund_here(&1);
        }
        assert!(limit.spend(&1).is_ok() && limit.spend(&1).is_ok() && limit.spend(&1).is_err());
    }

    #[test]
    fn a_burst_passes_and_no_more() {
        let limit = limit(3);
        assert!((0..3).all(|_| limit.spend(&1).is_ok()));
        let wait = limit.spend(&1).unwrap_err().wait().unwrap();
        assert!(wait <= Duration::from_secs(3_600) && wait > Duration::from_secs(3_000), "{wait:?}");
        assert!(limit.spend(&2).is_ok(), "another key is not affected");
    }

    #[test]
    fn the_debt_at_other_replicas_counts_here() {
        let limit = limit(3);
        limit.raise_debt(&1, Duration::from_secs(2 * 3_600));
        assert!(limit.spend(&1).is_ok());
        assert!(limit.spend(&1).is_err());
    }

    #[test]
    fn keys_above_the_threshold_are_returned_once() {
        let limit = limit(100);
        (0..5).for_each(|_| limit.spend(&1).unwrap());
        limit.spend(&2).unwrap();
        assert_eq!(limit.take_spent(1), [(1, 5)]);
        assert_eq!(limit.take_spent(0), []);
    }

    #[test]
    fn an_idle_state_is_dropped() {
        let rate = Rate { count: 1, period: Duration::from_nanos(1), burst: 10 };
        let limit = Limit::new("test", "too many", Some(rate));
        limit.spend(&1).unwrap();
        std::thread::yield_now();
        limit.sweep();
        assert!(limit.states.is_empty());
    }
}
