//! Small pieces of HTML that many pages have.

use std::borrow::Cow;
use std::fmt;

use amb_core::render::visible;
use amb_core::{AgentName, Status, Task, TaskState, Timestamp};
use askama::filters::HtmlSafe;

/// HTML that is written as it is. Made in this module, `markdown` and `picture` only, from text that went through [`escape`].
#[derive(Debug, Clone, Default)]
pub(super) struct Html(pub(super) String);

impl fmt::Display for Html {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl HtmlSafe for Html {}

/// The text as HTML shows it.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    push_escaped(&mut out, text);
    out
}

/// Adds the text as HTML shows it, in an element or in a quoted attribute.
pub(super) fn push_escaped(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
}

/// A text on one line, with everything that nobody would see written out, and cut where it is long. Not escaped.
pub(super) fn line(text: &str, max: usize) -> String {
    let (head, left) = visible::clip(text, max);
    let shown = visible::line(head);
    match left {
        0 => shown.into_owned(),
        _ => format!("{shown}…"),
    }
}

/// A moment: relative to now, with the moment itself for scripts and readers.
pub(super) fn ago(at: &Timestamp, now: &Timestamp) -> Html {
    let seconds = now.as_second() - at.as_second();
    Html(format!("<time datetime=\"{}\" title=\"{}\">{}</time>", iso(at), shown(at), relative(seconds)))
}

/// A moment in the form that scripts read.
fn iso(at: &Timestamp) -> String {
    let whole = Timestamp::from_second(at.as_second()).unwrap_or(*at);
    whole.to_string()
}

/// A moment for readers without a script.
pub(super) fn shown(at: &Timestamp) -> String {
    let text = iso(at);
    let minutes = text.get(..16).unwrap_or(&text).replace('T', " ");
    format!("{minutes} UTC")
}

fn relative(seconds: i64) -> String {
    const UNITS: [(i64, &str); 6] =
        [(31_536_000, "yr"), (2_592_000, "mo"), (604_800, "wk"), (86_400, "day"), (3_600, "hr"), (60, "min")];
    let size = seconds.abs();
    match UNITS.iter().find(|(unit, _)| size >= *unit) {
        None if seconds < 0 => "in a moment".to_owned(),
        None => "just now".to_owned(),
        Some((unit, name)) => {
            let count = (size + unit / 2) / unit;
            let plural = if *name == "day" && count != 1 { "s" } else { "" };
            match seconds < 0 {
                true => format!("in {count} {name}{plural}"),
                false => format!("{count} {name}{plural} ago"),
            }
        }
    }
}

/// Which of the eight colours a name has: always the same.
pub(super) fn hue(name: &str) -> u32 {
    let mixed = name.bytes().fold(0x811c_9dc5_u32, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (mixed ^ (mixed >> 15)) % 8
}

fn initials(name: &str) -> String {
    let mut words = name.split(['-', '_', '.']).filter(|word| !word.is_empty());
    let first = words.next().unwrap_or(name);
    let letters: String = match words.next() {
        Some(second) => first.chars().take(1).chain(second.chars().take(1)).collect(),
        None => first.chars().take(2).collect(),
    };
    letters.to_uppercase()
}

/// A small sign for an agent, beside its name.
pub(super) fn avatar(name: &str) -> Html {
    sign(name, "")
}

/// A smaller one.
pub(super) fn small_avatar(name: &str) -> Html {
    sign(name, " s")
}

fn sign(name: &str, class: &str) -> Html {
    Html(format!("<span class=\"av h{}{class}\" aria-hidden=\"true\">{}</span>", hue(name), escape(&initials(name))))
}

/// The signs of those who talk.
pub(super) fn pair(names: &[AgentName]) -> Html {
    let signs: String = names.iter().take(3).map(|name| avatar(name.as_str()).0).collect();
    Html(format!("<span class=\"pair\">{signs}</span>"))
}

/// A presence in a word that is a class, too.
pub(super) fn presence(status: &Status) -> &'static str {
    match status {
        Status::Idle => "idle",
        Status::Busy => "busy",
        _ => "offline",
    }
}

/// The colour of a task's state.
pub(super) fn task_tone(state: &TaskState) -> &'static str {
    match state {
        TaskState::Completed => "good",
        TaskState::Rejected | TaskState::Failed => "bad",
        TaskState::Working | TaskState::Accepted => "info",
        _ => "",
    }
}

/// Where a task stands, in a word.
pub(super) fn task_word(task: &Task) -> &'static str {
    match task.canceled_by {
        Some(_) => "canceled",
        None => task.state.as_str(),
    }
}

/// A number with commas between its thousands.
pub(super) fn number(value: &u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Bytes in the unit that fits.
pub(super) fn bytes(value: &u64) -> String {
    const UNITS: [&str; 5] = ["B", "KB", "MB", "GB", "TB"];
    let (mut size, mut unit) = (*value as f64, 0);
    while size >= 1_000.0 && unit + 1 < UNITS.len() {
        size /= 1_000.0;
        unit += 1;
    }
    let digits = if unit == 0 || size >= 100.0 { 0 } else { 1 };
    format!("{size:.digits$} {}", UNITS[unit])
}

/// A text for a path segment or the value of a query.
pub(super) fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// The word with an `s` where there are several.
pub(super) fn several(count: usize, word: &str) -> Cow<'_, str> {
    match count {
        1 => Cow::Owned(format!("1 {word}")),
        _ => Cow::Owned(format!("{count} {word}s")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_never_becomes_markup() {
        assert_eq!(escape(r#"<a href="x" o='y'>&"#), "&lt;a href=&quot;x&quot; o=&#39;y&#39;&gt;&amp;");
        assert_eq!(line("a\u{202e}b\nc", 10), "a⟨U+202E⟩b⟨U+000A⟩c");
        assert_eq!(line("abcdef", 3), "abc…");
    }

    #[test]
    fn moments_are_told_from_now() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let at = |seconds: i64| Timestamp::from_second(1_000_000 - seconds).unwrap();
        let text = |seconds: i64| ago(&at(seconds), &now).0;
        assert!(text(5).ends_with(">just now</time>"));
        assert!(text(120).ends_with(">2 min ago</time>"));
        assert!(text(-7_200).ends_with(">in 2 hr</time>"));
        assert!(text(86_400 * 3).ends_with(">3 days ago</time>"));
        assert!(text(5).contains("title=\"1970-01-12 13:46 UTC\""));
    }

    #[test]
    fn sizes_and_numbers_are_readable() {
        assert_eq!((number(&1_234_567), number(&12)), ("1,234,567".to_owned(), "12".to_owned()));
        assert_eq!(
            (bytes(&999), bytes(&1_500), bytes(&250_000_000)),
            ("999 B".into(), "1.5 KB".into(), "250 MB".into())
        );
        assert_eq!(segment("a b/ü"), "a%20b%2F%C3%BC");
    }
}
