//! Links and pipes in the place of the office's own directories and files.

use amb_core::transcript::Line;
use amb_core::{Code, Draft, Mailbox, TaskState};
use amb_dir::doctor::{FindingKind, examine};
use amb_dir::{DirOffice, DirOptions, Layout};
use fs_err::os::unix::fs::symlink;

use crate::world::{LAYOUTS, World, name, text};

#[tokio::test]
async fn nothing_is_written_or_read_through_a_link() {
    for layout in LAYOUTS {
        let (home, away) = match layout {
            Layout::Nanobot => ("bob", "bob/processed"),
            Layout::Chipset => ("bob", "bob/archive"),
        };
        for link in [home, away, ".amb/agents/bob"] {
            let (world, elsewhere) = (World::in_memory(layout), tempfile::tempdir().unwrap());
            let (ann, bob) = (world.agent("ann").await, world.agent("bob").await);
            let task = ann.send(Draft::task(name("bob"), "Work", "do it")).await.unwrap().task.unwrap().id;
            let place = world.path().join(link);
            fs_err::remove_dir_all(&place).ok();
            symlink(elsewhere.path(), &place).unwrap();
            let results = [
                ann.send(text("bob", "two")).await.map(drop),
                ann.send(Draft::task(name("bob"), "Work", "more")).await.map(drop),
                bob.inbox(false).await.map(drop),
                bob.set_task_state(&task, TaskState::Rejected, None).await.map(drop),
            ];
            for result in results {
                let error = result.unwrap_err();
                assert!(error.detail().contains("is a link"), "{layout}: {link}: {error}");
                assert_eq!(error.code(), Code::Unavailable, "{layout}: {link}: {error}");
            }
            assert_eq!(fs_err::read_dir(elsewhere.path()).unwrap().count(), 0, "{layout}: {link}");
            let found = examine(&world.office(), true).await.unwrap();
            assert!(
                found.iter().any(|found| found.kind == FindingKind::LinkedDirectory && !found.mended),
                "{layout}: {found:?}"
            );
            assert_eq!(fs_err::read_dir(elsewhere.path()).unwrap().count(), 0, "{layout}: {link}");
        }
    }
}

#[tokio::test]
async fn an_office_whose_own_directory_is_a_link_is_not_opened_and_one_whose_root_is_is() {
    for layout in LAYOUTS {
        let (world, elsewhere) = (World::in_memory(layout), tempfile::tempdir().unwrap());
        let options = || DirOptions { layout: Some(layout), ..DirOptions::default() };
        symlink(elsewhere.path(), world.path().join(".amb")).unwrap();
        let error = DirOffice::open(world.path(), options()).unwrap_err();
        assert!(error.detail().contains("is a link"), "{error}");
        fs_err::remove_file(world.path().join(".amb")).unwrap();
        let root = elsewhere.path().join("mail");
        symlink(world.path(), &root).unwrap();
        let office = DirOffice::open(&root, options()).unwrap();
        office.mailbox(name("ann")).register(Default::default()).await.unwrap();
        office.mailbox(name("ann")).send(text("ann", "hello")).await.unwrap();
        assert_eq!(world.office().mailbox(name("ann")).inbox(true).await.unwrap().unread(), 1, "{layout}");
    }
}

#[tokio::test]
async fn the_doctor_reports_and_mends_pipes_in_the_places_of_locks() {
    for layout in LAYOUTS {
        let world = World::in_memory(layout);
        let (ann, bob) = (world.agent("ann").await, world.agent("bob").await);
        let sent = ann.send(text("bob", "hello")).await.unwrap();
        let mut locks = vec![".amb/agents/bob/agent.lock", ".amb/agents/bob/read.lock", ".amb/agents/bob/log.lock"];
        if layout == Layout::Nanobot {
            locks.push(".amb/registry.lock");
        }
        for lock in &locks {
            let path = world.path().join(lock);
            fs_err::remove_file(&path).ok();
            assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        }
        let found = examine(&world.office(), false).await.unwrap();
        for lock in &locks {
            assert!(found.iter().any(|found| found.path.ends_with(lock)), "{layout}: {lock}: {found:?}");
        }
        examine(&world.office(), true).await.unwrap();
        assert_eq!(examine(&world.office(), false).await.unwrap(), [], "{layout}");
        bob.register(Default::default()).await.unwrap();
        assert_eq!(bob.ack(&[sent.message_id]).await.unwrap(), 1, "{layout}");
    }
}

#[tokio::test]
async fn the_doctor_finds_what_a_killed_writer_of_a_transcript_left() {
    let world = World::in_memory(Layout::Nanobot);
    let ann = world.agent("ann").await;
    let line = Line {
        role: "user".into(),
        content: "hi".into(),
        sender: "ann".into(),
        message_id: None,
        ts: None,
        author: None,
    };
    ann.transcript_append(&"team".parse().unwrap(), line).await.unwrap();
    let temp = world.path().join(".amb/transcripts/.owners/.amb-1-dead.tmp");
    fs_err::write(&temp, "half").unwrap();
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(120);
    fs_err::OpenOptions::new().write(true).open(&temp).unwrap().set_modified(old).unwrap();
    let found = examine(&world.office(), true).await.unwrap();
    assert_eq!(found.iter().map(|found| &found.path).collect::<Vec<_>>(), [&temp]);
    assert!(!temp.exists());
}
