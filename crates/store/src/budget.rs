//! How large a page may get.

use amb_core::limits::MAX_PAGE_BYTES;

/// Bytes that are left of a page.
#[derive(Debug)]
pub(crate) struct Budget {
    left: usize,
    /// Whether something is in the page.
    begun: bool,
    /// Whether something was left out.
    full: bool,
}

impl Budget {
    /// Of one page.
    pub(crate) fn page() -> Self {
        Self { left: MAX_PAGE_BYTES, begun: false, full: false }
    }

    /// Whether something of this size goes into the page. The first thing always does; after the first that does not,
    /// nothing does.
    pub(crate) fn takes(&mut self, bytes: usize) -> bool {
        self.full |= self.begun && bytes > self.left;
        if !self.full {
            self.begun = true;
            self.left = self.left.saturating_sub(bytes);
        }
        !self.full
    }

    /// Whether something was left out.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_one_thing_at_least_and_ends_at_the_first_that_does_not_fit() {
        let mut budget = Budget::page();
        assert!(budget.takes(MAX_PAGE_BYTES * 2), "alone, whatever its size");
        assert!(!budget.is_full());
        assert!(!budget.takes(1) && budget.is_full());
        let mut budget = Budget::page();
        assert!(budget.takes(MAX_PAGE_BYTES / 2));
        assert!(!budget.takes(MAX_PAGE_BYTES));
        assert!(!budget.takes(1), "nothing overtakes what did not fit");
    }
}
