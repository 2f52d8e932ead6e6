//! The size of a page.

use amb_core::limits::MAX_PAGE_BYTES;

/// The bytes that are left in a page.
#[derive(Debug)]
pub(crate) struct PageBudget {
    left: usize,
    /// Whether the page has an item.
    begun: bool,
    /// Whether an item was left out.
    full: bool,
}

impl PageBudget {
    pub(crate) fn new() -> Self {
        Self { left: MAX_PAGE_BYTES, begun: false, full: false }
    }

    /// Returns whether an item of this size goes into the page. The first item always does; after the first that does
    /// not, none does.
    pub(crate) fn takes(&mut self, bytes: usize) -> bool {
        self.full |= self.begun && bytes > self.left;
        if !self.full {
            self.begun = true;
            self.left = self.left.saturating_sub(bytes);
        }
        !self.full
    }

    /// Returns whether an item was left out.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_at_least_one_item_and_ends_before_the_first_that_does_not_fit() {
        let mut budget = PageBudget::new();
        assert!(budget.takes(MAX_PAGE_BYTES * 2), "the first item, whatever its size");
        assert!(!budget.is_full());
        assert!(!budget.takes(1) && budget.is_full());
        let mut budget = PageBudget::new();
        assert!(budget.takes(MAX_PAGE_BYTES / 2));
        assert!(!budget.takes(MAX_PAGE_BYTES));
        assert!(!budget.takes(1), "no smaller item after one that did not fit");
    }
}
