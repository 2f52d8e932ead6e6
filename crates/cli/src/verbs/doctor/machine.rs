//! This machine: free disk space, and who can read the keys.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::CheckResult;
use crate::args::{OfficeArgs, OfficeOrigin};
use crate::database::bytes;
use crate::{home, local};

/// With less free space than this, in bytes, messages are refused soon.
const PROBLEM_BELOW: u64 = 100_000_000;
/// Less than this is worth a note.
const NOTE_BELOW: u64 = 1_000_000_000;

pub(super) fn check(office: &OfficeArgs) -> Vec<CheckResult> {
    let mut checks = Vec::new();
    if office.origin == OfficeOrigin::Local
        && let Some(record) = local::running()
    {
        checks.extend(disk(Path::new(&record.store)));
    }
    if let Ok(directory) = home::config_dir() {
        checks
            .extend(["keys.json", "household.json"].iter().filter_map(|name| check_permissions(&directory.join(name))));
    }
    checks
}

fn disk(path: &Path) -> Option<CheckResult> {
    let room = rustix::fs::statvfs(path).ok()?;
    Some(check_space(path, room.f_bavail.saturating_mul(room.f_frsize)))
}

fn check_space(path: &Path, free: u64) -> CheckResult {
    let detail = format!("{} free where {} is", bytes(free), path.display());
    let remedy =
        "make room, or move the office (`amb backup`, `amb move`); `amb serve --keep-read-mail DAYS` keeps it small";
    match free {
        0..PROBLEM_BELOW => CheckResult::problem("disk", detail, remedy),
        PROBLEM_BELOW..NOTE_BELOW => CheckResult::note("disk", detail, remedy),
        _ => CheckResult::ok("disk", detail),
    }
}

/// A problem where others can read a file with secrets.
fn check_permissions(path: &Path) -> Option<CheckResult> {
    let mode = fs_err::metadata(path).ok()?.permissions().mode();
    Some(match mode & 0o077 {
        0 => CheckResult::ok("keys", format!("{} is yours alone", path.display())),
        _ => CheckResult::problem(
            "keys",
            format!("others can read {}", path.display()),
            format!("chmod 600 {}", path.display()),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_free_space_is_a_problem_and_some_is_a_note() {
        let state = |free| check_space(Path::new("/m"), free).state;
        assert_eq!((state(10), state(500_000_000), state(5_000_000_000)), ("problem", "note", "ok"));
    }

    #[test]
    fn keys_that_others_can_read_are_a_problem() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.json");
        assert!(check_permissions(&path).is_none());
        fs_err::write(&path, "{}").unwrap();
        fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(check_permissions(&path).unwrap().is_problem());
        fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(!check_permissions(&path).unwrap().is_problem());
    }
}
