//! How long to wait before trying again: 1, 2, 4 … 30 s, each a little at random so that a crowd does not come back at once.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// Doubles from try to try until it is told of a success.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// It worked: begin again at the shortest.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// How long to wait after another failure.
    pub fn pause(&mut self) -> Duration {
        let whole = FIRST.saturating_mul(1 << self.failures.min(5)).min(LONGEST);
        self.failures += 1;
        // Between three quarters and the whole of it.
        whole.mul_f64(0.75 + 0.25 * fraction())
    }
}

/// Something from 0 to 1; without randomness from the system, no jitter.
fn fraction() -> f64 {
    f64::from(getrandom::u32().unwrap_or(u32::MAX)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_thirty_seconds_and_begin_again_after_success() {
        let mut backoff = Backoff::default();
        for whole in [1, 2, 4, 8, 16, 30, 30, 30] {
            let wait = backoff.pause();
            assert!(wait <= Duration::from_secs(whole) && wait >= Duration::from_secs(whole).mul_f64(0.74), "{wait:?}");
        }
        backoff.reset();
        assert!(backoff.pause() <= FIRST);
    }
}
