//! A line diff. Without context, and with secrets masked: the lines around ours, or the line that ours joins, may hold
//! other keys.

use std::fmt::Write as _;

use super::mask::mask;

/// The most lines of a changed region that are compared one by one; a larger one is shown as replaced.
const MOST: usize = 2_000;

/// The hunks of a unified diff, without the header that names the file. Empty when nothing changes.
pub(crate) fn diff(old_text: &str, new_text: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (old_text.lines().collect(), new_text.lines().collect());
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (gone, come) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    let kept = if gone.len().max(come.len()) > MOST { Vec::new() } else { common(gone, come) };

    let mut out = String::new();
    let (mut from, mut to) = (0, 0);
    for (a, b) in kept.into_iter().chain([(gone.len(), come.len())]) {
        if from < a || to < b {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "@@ -{} +{} @@", range(head + from, a - from), range(head + to, b - to));
            for line in &gone[from..a] {
                let _ = writeln!(out, "-{}", mask(line));
            }
            if a > from && head + a == old.len() {
                out.push_str(end_mark(old_text));
            }
            for line in &come[to..b] {
                let _ = writeln!(out, "+{}", mask(line));
            }
            if b > to && head + b == new.len() {
                out.push_str(end_mark(new_text));
            }
        }
        (from, to) = (a + 1, b + 1);
    }
    out
}

/// The range of a hunk: its first line and its length. An empty range names the line before it.
fn range(before: usize, count: usize) -> String {
    format!("{},{count}", if count == 0 { before } else { before + 1 })
}

/// What follows the last line of a text that does not end with a newline.
fn end_mark(text: &str) -> &'static str {
    if text.ends_with('\n') { "" } else { "\\ No newline at end of file\n" }
}

/// The longest common subsequence, as pairs of indices.
fn common(a: &[&str], b: &[&str]) -> Vec<(usize, usize)> {
    let width = b.len() + 1;
    let mut lengths = vec![0_u32; (a.len() + 1) * width];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            lengths[i * width + j] = if a[i] == b[j] {
                lengths[(i + 1) * width + j + 1] + 1
            } else {
                lengths[(i + 1) * width + j].max(lengths[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j, mut pairs) = (0, 0, Vec::new());
    while i < a.len() && j < b.len() {
        if a[i] == b[j] {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if lengths[(i + 1) * width + j] >= lengths[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::diff;

    #[test]
    fn only_changed_lines_are_shown() {
        assert_eq!(diff("a\nb\n", "a\nb\n"), "");
        assert_eq!(diff("", "x\ny\n"), "@@ -0,0 +1,2 @@\n+x\n+y\n");
        assert_eq!(diff("key=secret\nb\nc\n", "key=secret\nb\nB\nc\n"), "@@ -2,0 +3,1 @@\n+B\n");
        assert_eq!(diff("a\nb\nc\nd\ne\n", "a\nB\nc\nd\nE\n"), "@@ -2,1 +2,1 @@\n-b\n+B\n@@ -5,1 +5,1 @@\n-e\n+E\n");
        assert_eq!(diff("a\nb\n", "a\n"), "@@ -2,1 +1,0 @@\n-b\n");
        assert_eq!(diff("a", "b\n"), "@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+b\n");
    }
}
