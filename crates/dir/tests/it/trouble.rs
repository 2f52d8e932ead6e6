//! Disks that are full or read-only, directories that are not directories: a clear error, and nothing is lost.

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use amb_core::event::Cursor;
use amb_core::mailbox::{ClaimRequest, HistoryPage, TaskFilter};
use amb_core::{Code, Draft, Mailbox, TaskState};
use amb_dir::doctor::{self, FindingKind};
use amb_dir::{DirOffice, DirOptions, Layout};
use serde_json::json;

use crate::world::{LAYOUTS, World, chipset_file, name, nanobot_file, open, temps, text};

fn all() -> ClaimRequest {
    ClaimRequest { limit: 10_000, ..ClaimRequest::default() }
}

/// A small file system of its own; unmounted when dropped.
struct Small<'a>(&'a Path);

impl<'a> Small<'a> {
    fn mount(at: &'a Path) -> Option<Self> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=512k", "tmpfs"]).arg(at).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(at)),
            other => {
                println!("skipped: mounting is not permitted here ({other:?})");
                None
            }
        }
    }

    fn remount(&self, how: &str) {
        let status = Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(self.0).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "{} is still mounted", self.0.display());
    }
}

#[tokio::test]
async fn a_full_disk_is_a_clear_error_and_loses_nothing() {
    for layout in LAYOUTS {
        let dir = tempfile::tempdir().unwrap();
        let Some(_small) = Small::mount(dir.path()) else { return };
        let office = open(dir.path(), layout);
        let (ann, bob) = (office.mailbox(name("ann")), office.mailbox(name("bob")));
        ann.register(Default::default()).await.unwrap();
        bob.register(Default::default()).await.unwrap();
        let reserve = dir.path().join("reserve");
        fs_err::write(&reserve, vec![0; 100_000]).unwrap();
        let mut sent = 0;
        let error = loop {
            match ann.send(text("bob", &format!("{sent} {}", "x".repeat(20_000)))).await {
                Ok(_) => sent += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.code(), Code::Unavailable, "{error:?}");
        assert!(error.detail().contains("disk is full"), "{error}");
        assert!(sent > 3);
        assert!(temps(dir.path()).is_empty(), "a refused message leaves nothing");
        let claimed = bob.claim(all()).await.unwrap();
        assert_eq!(claimed.len(), sent, "everything that was accepted is there, and can be read");
        fs_err::remove_file(&reserve).unwrap();
        bob.ack(&claimed.iter().map(|message| message.id.clone()).collect::<Vec<_>>()).await.unwrap();
        fs_err::remove_dir_all(match layout {
            amb_dir::Layout::Nanobot => dir.path().join("bob/processed"),
            amb_dir::Layout::Chipset => dir.path().join("bob"),
        })
        .unwrap();
        ann.send(text("bob", "there is room again")).await.unwrap();
        assert_eq!(bob.claim(all()).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_read_only_directory_is_a_clear_error_and_can_still_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let Some(small) = Small::mount(dir.path()) else { return };
    let office = open(dir.path(), amb_dir::Layout::Nanobot);
    let (ann, bob) = (office.mailbox(name("ann")), office.mailbox(name("bob")));
    ann.register(Default::default()).await.unwrap();
    bob.register(Default::default()).await.unwrap();
    ann.send(text("bob", "before")).await.unwrap();
    assert_eq!(bob.inbox(true).await.unwrap().unread(), 1);
    small.remount("ro");
    let error = ann.send(text("bob", "after")).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.detail().contains("read-only"), "{error}");
    assert!(bob.ack(&[bob.inbox(true).await.unwrap().sessions[0].recent_messages[0].id.clone()]).await.is_err());
    assert_eq!(bob.inbox(true).await.unwrap().unread(), 1, "what was there is still shown");
    small.remount("rw");
    ann.send(text("bob", "after")).await.unwrap();
    assert_eq!(bob.inbox(true).await.unwrap().unread(), 2);
}

#[tokio::test]
async fn a_thread_that_a_full_disk_keeps_out_of_the_log_can_be_read() {
    for layout in LAYOUTS {
        let dir = tempfile::tempdir().unwrap();
        let Some(small) = Small::mount(dir.path()) else { return };
        let office = open(dir.path(), layout);
        let (ann, bob) = (office.mailbox(name("ann")), office.mailbox(name("bob")));
        ann.register(Default::default()).await.unwrap();
        bob.register(Default::default()).await.unwrap();
        let sent = ann.send(text("bob", "the last that fits")).await.unwrap();
        small.remount("ro");
        let shown = bob.inbox(true).await.unwrap();
        assert_eq!(shown.sessions[0].session_id, sent.session_id);
        let page = HistoryPage { limit: 20, before: None };
        let shown = bob.read(&sent.session_id, page.clone()).await.unwrap().messages;
        assert_eq!((shown[0].content.as_str(), shown[0].is_read), ("the last that fits", false), "{layout}");
        small.remount("rw,size=1m");
        assert_eq!(bob.inbox(true).await.unwrap().unread(), 1, "{layout}: it could not be marked");
        assert!(bob.read(&sent.session_id, page).await.unwrap().messages[0].is_read, "{layout}");
        assert_eq!(bob.inbox(true).await.unwrap().unread(), 0, "{layout}");
    }
}

#[tokio::test]
async fn mail_on_a_full_disk_can_be_read() {
    for layout in LAYOUTS {
        let dir = tempfile::tempdir().unwrap();
        let Some(_small) = Small::mount(dir.path()) else { return };
        let office = open(dir.path(), layout);
        let bob = office.mailbox(name("bob"));
        bob.register(Default::default()).await.unwrap();
        let sent = office.mailbox(name("ann")).send(text("bob", "hello")).await.unwrap();
        bob.inbox(true).await.unwrap();
        let mut filler = fs_err::File::create(dir.path().join("filler")).unwrap();
        while filler.write(&[0; 4096]).is_ok() {}
        let page = HistoryPage { limit: 20, before: None };
        let shown = bob.read(&sent.session_id, page).await.unwrap().messages;
        assert_eq!(shown[0].content, "hello", "{layout}");
        assert_eq!(bob.inbox(true).await.unwrap().unread(), u64::from(!shown[0].is_read), "{layout}");
    }
}

#[tokio::test]
async fn new_mail_in_a_read_only_directory_is_shown_and_the_doctor_says_why_it_stays() {
    for layout in LAYOUTS {
        let dir = tempfile::tempdir().unwrap();
        let Some(small) = Small::mount(dir.path()) else { return };
        let office = open(dir.path(), layout);
        let (ann, bob) = (office.mailbox(name("ann")), office.mailbox(name("bob")));
        ann.register(Default::default()).await.unwrap();
        bob.register(Default::default()).await.unwrap();
        bob.send(text("ann", "sent")).await.unwrap();
        let accepted = ann.send(Draft::task(name("bob"), "Work", "logged")).await.unwrap().task.unwrap().id;
        bob.set_task_state(&accepted, TaskState::Accepted, None).await.unwrap();
        ann.send(text("bob", "not logged")).await.unwrap();
        // A task of another program, whose record cannot be made: it is left out.
        let task = json!({"id": "t1", "state": "pending"});
        let (file, bytes) = match layout {
            Layout::Nanobot => {
                let fields = json!({"type": "task", "task": task});
                ("bob/inbox/1745659200_cat.msg.json", nanobot_file("cat", "bob", fields))
            }
            Layout::Chipset => {
                let fields = json!({"type": "task", "amb": {"task": task}});
                ("bob/2026-03-05T10-30-00Z-cat.json", chipset_file("cat", "bob", fields))
            }
        };
        fs_err::write(dir.path().join(file), bytes).unwrap();
        small.remount("ro");
        let bob = open(dir.path(), layout).mailbox(name("bob"));
        assert_eq!(bob.inbox(true).await.unwrap().unread(), 2, "{layout}");
        let past = bob.events(Some(Cursor::from(0)), Duration::ZERO).await.unwrap();
        assert_eq!(past.events.len(), 1, "{layout}: what is in the log, {past:?}");
        let waited = bob.events(Some(Cursor::from(0)), Duration::from_secs(60)).await.unwrap_err();
        assert_eq!(waited.code(), Code::Unavailable, "{layout}: no news can come");
        assert_eq!(bob.tasks(TaskFilter::default()).await.unwrap().len(), 1, "{layout}");
        for mend in [false, true] {
            let findings = doctor::examine(&open(dir.path(), layout), mend).await.unwrap();
            let [finding] = findings.as_slice() else { panic!("{layout}: {findings:?}") };
            assert_eq!((finding.kind, finding.mended), (FindingKind::NotWritable, false), "{layout}");
            assert!(finding.detail.contains("Read-only"), "{layout}: {finding:?}");
        }
        small.remount("rw");
        assert_eq!(bob.tasks(TaskFilter::default()).await.unwrap().len(), 2, "{layout}");
        assert_eq!(doctor::examine(&open(dir.path(), layout), true).await.unwrap(), [], "{layout}");
        assert_eq!(bob.claim(all()).await.unwrap().len(), 3, "{layout}");
    }
}

#[tokio::test]
async fn a_file_in_the_place_of_a_directory_is_a_clear_error() {
    for layout in LAYOUTS {
        let world = World::new(layout);
        let ann = world.agent("ann").await;
        world.agent("bob").await;
        ann.send(text("bob", "one")).await.unwrap();
        let (inbox, aside) = (world.inbox("bob"), world.path().join("aside"));
        fs_err::rename(&inbox, &aside).unwrap();
        fs_err::write(&inbox, "not a directory").unwrap();
        let error = ann.send(text("bob", "two")).await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable);
        assert!(error.detail().contains("a file stands where a directory should be"), "{error}");
        fs_err::remove_file(&inbox).unwrap();
        fs_err::rename(&aside, &inbox).unwrap();
        ann.send(text("bob", "two")).await.unwrap();
        assert_eq!(world.office().mailbox(name("bob")).claim(all()).await.unwrap().len(), 2);
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = DirOffice::open(file.path(), DirOptions::default()).unwrap_err();
    assert!(error.detail().contains("is not a directory"), "{error}");
}

#[tokio::test]
async fn a_corrupt_registry_is_rebuilt_and_keeps_unknown_fields() {
    let world = World::new(amb_dir::Layout::Nanobot);
    let ann = world.agent("ann").await;
    let path = world.path().join("_registry.json");
    let mut registry: serde_json::Value = serde_json::from_slice(&fs_err::read(&path).unwrap()).unwrap();
    registry["pythonic"] = serde_json::json!({
        "description": "of another program", "last_heartbeat": 1777197600, "allow_from": ["nobody"], "mood": "fine"
    });
    registry["ann"]["mood"] = "good".into();
    fs_err::write(&path, serde_json::to_vec_pretty(&registry).unwrap()).unwrap();
    ann.leave().await.unwrap();
    let kept: serde_json::Value = serde_json::from_slice(&fs_err::read(&path).unwrap()).unwrap();
    assert_eq!(kept["pythonic"], registry["pythonic"], "another writer's entry is untouched");
    assert_eq!((&kept["ann"]["mood"], &kept["ann"]["status"]), (&"good".into(), &"offline".into()));
    assert_eq!(ann.send(text("pythonic", "hi")).await.unwrap_err().code(), Code::NotAllowed);

    let whole = fs_err::read(&path).unwrap();
    fs_err::write(&path, &whole[..whole.len() - 40]).unwrap();
    ann.heartbeat().await.unwrap();
    let rebuilt: serde_json::Value = serde_json::from_slice(&fs_err::read(&path).unwrap()).unwrap();
    assert_eq!(rebuilt["ann"]["status"], "idle");
    assert!(world.files(".amb").iter().any(|file| file.ends_with(".corrupt")), "the broken one is kept");
    fs_err::write(&path, "").unwrap();
    assert_eq!(ann.agents().await.unwrap().len(), 1, "and while it is broken the agents are still known");
}

/// An owner whose mailbox cannot be written to.
#[tokio::test]
async fn one_owners_broken_mailbox_does_not_hide_other_tasks_or_fail_a_move() {
    for layout in LAYOUTS {
        let world = World::new(layout);
        let (ann, cat) = (world.agent("ann").await, world.agent("cat").await);
        let bob = world.agent("bob").await;
        let id = ann.send(Draft::task(name("bob"), "Work", "one")).await.unwrap().task.unwrap().id;
        cat.send(Draft::task(name("bob"), "Work", "two")).await.unwrap();
        let (inbox, aside) = (world.inbox("ann"), world.path().join(".aside"));
        fs_err::rename(&inbox, &aside).unwrap();
        fs_err::write(&inbox, "not a directory").unwrap();
        let moved = bob.set_task_state(&id, TaskState::Accepted, None).await.unwrap();
        assert_eq!(moved.state, TaskState::Accepted, "{layout}: it has moved");
        let tasks = world.office().mailbox(name("bob")).tasks(TaskFilter::default()).await.unwrap();
        assert_eq!(tasks.len(), 2, "{layout}");
        fs_err::remove_file(&inbox).unwrap();
        fs_err::rename(&aside, &inbox).unwrap();
        bob.inbox(false).await.unwrap();
        let told = ann.claim(all()).await.unwrap();
        assert_eq!(told.len(), 1, "{layout}: the next look tells the owner, once");
    }
}

#[tokio::test]
async fn a_registry_that_cannot_be_written_does_not_make_a_move_a_failure() {
    let world = World::new(amb_dir::Layout::Nanobot);
    let (ann, bob) = (world.agent("ann").await, world.agent("bob").await);
    let id = ann.send(Draft::task(name("bob"), "Work", "one")).await.unwrap().task.unwrap().id;
    let lock = world.path().join(".amb/registry.lock");
    fs_err::remove_file(&lock).unwrap();
    fs_err::create_dir(&lock).unwrap();
    assert_eq!(bob.set_task_state(&id, TaskState::Accepted, None).await.unwrap().state, TaskState::Accepted);
    assert_eq!(ann.claim(all()).await.unwrap().len(), 1, "and the owner was told");
}

#[tokio::test]
async fn a_huge_log_costs_neither_memory_nor_mail() {
    for layout in LAYOUTS {
        let world = World::new(layout);
        let (ann, bob) = (world.agent("ann").await, world.agent("bob").await);
        let sent = ann.send(text("bob", "before")).await.unwrap();
        bob.inbox(false).await.unwrap();
        let log = world.path().join(".amb/agents/bob/log");
        let file = fs_err::OpenOptions::new().write(true).open(&log).unwrap();
        file.set_len(file.metadata().unwrap().len() + (100 << 20)).unwrap();
        let bob = world.office().mailbox(name("bob"));
        assert_eq!(bob.inbox(true).await.unwrap().unread(), 1, "{layout}");
        let later = ann.send(text("bob", "after")).await.unwrap();
        assert_eq!(bob.ack(&[sent.message_id.clone(), later.message_id]).await.unwrap(), 2, "{layout}");
        assert_eq!(bob.message(&sent.message_id).await.unwrap().message.text(), "before", "{layout}");
    }
}
