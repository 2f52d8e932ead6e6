//! The last lines of a transcript, at a cost that depends on how many are asked for and not on the size of the file.

use std::io;
use std::path::Path;

use amb_core::transcript::{Line, TranscriptKey};
use amb_core::wire::transcript as wire;
use fs_err::File;

use super::file::open_read;
use super::owner::resolve;
use super::tail::{Tail, TailLine};
use super::window::Window;

/// Bytes read for one call, whatever is in the file: this much, and `BYTES_PER_LINE` for each line asked for.
const BASE_BYTES: usize = 4 * 1024 * 1024;
const BYTES_PER_LINE: usize = 64 * 1024;
/// How often a file may change under a reader before that is an error.
const MAX_TRIES: usize = 4;

/// The last `limit` lines of the key's transcript.
pub(super) fn recent(root: &Path, key: &TranscriptKey, limit: usize) -> io::Result<Vec<Line>> {
    let mut place = resolve(root, key)?;
    for _ in 0..MAX_TRIES {
        let lines = read(&place.path, limit)?;
        if place.owned {
            return Ok(lines);
        }
        // Nobody owned the file before it was read. If another key does now, the lines may be that key's.
        let now = resolve(root, key)?;
        if now.path == place.path {
            return Ok(lines);
        }
        place = now;
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

/// Gathers what `limit` lines before `end` need; `None` if the file shrank meanwhile.
///
/// What stands behind the last newline counts if `unended` is true and it is a whole line: a program may have left its
/// newline out. (No part of a line can pass for one: an object that is cut off does not parse.)
pub(super) fn gather(file: &File, end: u64, limit: usize, unended: bool) -> io::Result<Option<Window>> {
    let mut window = Window::default();
    let mut tail = Tail::new(file, end, BASE_BYTES.saturating_add(limit.saturating_mul(BYTES_PER_LINE)));
    let mut broken = 0_usize;
    let mut last = true;
    while !window.suffices(limit) {
        let Some(found) = tail.previous()? else { break };
        let behind_last_newline = std::mem::take(&mut last);
        match found {
            TailLine::Line(bytes) if bytes.iter().all(u8::is_ascii_whitespace) => {}
            TailLine::Line(_) if behind_last_newline && !unended => {}
            TailLine::Line(bytes) => match wire::parse(bytes) {
                Ok(line) => window.push(line),
                // Perhaps only half written yet.
                Err(_) if behind_last_newline => {}
                Err(_) => broken += 1,
            },
            TailLine::TooLong => broken += 1,
        }
    }
    if tail.shrank() {
        return Ok(None);
    }
    if broken > 0 {
        tracing::warn!(path = %file.path().display(), lines = broken, "skipped lines of a transcript that do not parse");
    }
    if tail.is_spent() {
        tracing::warn!(path = %file.path().display(), limit, "answered fewer lines than asked for: too much lies between them");
    }
    Ok(Some(window))
}
