//! Where a listener continues whose cursor is beyond the end of its log.

/// Entries read to find that place, from the newest on.
pub(super) const SCAN_LIMIT: i64 = 10_000;

/// How far a log was delivered, from its newest entries.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DeliveryProgress {
    /// The first of the entries read.
    pub(super) oldest: Option<u64>,
    /// The first message among them that was not delivered.
    pub(super) first_undelivered: Option<u64>,
    /// The last message among them that was delivered.
    pub(super) last_delivered: Option<u64>,
}

impl DeliveryProgress {
    /// Returns the cursor to continue from. The listener's own cursor is from a state of the log that is gone: the
    /// database was restored to an earlier state, or is another one. New entries have numbers below that cursor and
    /// were not delivered. So everything after the last delivered message is sent again, and nothing is skipped.
    pub(super) fn cursor(self, head: u64) -> u64 {
        let Some(oldest) = self.oldest else { return head };
        let undelivered = self.first_undelivered.map_or(head, |number| number.saturating_sub(1));
        undelivered.min(self.last_delivered.unwrap_or(oldest.saturating_sub(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_continues_after_the_last_delivered_message() {
        let log =
            |first_undelivered, last_delivered| DeliveryProgress { oldest: Some(3), first_undelivered, last_delivered };
        assert_eq!(log(Some(6), Some(5)).cursor(8), 5);
        assert_eq!(log(Some(7), Some(5)).cursor(8), 5, "an event between the two");
        assert_eq!(log(Some(4), Some(7)).cursor(8), 3, "an undelivered message before a delivered one");
        assert_eq!(log(None, Some(6)).cursor(8), 6, "events after it");
        assert_eq!(log(None, None).cursor(8), 2, "events only");
        assert_eq!(DeliveryProgress::default().cursor(8), 8);
    }
}
