//! The lines of a file from the last to the first, in blocks, within a budget of bytes.

use std::io;
use std::os::unix::fs::FileExt as _;

use fs_err::File;

/// Bytes read at a time.
const BLOCK_BYTES: usize = 64 * 1024;
/// A longer line is not one of ours: the longest content with every character escaped is shorter.
pub(super) const MAX_LINE_BYTES: usize = 2 * 1024 * 1024;

/// One line, without its newline.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TailLine<'a> {
    /// A line of bearable length.
    Line(&'a [u8]),
    /// A line longer than any transcript has; what it holds was not kept.
    TooLong,
}

/// Reads lines backwards.
pub(super) struct Tail<'a> {
    file: &'a File,
    /// Where the block in memory begins in the file.
    start: u64,
    block: Vec<u8>,
    /// How much of the block is still to be given out.
    end: usize,
    /// The pieces of the current line that lay in later blocks, last piece first.
    pieces: Vec<Vec<u8>>,
    pieces_len: usize,
    too_long: bool,
    line: Vec<u8>,
    budget: usize,
    done: bool,
    shrunk: bool,
}

impl<'a> Tail<'a> {
    /// Reads the lines that end at or before `end`, and at most `budget` bytes (and one block).
    pub(super) fn new(file: &'a File, end: u64, budget: usize) -> Self {
        Self {
            file,
            start: end,
            block: Vec::new(),
            end: 0,
            pieces: Vec::new(),
            pieces_len: 0,
            too_long: false,
            line: Vec::new(),
            budget,
            done: false,
            shrunk: false,
        }
    }

    /// Whether lines were left unread because the budget was spent.
    pub(super) fn is_spent(&self) -> bool {
        !self.done && self.budget == 0
    }

    /// Whether the file became shorter under the reader; what was read then is not to be trusted.
    pub(super) fn shrank(&self) -> bool {
        self.shrunk
    }

    /// The line before the ones given so far. The first is what stands behind the last newline (mostly nothing).
    pub(super) fn previous(&mut self) -> io::Result<Option<TailLine<'_>>> {
        loop {
            if self.done {
                return Ok(None);
            }
            if let Some(newline) = self.block[..self.end].iter().rposition(|byte| *byte == b'\n') {
                self.keep(newline + 1);
                self.end = newline;
                return Ok(Some(self.assemble()));
            }
            self.keep(0);
            self.end = 0;
            if self.start == 0 {
                self.done = true;
                return Ok(Some(self.assemble()));
            }
            if self.budget == 0 || !self.load()? {
                return Ok(None);
            }
        }
    }

    /// Sets the rest of the block from `from` aside as a piece of the current line.
    fn keep(&mut self, from: usize) {
        let piece = &self.block[from..self.end];
        self.pieces_len += piece.len();
        if self.pieces_len > MAX_LINE_BYTES {
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

    fn backwards(text: &[u8], budget: usize) -> (Vec<Option<Vec<u8>>>, bool) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        fs_err::write(&path, text).unwrap();
        let file = File::open(&path).unwrap();
        let mut tail = Tail::new(&file, text.len() as u64, budget);
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
