//! Exponential backoff with jitter.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Computes the delay before the next attempt: it doubles with each failure up to a bound, and is jittered so that the
/// clients of a server that was down do not all return at once.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Default for Backoff {
    /// From 1 to 30 seconds.
    fn default() -> Self {
        Self::new(Duration::from_secs(1), Duration::from_secs(30))
    }
}

impl Backoff {
    /// Starts at `first` and never exceeds `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0 }
    }

    /// The longest wait.
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// Starts again at the shortest wait. Called after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Returns how long to wait after another failure.
    pub fn pause(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.after(self.failures)
    }

    /// Returns the delay after so many consecutive failures, the first being 1, for a caller that counts them itself:
    /// between three quarters and the whole of that step.
    pub fn after(&self, failures: u32) -> Duration {
        let step = self.first.saturating_mul(1 << failures.saturating_sub(1).min(30)).min(self.longest);
        // A hasher with fresh keys is random enough for jitter, and needs no other crate.
        let random = RandomState::new().build_hasher().finish() as u32;
        step.mul_f64(0.75 + 0.25 * f64::from(random) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_bound_and_start_again_after_a_success() {
        let mut backoff = Backoff::default();
        for seconds in [1, 2, 4, 8, 16, 30, 30, 30] {
            let (wait, step) = (backoff.pause(), Duration::from_secs(seconds));
            assert!(wait <= step && wait >= step.mul_f64(0.74), "{wait:?}");
        }
        assert!((0..100).all(|_| backoff.pause() <= Duration::from_secs(30)), "many failures do not overflow");
        assert!(backoff.after(1) <= Duration::from_secs(1) && backoff.after(3) > Duration::from_secs(2));
        backoff.reset();
        assert!(backoff.pause() <= Duration::from_secs(1));
    }
}
