//! Pipes, links, sockets, directories and endless files where the office expects a small regular file: an error that
//! says what to do, never a hang, and no link is followed.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, SystemTime};

use amb_core::mailbox::ClaimRequest;
use amb_core::{Code, Mailbox};
use amb_dir::doctor::{self, FindingKind};
use amb_dir::{DirOffice, DirOptions, Layout};
use serde_json::json;

use crate::world::{LAYOUTS, PATIENCE, World, chipset_file, name, nanobot_file, text};

const ODD: [&str; 5] = ["pipe", "link", "socket", "directory", "endless"];

/// Creates something odd at this path. `target` is what a link points to.
fn put(what: &str, path: &Path, target: &Path) {
    if fs_err::symlink_metadata(path).is_ok() {
        fs_err::remove_file(path).unwrap();
    }
    match what {
        "pipe" => assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success()),
        "link" => fs_err::os::unix::fs::symlink(target, path).unwrap(),
        "socket" => drop(UnixListener::bind(path).unwrap()),
        "directory" => fs_err::create_dir(path).unwrap(),
        _ => fs_err::File::create(path).unwrap().set_len(600 << 20).unwrap(),
    }
}

/// Fails if the future takes longer than only a hang would.
async fn soon<T>(promised: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, promised).await.expect("it hangs")
}

#[tokio::test]
async fn a_registry_that_is_no_small_regular_file_is_refused_and_the_doctor_moves_it_away() {
    for what in ODD {
        let world = World::new(Layout::Nanobot);
        let ann = world.agent("ann").await;
        let elsewhere = world.path().join("elsewhere.json");
        fs_err::write(&elsewhere, r#"{"secret": {"agent_id": "secret"}}"#).unwrap();
        let path = world.path().join("_registry.json");
        put(what, &path, &elsewhere);
        for error in [
            soon(ann.agents()).await.unwrap_err(),
            soon(ann.leave()).await.unwrap_err(),
            soon(ann.send(text("nobody", "hi"))).await.unwrap_err(),
        ] {
            assert_eq!(error.code(), Code::Unavailable, "{what}: {error}");
            assert!(error.detail().contains("_registry.json") && error.detail().contains("move it away"), "{error}");
        }
        soon(ann.send(text("ann", "to myself"))).await.unwrap();
        let findings = soon(doctor::examine(&world.office(), false)).await.unwrap();
        assert!(findings.iter().any(|found| found.kind == FindingKind::BrokenRegistry && found.path == path), "{what}");
        soon(doctor::examine(&world.office(), true)).await.unwrap();
        assert_eq!(ann.agents().await.unwrap().len(), 1, "{what}");
        assert_eq!(fs_err::read_to_string(&elsewhere).unwrap(), r#"{"secret": {"agent_id": "secret"}}"#);
    }
}

#[tokio::test]
async fn odd_files_in_a_mailbox_are_no_mail_and_block_no_mail() {
    for layout in LAYOUTS {
        for what in ODD {
            let world = World::new(layout);
            let (ann, bob) = (world.agent("ann").await, world.agent("bob").await);
            let elsewhere = world.path().join("elsewhere");
            let (file, mail) = match layout {
                Layout::Nanobot => ("1745659200_x.msg.json", nanobot_file("x", "bob", json!({}))),
                Layout::Chipset => ("2026-03-05T10-30-00Z-x.json", chipset_file("x", "bob", json!({}))),
            };
            fs_err::write(&elsewhere, &mail).unwrap();
            let path = world.inbox("bob").join(file);
            put(what, &path, &elsewhere);
            ann.send(text("bob", "real")).await.unwrap();
            assert_eq!(soon(bob.inbox(true)).await.unwrap().unread(), 1, "{layout} {what}");
            let claimed = soon(bob.claim(ClaimRequest { limit: 9, ..ClaimRequest::default() })).await.unwrap();
            assert_eq!(claimed.len(), 1, "{layout} {what}");
            if matches!(what, "pipe" | "link" | "socket" | "directory") {
                let findings = soon(doctor::examine(&world.office(), false)).await.unwrap();
                assert!(findings.iter().any(|found| found.path == path), "{layout} {what}: {findings:?}");
            }
        }
    }
}

#[tokio::test]
async fn odd_files_among_the_offices_own_are_skipped_or_an_error_but_never_block() {
    const FILES: [&str; 6] = ["card.json", "alive.json", "known.json", "log", "log.lock", "agent.lock"];
    for (what, layout) in ODD.into_iter().zip(LAYOUTS.into_iter().cycle()) {
        let world = World::new(layout);
        let ann = world.agent("ann").await;
        for (n, file) in FILES.into_iter().enumerate() {
            let bob = format!("bob{n}");
            world.agent(&bob).await;
            ann.send(text(&bob, "hi")).await.unwrap();
            let path = world.path().join(".amb/agents").join(&bob).join(file);
            put(what, &path, &world.path().join("elsewhere"));
            let mailbox = world.office().mailbox(name(&bob));
            soon(async {
                // Some succeed, depending on the file; none may hang.
                let _each = (
                    mailbox.inbox(false).await.is_ok(),
                    mailbox.heartbeat().await.is_ok(),
                    mailbox.events(Some(0.into()), Duration::ZERO).await.is_ok(),
                    mailbox.tasks(Default::default()).await.is_ok(),
                    ann.send(text(&bob, "again")).await.is_ok(),
                );
            })
            .await;
            assert!(!world.path().join("elsewhere").exists(), "{file}: nothing is written through a link");
        }
        soon(ann.agents()).await.unwrap();
    }
}

#[tokio::test]
async fn a_layout_file_that_is_a_pipe_is_ignored() {
    let world = World::new(Layout::Nanobot);
    world.agent("ann").await;
    let note = world.path().join(".amb/layout");
    put("pipe", &note, &note);
    let root = world.path().to_owned();
    let opened = tokio::task::spawn_blocking(move || DirOffice::open(&root, DirOptions::default()));
    assert_eq!(soon(opened).await.unwrap().unwrap().layout(), Layout::Nanobot);
}

#[tokio::test]
async fn the_doctor_leaves_a_file_that_is_still_being_written() {
    for layout in LAYOUTS {
        let world = World::new(layout);
        world.agent("ben").await;
        let (file, whole) = match layout {
            Layout::Nanobot => ("1745659200_ann.msg.json", nanobot_file("ann", "ben", json!({}))),
            Layout::Chipset => ("2026-03-05T10-30-00Z-ann.json", chipset_file("ann", "ben", json!({}))),
        };
        let path = world.inbox("ben").join(file);
        fs_err::write(&path, &whole[..whole.len() / 2]).unwrap();
        assert_eq!(doctor::examine(&world.office(), true).await.unwrap(), [], "{layout}");
        assert!(path.exists(), "{layout}");
        let old = SystemTime::now() - Duration::from_secs(60);
        fs_err::OpenOptions::new().write(true).open(&path).unwrap().set_modified(old).unwrap();
        let findings = doctor::examine(&world.office(), true).await.unwrap();
        assert!(findings.iter().any(|finding| finding.kind == FindingKind::CorruptMessage), "{layout}: {findings:?}");
        assert!(!path.exists(), "{layout}: its writer is gone");
    }
}

#[tokio::test]
async fn the_doctor_names_mail_that_is_not_read_for_its_name() {
    use std::os::unix::ffi::OsStrExt;
    for layout in LAYOUTS {
        let world = World::new(layout);
        world.agent("bob").await;
        let names: [&[u8]; 2] = match layout {
            Layout::Nanobot => [b".1745659200_x.msg.json", b"1745659200_\xff.msg.json"],
            Layout::Chipset => [b".2026-03-05T10-30-00Z-x.json", b"2026-03-05T10-30-00Z-\xff.json"],
        };
        let paths = names.map(|name| world.inbox("bob").join(std::ffi::OsStr::from_bytes(name)));
        for path in &paths {
            fs_err::write(path, "{}").unwrap();
        }
        let findings = doctor::examine(&world.office(), true).await.unwrap();
        let found: Vec<_> = findings.iter().map(|found| (&found.path, found.mended)).collect();
        assert_eq!(found, [(&paths[0], false), (&paths[1], false)], "{layout}: {findings:?}");
        assert!(paths.iter().all(|path| path.exists()), "{layout}");
    }
}
