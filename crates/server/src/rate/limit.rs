//! One limit, with a cell for each key. A cell holds one moment: when all that was spent is earned back.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::Rate;

/// Parts of the table, each with a lock of its own, so that requests seldom wait for each other.
const SHARDS: usize = 16;

/// What a limit comes to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rates {
    /// How long it takes to earn one.
    pub(super) each: Duration,
    /// How much may be owed at once.
    pub(super) room: Duration,
}

#[derive(Debug, Default)]
struct Cell {
    /// When all is earned back, in nanoseconds since the limit was made.
    earned: u64,
    /// How many were let pass since [`Limit::take_spent`] asked last.
    spent: u32,
}

/// See the module.
pub(super) struct Limit<K> {
    name: &'static str,
    rates: Rates,
    start: Instant,
    hasher: RandomState,
    shards: [Mutex<HashMap<K, Cell>>; SHARDS],
}

impl<K: Hash + Eq + Clone> Limit<K> {
    pub(super) fn new(name: &'static str, rate: Rate) -> Self {
        Self {
            name,
            rates: Rates { each: rate.each(), room: rate.room() },
            start: Instant::now(),
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn rates(&self) -> Rates {
        self.rates
    }

    /// Takes one from the cell, or says how long until there is one.
    pub(super) fn take(&self, key: &K) -> Result<(), Duration> {
        let (now, each, room) = (self.now(), nanos(self.rates.each), nanos(self.rates.room));
        let mut cells = self.shard(key);
        let cell = match cells.get_mut(key) {
            Some(cell) => cell,
            None => cells.entry(key.clone()).or_default(),
        };
        let owed = cell.earned.saturating_sub(now).saturating_add(each);
        if owed > room {
            return Err(Duration::from_nanos(owed - room));
        }
        cell.earned = now + owed;
        cell.spent = cell.spent.saturating_add(1);
        Ok(())
    }

    /// Puts one back that was taken.
    pub(super) fn give_back(&self, key: &K) {
        let each = nanos(self.rates.each);
        if let Some(cell) = self.shard(key).get_mut(key) {
            cell.earned = cell.earned.saturating_sub(each);
            cell.spent = cell.spent.saturating_sub(1);
        }
    }

    /// All replicas together spent so much that it takes this long to earn it back.
    pub(super) fn owe(&self, key: &K, owed: Duration) {
        let earned = self.now().saturating_add(nanos(owed));
        let mut cells = self.shard(key);
        let cell = cells.entry(key.clone()).or_default();
        cell.earned = cell.earned.max(earned);
    }

    /// Who spent more than `little` since the last call, and how much.
    pub(super) fn take_spent(&self, little: u32) -> Vec<(K, u32)> {
        let mut much = Vec::new();
        for shard in &self.shards {
            for (key, cell) in lock(shard).iter_mut() {
                let spent = std::mem::take(&mut cell.spent);
                if spent > little {
                    much.push((key.clone(), spent));
                }
            }
        }
        much
    }

    /// Drops the cells that are as good as new.
    pub(super) fn sweep(&self) {
        let now = self.now();
        for shard in &self.shards {
            let mut cells = lock(shard);
            cells.retain(|_, cell| cell.earned > now);
            cells.shrink_to_fit();
        }
    }

    fn now(&self) -> u64 {
        nanos(self.start.elapsed())
    }

    fn shard(&self, key: &K) -> MutexGuard<'_, HashMap<K, Cell>> {
        let number = usize::try_from(self.hasher.hash_one(key) % SHARDS as u64).unwrap_or(0);
        lock(&self.shards[number])
    }
}

fn lock<T>(shard: &Mutex<T>) -> MutexGuard<'_, T> {
    shard.lock()
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 4)
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
    fn an_idle_cell_is_forgotten() {
        let limit = Limit::new("test", Rate { count: 1, period: Duration::from_nanos(1), burst: 10 });
        limit.take(&1).unwrap();
        std::thread::yield_now();
        limit.sweep();
        assert!(limit.shards.iter().all(|shard| lock(shard).is_empty()));
    }
}
