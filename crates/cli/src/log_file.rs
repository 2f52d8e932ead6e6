//! The log of an office in the background. Its stderr is redirected to the file, so that everything the process prints
//! is there; this keeps it small.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// At this size the file is moved to `office.log.1`, so that at most twice as much is kept.
const MAX_SIZE: u64 = 1 << 20;

/// Writes to stderr, which is the file at `path`, opened for appending.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    size: u64,
}

impl LogFile {
    pub(crate) fn new(path: &Path) -> Self {
        let size = fs_err::metadata(path).map_or(0, |file| file.len());
        Self { path: path.to_owned(), size }
    }

    /// Copies and truncates instead of renaming, because stderr stays open on the same file.
    fn rotate(&mut self) -> io::Result<()> {
        fs_err::copy(&self.path, rotated(&self.path))?;
        fs_err::OpenOptions::new().write(true).open(&self.path)?.set_len(0)?;
        self.size = 0;
        Ok(())
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.size >= MAX_SIZE {
            self.rotate()?;
        }
        let written = io::stderr().write(bytes)?;
        self.size = self.size.saturating_add(written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

fn rotated(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// The last lines of a log, shown when the office did not start.
pub(crate) fn tail(path: &Path, lines: usize) -> Vec<String> {
    let bytes = fs_err::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    all[all.len().saturating_sub(lines)..].iter().map(|line| crate::output::visible(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_log_is_rotated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("office.log");
        fs_err::write(&path, "old line\n").unwrap();
        let mut log = LogFile { size: MAX_SIZE, path: path.clone() };
        log.rotate().unwrap();
        assert_eq!((log.size, fs_err::read_to_string(&path).unwrap().as_str()), (0, ""));
        assert_eq!(fs_err::read_to_string(rotated(&path)).unwrap(), "old line\n");
    }

    #[test]
    fn tail_returns_the_last_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("office.log");
        fs_err::write(&path, "one\ntwo\n\nthree\n").unwrap();
        assert_eq!(tail(&path, 2), ["two", "three"]);
        assert_eq!(tail(&dir.path().join("none"), 2), Vec::<String>::new());
    }
}
