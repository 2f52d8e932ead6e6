//! The pages of the log that this client received. The next request names the last one, which tells any replica that it
//! was delivered.

use std::collections::VecDeque;

use amb_core::Cursor;
use parking_lot::Mutex;

/// Maximum number of pages kept; one reader needs one.
const CAPACITY: usize = 16;

/// Start and end cursors of the newest pages.
#[derive(Debug, Default)]
pub(crate) struct DeliveredPages(Mutex<VecDeque<(Cursor, Cursor)>>);

impl DeliveredPages {
    /// Records a page after `since` that ended at `cursor`.
    pub(crate) fn insert(&self, since: &Cursor, cursor: &Cursor) {
        let mut pages = self.0.lock();
        pages.retain(|(_, end)| end != cursor);
        if pages.len() >= CAPACITY {
            pages.pop_front();
        }
        pages.push_back((since.clone(), cursor.clone()));
    }

    /// Returns the start of the page that ended here.
    pub(crate) fn start_of(&self, since: &Cursor) -> Option<Cursor> {
        let pages = self.0.lock();
        pages.iter().find(|(_, end)| end == since).map(|(begin, _)| begin.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_the_newest_page_that_ended_here_is_returned() {
        let pages = DeliveredPages::default();
        let cursor = |number: u64| Cursor::from(number);
        assert_eq!(pages.start_of(&cursor(5)), None);
        pages.insert(&cursor(0), &cursor(5));
        assert_eq!(pages.start_of(&cursor(5)), Some(cursor(0)));
        pages.insert(&cursor(5), &cursor(5));
        assert_eq!(pages.start_of(&cursor(5)), Some(cursor(5)), "an empty one, after which nothing is new");
        (10..10 + CAPACITY as u64).for_each(|number| pages.insert(&cursor(number), &cursor(number + 1)));
        assert_eq!(pages.start_of(&cursor(5)), None, "the oldest is dropped");
    }
}
