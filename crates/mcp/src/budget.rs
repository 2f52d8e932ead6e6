//! The size limit of one result, in characters after escaping; the larger of its text and its data counts.

use serde::Serialize;

/// The most characters of one result, for its text and its data each: more would crowd out the model's context, and
/// clients cut it without saying what is missing.
#[cfg(test)]
pub(crate) const ANSWER_CHARS: usize = 20_000;
/// The part of it for what other agents wrote. The rest is for notices and hints.
pub(crate) const ITEMS_CHARS: usize = 17_500;
/// What the tags around an item take in the text beyond what its fields take in the data.
const TAGS_CHARS: usize = 120;

/// The room that is left for items.
#[derive(Debug)]
pub(crate) struct TextBudget(usize);

impl TextBudget {
    pub(crate) fn new() -> Self {
        Self(ITEMS_CHARS)
    }

    pub(crate) fn left(&self) -> usize {
        self.0
    }

    /// Reserves room for an item; returns whether there was enough.
    pub(crate) fn try_spend(&mut self, chars: usize) -> bool {
        match self.0.checked_sub(chars) {
            Some(left) => {
                self.0 = left;
                true
            }
            None => false,
        }
    }

    /// Reserves room for an item that is shown in any case.
    pub(crate) fn spend(&mut self, chars: usize) {
        self.0 = self.0.saturating_sub(chars);
    }
}

/// The characters that an item takes, tags included.
pub(crate) fn size(item: &impl Serialize) -> usize {
    // An item that cannot be JSON fails the whole result later.
    serde_json::to_string(item).map_or(0, |json| json.chars().count()) + TAGS_CHARS
}
