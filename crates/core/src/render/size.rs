//! Measures and cuts texts by their rendered length.
//!
//! Rendered text is longer than the original: invisible characters are written out, tags of frames are neutralised, and
//! JSON escapes quotes and line breaks. So limits must count the rendered form.

use super::fence::{entity, neutralised};
use super::visible::{TextKind, must_show, shown_chars_of};

/// Characters of a text in the larger of its two shown forms: between tags, and as a JSON string.
///
/// ```
/// use amb_core::render::size::shown_chars;
/// assert_eq!(shown_chars("plain"), 5);
/// assert_eq!(shown_chars("\u{202e}"), "⟨U+202E⟩".chars().count());
/// assert_eq!(shown_chars("\"\n"), 4);
/// ```
pub fn shown_chars(text: &str) -> usize {
    measure(text, usize::MAX, TextKind::Body).1
}

/// Returns the longest prefix that takes at most `max` characters when rendered, and how many characters of the text
/// follow it.
pub fn clip_shown(text: &str, max: usize) -> (&str, usize) {
    let (end, _) = measure(text, max, TextKind::Body);
    (&text[..end], text[end..].chars().count())
}

/// Like [`clip_shown`], for a label: one line in an attribute or a JSON string.
pub fn clip_line(text: &str, max: usize) -> (&str, usize) {
    let (end, _) = measure(text, max, TextKind::Line);
    (&text[..end], text[end..].chars().count())
}

/// Returns the end of the prefix that fits, and its rendered size.
fn measure(text: &str, max: usize, kind: TextKind) -> (usize, usize) {
    let (mut taken, mut before) = (0, None);
    for (at, c) in text.char_indices() {
        let rest = &text[at + c.len_utf8()..];
        let entity = if kind == TextKind::Line { entity(c) } else { None };
        let cost = match entity.or_else(|| neutralised(rest, c)) {
            Some(with) => with.len(),
            None if must_show(kind, before, c, rest.chars().next()) => shown_chars_of(c),
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
    fn the_rest_is_counted_in_characters_of_the_text() {
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
            // Without the character after it, the last one may have to be written out.
            prop_assert!(shown_chars(start) <= max + 9);
        }
    }
}
