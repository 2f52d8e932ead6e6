//! Reads a log in chunks, with bounded memory whatever the length of the log or of a line.

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::ControlFlow;

use crate::files::open;
use crate::files::tail::{Tail, TailLine};
use crate::log::{Log, LogLine};

/// Longer lines are skipped: a line has a message's id, names, times and subject, or a task.
pub(crate) const MAX_LINE_BYTES: usize = 1 << 20;

/// Bytes read at once.
const CHUNK: u64 = 256 << 10;

impl Log {
    /// Calls `each` with the complete lines from this position on, until it breaks. Returns the position after the last
    /// line read.
    pub(crate) fn scan(&self, from: u64, mut each: impl FnMut(LogLine) -> ControlFlow<()>) -> io::Result<u64> {
        self.scan_text(from, |_, text| match serde_json::from_str(text) {
            Ok(line) => each(line),
            Err(_) => ControlFlow::Continue(()),
        })
    }

    /// Like `scan` with the text of each line, for callers that parse few of them.
    pub(crate) fn scan_text(&self, from: u64, mut each: impl FnMut(u64, &str) -> ControlFlow<()>) -> io::Result<u64> {
        let Some(mut file) = open::if_exists(open::regular(&self.path))? else { return Ok(from) };
        file.seek(SeekFrom::Start(from))?;
        let mut chunk = Vec::new();
        // The beginning of a line that ends in a later chunk; nothing is kept of one that is too long.
        let (mut partial, mut is_too_long) = (Vec::new(), false);
        let (mut end, mut read_to) = (from, from);
        loop {
            chunk.clear();
            if file.by_ref().take(CHUNK).read_to_end(&mut chunk)? == 0 {
                return Ok(end);
            }
            for text in chunk.split_inclusive(|byte| *byte == b'\n') {
                read_to += text.len() as u64;
                let is_whole = text.ends_with(b"\n");
                if partial.len() + text.len() > MAX_LINE_BYTES {
                    is_too_long = true;
                    partial.clear();
                }
                if !is_whole {
                    if !is_too_long {
                        partial.extend_from_slice(text);
                    }
                    continue;
                }
                end = read_to;
                let line = match partial.is_empty() {
                    true => text,
                    false => {
                        partial.extend_from_slice(text);
                        partial.as_slice()
                    }
                };
                if !std::mem::take(&mut is_too_long)
                    && let Ok(text) = std::str::from_utf8(line)
                    && each(end, text).is_break()
                {
                    return Ok(end);
                }
                partial.clear();
            }
        }
    }

    /// Returns about `max` bytes of complete lines from this position on, each with the position after it, and the
    /// position after the last.
    pub(crate) fn read(&self, from: u64, max: u64) -> io::Result<(Vec<(LogLine, u64)>, u64)> {
        let mut lines = Vec::new();
        let end = self.scan_text(from, |end, text| {
            if let Ok(line) = serde_json::from_str(text) {
                lines.push((line, end));
            }
            if end - from >= max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok((lines, end))
    }

    /// Returns the lines of the whole log that contain any of these texts. Only those are parsed.
    pub(crate) fn find(&self, texts: &[&str]) -> io::Result<Vec<LogLine>> {
        let mut found = Vec::new();
        self.scan_text(0, |_, text| {
            if texts.iter().any(|wanted| text.contains(wanted))
                && let Ok(line) = serde_json::from_str(text)
            {
                found.push(line);
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// Returns the last line that contains this text and satisfies the test. Reads from the end, so recent mail is
    /// found at once.
    pub(crate) fn find_last(&self, text: &str, wanted: impl Fn(&LogLine) -> bool) -> io::Result<Option<LogLine>> {
        let Some(file) = open::if_exists(open::regular(&self.path))? else { return Ok(None) };
        let mut tail = Tail::new(&file, file.metadata()?.len(), MAX_LINE_BYTES, usize::MAX);
        while let Some(line) = tail.previous()? {
            if let TailLine::Line(bytes) = line
                && let Some(text) = std::str::from_utf8(bytes).ok().filter(|line| line.contains(text))
                && let Some(line) = serde_json::from_str(text).ok().filter(&wanted)
            {
                return Ok(Some(line));
            }
        }
        Ok(None)
    }

    /// Returns about `max` bytes of complete lines from the end.
    pub(crate) fn tail(&self, max: u64) -> io::Result<Vec<LogLine>> {
        let (_, len) = self.measure()?;
        let from = len.saturating_sub(max);
        // The first line may be cut.
        let mut is_cut = from > 0 && !self.is_boundary(from)?;
        let mut lines = Vec::new();
        self.scan_text(from, |_, text| {
            if !std::mem::take(&mut is_cut)
                && let Ok(line) = serde_json::from_str(text)
            {
                lines.push(line);
            }
            ControlFlow::Continue(())
        })?;
        Ok(lines)
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

    /// A log with a line of this length between two others.
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
    fn a_line_that_is_too_long_does_not_hide_others() {
        let chunk = usize::try_from(CHUNK).unwrap();
        for long in
            [0, 10, chunk - 1, chunk, MAX_LINE_BYTES - 1, MAX_LINE_BYTES, MAX_LINE_BYTES + 1, 3 * MAX_LINE_BYTES + 7]
        {
            let (_dir, log, lines) = with_a_long_line(long);
            let (_, len) = log.measure().unwrap();
            let (read, end) = log.read(0, u64::MAX).unwrap();
            let read: Vec<LogLine> = read.into_iter().map(|(line, _)| line).collect();
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
    fn a_log_of_one_unterminated_line_is_read_once() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::at(dir.path());
        fs_err::File::create(dir.path().join("log")).unwrap().set_len(64 << 20).unwrap();
        assert_eq!(log.read(0, u64::MAX).unwrap(), (vec![], 0));
        assert_eq!(log.find_last("x", |_| true).unwrap(), None);
    }
}
