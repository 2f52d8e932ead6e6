//! How long to wait before the next try: 1, 2, 4 … 30 s.

use std::time::Duration;

const LONGEST: Duration = Duration::from_secs(30);

/// The wait after so many failures in a row, the first being 1.
pub(crate) fn after(failures: u32) -> Duration {
    Duration::from_secs(1u64 << failures.saturating_sub(1).min(5)).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_thirty_seconds() {
        let waits: Vec<u64> = (1..=8).map(|failures| after(failures).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);
    }
}
