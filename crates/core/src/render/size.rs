//! How many characters a text takes once it is shown, and where to cut it.
//!
//! What a model is shown is longer than what was written: unseen characters are written out, tags of frames are neutralised,
//! and the structured half of an answer escapes quotes and line breaks. A size that counts only what was written is none.

use super::fence::{entity, neutralised};
use super::visible::{Place, must_show, shown_chars_of};

/// Characters of a text in the larger of its two shown forms: between tags, and as a JSON string.
///
/// ```
/// use amb_core::render::size::shown_chars;
/// assert_eq!(shown_chars("plain"), 5);
/// assert_eq!(shown_chars("\u{202e}"), "⟨U+202E⟩".chars().count());
/// assert_eq!(shown_chars("\"\n"), 4);
/// ```
pub fn shown_chars(text: &str) -> usize {
    measure(text, usize::MAX, Place::Body).1
}

/// As much of the beginning of a text as takes at most `max` characters when it is shown, and how many characters of the
/// text are left.
pub fn clip_shown(text: &str, max: usize) -> (&str, usize) {
    let (end, _) = measure(text, max, Place::Body);
    (&text[..end], text[end..].chars().count())
}

/// The same for a label, which stands on one line in an attribute or a JSON string.
pub fn clip_line(text: &str, max: usize) -> (&str, usize) {
    let (end, _) = measure(text, max, Place::Line);
    (&text[..end], text[end..].chars().count())
}

/// Where the text that fits ends, and what it takes.
fn measure(text: &str, max: usize, place: Place) -> (usize, usize) {
    let (mut taken, mut before) = (0, None);
    for (at, c) in text.char_indices() {
        let rest = &text[at + c.len_utf8()..];
        let entity = if place == Place::Line { entity(c) } else { None };
        let cost = match entity.or_else(|| neutralised(rest, c)) {
            Some(with) => with.len(),
            None if must_show(place, before, c, rest.chars().next()) => shown_chars_of(c),
            None if matches!(c, '"' | '\\' | '\n' | '\r' | '\t') => 2,
            None => 1,
        };
        if taken + cost > max {
            return (at, taken);
        }
        taken += cost;
        before = Some(c);
    }
    (text.len(), taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fence::{attribute, body};
    use crate::render::hostile::hostile_text;
    use proptest::prelude::*;

    #[test]
    fn what_is_cut_is_counted_in_characters_of_the_text() {
        assert_eq!(clip_shown("äöü", 2), ("äö", 1));
        assert_eq!(clip_shown("\u{202e}\u{202e}x", 9), ("\u{202e}", 2));
        assert_eq!(clip_shown("", 0), ("", 0));
        assert_eq!(clip_shown("<system>", 3), ("", 8));
        assert_eq!(clip_line("'a'\n", 12), ("'a'", 1), "both quotes are entities");
    }

    proptest! {
        #[test]
        fn a_clipped_label_fits_in_an_attribute(text in hostile_text(), max in 0..200usize) {
            let (start, left) = clip_line(&text, max);
            prop_assert_eq!(start.chars().count() + left, text.chars().count());
            prop_assert!(attribute(start).chars().count() <= max + 9);
        }

        #[test]
        fn a_text_is_as_long_as_it_is_shown(text in hostile_text()) {
            let shown = body(&text, None);
            let json = serde_json::to_string(&*shown).unwrap().chars().count() - 2;
            prop_assert_eq!(shown_chars(&text), json);
            prop_assert!(shown.chars().count() <= json);
        }

        #[test]
        fn a_clipped_text_fits(text in hostile_text(), max in 0..200usize) {
            let (start, left) = clip_shown(&text, max);
            prop_assert_eq!(start.chars().count() + left, text.chars().count());
            // Without what stood behind it the last character may have to be written out.
            prop_assert!(shown_chars(start) <= max + 9);
        }
    }
}
