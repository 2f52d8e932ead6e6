//! A read position in a file that others append to, truncate and rotate.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use amb_core::transcript::Line;
use amb_core::wire::transcript as wire;
use fs_err::File;

use super::file::{MAX_LINE_BYTES, lock, open_read};
use crate::files::lock::same_file;
use crate::files::tail::{Tail, TailLine};

/// Bytes read in one step, unless a line is longer.
const STEP_BYTES: usize = 256 * 1024;
/// Bytes before the cursor that are compared at each step, to detect a file that was truncated and has grown again.
const MARK_BYTES: usize = 64;

/// Reads each complete line of a file once.
#[derive(Debug)]
pub(super) struct FileCursor {
    path: PathBuf,
    file: Option<File>,
    /// Everything before it was returned. Follows a newline, unless `skipping`. An incomplete line is read again at
    /// each step, since a writer that failed may truncate it.
    offset: u64,
    /// The bytes before `offset`, as they were read.
    mark: Vec<u8>,
    /// Whether the cursor is inside a line that is too long.
    skipping: bool,
}

impl FileCursor {
    /// Starts at the beginning of a file, which may not exist yet.
    pub(super) fn at_start(path: PathBuf) -> Self {
        Self { path, file: None, offset: 0, mark: Vec::new(), skipping: false }
    }

    /// Starts at the end of the file. An incomplete last line is still to be read.
    pub(super) fn at_end(path: PathBuf) -> io::Result<Self> {
        let mut cursor = Self::at_start(path);
        let Some(file) = open_read(&cursor.path)? else { return Ok(cursor) };
        cursor.offset = file.metadata()?.len();
        match Tail::new(&file, cursor.offset, MAX_LINE_BYTES, MAX_LINE_BYTES).previous()? {
            Some(TailLine::Line(incomplete)) => cursor.offset -= incomplete.len() as u64,
            Some(TailLine::TooLong) | None => cursor.skipping = true,
        }
        let mark = usize::try_from(cursor.offset).unwrap_or(MARK_BYTES).min(MARK_BYTES);
        cursor.mark = read_up_to(&file, cursor.offset - mark as u64, mark)?;
        cursor.file = Some(file);
        Ok(cursor)
    }

    /// The path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The open file and the offset in it, if the file exists.
    pub(super) fn position(&self) -> Option<(&File, u64)> {
        self.file.as_ref().map(|file| (file, self.offset))
    }

    /// Adds the new lines since the last step, a bounded number. Returns whether there may be more.
    pub(super) fn step(&mut self, lines: &mut Vec<Line>) -> io::Result<bool> {
        if self.file.is_none() {
            self.file = open_read(&self.path)?;
        }
        let Some(file) = self.file.take() else { return Ok(false) };
        let more = self.read_more(&file, STEP_BYTES, lines)?;
        if more || same_file(file.file(), &self.path) {
            self.file = Some(file);
            return Ok(more);
        }
        self.switch_file(file, lines)
    }

    /// Reads up to `count` bytes from the open file. Returns whether the cursor advanced.
    fn read_more(&mut self, file: &File, count: usize, lines: &mut Vec<Line>) -> io::Result<bool> {
        let mark = self.mark.len();
        let from = self.offset - mark as u64;
        let there = usize::try_from(file.metadata()?.len().saturating_sub(from)).unwrap_or(usize::MAX);
        let bytes = read_up_to(file, from, there.min(mark + count))?;
        let Some(new) = bytes.strip_prefix(self.mark.as_slice()) else {
            tracing::info!(path = %self.path.display(), "the transcript was truncated; reading it from the start");
            self.restart();
            return Ok(true);
        };
        let whole = match new.iter().rposition(|byte| *byte == b'\n') {
            Some(newline) => newline + 1,
            None if new.len() < count => return Ok(false),
            None if count <= MAX_LINE_BYTES => return self.read_more(file, MAX_LINE_BYTES + 1, lines),
            None => {
                self.skipping = true;
                new.len()
            }
        };
        self.take(&new[..whole], lines);
        let read = mark + whole;
        self.mark = bytes[read.saturating_sub(MARK_BYTES)..read].to_vec();
        self.offset += whole as u64;
        Ok(true)
    }

    /// Splits bytes into lines.
    fn take(&mut self, bytes: &[u8], lines: &mut Vec<Line>) {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let Some(line) = line.strip_suffix(b"\n") else { return };
            if std::mem::take(&mut self.skipping) || line.len() > MAX_LINE_BYTES {
                tracing::warn!(path = %self.path.display(), "skipped a line of a transcript that is too long");
                continue;
            }
            self.take_line(line, lines);
        }
    }

    fn take_line(&self, line: &[u8], lines: &mut Vec<Line>) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        match wire::parse(line) {
            Ok(line) => lines.push(line),
            Err(_) => tracing::warn!(path = %self.path.display(), "skipped a line of a transcript that does not parse"),
        }
    }

    /// Switches to the file that has this name now, after reading the rest of the old one.
    fn switch_file(&mut self, old: File, lines: &mut Vec<Line>) -> io::Result<bool> {
        // Appenders check the name under the lock, so after we have held it nobody writes to the old file.
        drop(lock(&old)?);
        if self.read_more(&old, STEP_BYTES, lines)? {
            self.file = Some(old);
            return Ok(true);
        }
        // A last line without a newline is complete now: a program may have left it out.
        let rest = read_up_to(&old, self.offset, MAX_LINE_BYTES)?;
        if !self.skipping {
            self.take_line(&rest, lines);
        }
        self.restart();
        self.file = open_read(&self.path)?;
        Ok(self.file.is_some())
    }

    fn restart(&mut self) {
        self.offset = 0;
        self.mark.clear();
        self.skipping = false;
    }
}

fn read_up_to(file: &File, offset: u64, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    let mut filled = 0;
    while filled < count {
        match file.file().read_at(&mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    struct Scene {
        dir: tempfile::TempDir,
        cursor: FileCursor,
    }

    impl Scene {
        fn new(before: &str) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("t.jsonl");
            fs_err::write(&path, before).unwrap();
            Self { cursor: FileCursor::at_end(path).unwrap(), dir }
        }

        fn add(&self, text: &str) {
            let path = self.dir.path().join("t.jsonl");
            let mut file = fs_err::OpenOptions::new().create(true).append(true).open(path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        }

        fn read(&mut self) -> Vec<String> {
            let mut lines = Vec::new();
            while self.cursor.step(&mut lines).unwrap() {}
            lines.into_iter().map(|line| line.content).collect()
        }
    }

    fn said(content: &str) -> String {
        format!("{{\"role\":\"user\",\"content\":\"{content}\",\"sender\":\"a\"}}\n")
    }

    #[test]
    fn only_complete_lines_after_the_start_are_read() {
        let (old, new) = (said("old"), said("new"));
        let mut scene = Scene::new(&old);
        assert!(scene.read().is_empty());
        scene.add(&new[..10]);
        assert!(scene.read().is_empty());
        scene.add(&new[10..]);
        assert_eq!(scene.read(), ["new"]);
        assert!(scene.read().is_empty());
    }

    #[test]
    fn a_line_that_was_incomplete_at_the_start_is_read_when_it_ends() {
        let new = said("new");
        let mut scene = Scene::new(&format!("{}{}", said("old"), &new[..10]));
        scene.add(&new[10..]);
        assert_eq!(scene.read(), ["new"]);
    }

    #[test]
    fn truncating_an_incomplete_line_does_not_repeat_the_others() {
        let mut scene = Scene::new("");
        scene.add(&said("one"));
        assert_eq!(scene.read(), ["one"]);
        let path = scene.dir.path().join("t.jsonl");
        let before = fs_err::metadata(&path).unwrap().len();
        scene.add("{\"role\":\"us");
        assert!(scene.read().is_empty());
        fs_err::OpenOptions::new().write(true).open(&path).unwrap().set_len(before).unwrap();
        assert!(scene.read().is_empty());
        scene.add(&said("two"));
        assert_eq!(scene.read(), ["two"]);
    }

    #[test]
    fn a_truncated_file_is_read_from_its_start_even_when_it_has_grown_longer() {
        let mut scene = Scene::new(&said("old"));
        let path = scene.dir.path().join("t.jsonl");
        fs_err::write(&path, said("short")).unwrap();
        assert_eq!(scene.read(), ["short"]);
        fs_err::write(&path, said("much longer than what was there before it")).unwrap();
        assert_eq!(scene.read(), ["much longer than what was there before it"]);
    }

    #[test]
    fn a_rotated_file_is_read_to_its_end_and_then_the_new_one() {
        let mut scene = Scene::new("");
        scene.add(&said("one"));
        scene.add(said("two").trim_end());
        let path = scene.dir.path().join("t.jsonl");
        fs_err::rename(&path, scene.dir.path().join("t.jsonl.1")).unwrap();
        scene.add(&said("three"));
        assert_eq!(scene.read(), ["one", "two", "three"]);
        fs_err::remove_file(&path).unwrap();
        assert!(scene.read().is_empty());
        scene.add(&said("four"));
        assert_eq!(scene.read(), ["four"]);
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped() {
        let mut scene = Scene::new("");
        scene.add(&"x".repeat(MAX_LINE_BYTES * 2));
        assert!(scene.read().is_empty());
        scene.add(&format!("yyy\n{}", said("after")));
        assert_eq!(scene.read(), ["after"]);
    }
}
