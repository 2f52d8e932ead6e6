//! Where a listener continues whose cursor is beyond the end of its log.

/// Entries looked at for that, from the newest on.
pub(crate) const LOOKED_AT: i64 = 10_000;

/// What the newest entries of a log say about how far it was handed over.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HandedOver {
    /// The first of the entries looked at.
    pub(crate) oldest: Option<u64>,
    /// The first message among them that nobody was handed.
    pub(crate) first_undelivered: Option<u64>,
    /// The last message among them that somebody was handed.
    pub(crate) last_delivered: Option<u64>,
}

impl HandedOver {
    /// The cursor to continue from. The listener's cursor is from a state of the log that is gone: the database was restored to an
    /// earlier one, or is another. New entries have numbers below that cursor and were handed to nobody. So everything after the last
    /// message that was handed over is sent again, and none is skipped.
    pub(crate) fn cursor(self, head: u64) -> u64 {
        let Some(oldest) = self.oldest else { return head };
        let undelivered = self.first_undelivered.map_or(head, |number| number.saturating_sub(1));
        undelivered.min(self.last_delivered.unwrap_or(oldest.saturating_sub(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_goes_on_after_what_was_handed_over() {
        let log = |first_undelivered, last_delivered| HandedOver { oldest: Some(3), first_undelivered, last_delivered };
        assert_eq!(log(Some(6), Some(5)).cursor(8), 5);
        assert_eq!(log(Some(7), Some(5)).cursor(8), 5, "an event came between");
        assert_eq!(log(Some(4), Some(7)).cursor(8), 3, "a message that was left out");
        assert_eq!(log(None, Some(6)).cursor(8), 6, "events after it");
        assert_eq!(log(None, None).cursor(8), 2, "events alone");
        assert_eq!(HandedOver::default().cursor(8), 8);
    }
}
