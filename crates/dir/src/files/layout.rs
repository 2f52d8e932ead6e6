//! The two file layouts, and how a directory's layout is detected.

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

use amb_core::OfficeError;
use amb_core::wire::filename;

use crate::files::durable::{TEMP_PREFIX, TEMP_SUFFIX};
use crate::files::failure::IoContext;
use crate::files::open;
use crate::files::paths;

/// How mail is stored in the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// `ROOT/_registry.json`, `ROOT/AGENT/inbox/*.msg.json`, `ROOT/AGENT/processed/`.
    Nanobot,
    /// `ROOT/AGENT/{stamp}-{from}.json`, `ROOT/AGENT/archive/`.
    Chipset,
}

/// Most directory entries that detection looks at: any mailbox with mail decides.
const MAX_DIRECTORIES: usize = 200;

impl Layout {
    /// The name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Layout::Nanobot => "nanobot",
            Layout::Chipset => "chipset",
        }
    }

    /// Suffix of message files.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Layout::Nanobot => filename::NANOBOT_ENDING,
            Layout::Chipset => filename::CHIPSET_ENDING,
        }
    }

    /// Detects the layout of a directory from what is in it or from its path; `None` if neither decides.
    pub fn detect(root: &Path) -> io::Result<Option<Layout>> {
        Ok(Self::detect_content(root)?.or_else(|| by_path(root)))
    }

    /// Detects the layout of a directory from what is in it; `None` if it does not exist or is undecided.
    fn detect_content(root: &Path) -> io::Result<Option<Layout>> {
        if let Some(recorded) = recorded(root) {
            return Ok(Some(recorded));
        }
        if root.join("_registry.json").exists() {
            return Ok(Some(Layout::Nanobot));
        }
        let Some(entries) = open::if_exists(fs_err::read_dir(root))? else { return Ok(None) };
        for entry in entries.take(MAX_DIRECTORIES) {
            let home = entry?.path();
            if let Some(layout) = [Layout::Nanobot, Layout::Chipset].into_iter().find(|layout| layout.is_mailbox(&home))
            {
                return Ok(Some(layout));
            }
        }
        Ok(None)
    }

    /// Whether a directory is an agent's mailbox, and not just any folder: files named as the chipset names mail tell, and
    /// nanobot's directories.
    pub(crate) fn is_mailbox(self, home: &Path) -> bool {
        match self {
            Layout::Nanobot => home.join("inbox").is_dir(),
            Layout::Chipset => has_chipset_mail(home) || has_chipset_mail(&home.join("archive")),
        }
    }

    /// The layout to open a directory with: the one that it has, else the one that was named, else nanobot.
    ///
    /// A named layout that the directory does not have is refused: the agents there would not see the mail.
    pub(crate) fn choose(root: &Path, named: Option<Layout>) -> Result<Layout, OfficeError> {
        let context = "could not look at the directory";
        let Some(named) = named else { return Ok(Self::detect(root).context(context)?.unwrap_or(Layout::Nanobot)) };
        match Self::detect_content(root).context(context)? {
            Some(found) if found != named => Err(contradiction(root, found, named)),
            _ => Ok(named),
        }
    }

    /// Refuses to write into a directory that another process has made an office of the other layout meanwhile. Returns
    /// whether the layout is recorded there.
    pub(crate) fn check_recorded(self, root: &Path) -> Result<bool, OfficeError> {
        match recorded(root) {
            Some(found) if found != self => Err(contradiction(root, found, self)),
            recorded => Ok(recorded.is_some()),
        }
    }
}

fn contradiction(root: &Path, found: Layout, named: Layout) -> OfficeError {
    OfficeError::invalid(format!(
        "{} has the layout {found}, and {named} was asked for: leave the layout out (--layout, AMB_LAYOUT; in Python \
         layout=None), or name another directory",
        root.display()
    ))
}

/// The layout that an office recorded here before.
fn recorded(root: &Path) -> Option<Layout> {
    let bytes = open::read(&paths::layout_file(root), 1 << 10).ok()?;
    std::str::from_utf8(&bytes).ok()?.trim().parse().ok()
}

/// The chipset keeps its mail in `.chipset/state/mail`.
fn by_path(root: &Path) -> Option<Layout> {
    root.components().any(|part| part.as_os_str() == ".chipset").then_some(Layout::Chipset)
}

fn has_chipset_mail(directory: &Path) -> bool {
    has_file(directory, |name| filename::parse_chipset(name).is_some())
}

/// Whether a send died here before the mailbox had its first message.
pub(crate) fn has_our_temp(directory: &Path) -> bool {
    has_file(directory, |name| name.starts_with(TEMP_PREFIX) && name.ends_with(TEMP_SUFFIX))
}

fn has_file(directory: &Path, is_it: impl Fn(&str) -> bool) -> bool {
    let Ok(entries) = fs_err::read_dir(directory) else { return false };
    entries.take(MAX_DIRECTORIES).flatten().any(|entry| entry.file_name().to_str().is_some_and(&is_it))
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
    fn the_layout_is_detected_from_the_files() {
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
        let project = ["src/tsconfig.json", "web/package.json", "web/archive/old.json", "node_modules/x/package.json"];
        assert_eq!(detect(&project), None, "a project is no office");
        let state = dir.path().join(".chipset/state/mail");
        assert_eq!(Layout::detect(&state).unwrap(), Some(Layout::Chipset), "detected by its path");
    }
}
