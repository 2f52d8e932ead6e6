//! How long to wait before the next try: 1, 2, 4 … 30 s by default.

use std::time::Duration;

/// Waits that double.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// After the first failure.
    pub first: Duration,
    /// Never longer than this.
    pub longest: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { first: Duration::from_secs(1), longest: Duration::from_secs(30) }
    }
}

impl Pace {
    /// The wait after so many failures in a row, the first being 1.
    pub(crate) fn after(self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(20);
        self.first.saturating_mul(1 << doublings).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_thirty_seconds() {
        let waits: Vec<u64> = (1..=8).map(|failures| Pace::default().after(failures).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(Pace::default().after(u32::MAX), Duration::from_secs(30));
    }
}
