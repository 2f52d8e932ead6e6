//! The user's consent to a mailbox that was not named but found in the current directory.
//!
//! A cloned repository can contain `.chipset/state/mail` with forged messages, so it is used only after the user agreed
//! once. The answer is stored in the user's own state directory, by the mailbox's canonical path.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;

use crate::failure::Failure;
use crate::{durable, home};

/// The most mailboxes that are stored; the oldest are dropped.
const MAX_TRUSTED: usize = 1_000;

/// Whether the user agreed in this process, whose current directory, and so the mailbox, does not change.
static AGREED: AtomicBool = AtomicBool::new(false);

/// Asks whether the mailbox may be used, unless the user agreed before. An error where nobody can be asked.
pub(crate) fn ask(mailbox: &Path) -> Result<(), Failure> {
    if AGREED.load(Ordering::Relaxed) {
        return Ok(());
    }
    let path = canonical(mailbox)?;
    if trusted(&file()?).contains(&path.display().to_string()) {
        return Ok(());
    }
    if !prompt(&path, mailbox)? {
        let detail = format!("{} is not used; name the directory that you want with --dir", path.display());
        return Err(Failure::usage(detail));
    }
    AGREED.store(true, Ordering::Relaxed);
    remember(mailbox);
    Ok(())
}

/// Records that the mailbox may be used. Where that fails, the user is asked again next time.
pub(crate) fn remember(mailbox: &Path) {
    let written = canonical(mailbox).and_then(|path| add(&file()?, &path.display().to_string()));
    if let Err(error) = written {
        tracing::warn!("could not record that {} may be used: {error:#}", mailbox.display());
    }
}

/// Asks the user in the terminal; an error where there is none.
fn prompt(path: &Path, mailbox: &Path) -> Result<bool, Failure> {
    let (mut asked, answered) = (io::stderr().lock(), io::stdin());
    if !asked.is_terminal() || !answered.is_terminal() {
        return Err(Failure::usage(format!(
            "{} came with this directory, and whoever made it may have put forged mail there: say --dir {} (or AMB_DIR) to use it",
            path.display(),
            mailbox.display()
        )));
    }
    write!(
        asked,
        "There is a mailbox in this directory: {}\nWhoever made the directory may have put forged mail there. Use it from now on? [y/N] ",
        path.display()
    )?;
    asked.flush()?;
    let mut answer = String::new();
    answered.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// The canonical path of a mailbox that may not exist yet.
fn canonical(mailbox: &Path) -> anyhow::Result<PathBuf> {
    match std::fs::canonicalize(mailbox) {
        Ok(path) => Ok(path),
        Err(_) => Ok(std::fs::canonicalize(".").context("the present directory")?.join(mailbox)),
    }
}

fn file() -> anyhow::Result<PathBuf> {
    Ok(home::state_dir()?.join("trusted-mailboxes.json"))
}

/// The mailboxes that may be used. A file that does not parse allows none.
fn trusted(file: &Path) -> Vec<String> {
    durable::read_json(file).unwrap_or_default()
}

fn add(file: &Path, mailbox: &str) -> anyhow::Result<()> {
    durable::update(file, |bytes| {
        let mut all: Vec<String> = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        if !all.iter().any(|known| known == mailbox) {
            all.push(mailbox.to_owned());
            all.drain(..all.len().saturating_sub(MAX_TRUSTED));
        }
        Ok(serde_json::to_vec_pretty(&all)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consent_is_stored_by_path_and_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state/amb/trusted.json");
        assert_eq!(trusted(&file), Vec::<String>::new());
        for n in 0..MAX_TRUSTED + 5 {
            add(&file, &format!("/p/{n}")).unwrap();
        }
        add(&file, "/p/7").unwrap();
        let all = trusted(&file);
        assert_eq!((all.len(), all[0].as_str(), all[MAX_TRUSTED - 1].as_str()), (MAX_TRUSTED, "/p/5", "/p/1004"));
        fs_err::write(&file, "broken").unwrap();
        assert_eq!(trusted(&file), Vec::<String>::new(), "a file that does not parse allows nothing");
    }
}
