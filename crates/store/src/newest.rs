//! Times that do not decrease although messages are written in another order than they came.

use amb_core::Timestamp;
use jiff::SignedDuration;

/// How far apart the times of two messages may be that were written out of order. A clock that is further back was set, and is
/// taken as it is.
const MOMENT: SignedDuration = SignedDuration::from_secs(1);

/// The time of the newest message. A message gets its time when it is received, and its place in its session a moment later, when
/// another may have been written first.
#[derive(Debug, Default)]
pub(crate) struct Newest(Timestamp);

impl Newest {
    /// The time of the message that is placed next: its own, or a microsecond after the one which overtook it. Not the same
    /// moment for all that are late: search tells only so many messages of one moment apart.
    pub(crate) fn stamp(&mut self, at: Timestamp) -> Timestamp {
        let late = self.0.duration_since(at);
        self.0 = match late.is_positive() && late < MOMENT {
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
    fn a_moment_is_made_up_for_and_a_clock_that_was_set_is_believed() {
        let mut newest = Newest::default();
        let stamped = [1_000_000, 5_000_000, 4_999_999, 4_000_003, 4_000_002, 4_000_005]
            .map(|micros| newest.stamp(Timestamp::from_microsecond(micros).unwrap()).as_microsecond());
        assert_eq!(stamped, [1_000_000, 5_000_000, 5_000_001, 5_000_002, 4_000_002, 4_000_005]);
    }
}
