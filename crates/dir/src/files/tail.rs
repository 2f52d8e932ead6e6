//! Reads the lines of a file from the last to the first, in blocks, within a budget of bytes.

use std::io;
use std::os::unix::fs::FileExt as _;

use fs_err::File;

/// Bytes read at a time.
const BLOCK_BYTES: usize = 64 * 1024;
/// One line, without its newline.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TailLine<'a> {
    Line(&'a [u8]),
    /// A line over the limit, whose bytes were not kept.
    TooLong,
}

/// Reads lines backwards.
pub(crate) struct Tail<'a> {
    file: &'a File,
    /// Offset of the block in the file.
    start: u64,
    block: Vec<u8>,
    /// Length of the part of the block that is still to be returned.
    end: usize,
    /// Pieces of the current line from later blocks, last piece first.
    pieces: Vec<Vec<u8>>,
    pieces_len: usize,
    too_long: bool,
    line: Vec<u8>,
    max_line: usize,
    budget: usize,
    done: bool,
    shrunk: bool,
}

impl<'a> Tail<'a> {
    /// Reads the lines that end at or before `end`, each of at most `max_line` bytes, and in all at most `budget` bytes
    /// and one block.
    pub(crate) fn new(file: &'a File, end: u64, max_line: usize, budget: usize) -> Self {
        Self {
            file,
            start: end,
            block: Vec::new(),
            end: 0,
            pieces: Vec::new(),
            pieces_len: 0,
            too_long: false,
            line: Vec::new(),
            max_line,
            budget,
            done: false,
            shrunk: false,
        }
    }

    /// Whether lines were left unread because the budget was spent.
    pub(crate) fn is_spent(&self) -> bool {
        !self.done && self.budget == 0
    }

    /// Whether the file shrank while it was read, so that the lines cannot be trusted.
    pub(crate) fn shrank(&self) -> bool {
        self.shrunk
    }

    /// Returns the line before those returned so far. The first is what follows the last newline, usually nothing.
    pub(crate) fn previous(&mut self) -> io::Result<Option<TailLine<'_>>> {
        loop {
            if self.done {
                return Ok(None);
            }
            if let Some(newline) = self.block[..self.end].iter().rposition(|byte| *byte == b'\n') {
                let end = std::mem::replace(&mut self.end, newline);
                if self.pieces.is_empty() && !self.too_long && end - newline <= self.max_line {
                    return Ok(Some(TailLine::Line(&self.block[newline + 1..end])));
                }
                self.keep(newline + 1, end);
                return Ok(Some(self.assemble()));
            }
            let end = std::mem::take(&mut self.end);
            self.keep(0, end);
            if self.start == 0 {
                self.done = true;
                return Ok(Some(self.assemble()));
            }
            if self.budget == 0 || !self.load()? {
                return Ok(None);
            }
        }
    }

    /// Keeps a range of the block as a piece of the current line.
    fn keep(&mut self, from: usize, to: usize) {
        let piece = &self.block[from..to];
        self.pieces_len += piece.len();
        if self.pieces_len > self.max_line {
            self.too_long = true;
            self.pieces.clear();
        } else if !piece.is_empty() {
            self.pieces.push(piece.to_vec());
        }
    }

    fn assemble(&mut self) -> TailLine<'_> {
        self.pieces_len = 0;
        if std::mem::take(&mut self.too_long) {
            return TailLine::TooLong;
        }
        self.line.clear();
        for piece in self.pieces.drain(..).rev() {
            self.line.extend_from_slice(&piece);
        }
        TailLine::Line(&self.line)
    }

    fn load(&mut self) -> io::Result<bool> {
        let size = BLOCK_BYTES.min(usize::try_from(self.start).unwrap_or(BLOCK_BYTES));
        self.start -= size as u64;
        self.block.resize(size, 0);
        match self.file.file().read_exact_at(&mut self.block, self.start) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.shrunk = true;
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        self.end = size;
        self.budget = self.budget.saturating_sub(size);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_LINE_BYTES: usize = 2 << 20;

    fn backwards(text: &[u8], budget: usize) -> (Vec<Option<Vec<u8>>>, bool) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        fs_err::write(&path, text).unwrap();
        let file = File::open(&path).unwrap();
        let mut tail = Tail::new(&file, text.len() as u64, MAX_LINE_BYTES, budget);
        let mut lines = Vec::new();
        while let Some(found) = tail.previous().unwrap() {
            lines.push(match found {
                TailLine::Line(line) => Some(line.to_vec()),
                TailLine::TooLong => None,
            });
        }
        (lines, tail.is_spent())
    }

    #[test]
    fn lines_come_last_first_and_across_blocks() {
        let lines: Vec<Vec<u8>> = (0..500).map(|n| format!("{n}-{}", "x".repeat(n * 7 % 3000)).into_bytes()).collect();
        let (got, spent) = backwards(&lines.join(&b'\n'), usize::MAX);
        let expected: Vec<_> = lines.into_iter().rev().map(Some).collect();
        assert_eq!(got, expected);
        assert!(!spent);
    }

    #[test]
    fn an_endless_line_costs_its_budget_and_no_memory() {
        let mut text = b"first\n".to_vec();
        text.extend(std::iter::repeat_n(b'x', 3 * MAX_LINE_BYTES));
        text.extend_from_slice(b"\nlast\n");
        let (got, spent) = backwards(&text, usize::MAX);
        assert_eq!(got, [Some(Vec::new()), Some(b"last".to_vec()), None, Some(b"first".to_vec())]);
        assert!(!spent);
        let (got, spent) = backwards(&text, MAX_LINE_BYTES);
        assert_eq!(got, [Some(Vec::new()), Some(b"last".to_vec())]);
        assert!(spent);
    }
}
