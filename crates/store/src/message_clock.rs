//! Message times that do not decrease, although messages are written in another order than they arrived.

use amb_core::Timestamp;
use jiff::SignedDuration;

/// The largest difference that counts as overtaking. Where the clock is further back it was set back, and its time is
/// used.
const MAX_OVERTAKE: SignedDuration = SignedDuration::from_secs(1);

/// The time of the newest message. A message gets its time when it is received and its place in its session a moment
/// later, when another message may have been written first.
#[derive(Debug, Default)]
pub(crate) struct MessageClock(Timestamp);

impl MessageClock {
    /// Returns the time of the message that is written next: its own, or a microsecond after the message that overtook
    /// it. Never the same time for all that were overtaken: the search index has a bounded number of messages per
    /// microsecond.
    pub(crate) fn stamp(&mut self, at: Timestamp) -> Timestamp {
        let late = self.0.duration_since(at);
        self.0 = match late.is_positive() && late < MAX_OVERTAKE {
            true => self.0.checked_add(SignedDuration::from_micros(1)).unwrap_or(self.0),
            false => at,
        };
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_never_decrease_unless_the_clock_was_set_back() {
        let mut clock = MessageClock::default();
        let stamped = [1_000_000, 5_000_000, 4_999_999, 4_000_003, 4_000_002, 4_000_005]
            .map(|micros| clock.stamp(Timestamp::from_microsecond(micros).unwrap()).as_microsecond());
        assert_eq!(stamped, [1_000_000, 5_000_000, 5_000_001, 5_000_002, 4_000_002, 4_000_005]);
    }
}
