//! Reading a log piece by piece: what is kept in memory is bounded, however long the log or a line in it is.

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::ControlFlow;

use crate::files::open;
use crate::log::{Log, LogLine, PositionedLine};

/// A longer line is none of ours and is passed over: a line has a message's id, names, times and subject, or a task.
pub(crate) const LONGEST_LINE: usize = 1 << 20;

/// How much is read at once.
const CHUNK: u64 = 256 << 10;

impl Log {
    /// Goes through the whole lines from this position on, until `each` breaks off. Returns the position after the last
    /// line that was gone through.
    pub(crate) fn scan(&self, from: u64, mut each: impl FnMut(PositionedLine) -> ControlFlow<()>) -> io::Result<u64> {
        self.scan_text(from, |end, text| match serde_json::from_str(text) {
            Ok(line) => each(PositionedLine { end, line }),
            Err(_) => ControlFlow::Continue(()),
        })
    }

    /// The same with the text of each line; for those who want few of them.
    pub(crate) fn scan_text(&self, from: u64, mut each: impl FnMut(u64, &str) -> ControlFlow<()>) -> io::Result<u64> {
        let Some(mut file) = open::if_there(open::regular(&self.path))? else { return Ok(from) };
        file.seek(SeekFrom::Start(from))?;
        let mut chunk = Vec::new();
        // The beginning of a line whose end is in a chunk to come; of one that is too long nothing is kept.
        let (mut begun, mut is_too_long) = (Vec::new(), false);
        let (mut end, mut read_to) = (from, from);
        loop {
            chunk.clear();
            if file.by_ref().take(CHUNK).read_to_end(&mut chunk)? == 0 {
                return Ok(end);
            }
            for text in chunk.split_inclusive(|byte| *byte == b'\n') {
                read_to += text.len() as u64;
                let is_whole = text.ends_with(b"\n");
                if begun.len() + text.len() > LONGEST_LINE {
                    is_too_long = true;
                    begun.clear();
                }
                if !is_whole {
                    if !is_too_long {
                        begun.extend_from_slice(text);
                    }
                    continue;
                }
                end = read_to;
                let line = match begun.is_empty() {
                    true => text,
                    false => {
                        begun.extend_from_slice(text);
                        begun.as_slice()
                    }
                };
                if !std::mem::take(&mut is_too_long)
                    && let Ok(text) = std::str::from_utf8(line)
                    && each(end, text).is_break()
                {
                    return Ok(end);
                }
                begun.clear();
            }
        }
    }

    /// The whole lines from this position on, about `most` bytes of them, and the position after the last.
    pub(crate) fn read(&self, from: u64, most: u64) -> io::Result<(Vec<PositionedLine>, u64)> {
        let mut lines = Vec::new();
        let end = self.scan_text(from, |end, text| {
            if let Ok(line) = serde_json::from_str(text) {
                lines.push(PositionedLine { end, line });
            }
            if end - from >= most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok((lines, end))
    }

    /// The lines that contain any of these texts, from the whole log. Only those are parsed.
    pub(crate) fn find(&self, texts: &[&str]) -> io::Result<Vec<PositionedLine>> {
        let mut found = Vec::new();
        self.scan_text(0, |end, text| {
            if texts.iter().any(|wanted| text.contains(wanted))
                && let Ok(line) = serde_json::from_str(text)
            {
                found.push(PositionedLine { end, line });
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// The last line that contains this text and satisfies the test. Looks from the end, so recent mail is found at once.
    pub(crate) fn find_last(&self, text: &str, wanted: impl Fn(&LogLine) -> bool) -> io::Result<Option<LogLine>> {
        let is_it = |line: &[u8]| -> Option<LogLine> {
            let words = std::str::from_utf8(line).ok().filter(|words| words.contains(text))?;
            serde_json::from_str(words).ok().filter(&wanted)
        };
        let (_, mut end) = self.measure()?;
        // The end of a line that begins in a chunk to come; of one that is too long nothing is kept.
        let (mut rest, mut is_too_long) = (Vec::new(), false);
        while end > 0 {
            let from = end.saturating_sub(CHUNK);
            let mut bytes = self.bytes(from, end - from)?;
            let newline = bytes.iter().position(|byte| *byte == b'\n');
            let first_whole = match (from, newline) {
                (0, _) => 0,
                (_, Some(newline)) => newline + 1,
                (_, None) => {
                    // One line goes through the whole chunk.
                    is_too_long |= bytes.len() + rest.len() > LONGEST_LINE;
                    bytes.append(&mut rest);
                    rest = if is_too_long { Vec::new() } else { bytes };
                    end = from;
                    continue;
                }
            };
            match is_too_long {
                // What follows the last newline is the beginning of that line.
                true => bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1)),
                false => bytes.append(&mut rest),
            }
            is_too_long = false;
            let first_whole = first_whole.min(bytes.len());
            if let Some(line) = bytes[first_whole..].split(|byte| *byte == b'\n').rev().find_map(is_it) {
                return Ok(Some(line));
            }
            bytes.truncate(first_whole);
            rest = bytes;
            end = from;
        }
        Ok(None)
    }

    /// The last whole lines, about `most` bytes of them.
    pub(crate) fn tail(&self, most: u64) -> io::Result<Vec<PositionedLine>> {
        let (_, len) = self.measure()?;
        let from = len.saturating_sub(most);
        // From within a line to the next one's start.
        let mut is_cut = from > 0 && !self.is_boundary(from)?;
        let mut lines = Vec::new();
        self.scan_text(from, |end, text| {
            if !std::mem::take(&mut is_cut)
                && let Ok(line) = serde_json::from_str(text)
            {
                lines.push(PositionedLine { end, line });
            }
            ControlFlow::Continue(())
        })?;
        Ok(lines)
    }

    /// At most this many bytes from a position on.
    pub(crate) fn bytes(&self, from: u64, most: u64) -> io::Result<Vec<u8>> {
        let Some(mut file) = open::if_there(open::regular(&self.path))? else { return Ok(Vec::new()) };
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::tests::line;

    #[test]
    fn the_last_line_with_a_text_is_found_across_chunks() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::at(dir.path());
        let lines: Vec<_> = (0..5_000).map(|n| line(n, if n % 2 == 0 { "even" } else { "odd" })).collect();
        log.write().unwrap().add(&lines).unwrap();
        for n in [0, 1, 2_500, 4_998, 4_999] {
            let found = log.find_last(&format!("\"m{n}\""), |_| true).unwrap();
            assert_eq!(found.as_ref(), Some(&lines[n as usize]), "{n}");
        }
        let even = log.find_last("even", |line| matches!(line, LogLine::Out { .. })).unwrap();
        assert_eq!(even.as_ref(), Some(&lines[4_998]));
        assert_eq!(log.find_last("m5000", |_| true).unwrap(), None);
    }

    /// A log of lines before and after one that is far too long.
    fn with_a_long_line(long: usize) -> (tempfile::TempDir, Log, [LogLine; 2]) {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::at(dir.path());
        let lines = [line(1, "s1"), line(2, "s1")];
        log.write().unwrap().add(&lines[..1]).unwrap();
        let mut bytes = fs_err::read(dir.path().join("log")).unwrap();
        bytes.extend(std::iter::repeat_n(b'x', long));
        bytes.push(b'\n');
        fs_err::write(dir.path().join("log"), bytes).unwrap();
        log.write().unwrap().add(&lines[1..]).unwrap();
        (dir, log, lines)
    }

    #[test]
    fn a_line_that_is_too_long_hides_no_other() {
        let chunk = usize::try_from(CHUNK).unwrap();
        for long in [0, 10, chunk - 1, chunk, LONGEST_LINE - 1, LONGEST_LINE, LONGEST_LINE + 1, 3 * LONGEST_LINE + 7] {
            let (_dir, log, lines) = with_a_long_line(long);
            let (_, len) = log.measure().unwrap();
            let (read, end) = log.read(0, u64::MAX).unwrap();
            let read: Vec<LogLine> = read.into_iter().map(|placed| placed.line).collect();
            assert_eq!((read.as_slice(), end), (&lines[..], len), "{long}");
            assert_eq!(log.find(&["\"s1\""]).unwrap().len(), 2, "{long}");
            for (n, line) in (1..).zip(&lines) {
                assert_eq!(log.find_last(&format!("\"m{n}\""), |_| true).unwrap().as_ref(), Some(line), "{long}: {n}");
            }
            assert_eq!(log.find_last("\"m3\"", |_| true).unwrap(), None, "{long}");
            assert_eq!(log.tail(len).unwrap().len(), 2, "{long}");
            assert_eq!(log.tail(len - 1).unwrap().len(), 1, "{long}: the first is cut");
        }
    }

    #[test]
    fn a_log_that_is_one_line_without_an_end_is_gone_through_once() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::at(dir.path());
        fs_err::File::create(dir.path().join("log")).unwrap().set_len(64 << 20).unwrap();
        assert_eq!(log.read(0, u64::MAX).unwrap(), (vec![], 0));
        assert_eq!(log.find_last("x", |_| true).unwrap(), None);
    }
}
