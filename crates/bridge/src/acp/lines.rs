//! Reads lines from a pipe, each up to a bound. A longer one is skipped.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

pub(super) struct BoundedLines<R> {
    from: R,
    line: Vec<u8>,
    /// The longest line that is kept, in bytes.
    limit: usize,
    /// The current line exceeds the limit: the rest of it is skipped.
    is_too_long: bool,
}

/// A line, as far as it was kept.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BoundedLine {
    Whole(Vec<u8>),
    /// It was too long.
    TooLong,
}

impl<R: AsyncBufRead + Unpin> BoundedLines<R> {
    pub(super) fn new(from: R, limit: usize) -> Self {
        Self { from, line: Vec::new(), limit, is_too_long: false }
    }

    /// Returns the next line without its newline, or `None` at the end of the pipe. Cancel-safe: what was read is kept.
    pub(super) async fn next(&mut self) -> io::Result<Option<BoundedLine>> {
        loop {
            let some = self.from.fill_buf().await?;
            if some.is_empty() {
                let is_left = self.is_too_long || !self.line.is_empty();
                return Ok(is_left.then(|| self.take()));
            }
            let end = some.iter().position(|byte| *byte == b'\n');
            let part = &some[..end.unwrap_or(some.len())];
            if self.line.len() + part.len() > self.limit {
                self.is_too_long = true;
                self.line = Vec::new();
            }
            if !self.is_too_long {
                self.line.extend_from_slice(part);
            }
            let used = part.len() + usize::from(end.is_some());
            self.from.consume(used);
            if end.is_some() {
                return Ok(Some(self.take()));
            }
        }
    }

    fn take(&mut self) -> BoundedLine {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.is_too_long) { BoundedLine::TooLong } else { BoundedLine::Whole(line) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_beyond_the_limit_is_passed_over_and_the_next_is_whole() {
        let text = format!("one\n{}\ntwo", "x".repeat(1000));
        // A small buffer, so that lines arrive in pieces.
        let mut lines = BoundedLines::new(tokio::io::BufReader::with_capacity(7, text.as_bytes()), 100);
        let mut all = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            all.push(line);
        }
        assert_eq!(
            all,
            [BoundedLine::Whole(b"one".to_vec()), BoundedLine::TooLong, BoundedLine::Whole(b"two".to_vec())]
        );
    }
}
