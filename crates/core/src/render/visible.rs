//! Writes out invisible characters, so that a reader sees them.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character shows nothing or changes how its neighbours are shown: bidi controls, zero-width characters,
/// fillers, variation selectors, tags. These are Unicode's default-ignorable characters, with the line and paragraph
/// separators and the interlinear annotations.
pub fn is_invisible(c: char) -> bool {
    if c < '\u{ad}' {
        return false;
    }
    matches!(c,
        '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
        || is_variation_selector(c)
}

fn is_variation_selector(c: char) -> bool {
    matches!(c, '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}

/// Whether a character is not visible but could change how a text reads.
fn is_hidden(c: char) -> bool {
    c.is_control() || is_invisible(c)
}

/// Whether an invisible character has a purpose at this position: it joins emoji or letters of another script, or
/// selects the form of the character before it. Between plain ASCII, or in runs, it only hides something.
fn belongs(before: Option<char>, c: char, after: Option<char>) -> bool {
    let script = |c: char| !c.is_ascii() && !is_hidden(c) && !c.is_whitespace();
    match c {
        '\u{200c}' | '\u{200d}' => {
            let joined = |c: char| script(c) || is_variation_selector(c);
            before.is_some_and(joined) && after.is_some_and(script)
        }
        _ if is_variation_selector(c) => before.is_some_and(|c| script(c) || matches!(c, '0'..='9' | '#' | '*')),
        _ => false,
    }
}

/// The kind of a text, which decides about line breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextKind {
    /// Line breaks and tabs stay.
    Body,
    /// One line: breaks and tabs are written out like invisible characters.
    Line,
}

/// Whether the character at this position has to be written out.
pub(crate) fn must_show(kind: TextKind, before: Option<char>, c: char, after: Option<char>) -> bool {
    match (kind, c) {
        (TextKind::Body, '\n' | '\t') => false,
        // CR LF is a line end of other systems; a lone carriage return can hide text.
        (TextKind::Body, '\r') => after != Some('\n'),
        _ => is_hidden(c) && !belongs(before, c, after),
    }
}

/// Number of characters of a written-out character.
pub(crate) fn shown_chars_of(c: char) -> usize {
    let digits = match u32::from(c) {
        0..=0xffff => 4,
        0x1_0000..=0xf_ffff => 5,
        _ => 6,
    };
    "⟨U+⟩".chars().count() + digits
}

/// Writes out invisible characters, line breaks and tabs: for subjects, names and other labels.
///
/// ```
/// use amb_core::render::visible::line;
/// assert_eq!(line("plan"), "plan");
/// assert_eq!(line("a\nb\u{202e}c"), "a⟨U+000A⟩b⟨U+202E⟩c");
/// ```
pub fn line(text: &str) -> Cow<'_, str> {
    rewrite(text, TextKind::Line, |_, _| None)
}

/// Writes out invisible characters; line breaks and tabs stay: for bodies.
///
/// ```
/// use amb_core::render::visible::text;
/// assert_eq!(text("a\nb\u{202e}c"), "a\nb⟨U+202E⟩c");
/// ```
pub fn text(text: &str) -> Cow<'_, str> {
    rewrite(text, TextKind::Body, |_, _| None)
}

/// Copies the text, with what `replace` returns in place of single characters (it gets the text after each one) and
/// with invisible characters written out. Borrows where nothing changes.
pub(super) fn rewrite(
    text: &str,
    kind: TextKind,
    replace: impl Fn(&str, char) -> Option<&'static str>,
) -> Cow<'_, str> {
    let mut out = String::new();
    // Everything before this has been copied.
    let mut copied = 0;
    let mut before = None;
    for (at, c) in text.char_indices() {
        let rest = &text[at + c.len_utf8()..];
        if let Some(with) = replace(rest, c) {
            out.push_str(&text[copied..at]);
            out.push_str(with);
            copied = at + c.len_utf8();
        } else if !(' '..='~').contains(&c) && must_show(kind, before, c, rest.chars().next()) {
            out.push_str(&text[copied..at]);
            // Writing to a String cannot fail.
            let _ = write!(out, "⟨U+{:04X}⟩", u32::from(c));
            copied = at + c.len_utf8();
        }
        before = Some(c);
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// Returns the first `max` characters, and how many follow them.
pub fn clip(text: &str, max: usize) -> (&str, usize) {
    match text.char_indices().nth(max) {
        Some((at, _)) => (&text[..at], text[at..].chars().count()),
        None => (text, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_text_is_kept_byte_for_byte() {
        for text in ["", "plan", "Grüße, 你好 <b>&amp;</b>", "👨‍👩‍👧 ❤️ 1️⃣", "می‌خواهم", "葛󠄀"]
        {
            assert!(matches!(line(text), Cow::Borrowed(_)), "{text:?}");
            assert!(matches!(super::text(text), Cow::Borrowed(_)), "{text:?}");
        }
        assert!(matches!(text("one\r\ntwo\n\tthree"), Cow::Borrowed(_)));
    }

    #[test]
    fn invisible_characters_are_written_out() {
        let cases = [
            ("a\u{202e}b", "a⟨U+202E⟩b"),
            ("a\u{1b}[2Jb", "a⟨U+001B⟩[2Jb"),
            ("a\rb", "a⟨U+000D⟩b"),
            ("a\u{200d}b", "a⟨U+200D⟩b"),
            ("a\u{fe0f}", "a⟨U+FE0F⟩"),
            ("❤\u{fe0f}\u{fe01}", "❤\u{fe0f}⟨U+FE01⟩"),
            ("\u{e0041}", "⟨U+E0041⟩"),
            ("\u{85}\u{2028}\u{0}", "⟨U+0085⟩⟨U+2028⟩⟨U+0000⟩"),
        ];
        for (hidden, shown) in cases {
            assert_eq!(text(hidden), shown);
        }
    }

    #[test]
    fn a_line_stays_one_line() {
        assert_eq!(line("a\r\nb\tc"), "a⟨U+000D⟩⟨U+000A⟩b⟨U+0009⟩c");
    }

    #[test]
    fn clipping_counts_characters() {
        assert_eq!(clip("äöü", 2), ("äö", 1));
        assert_eq!(clip("äöü", 3), ("äöü", 0));
        assert_eq!(clip("", 0), ("", 0));
    }
}
