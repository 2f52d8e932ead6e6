//! Files that another program writes again under the same name. `fs_err::write` keeps the inode, as ext4 does when it
//! gives a new file the inode of the one that was just removed.

use std::time::Duration;

use amb_core::event::{Cursor, Event};
use amb_core::mailbox::{ClaimRequest, HistoryPage};
use amb_core::{Draft, Mailbox, SessionId};
use amb_dir::archive::{ArchiveOptions, archive};
use amb_dir::{DirMailbox, Layout};
use serde_json::json;

use crate::world::{LAYOUTS, World, chipset_file, name, nanobot_file, text};

fn file_name(layout: Layout) -> &'static str {
    match layout {
        Layout::Nanobot => "1772706600_ann.msg.json",
        Layout::Chipset => "2026-03-05T10-30-00Z-ann.json",
    }
}

/// Writes a message of ann to ben over the file that is there.
fn overwrite(world: &World, id: &str, text: &str) {
    let bytes = match world.layout {
        Layout::Nanobot => {
            let content = json!({"parts": [{"type": "text", "text": text}]});
            nanobot_file("ann", "ben", json!({"id": id, "content": content}))
        }
        Layout::Chipset => chipset_file("ann", "ben", json!({"body": text})),
    };
    fs_err::write(world.inbox("ben").join(file_name(world.layout)), bytes).unwrap();
}

async fn unread(mailbox: &DirMailbox) -> u64 {
    mailbox.inbox(true).await.unwrap().unread()
}

/// Returns the texts of all events from the beginning on.
async fn announced(mailbox: &DirMailbox) -> Vec<String> {
    let page = mailbox.events(Some(Cursor::from(0)), Duration::ZERO).await.unwrap();
    let text = |event| match event {
        Event::NewMessage(new) => Some(new.content),
        _ => None,
    };
    page.events.into_iter().filter_map(|entry| text(entry.event)).collect()
}

/// Reads the only session, oldest message first.
async fn read(mailbox: &DirMailbox) -> Vec<String> {
    let session = mailbox.inbox(false).await.unwrap().sessions.remove(0).session_id;
    let history = mailbox.read(&session, HistoryPage::default()).await.unwrap();
    history.messages.into_iter().rev().map(|message| message.content).collect()
}

#[tokio::test]
async fn mail_that_another_program_marks_in_place_is_read() {
    for file in ["2026-03-05T10-30-00Z-ann.json", "2026-03-05T10-30-00.123456Z-ann.json"] {
        let world = World::in_memory(Layout::Chipset);
        let ben = world.agent("ben").await;
        let later = world.office().mailbox(name("ben"));
        world.drop_file("ben", file, chipset_file("ann", "ben", json!({})));
        assert_eq!((unread(&ben).await, unread(&later).await), (1, 1));
        fs_err::write(world.inbox("ben").join(file), chipset_file("ann", "ben", json!({"read": true}))).unwrap();
        for mailbox in [&ben, &later, &world.office().mailbox(name("ben"))] {
            assert_eq!(unread(mailbox).await, 0, "{file}");
            assert!(mailbox.claim(ClaimRequest::default()).await.unwrap().is_empty());
        }
        let session = SessionId::between(&name("ann"), &name("ben"), "Sync");
        let history = ben.read(&session, HistoryPage::default()).await.unwrap();
        assert_eq!(history.messages.len(), 1, "{file}: it is the same message");
        let keep = ArchiveOptions { keep_unread: true, ..ArchiveOptions::default() };
        let report = archive(&world.office(), None, keep).await.unwrap();
        assert_eq!((report.moved.len(), report.kept_unread), (1, 0), "{file}");
    }
}

#[tokio::test]
async fn a_message_over_the_file_of_an_unread_one_is_delivered() {
    for (layout, same_process) in LAYOUTS.into_iter().flat_map(|layout| [(layout, true), (layout, false)]) {
        let world = World::in_memory(layout);
        let mut ben = world.agent("ben").await;
        overwrite(&world, "m1", "one");
        assert_eq!(announced(&ben).await, ["one"], "{layout}");
        overwrite(&world, "m2", "another one");
        if !same_process {
            ben = world.office().mailbox(name("ben"));
        }
        assert_eq!(unread(&ben).await, 1, "{layout}");
        // The first is gone.
        assert_eq!(announced(&ben).await, ["another one"], "{layout}");
        let claimed = ben.claim(ClaimRequest::default()).await.unwrap().remove(0);
        assert_eq!(claimed.text(), "another one", "{layout}");
        ben.ack(&[claimed.id]).await.unwrap();
        assert_eq!(read(&ben).await, ["another one"], "{layout}");
        assert_eq!(amb_dir::doctor::examine(&world.office(), false).await.unwrap(), [], "{layout}");
    }
}

#[tokio::test]
async fn a_message_over_the_file_of_a_read_one_is_new() {
    let world = World::in_memory(Layout::Chipset);
    let ben = world.agent("ben").await;
    overwrite(&world, "", "one");
    let first = ben.claim(ClaimRequest::default()).await.unwrap().remove(0).id;
    ben.ack(std::slice::from_ref(&first)).await.unwrap();
    overwrite(&world, "", "another one");
    let second = ben.claim(ClaimRequest::default()).await.unwrap().remove(0);
    assert_ne!(second.id, first);
    assert_eq!(read(&ben).await, ["another one"]);
    assert_eq!(unread(&ben).await, 0);
}

#[tokio::test]
async fn a_message_that_is_changed_in_place_is_shown_as_it_is_now() {
    for layout in LAYOUTS {
        let world = World::in_memory(layout);
        let ben = world.agent("ben").await;
        overwrite(&world, "m1", "one");
        assert_eq!(announced(&ben).await, ["one"], "{layout}");
        overwrite(&world, "m1", "one, corrected");
        assert_eq!(unread(&ben).await, 1, "{layout}");
        assert_eq!(read(&ben).await, ["one, corrected"], "{layout}");
        assert_eq!(unread(&ben).await, 0, "{layout}");
    }
}

#[tokio::test]
async fn a_file_whose_version_is_not_known_is_read_once() {
    for layout in LAYOUTS {
        let world = World::in_memory(layout);
        let ben = world.agent("ben").await;
        world.office().mailbox(name("ann")).send(text("ben", "hello")).await.unwrap();
        unread(&ben).await;
        let log = world.path().join(".amb/agents/ben/log");
        // As an earlier version wrote it.
        let mut line: serde_json::Value = serde_json::from_slice(&fs_err::read(&log).unwrap()).unwrap();
        assert!(line.as_object_mut().unwrap().remove("v").is_some(), "{layout}: {line}");
        fs_err::write(&log, format!("{line}\n")).unwrap();
        for _ in 0..2 {
            let ben = world.office().mailbox(name("ben"));
            assert_eq!(unread(&ben).await, 1, "{layout}");
            assert_eq!(unread(&ben).await, 1, "{layout}");
            let lines = fs_err::read_to_string(&log).unwrap();
            assert_eq!(lines.lines().count(), 2, "{layout}: {lines}");
        }
        let claimed = ben.claim(ClaimRequest::default()).await.unwrap().remove(0);
        ben.send(Draft::reply(&claimed, "yes")).await.unwrap();
    }
}
