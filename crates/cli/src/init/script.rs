//! A program of ours in a client's directory: a file with our mark is ours as a whole, any other is left alone.

use anyhow::{Result, bail};

use super::{ConfigValue, Setting};

/// The text in the first line by which our programs are recognised.
const MARK: &str = "Written by `amb init";

pub(super) fn set(text: &str, setting: &Setting) -> Result<String> {
    let ConfigValue::String(program) = &setting.value else { bail!("a program is a text") };
    if !text.trim().is_empty() && !is_ours(text) {
        bail!("the file is there and was not written by amb; move it away first");
    }
    Ok(program.clone())
}

pub(super) fn restore(text: &str, before: &str) -> String {
    match is_ours(text) {
        // One from an earlier version is not worth restoring.
        true if is_ours(before) => String::new(),
        true => before.to_owned(),
        false => text.to_owned(),
    }
}

fn is_ours(text: &str) -> bool {
    text.lines().next().is_some_and(|line| line.contains(MARK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_program_of_ours_is_replaced_or_removed() {
        let setting = Setting::new(&[], "// Written by `amb init x`\nnew\n".into());
        assert_eq!(set("", &setting).unwrap(), "// Written by `amb init x`\nnew\n");
        assert!(set("// Written by `amb init x`\nold\n", &setting).unwrap().ends_with("new\n"));
        assert!(set("theirs\n", &setting).is_err());
        assert_eq!(restore("theirs\n", ""), "theirs\n");
        assert_eq!(restore("// Written by `amb init x`\nnew\n", ""), "");
    }
}
