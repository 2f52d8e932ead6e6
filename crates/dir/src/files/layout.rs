//! Which of the two file layouts a directory has.

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

use amb_core::OfficeError;

use crate::files::open;
use crate::files::paths;

/// How mail lies in the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// `ROOT/_registry.json`, `ROOT/AGENT/inbox/*.msg.json`, `ROOT/AGENT/processed/`.
    Nanobot,
    /// `ROOT/AGENT/{stamp}-{from}.json`, `ROOT/AGENT/archive/`.
    Chipset,
}

/// Directories looked into before giving up: any one mailbox with mail tells.
const LOOKED_INTO: usize = 200;

impl Layout {
    /// The word on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Layout::Nanobot => "nanobot",
            Layout::Chipset => "chipset",
        }
    }

    /// The layout of what is in the directory; none if it is not there or nothing in it tells.
    pub fn detect(root: &Path) -> io::Result<Option<Layout>> {
        if let Some(said) = said(root) {
            return Ok(Some(said));
        }
        if root.join("_registry.json").exists() {
            return Ok(Some(Layout::Nanobot));
        }
        let Some(entries) = open::if_there(fs_err::read_dir(root))? else { return Ok(by_path(root)) };
        for entry in entries.take(LOOKED_INTO) {
            let mailbox = entry?.path();
            if mailbox.join("inbox").is_dir() {
                return Ok(Some(Layout::Nanobot));
            }
            if mailbox.join("archive").is_dir() || has_chipset_mail(&mailbox) {
                return Ok(Some(Layout::Chipset));
            }
        }
        Ok(by_path(root))
    }
}

/// What an office that was here before wrote down.
fn said(root: &Path) -> Option<Layout> {
    let note = open::bytes(&paths::layout_note(root), 1 << 10).ok()?;
    std::str::from_utf8(&note).ok()?.trim().parse().ok()
}

/// The chipset keeps its mail in `.chipset/state/mail`.
fn by_path(root: &Path) -> Option<Layout> {
    root.components().any(|part| part.as_os_str() == ".chipset").then_some(Layout::Chipset)
}

fn has_chipset_mail(mailbox: &Path) -> bool {
    let Ok(entries) = fs_err::read_dir(mailbox) else { return false };
    entries
        .take(LOOKED_INTO)
        .flatten()
        .any(|entry| entry.file_name().to_str().is_some_and(|name| name.ends_with(".json") && !name.starts_with('.')))
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Layout {
    type Err = OfficeError;

    fn from_str(text: &str) -> Result<Self, OfficeError> {
        match text {
            "nanobot" => Ok(Layout::Nanobot),
            "chipset" => Ok(Layout::Chipset),
            _ => Err(OfficeError::invalid(format!("a layout is nanobot or chipset, not {text:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_is_told_from_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let detect = |files: &[&str]| {
            let root = tempfile::tempdir_in(dir.path()).unwrap();
            for file in files {
                let path = root.path().join(file);
                fs_err::create_dir_all(path.parent().unwrap()).unwrap();
                fs_err::write(path, "{}").unwrap();
            }
            Layout::detect(root.path()).unwrap()
        };
        assert_eq!(detect(&[]), None);
        assert_eq!(detect(&["_registry.json"]), Some(Layout::Nanobot));
        assert_eq!(detect(&["coder/inbox/1_a.msg.json"]), Some(Layout::Nanobot));
        assert_eq!(detect(&["mayor/2026-03-05T10-30-00Z-witness.json"]), Some(Layout::Chipset));
        assert_eq!(detect(&["mayor/archive/2026-03-05T10-30-00Z-witness.json"]), Some(Layout::Chipset));
        let state = dir.path().join(".chipset/state/mail");
        assert_eq!(Layout::detect(&state).unwrap(), Some(Layout::Chipset), "told by where it is");
    }
}
