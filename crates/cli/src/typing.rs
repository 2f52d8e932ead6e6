//! The line that a person types in a terminal while other things are shown above it.
//!
//! In canonical mode the terminal holds the unfinished line, and output would be mixed with it. Here this program holds
//! the line, and draws it again below the output. The keys are those of canonical mode: characters, Backspace, Ctrl-W,
//! Ctrl-U, Enter, and Ctrl-D on an empty line for the end. Ctrl-C and Ctrl-Z stay with the terminal.

use std::collections::VecDeque;
use std::io;

use rustix::process::Signal;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::io::{AsyncReadExt, Stdin};
use tokio::signal::unix::SignalKind;
use unicode_width::UnicodeWidthStr;

use crate::output::Output;
use crate::table::terminal_width;

const PROMPT: &str = "> ";
/// Columns of a terminal that does not say how many it has.
const COLUMNS: usize = 80;
/// Most bytes of one line; the rest of a longer paste is dropped.
const MAX_LINE: usize = 64 * 1024;

/// Lines typed by a person, and what is drawn of the one that is not finished.
#[derive(Debug)]
pub(crate) struct Typing {
    output: Output,
    stdin: Stdin,
    /// The terminal modes to restore.
    before: Termios,
    /// SIGCONT, after Ctrl-Z: the shell has changed the terminal meanwhile.
    resumed: tokio::signal::unix::Signal,
    editor: LineEditor,
    /// Whether the prompt is on the screen.
    is_drawn: bool,
}

impl Typing {
    /// Starts reading keys; `None` where stdin is no terminal.
    pub(crate) fn begin(output: Output) -> Option<Self> {
        if !output.is_interactive() {
            return None;
        }
        let before = tcgetattr(io::stdin()).ok()?;
        let resumed = tokio::signal::unix::signal(SignalKind::from_raw(Signal::CONT.as_raw())).ok()?;
        let typing =
            Self { output, stdin: tokio::io::stdin(), before, resumed, editor: LineEditor::default(), is_drawn: false };
        typing.set_modes().ok()?;
        Some(typing)
    }

    /// Turns canonical mode and echo off.
    fn set_modes(&self) -> io::Result<()> {
        let mut modes = self.before.clone();
        modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        Ok(tcsetattr(io::stdin(), OptionalActions::Now, &modes)?)
    }

    /// The next whole line; `None` at the end. May be dropped and called again: nothing that was typed is lost.
    pub(crate) async fn next_line(&mut self) -> io::Result<Option<String>> {
        let mut bytes = [0; 1024];
        loop {
            if !self.editor.done.is_empty() {
                self.prompt();
            }
            match self.editor.done.pop_front() {
                Some(TypedLine::Line(line)) => {
                    self.output.raw("\n");
                    self.is_drawn = false;
                    return Ok(Some(line));
                }
                Some(TypedLine::End) => return Ok(None),
                None => {}
            }
            let count = tokio::select! {
                count = self.stdin.read(&mut bytes) => count?,
                _ = self.resumed.recv() => {
                    self.set_modes()?;
                    if self.is_drawn {
                        self.draw();
                    }
                    continue;
                }
            };
            if count == 0 {
                return Ok(None);
            }
            let rows = self.rows();
            self.editor.take(&bytes[..count]);
            if self.is_drawn {
                self.erase(rows);
                self.draw();
            }
        }
    }

    /// Makes a returned line the unfinished one again, unless more was typed meanwhile.
    pub(crate) fn put_back(&mut self, line: &str) {
        if self.editor.done.is_empty() && self.editor.line.is_empty() {
            self.editor.line = line.to_owned();
        }
    }

    /// Removes the unfinished line from the screen, so that something else can be printed.
    pub(crate) fn clear(&mut self) {
        if self.is_drawn {
            self.erase(self.rows());
            self.is_drawn = false;
        }
    }

    /// Shows the prompt with the unfinished line.
    pub(crate) fn prompt(&mut self) {
        if !self.is_drawn {
            self.is_drawn = true;
            self.draw();
        }
    }

    /// The line on the screen: the first finished one that was not returned yet, else the unfinished one.
    fn shown(&self) -> &str {
        match self.editor.done.front() {
            Some(TypedLine::Line(line)) => line,
            _ => &self.editor.line,
        }
    }

    fn draw(&self) {
        self.output.raw(&format!("{PROMPT}{}", self.shown()));
    }

    fn erase(&self, rows: usize) {
        let up = if rows > 0 { format!("\x1b[{rows}A") } else { String::new() };
        self.output.raw(&format!("{up}\r\x1b[J"));
    }

    /// How many rows the cursor is below the prompt.
    fn rows(&self) -> usize {
        let columns = terminal_width().map_or(COLUMNS, usize::from).max(1);
        (PROMPT.len() + self.shown().width() - 1) / columns
    }
}

impl Drop for Typing {
    fn drop(&mut self) {
        self.clear();
        // Where it fails the terminal is gone.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

#[derive(Debug, PartialEq)]
enum TypedLine {
    Line(String),
    End,
}

/// Turns keys into lines.
#[derive(Debug, Default)]
struct LineEditor {
    line: String,
    /// Finished lines that were not returned yet: a paste has many.
    done: VecDeque<TypedLine>,
    /// The first bytes of an incomplete character.
    partial: Vec<u8>,
    sequence: Sequence,
}

/// The state within an escape sequence, such as that of an arrow key. Sequences are ignored.
#[derive(Debug, Default, Clone, Copy)]
enum Sequence {
    #[default]
    None,
    Escape,
    /// Ends with a byte from `@` to `~`.
    Control,
    /// Has one more byte.
    Last,
}

impl LineEditor {
    fn take(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.take_one(*byte));
    }

    fn take_one(&mut self, byte: u8) {
        match (self.sequence, byte) {
            (Sequence::Escape, b'[') => self.sequence = Sequence::Control,
            (Sequence::Escape, b'O') => self.sequence = Sequence::Last,
            (Sequence::Escape | Sequence::Last, _) => self.sequence = Sequence::None,
            (Sequence::Control, b'@'..=b'~') => self.sequence = Sequence::None,
            (Sequence::Control, _) => {}
            (Sequence::None, 0x1b) => self.sequence = Sequence::Escape,
            (Sequence::None, b'\n' | b'\r') => self.done.push_back(TypedLine::Line(std::mem::take(&mut self.line))),
            (Sequence::None, 0x7f | 0x08) => drop(self.line.pop()),
            // Ctrl-U, Ctrl-W and Ctrl-D.
            (Sequence::None, 0x15) => self.line.clear(),
            (Sequence::None, 0x17) => self.line.truncate(self.line.trim_end().rfind(' ').map_or(0, |space| space + 1)),
            (Sequence::None, 0x04) if self.line.is_empty() => self.done.push_back(TypedLine::End),
            (Sequence::None, b'\t') => self.push(' '),
            (Sequence::None, 0x00..=0x1f) => {}
            (Sequence::None, _) => {
                self.partial.push(byte);
                match std::str::from_utf8(&self.partial).map(|text| text.chars().next()) {
                    Ok(c) => c.into_iter().for_each(|c| self.push(c)),
                    Err(error) if error.error_len().is_none() => return,
                    Err(_) => self.push(char::REPLACEMENT_CHARACTER),
                }
                self.partial.clear();
            }
        }
    }

    fn push(&mut self, c: char) {
        if self.line.len() < MAX_LINE && !c.is_control() {
            self.line.push(c);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &[u8]) -> (Vec<TypedLine>, String) {
        let mut keys = LineEditor::default();
        // One byte at a time, as a slow connection brings them.
        text.iter().for_each(|byte| keys.take(&[*byte]));
        (keys.done.into_iter().collect(), keys.line)
    }

    #[test]
    fn keys_make_lines() {
        assert_eq!(typed(b"hello\nyou"), (vec![TypedLine::Line("hello".into())], "you".into()));
        assert_eq!(typed("z\u{fc}ri\u{1f600}\x7f".as_bytes()).1, "z\u{fc}ri");
        assert_eq!(typed(b"one two  \x17").1, "one ");
        assert_eq!(typed(b"one\x17\x17").1, "");
        assert_eq!(typed(b"one two\x15three").1, "three");
        assert_eq!(typed(b"a\x04\x7f\x04"), (vec![TypedLine::End], String::new()), "Ctrl-D ends an empty line only");
        assert_eq!(typed(b"\x7f\x08").1, "");
    }

    #[test]
    fn escape_sequences_and_invalid_bytes_are_dropped() {
        assert_eq!(typed(b"a\x1b[A\x1b[1;5Cb\x1bOPc\x1bxd\x07\x00").1, "abcd");
        assert_eq!(typed(b"a\xffb").1, "a\u{fffd}b");
        assert_eq!(typed("\u{9b}31mx".as_bytes()).1, "31mx", "an eight-bit control character is none of it");
    }
}
