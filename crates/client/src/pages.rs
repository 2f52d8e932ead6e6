//! Which pages of the log this client received: naming the last one in the next request tells any replica that it
//! arrived.

use std::collections::VecDeque;

use amb_core::Cursor;
use parking_lot::Mutex;

/// Most pages remembered. One reader needs one.
const MOST: usize = 16;

/// Start and end cursors of the newest pages.
#[derive(Debug, Default)]
pub(crate) struct DeliveredPages(Mutex<VecDeque<(Cursor, Cursor)>>);

impl DeliveredPages {
    /// Remembers a page after `since` that ended at `cursor`.
    pub(crate) fn got(&self, since: &Cursor, cursor: &Cursor) {
        let mut pages = self.0.lock();
        pages.retain(|(_, end)| end != cursor);
        if pages.len() >= MOST {
            pages.pop_front();
        }
        pages.push_back((since.clone(), cursor.clone()));
    }

    /// Returns the start of the page that ended here.
    pub(crate) fn before(&self, since: &Cursor) -> Option<Cursor> {
        let pages = self.0.lock();
        pages.iter().find(|(_, end)| end == since).map(|(begin, _)| begin.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_page_that_ended_here_is_named() {
        let pages = DeliveredPages::default();
        let cursor = |number: u64| Cursor::from(number);
        assert_eq!(pages.before(&cursor(5)), None);
        pages.got(&cursor(0), &cursor(5));
        assert_eq!(pages.before(&cursor(5)), Some(cursor(0)));
        pages.got(&cursor(5), &cursor(5));
        assert_eq!(pages.before(&cursor(5)), Some(cursor(5)), "an empty one, after which nothing is new");
        (10..10 + MOST as u64).for_each(|number| pages.got(&cursor(number), &cursor(number + 1)));
        assert_eq!(pages.before(&cursor(5)), None, "the oldest is forgotten");
    }
}
