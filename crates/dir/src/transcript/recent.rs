//! Reads the last lines of a transcript, at a cost that depends on their number and not on the size of the file.

use std::io;
use std::path::Path;

use amb_core::transcript::{Line, TranscriptKey};
use amb_core::wire::transcript as wire;
use fs_err::File;

use super::file::{MAX_LINE_BYTES, open_read};
use super::owner::resolve;
use super::window::Window;
use crate::files::tail::{Tail, TailLine};

/// Most bytes read by one call: this many, and `BYTES_PER_LINE` for each requested line.
const BASE_BYTES: usize = 4 * 1024 * 1024;
const BYTES_PER_LINE: usize = 64 * 1024;
/// How often a file may change while it is read before that is an error.
const MAX_TRIES: usize = 4;

/// Returns the last `limit` lines of the key's transcript.
pub(super) fn recent(root: &Path, key: &TranscriptKey, limit: usize) -> io::Result<Vec<Line>> {
    let mut location = resolve(root, key)?;
    for _ in 0..MAX_TRIES {
        let lines = read(&location.path, limit)?;
        if location.owned {
            return Ok(lines);
        }
        // The file had no owner before it was read. If another key owns it now, the lines may be that key's.
        let now = resolve(root, key)?;
        if now.path == location.path {
            return Ok(lines);
        }
        location = now;
    }
    Err(io::Error::other("the owner of the transcript changes faster than it can be read"))
}

fn read(path: &Path, limit: usize) -> io::Result<Vec<Line>> {
    for _ in 0..MAX_TRIES {
        let Some(file) = open_read(path)? else { return Ok(Vec::new()) };
        let end = file.metadata()?.len();
        if let Some(window) = gather(&file, end, limit, true)? {
            return Ok(window.into_recent(limit));
        }
    }
    Err(io::Error::other("the transcript is emptied faster than it can be read"))
}

/// Collects the lines before `end` that are needed for `limit` lines; `None` if the file shrank meanwhile.
///
/// With `unterminated`, a last line without its newline counts if it parses: a program may have left the newline out.
/// (A truncated JSON object does not parse.)
pub(super) fn gather(file: &File, end: u64, limit: usize, unterminated: bool) -> io::Result<Option<Window>> {
    let mut window = Window::default();
    let mut tail =
        Tail::new(file, end, MAX_LINE_BYTES, BASE_BYTES.saturating_add(limit.saturating_mul(BYTES_PER_LINE)));
    let mut skipped = 0_usize;
    let mut last = true;
    while !window.suffices(limit) {
        let Some(found) = tail.previous()? else { break };
        let is_unterminated = std::mem::take(&mut last);
        match found {
            TailLine::Line(bytes) if bytes.iter().all(u8::is_ascii_whitespace) => {}
            TailLine::Line(_) if is_unterminated && !unterminated => {}
            TailLine::Line(bytes) => match wire::parse(bytes) {
                Ok(line) => window.push(line),
                // Perhaps still being written.
                Err(_) if is_unterminated => {}
                Err(_) => skipped += 1,
            },
            TailLine::TooLong => skipped += 1,
        }
    }
    if tail.shrank() {
        return Ok(None);
    }
    if skipped > 0 {
        tracing::warn!(path = %file.path().display(), lines = skipped, "skipped lines of a transcript that do not parse");
    }
    if tail.is_spent() {
        tracing::warn!(path = %file.path().display(), limit, "returned fewer lines than requested: too many bytes between them");
    }
    Ok(Some(window))
}
