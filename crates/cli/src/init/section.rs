//! A section of ours in a text for models, between two marks: the rest is the user's.

use anyhow::{Result, bail};

use super::{ConfigValue, Setting};

const BEGIN: &str = "<!-- agent-mailbox: begin. Written by `amb init`; what is between these marks is replaced. -->";
const END: &str = "<!-- agent-mailbox: end -->";

/// Adds the section to the text: where it was, else at the end.
pub(super) fn set(text: &str, setting: &Setting) -> Result<String> {
    let ConfigValue::String(words) = &setting.value else { bail!("a section is a text") };
    let section = format!("{BEGIN}\n{}\n{END}\n", words.trim_end());
    Ok(match find(text) {
        Some((start, end)) => format!("{}{section}{}", &text[..start], &text[end..]),
        None if text.trim().is_empty() => section,
        None => format!("{}\n\n{section}", text.trim_end_matches('\n')),
    })
}

/// Restores the section that `before` has, or removes it.
pub(super) fn restore(text: &str, before: &str) -> String {
    let Some((start, end)) = find(text) else { return text.to_owned() };
    match find(before) {
        Some((old_start, old_end)) => format!("{}{}{}", &text[..start], &before[old_start..old_end], &text[end..]),
        None => {
            let (head, tail) = (text[..start].trim_end_matches('\n'), &text[end..]);
            let gap = if head.is_empty() { "" } else { "\n" };
            format!("{head}{gap}{tail}")
        }
    }
}

/// Where the section begins and ends.
fn find(text: &str) -> Option<(usize, usize)> {
    let start = text.find(BEGIN)?;
    let end = start + text[start..].find(END)? + END.len();
    Some((start, end + usize::from(text[end..].starts_with('\n'))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_added_once_replaced_in_place_and_removed() {
        let setting = |words: &str| Setting::new(&[], words.into());
        let theirs = "# Rules\n\nBe brief.\n";
        let once = set(theirs, &setting("mail")).unwrap();
        assert!(once.starts_with(theirs) && once.contains("\nmail\n"), "{once}");
        assert_eq!(set(&once, &setting("mail")).unwrap(), once);
        let later = format!("{once}\nAfter.\n");
        let changed = set(&later, &setting("other")).unwrap();
        assert!(changed.contains("\nother\n") && !changed.contains("\nmail\n") && changed.ends_with("\nAfter.\n"));
        assert_eq!(restore(&once, theirs), theirs);
        assert_eq!(restore(&set("", &setting("mail")).unwrap(), ""), "");
        assert_eq!(restore(theirs, theirs), theirs);
    }
}
