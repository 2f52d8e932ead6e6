//! Mail as a model sees it: fenced, so that no text can imitate the frame, another sender or the system.

/// Whether a character shows nothing or changes how its neighbours are shown: bidi controls, zero-width characters, tags.
pub fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{00ad}' | '\u{061c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}
