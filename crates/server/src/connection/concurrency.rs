//! Limits concurrent use by one address.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;

/// Counts permits by key, up to a limit for each.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimit<K> {
    most: usize,
    used: Arc<Mutex<HashMap<K, usize>>>,
}

/// A permit, returned when dropped.
#[derive(Debug)]
pub(crate) struct ConcurrencyPermit<K: Hash + Eq> {
    by: K,
    used: Arc<Mutex<HashMap<K, usize>>>,
}

impl<K: Hash + Eq + Clone> ConcurrencyLimit<K> {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, used: Arc::default() }
    }

    /// Takes a permit; `None` at the limit.
    pub(crate) fn take(&self, by: K) -> Option<ConcurrencyPermit<K>> {
        let mut used = self.used.lock();
        let count = used.entry(by.clone()).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(ConcurrencyPermit { by, used: Arc::clone(&self.used) })
    }
}

impl<K: Hash + Eq> Drop for ConcurrencyPermit<K> {
    fn drop(&mut self) {
        let mut used = self.used.lock();
        if let Some(count) = used.get_mut(&self.by) {
            *count -= 1;
            if *count == 0 {
                used.remove(&self.by);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_can_be_taken_again_and_leaves_nothing() {
        let in_use = ConcurrencyLimit::new(2);
        let (here, there) = ("192.0.2.1", "192.0.2.2");
        let (first, second) = (in_use.take(here).unwrap(), in_use.take(here).unwrap());
        assert!(in_use.take(here).is_none());
        assert!(in_use.take(there).is_some(), "another address is not touched");
        drop(first);
        drop(in_use.take(here).unwrap());
        drop(second);
        assert!(in_use.used.lock().is_empty());
    }
}
