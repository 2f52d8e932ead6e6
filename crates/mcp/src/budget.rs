//! How much fits into one answer, counted in characters as a client shows them: after escaping, in the larger of both halves.

use serde::Serialize;

/// Characters of one answer at most, in its text and in its data alike: more would crowd out everything else a model has in
/// mind, and clients cut it off without saying what is lost.
#[cfg(test)]
pub(crate) const ANSWER_CHARS: usize = 20_000;
/// What of it is for what others wrote. The rest is for notices and for how to go on.
pub(crate) const ITEMS_CHARS: usize = 17_500;
/// What the tags around an item take in the text beyond what its fields take in the data.
const TAGS_CHARS: usize = 120;

/// Room for items, taken from one after the other.
#[derive(Debug)]
pub(crate) struct Budget(usize);

impl Budget {
    pub(crate) fn new() -> Self {
        Self(ITEMS_CHARS)
    }

    pub(crate) fn left(&self) -> usize {
        self.0
    }

    /// Takes room for an item, if there is enough.
    pub(crate) fn takes(&mut self, chars: usize) -> bool {
        match self.0.checked_sub(chars) {
            Some(left) => {
                self.0 = left;
                true
            }
            None => false,
        }
    }

    /// Takes room for an item that is shown whatever it takes.
    pub(crate) fn spend(&mut self, chars: usize) {
        self.0 = self.0.saturating_sub(chars);
    }
}

/// Characters that an item takes, tags and all.
pub(crate) fn size(item: &impl Serialize) -> usize {
    // An item that is no JSON would fail the answer as a whole.
    serde_json::to_string(item).map_or(0, |json| json.chars().count()) + TAGS_CHARS
}
