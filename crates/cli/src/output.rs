//! Data on stdout, messages on stderr; tables for people, JSON for programs.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::failure::Failure;
use crate::log_file::LogFile;
use crate::table::{self, Tone};

/// How a verb prints.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    /// Whether JSON is printed, for programs.
    pub(crate) json: bool,
    /// Whether stdout is a terminal, and so a person reads it.
    pub(crate) for_person: bool,
    /// Whether colours are shown there.
    colour: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        let for_person = !json && io::stdout().is_terminal();
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { json, for_person, colour: for_person && !dumb && !no_colour() }
    }

    /// The text with this SGR code, where colours are shown.
    pub(crate) fn style(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// The text in the colour of its tone, where colours are shown.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        if self.colour { tone.paint(text) } else { text.to_owned() }
    }

    /// Whether a person types into the terminal that this writes to.
    pub(crate) fn is_interactive(self) -> bool {
        self.for_person && io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// Writes control sequences to the terminal of the person who types.
    pub(crate) fn raw(self, text: &str) {
        to_stderr(text);
    }

    /// Prints one JSON document with line breaks.
    pub(crate) fn document(self, value: &impl Serialize) -> io::Result<()> {
        to_stdout(|out| {
            serde_json::to_writer_pretty(&mut *out, value)?;
            out.write_all(b"\n")
        })
    }

    /// Prints a JSON value on one line, for streams.
    pub(crate) fn json_line(self, value: &impl Serialize) -> io::Result<()> {
        to_stdout(|out| {
            serde_json::to_writer(&mut *out, value)?;
            out.write_all(b"\n")
        })
    }

    /// Prints text for people, and a line break.
    pub(crate) fn say(self, text: impl AsRef<str>) -> io::Result<()> {
        to_stdout(|out| writeln!(out, "{}", text.as_ref()))
    }

    /// Prints one item of a stream: a line of JSON for programs, text for people.
    pub(crate) fn stream(self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Failure> {
        Ok(if self.json { self.json_line(value) } else { self.say(text()) }?)
    }

    /// Prints the result of a verb: a JSON document for programs, a line of text for people.
    pub(crate) fn result(self, document: &impl Serialize, line: impl AsRef<str>) -> Result<(), Failure> {
        Ok(if self.json { self.document(document) } else { self.say(line) }?)
    }

    /// Prints a list: a JSON document for programs; a table for people, or a note where it is empty.
    pub(crate) fn list(
        self,
        document: &impl Serialize,
        empty: &str,
        head: &[&str],
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> Result<(), Failure> {
        let mut rows = rows.into_iter().peekable();
        if self.json {
            self.document(document)?;
        } else if rows.peek().is_none() {
            self.note(empty);
        } else {
            self.table(head, rows)?;
        }
        Ok(())
    }

    /// Prints an indented line with a name and a value.
    pub(crate) fn field(self, name: &str, text: &str) -> io::Result<()> {
        let text = self.wrap(&self.shorten_home(&visible(text)), 13);
        self.say(format!("  {}  {text}", self.paint(Tone::Quiet, &format!("{name:<9}"))))
    }

    /// Prints a message for people on stderr.
    pub(crate) fn note(self, text: impl AsRef<str>) {
        if !self.json {
            to_stderr(&format!("{}\n", self.wrap(&self.shorten_home(text.as_ref()), 0)));
        }
    }

    /// Wraps the text to the terminal's width with an indent from the second line on; unchanged elsewhere.
    pub(crate) fn wrap(self, text: &str, indent: usize) -> String {
        match table::terminal_width().filter(|_| self.for_person) {
            Some(width) => wrapped(text, usize::from(width).saturating_sub(indent), indent),
            None => text.to_owned(),
        }
    }

    /// For a person, abbreviates the home directory in paths to `~`.
    pub(crate) fn shorten_home(self, text: &str) -> String {
        match crate::home::user() {
            Ok(home) if self.for_person => text.replace(&format!("{}/", home.display()), "~/"),
            _ => text.to_owned(),
        }
    }

    /// Prints an error on stderr, as a sentence or as JSON.
    pub(crate) fn error(self, code: &str, detail: &str) {
        if self.json {
            to_stderr(&format!("{}\n", serde_json::json!({ "error": { "code": code, "detail": detail } })));
        } else {
            let red = io::stderr().is_terminal() && !no_colour();
            let program = if red { Tone::Bad.paint("amb:") } else { "amb:".to_owned() };
            // The errors of parsers show the place in several lines.
            let lines = detail.trim_end().lines().map(|line| self.wrap(&self.shorten_home(&visible(line)), 5));
            to_stderr(&format!("{program} {}\n", lines.collect::<Vec<_>>().join("\n     ")));
        }
    }

    /// Prints a table without borders, which a script would have to strip.
    pub(crate) fn table(self, head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> io::Result<()> {
        let width = if self.for_person { table::terminal_width() } else { None };
        self.say(table::render(head, rows, width, self.colour))
    }
}

/// Writes to stdout at once. An error names it: a verb that changes something has done so by then.
fn to_stdout(write: impl FnOnce(&mut io::StdoutLock<'static>) -> io::Result<()>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    write(&mut out)
        .and_then(|()| out.flush())
        .map_err(|error| io::Error::new(error.kind(), format!("standard output could not be written: {error}")))
}

/// Writes to stderr. Whoever read it may be gone, which changes nothing for the verb.
fn to_stderr(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Initialises logging to stderr: warnings always, more with -v. `AMB_LOG` takes a filter such as `amb_dir=debug`.
///
/// Where this process serves in the background, its stderr is `file`, whose size is bounded; it logs more there, since
/// no person watches.
pub(crate) fn init_log(verbose: u8, file: Option<&Path>) {
    let level = match verbose.saturating_add(u8::from(file.is_some())) {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let wanted = crate::profile::variable("AMB_LOG").map(|text| text.parse::<Targets>());
    let (filter, wrong) = match wanted {
        Some(Ok(filter)) => (filter, None),
        Some(Err(error)) => (Targets::new().with_default(level), Some(error)),
        None => (Targets::new().with_default(level), None),
    };
    let colour = io::stderr().is_terminal() && !no_colour();
    let lines = tracing_subscriber::fmt::layer().with_ansi(colour);
    match file {
        Some(path) => {
            let lines = lines.with_writer(Mutex::new(LogFile::new(path)));
            tracing_subscriber::registry().with(filter).with(lines).init();
        }
        None => tracing_subscriber::registry().with(filter).with(lines.with_writer(io::stderr)).init(),
    }
    if let Some(error) = wrong {
        tracing::warn!(%error, "AMB_LOG is no filter such as `warn,amb_server=debug`");
    }
}

/// Whether the user wants no colours anywhere: https://no-color.org.
fn no_colour() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Text of others as a terminal may show it: no escape sequences, no bidi controls, one line.
pub(crate) fn visible(text: &str) -> String {
    amb_core::render::visible::line(text).into_owned()
}

/// Wraps text between words, with an indent from the second line on.
pub(crate) fn wrapped(text: &str, width: usize, indent: usize) -> String {
    // Leading spaces stay, as in code.
    let words = text.trim_start_matches(' ');
    let mut length = text.len() - words.len();
    let mut lines = " ".repeat(length);
    for (place, word) in words.split(' ').enumerate() {
        let size = word.width();
        if place > 0 && length + 1 + size > width {
            lines.push('\n');
            lines.extend(std::iter::repeat_n(' ', indent));
            length = 0;
        } else if place > 0 {
            lines.push(' ');
            length += 1;
        }
        lines.push_str(word);
        length += size;
    }
    lines
}

/// `3 min ago`, for tables.
pub(crate) fn ago(then: Timestamp) -> String {
    let age = Timestamp::now().duration_since(then).max(SignedDuration::ZERO);
    match age.as_secs() {
        0..60 => "now".into(),
        seconds @ 60..3_600 => format!("{} min ago", seconds / 60),
        seconds @ 3_600..86_400 => format!("{} h ago", seconds / 3_600),
        seconds => format!("{} d ago", seconds / 86_400),
    }
}

/// The beginning of a text on one line, for tables: at most so many columns, and an ellipsis where it is cut.
pub(crate) fn preview(text: &str, max: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut columns = 0;
    let cut = line.char_indices().find(|(_, c)| {
        columns += c.width().unwrap_or(1);
        columns > max
    });
    match cut {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Parses a duration for a flag.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    span(text).and_then(|span| span.try_into().ok()).ok_or_else(|| "a span such as 90s, 30m, 24h or 7d".into())
}

/// Parses a time for a flag, or a period that ends now.
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    if let Ok(moment) = text.parse() {
        return Ok(moment);
    }
    let before = span(text).and_then(|span| Timestamp::now().checked_sub(span).ok());
    before.ok_or_else(|| "a time such as 2026-12-01T12:00:00Z, or a span such as 90m, 2h or 3d".into())
}

/// Parses a duration such as `90s`, `30m`, `24h` or `7d`.
pub(crate) fn span(text: &str) -> Option<SignedDuration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds: i64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    let number: i64 = number.parse().ok().filter(|number| *number >= 0)?;
    Some(SignedDuration::from_secs(number.checked_mul(seconds)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_a_unit() {
        assert_eq!(span("90m"), Some(SignedDuration::from_secs(5_400)));
        assert_eq!(span("7d"), Some(SignedDuration::from_secs(604_800)));
        for bad in ["", "h", "5", "-5m", "5 m", "1w", "99999999999999999999d", "５m"] {
            assert_eq!(span(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn long_lines_are_wrapped_between_words_and_indented() {
        assert_eq!(wrapped("one two three", 8, 2), "one two\n  three");
        assert_eq!(wrapped("short", 8, 2), "short");
        assert_eq!(wrapped("漢字 漢字", 8, 2), "漢字\n  漢字");
        assert_eq!(wrapped("", 8, 2), "");
        assert_eq!(wrapped("    let x = 1;", 20, 2), "    let x = 1;");
        assert_eq!(wrapped("http://127.0.0.1:8000/long x", 8, 0), "http://127.0.0.1:8000/long\nx");
    }

    #[test]
    fn a_preview_is_one_line_and_says_when_it_is_cut() {
        assert_eq!(preview("a\n b\tc", 10), "a b c");
        assert_eq!(preview("äöü", 2), "äö…");
        assert_eq!(preview("漢字 and", 5), "漢字 …", "wide characters take two columns");
        assert_eq!(preview("漢字", 3), "漢…");
    }
}
