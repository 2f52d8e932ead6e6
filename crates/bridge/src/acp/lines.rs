//! Lines of a pipe, each up to a bound. A longer one is passed over, not kept.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

pub(super) struct Lines<R> {
    from: R,
    line: Vec<u8>,
    /// The longest line that is kept, in bytes.
    limit: usize,
    /// The line under way is longer than that: the rest of it is passed over.
    is_over: bool,
}

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Whole(Vec<u8>),
    /// It was too long.
    TooLong,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    pub(super) fn new(from: R, limit: usize) -> Self {
        Self { from, line: Vec::new(), limit, is_over: false }
    }

    /// The next line, without its end; none at the end of the pipe. May be dropped and called again: what was read is kept.
    pub(super) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let some = self.from.fill_buf().await?;
            if some.is_empty() {
                let is_left = self.is_over || !self.line.is_empty();
                return Ok(is_left.then(|| self.take()));
            }
            let end = some.iter().position(|byte| *byte == b'\n');
            let part = &some[..end.unwrap_or(some.len())];
            if self.line.len() + part.len() > self.limit {
                self.is_over = true;
                self.line = Vec::new();
            }
            if !self.is_over {
                self.line.extend_from_slice(part);
            }
            let used = part.len() + usize::from(end.is_some());
            self.from.consume(used);
            if end.is_some() {
                return Ok(Some(self.take()));
            }
        }
    }

    fn take(&mut self) -> Line {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.is_over) { Line::TooLong } else { Line::Whole(line) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_beyond_the_limit_is_passed_over_and_the_next_is_whole() {
        let text = format!("one\n{}\ntwo", "x".repeat(1000));
        // A small buffer: lines come in pieces.
        let mut lines = Lines::new(tokio::io::BufReader::with_capacity(7, text.as_bytes()), 100);
        let mut all = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            all.push(line);
        }
        assert_eq!(all, [Line::Whole(b"one".to_vec()), Line::TooLong, Line::Whole(b"two".to_vec())]);
    }
}
