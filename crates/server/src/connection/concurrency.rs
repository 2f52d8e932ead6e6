//! Limits the concurrent connections or requests of one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// Permits in use, by address.
type Counts = Arc<Mutex<HashMap<IpAddr, usize>>>;

/// Gives out up to `max` permits to each address.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimit {
    max: usize,
    counts: Counts,
}

/// A permit, returned when dropped.
#[derive(Debug)]
pub(crate) struct ConcurrencyPermit {
    address: IpAddr,
    counts: Counts,
}

impl ConcurrencyLimit {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, counts: Counts::default() }
    }

    /// Takes a permit; `None` at the limit.
    pub(crate) fn acquire(&self, address: IpAddr) -> Option<ConcurrencyPermit> {
        let mut counts = self.counts.lock();
        let count = counts.entry(address).or_default();
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(ConcurrencyPermit { address, counts: Arc::clone(&self.counts) })
    }
}

impl Drop for ConcurrencyPermit {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_permit_can_be_acquired_again_and_leaves_no_entry() {
        let limit = ConcurrencyLimit::new(2);
        let [here, there] = ["192.0.2.1", "192.0.2.2"].map(|address| address.parse().unwrap());
        let (first, second) = (limit.acquire(here).unwrap(), limit.acquire(here).unwrap());
        assert!(limit.acquire(here).is_none());
        assert!(limit.acquire(there).is_some(), "another address is not affected");
        drop(first);
        drop(limit.acquire(here).unwrap());
        drop(second);
        assert!(limit.counts.lock().is_empty());
    }
}
