//! Formatting helpers for the templates.

use std::fmt;

use amb_core::render::visible;
use amb_core::{AgentName, Status, Task, TaskState, Timestamp};
use askama::filters::HtmlSafe;

/// HTML that templates do not escape. Made only here, in `markdown` and in `picture`, from text that went through
/// [`escape`].
#[derive(Debug, Clone, Default)]
pub(super) struct Html(pub(super) String);

impl fmt::Display for Html {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl HtmlSafe for Html {}

/// Escapes a text for an element or a quoted attribute.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    push_escaped(&mut out, text);
    out
}

/// Appends a text like [`escape`].
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

/// Formats a text for one line: invisible characters are made visible, and it is cut after `max` characters. Not
/// escaped.
pub(super) fn line(text: &str, max: usize) -> String {
    let (head, left) = visible::clip(text, max);
    let shown = visible::line(head);
    match left {
        0 => shown.into_owned(),
        _ => format!("{shown}…"),
    }
}

/// A time relative to now, with the absolute time for scripts and as tooltip.
pub(super) fn ago(at: &Timestamp, now: &Timestamp) -> Html {
    let seconds = now.as_second() - at.as_second();
    Html(format!("<time datetime=\"{}\" title=\"{}\">{}</time>", iso(at), shown(at), relative(seconds)))
}

/// A time in ISO 8601, in whole seconds.
fn iso(at: &Timestamp) -> String {
    let whole = Timestamp::from_second(at.as_second()).unwrap_or(*at);
    whole.to_string()
}

/// A time for readers, in UTC.
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

/// Returns which of the eight colours a name has (FNV-1a).
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

/// The avatar of an agent.
pub(super) fn avatar(name: &str) -> Html {
    avatar_with(name, "")
}

/// A smaller [`avatar`].
pub(super) fn small_avatar(name: &str) -> Html {
    avatar_with(name, " s")
}

fn avatar_with(name: &str, class: &str) -> Html {
    Html(format!("<span class=\"av h{}{class}\" aria-hidden=\"true\">{}</span>", hue(name), escape(&initials(name))))
}

/// The avatars of the members of a conversation.
pub(super) fn pair(names: &[AgentName]) -> Html {
    let avatars: String = names.iter().take(3).map(|name| avatar(name.as_str()).0).collect();
    Html(format!("<span class=\"pair\">{avatars}</span>"))
}

/// A presence, as text and as CSS class.
pub(super) fn presence(status: &Status) -> &'static str {
    match status {
        Status::Idle => "idle",
        Status::Busy => "busy",
        _ => "offline",
    }
}

/// The CSS class of a task's state.
pub(super) fn task_tone(state: &TaskState) -> &'static str {
    match state {
        TaskState::Completed => "good",
        TaskState::Rejected | TaskState::Failed => "bad",
        TaskState::Working | TaskState::Accepted => "info",
        _ => "",
    }
}

/// The state of a task, in a word.
pub(super) fn task_word(task: &Task) -> &'static str {
    match task.canceled_by {
        Some(_) => "canceled",
        None => task.state.as_str(),
    }
}

/// Formats a number with commas between thousands.
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

/// Formats a number of bytes with a unit.
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

/// Percent-encodes a path segment or the value of a query parameter.
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

/// Formats a count with its noun.
pub(super) fn several(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
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
    fn times_are_relative_to_now() {
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
