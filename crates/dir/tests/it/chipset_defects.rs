//! One test for each defect in the chipset's description of its mail.

use std::time::Duration;

use amb_core::mailbox::{ClaimRequest, HistoryPage};
use amb_core::{Draft, Mailbox, Priority, SessionId};
use amb_dir::Layout;
use amb_dir::archive::{ArchiveOptions, archive};
use serde_json::json;

use crate::world::{World, chipset_file, name, temps, text};

fn all() -> ClaimRequest {
    ClaimRequest { limit: 1_000, ..ClaimRequest::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_senders_do_not_clobber_each_others_temporary_file() {
    let world = World::new(Layout::Chipset);
    let senders: Vec<_> = (0..4).map(|n| world.office().mailbox(name(&format!("sender-{n}")))).collect();
    let running = senders.into_iter().map(|sender| {
        tokio::spawn(async move {
            for n in 0..25 {
                sender.send(text("mayor", &format!("{n}"))).await.unwrap();
            }
        })
    });
    for sender in running.collect::<Vec<_>>() {
        sender.await.unwrap();
    }
    assert_eq!(world.office().mailbox(name("mayor")).claim(all()).await.unwrap().len(), 100);
    assert!(temps(world.path()).is_empty());
}

#[tokio::test]
async fn a_second_message_in_the_same_second_is_kept() {
    let world = World::new(Layout::Chipset);
    let mayor = world.agent("mayor").await;
    let witness = world.office().mailbox(name("witness"));
    let mut ids = std::collections::HashSet::new();
    for n in 0..50 {
        ids.insert(witness.send(text("mayor", &format!("{n}"))).await.unwrap().message_id);
    }
    assert_eq!((ids.len(), mayor.claim(all()).await.unwrap().len()), (50, 50));
}

#[tokio::test]
async fn mail_older_than_a_day_by_its_name_is_archived_and_the_rest_stays() {
    let world = World::new(Layout::Chipset);
    let mayor = world.agent("mayor").await;
    world.office().mailbox(name("witness")).send(text("mayor", "new")).await.unwrap();
    for (file, read) in
        [("2026-03-05T10-30-00Z-polecat-alpha.json", true), ("2026-03-05T10-30-00.123Z-polecat-alpha.json", false)]
    {
        world.drop_file("mayor", file, chipset_file("polecat-alpha", "mayor", json!({"read": read})));
    }
    let office = world.office();
    let dry = ArchiveOptions { dry_run: true, ..ArchiveOptions::default() };
    assert_eq!(archive(&office, None, dry).await.unwrap().moved.len(), 2);
    assert_eq!(world.files("mayor").len(), 3, "a dry run moves nothing");
    let keep = ArchiveOptions { keep_unread: true, ..ArchiveOptions::default() };
    let report = archive(&office, Some(&name("mayor")), keep).await.unwrap();
    assert_eq!((report.moved.len(), report.kept_unread), (1, 1));
    assert_eq!(archive(&office, None, ArchiveOptions::default()).await.unwrap().moved.len(), 1);
    assert_eq!(world.files("mayor").len(), 1);
    assert_eq!(world.files("mayor/archive").len(), 2);
    let everything = ArchiveOptions { older_than: Duration::ZERO, ..ArchiveOptions::default() };
    assert_eq!(archive(&office, None, everything).await.unwrap().moved.len(), 1);
    let session = SessionId::between(&name("polecat-alpha"), &name("mayor"), "Sync");
    let history = mayor.read(&session, HistoryPage::newest(10).unwrap()).await.unwrap();
    assert_eq!(history.messages.len(), 2, "archived mail is still in its thread");
}

#[tokio::test]
async fn mail_that_was_archived_unread_can_be_acknowledged_there_and_does_not_come_back() {
    let world = World::new(Layout::Chipset);
    let mayor = world.agent("mayor").await;
    let file = "2026-03-05T10-30-00Z-witness.json";
    world.drop_file("mayor", file, chipset_file("witness", "mayor", json!({"odd": {"b": [1], "a": 2}})));
    let message = mayor.claim(all()).await.unwrap().remove(0);
    assert_eq!(message.id.as_str(), "2026-03-05T10-30-00Z-witness", "the name of the file is what ack takes");
    let busy = archive(&world.office(), None, ArchiveOptions::default()).await.unwrap();
    assert_eq!((busy.moved.len(), busy.kept_claimed), (0, 1), "what a consumer holds stays");
    mayor.release(std::slice::from_ref(&message.id)).await.unwrap();
    assert_eq!(archive(&world.office(), None, ArchiveOptions::default()).await.unwrap().moved.len(), 1);
    assert_eq!(mayor.ack(std::slice::from_ref(&message.id)).await.unwrap(), 1);
    assert_eq!(mayor.ack(std::slice::from_ref(&message.id)).await.unwrap(), 0);
    assert!(world.files("mayor").is_empty(), "it was not resurrected");
    let bytes = fs_err::read(world.path().join("mayor/archive").join(file)).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!((&value["read"], &value["odd"]), (&json!(true), &json!({"b": [1], "a": 2})), "and nothing else changed");
    let keys: Vec<_> =
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).filter(|l| l.starts_with("  \"")).collect();
    assert!(keys.is_sorted(), "keys are sorted: {keys:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn marking_never_loses_to_a_concurrent_archive() {
    let world = World::new(Layout::Chipset);
    let mayor = world.agent("mayor").await;
    let count = 60;
    for n in 0..count {
        let file = format!("2026-03-05T10-30-{n:02}Z-witness.json");
        world.drop_file("mayor", &file, chipset_file("witness", "mayor", json!({"body": format!("{n}")})));
    }
    let ids: Vec<_> = mayor.claim(all()).await.unwrap().into_iter().map(|m| m.id).collect();
    mayor.release(&ids).await.unwrap();
    let root = world.path().to_owned();
    // The chipset's own archiver, which takes no locks.
    let archiver = std::thread::spawn(move || {
        fs_err::create_dir_all(root.join("mayor/archive")).unwrap();
        for n in 0..count {
            let file = format!("2026-03-05T10-30-{n:02}Z-witness.json");
            fs_err::rename(root.join("mayor").join(&file), root.join("mayor/archive").join(&file)).unwrap();
            std::thread::yield_now();
        }
    });
    for id in &ids {
        mayor.ack(std::slice::from_ref(id)).await.unwrap();
    }
    archiver.join().unwrap();
    // One may have been moved between the read and the write that marks it; a second acknowledgement finds it.
    mayor.ack(&ids).await.unwrap();
    assert!(world.files("mayor").is_empty(), "nothing was resurrected");
    let archived = world.files("mayor/archive");
    assert_eq!(archived.len(), count);
    for file in archived {
        let bytes = fs_err::read(world.path().join("mayor/archive").join(&file)).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(value["read"], json!(true), "{file}");
    }
}

#[tokio::test]
async fn mail_is_read_by_parsed_time_not_by_text() {
    let world = World::new(Layout::Chipset);
    let mayor = world.agent("mayor").await;
    for (file, at, body) in [
        ("2026-03-05T10-30-00.123Z-a.json", "2026-03-05T10:30:00.123Z", "second"),
        ("2026-03-05T10-30-00Z-a.json", "2026-03-05T10:30:00Z", "first"),
        ("2026-03-05T12-30-01+02-00-a.json", "2026-03-05T12:30:01+02:00", "third"),
    ] {
        world.drop_file("mayor", file, chipset_file("a", "mayor", json!({"timestamp": at, "body": body})));
    }
    let texts: Vec<_> = mayor.claim(all()).await.unwrap().iter().map(|m| m.text()).collect();
    assert_eq!(texts, ["first", "second", "third"]);
}

#[tokio::test]
async fn urgent_mail_comes_first_on_request() {
    let world = World::new(Layout::Chipset);
    let mayor = world.agent("mayor").await;
    for (n, priority) in ["normal", "low", "urgent"].into_iter().enumerate() {
        let file = format!("2026-03-05T10-30-0{n}Z-a.json");
        world.drop_file("mayor", &file, chipset_file("a", "mayor", json!({"priority": priority})));
    }
    let urgent = ClaimRequest { urgent_first: true, ..all() };
    let order: Vec<_> = mayor.claim(urgent).await.unwrap().iter().map(|m| m.priority).collect();
    assert_eq!(order, [Priority::Urgent, Priority::Normal, Priority::Low]);
}

#[tokio::test]
async fn corrupt_mail_is_skipped_and_left_in_place() {
    let world = World::new(Layout::Chipset);
    let mayor = world.agent("mayor").await;
    world.drop_file("mayor", "2026-03-05T10-30-00Z-a.json", "{not json");
    world.drop_file("mayor", "2026-03-05T10-30-01Z-a.json", chipset_file("a", "mayor", json!({})));
    for _ in 0..2 {
        let claimed = mayor.claim(all()).await.unwrap();
        mayor.release(&claimed.iter().map(|m| m.id.clone()).collect::<Vec<_>>()).await.unwrap();
        assert_eq!(claimed.len(), 1);
    }
    assert_eq!(world.files("mayor").len(), 2);
    world.drop_file("mayor", "2026-03-05T10-30-00Z-a.json", chipset_file("a", "mayor", json!({})));
    assert_eq!(mayor.claim(all()).await.unwrap().len(), 2, "mended in place, it is mail");
}

#[tokio::test]
async fn a_mailbox_appears_on_first_send_and_its_agent_need_not_be_registered() {
    let world = World::new(Layout::Chipset);
    let mayor = world.office().mailbox(name("mayor"));
    mayor.send(Draft { kind: "work_assignment".parse().unwrap(), ..text("polecat", "bead gt-abc12") }).await.unwrap();
    let polecat = world.office().mailbox(name("polecat"));
    let inbox = polecat.inbox(true).await.unwrap();
    assert_eq!(inbox.sessions[0].recent_messages[0].kind.as_str(), "work_assignment");
    assert_eq!(world.files("polecat").len(), 1);
    let agents = mayor.agents().await.unwrap();
    assert!(agents.iter().any(|agent| agent.name == name("polecat")));
}

#[tokio::test]
async fn mail_that_another_program_marked_as_read_is_read() {
    let world = World::new(Layout::Chipset);
    let mayor = world.agent("mayor").await;
    let file = "2026-03-05T10-30-00Z-a.json";
    world.drop_file("mayor", file, chipset_file("a", "mayor", json!({})));
    assert_eq!(mayor.inbox(true).await.unwrap().unread(), 1);
    world.drop_file("mayor", file, chipset_file("a", "mayor", json!({"read": true})));
    assert_eq!(mayor.inbox(true).await.unwrap().unread(), 0);
    assert!(mayor.claim(all()).await.unwrap().is_empty());
    world.drop_file("mayor", file, chipset_file("a", "mayor", json!({"body": "another message under the same name"})));
    assert_eq!(mayor.claim(all()).await.unwrap()[0].text(), "another message under the same name");
}
