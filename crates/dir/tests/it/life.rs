//! Presence, the log and the doctor.

use std::time::{Duration, SystemTime};

use amb_core::event::{Cursor, Event};
use amb_core::mailbox::{ClaimRequest, HistoryPage};
use amb_core::{AllowFrom, Card, Draft, Mailbox, SessionId, Status, TaskState, Timestamp};
use amb_dir::archive::{ArchiveOptions, archive};
use amb_dir::doctor::{self, FindingKind};
use amb_dir::{DirMailbox, Layout};
use serde_json::json;

use crate::world::{LAYOUTS, World, chipset_file, name, nanobot_file, text};

fn all() -> ClaimRequest {
    ClaimRequest { limit: 1_000, ..ClaimRequest::default() }
}

/// The texts of all new messages after a cursor.
async fn texts(mailbox: &DirMailbox, cursor: &Cursor) -> Vec<String> {
    let page = mailbox.events(Some(cursor.clone()), Duration::ZERO).await.unwrap();
    let text = |event| match event {
        Event::NewMessage(message) => Some(message.content),
        _ => None,
    };
    page.events.into_iter().filter_map(|entry| text(entry.event)).collect()
}

#[tokio::test]
async fn the_log_has_foreign_files_once_whatever_their_names_and_timestamps() {
    for layout in LAYOUTS {
        let world = World::new(layout);
        let bob = world.agent("bob").await;
        let start = bob.events(None, Duration::ZERO).await.unwrap().cursor;
        let file = |n: usize, stamp: &str| {
            let body = format!("m{n}");
            match layout {
                Layout::Nanobot => {
                    let content = json!({"parts": [{"type": "text", "text": body}]});
                    nanobot_file("x", "bob", json!({"id": body, "content": content, "timestamp": stamp}))
                }
                Layout::Chipset => chipset_file("x", "bob", json!({"body": body, "timestamp": stamp})),
            }
        };
        let ending = if layout == Layout::Nanobot { "msg.json" } else { "json" };
        world.drop_file("bob", &format!("zzz odd name.{ending}"), file(0, "2020-01-01T00:00:00Z"));
        let mut expected = vec!["m0"];
        assert_eq!(texts(&bob, &start).await, expected);
        // Timestamps earlier than those already logged, and equal to each other.
        world.drop_file("bob", &format!("1_x.{ending}"), file(1, "2019-01-01T00:00:00Z"));
        world.drop_file("bob", &format!("2_x.{ending}"), file(2, "2019-01-01T00:00:00Z"));
        expected.extend(["m1", "m2"]);
        let twin = world.office().mailbox(name("bob"));
        assert_eq!(texts(&twin, &start).await, expected, "another process sees the same log");
        let claimed = twin.claim(all()).await.unwrap();
        let ids: Vec<_> = claimed.into_iter().map(|message| message.id).collect();
        twin.ack(&ids).await.unwrap();
        assert_eq!(texts(&bob, &start).await, expected, "also what was handled meanwhile");
        // The same name again is another message.
        if layout == Layout::Nanobot {
            world.drop_file("bob", &format!("1_x.{ending}"), file(3, "2019-01-01T00:00:00Z"));
            expected.push("m3");
        }
        assert_eq!(texts(&bob, &start).await, expected);
        let strange = bob.events(Some(Cursor::new("7")), Duration::ZERO).await;
        assert!(strange.is_err(), "a cursor that is none of ours");
    }
}

#[tokio::test]
async fn a_message_acknowledged_before_the_log_was_read_is_still_an_event() {
    let world = World::new(Layout::Nanobot);
    let (ann, bob) = (world.agent("ann").await, world.agent("bob").await);
    let start = bob.events(None, Duration::ZERO).await.unwrap().cursor;
    ann.send(text("bob", "quick")).await.unwrap();
    let consumer = world.office().mailbox(name("bob"));
    let ids: Vec<_> = consumer.claim(all()).await.unwrap().into_iter().map(|message| message.id).collect();
    consumer.ack(&ids).await.unwrap();
    assert_eq!(texts(&bob, &start).await, ["quick"]);
    let page = ann.events(Some(0.into()), Duration::ZERO).await.unwrap();
    assert!(
        page.events
            .iter()
            .any(|entry| matches!(&entry.event, Event::Receipt { message_id, .. } if *message_id == ids[0]))
    );
}

#[tokio::test]
async fn an_overdue_task_is_one_event_for_each_side() {
    let world = World::new(Layout::Nanobot);
    let (ann, bob) = (world.agent("ann").await, world.agent("bob").await);
    let deadline = Timestamp::now() + Duration::from_millis(300);
    let (mine, theirs) = (
        ann.events(None, Duration::ZERO).await.unwrap().cursor,
        bob.events(None, Duration::ZERO).await.unwrap().cursor,
    );
    ann.send(Draft { deadline: Some(deadline), ..Draft::task(name("bob"), "Work", "soon") }).await.unwrap();
    let overdue = async |mailbox: &DirMailbox, cursor: Cursor| {
        let mut cursor = cursor;
        loop {
            let page = mailbox.events(Some(cursor), Duration::from_secs(30)).await.unwrap();
            assert!(!page.events.is_empty(), "never overdue");
            cursor = page.cursor;
            if page.events.iter().any(|entry| matches!(&entry.event, Event::TaskOverdue { task } if task.overdue)) {
                return cursor;
            }
        }
    };
    for (mailbox, cursor) in [(&ann, mine), (&bob, theirs)] {
        let end = overdue(mailbox, cursor).await;
        let after = mailbox.events(Some(end), Duration::ZERO).await.unwrap();
        assert!(after.events.is_empty(), "told once: {after:?}");
    }
}

#[tokio::test]
async fn handled_mail_is_sorted_into_months_and_stays_readable() {
    let world = World::new(Layout::Nanobot);
    let (ann, bob) = (world.agent("ann").await, world.agent("bob").await);
    let sent = ann.send(text("bob", "new")).await.unwrap();
    world.drop_file(
        "bob",
        "1745659200_ann.msg.json",
        nanobot_file("ann", "bob", json!({"subject": "Plan", "timestamp": "2025-04-26T09:20:00Z"})),
    );
    bob.read(&sent.session_id, HistoryPage::newest(10).unwrap()).await.unwrap();
    let report = archive(&world.office(), None, ArchiveOptions::default()).await.unwrap();
    assert_eq!(report.moved.len(), 1, "{report:?}");
    assert_eq!(world.files("bob/processed/2025-04"), ["1745659200_ann.msg.json"]);
    assert_eq!(world.files("bob/processed").len(), 1);
    let history = bob.read(&sent.session_id, HistoryPage::newest(10).unwrap()).await.unwrap();
    assert_eq!(history.messages.len(), 2);
}

#[tokio::test]
async fn mail_that_another_program_handled_is_in_the_history() {
    let world = World::new(Layout::Nanobot);
    let processed = world.path().join("bob/processed");
    fs_err::create_dir_all(&processed).unwrap();
    let message = |n: usize| nanobot_file("ann", "bob", json!({"id": format!("m{n}")}));
    fs_err::write(processed.join("1745659200_ann.msg.json"), message(0)).unwrap();
    let bob = world.agent("bob").await;
    let inbox = bob.inbox(false).await.unwrap();
    assert_eq!((inbox.sessions.len(), inbox.unread()), (1, 0), "what was there before us is found at the first look");
    fs_err::write(processed.join("1745659201_ann.msg.json"), message(1)).unwrap();
    let findings = doctor::examine(&world.office(), true).await.unwrap();
    assert!(findings.iter().any(|finding| finding.kind == FindingKind::NotIndexed), "{findings:?}");
    let session = SessionId::between(&name("ann"), &name("bob"), "(no subject)");
    let history = bob.read(&session, HistoryPage::newest(10).unwrap()).await.unwrap();
    assert_eq!(history.messages.len(), 2);
    assert!(history.messages.iter().all(|message| message.is_read));
}

#[tokio::test]
async fn the_doctor_finds_and_mends() {
    let world = World::new(Layout::Nanobot);
    let bob = world.agent("bob").await;
    assert_eq!(doctor::examine(&world.office(), false).await.unwrap(), []);
    let age = |path: &std::path::Path, seconds: u64| {
        let old = SystemTime::now() - Duration::from_secs(seconds);
        fs_err::OpenOptions::new().write(true).open(path).unwrap().set_modified(old).unwrap();
    };
    let inbox = world.inbox("bob");
    let (dead, live, foreign) = (inbox.join(".amb-1-dead.tmp"), inbox.join(".amb-1-live.tmp"), inbox.join("1_x.tmp"));
    for path in [&dead, &live, &foreign] {
        fs_err::write(path, "half a mess").unwrap();
        age(path, 3_600);
    }
    let writing = fs_err::File::open(&live).unwrap();
    writing.file().lock().unwrap();
    fs_err::write(inbox.join("1_x.msg.json"), "nonsense").unwrap();
    fs_err::create_dir_all(world.path().join("bob/corrupt")).unwrap();
    fs_err::write(world.path().join("bob/corrupt/2_x.msg.json"), nanobot_file("x", "bob", json!({}))).unwrap();
    fs_err::create_dir_all(world.path().join(".amb/agents/bob/leases")).unwrap();
    fs_err::write(world.path().join(".amb/agents/bob/leases/m.msg.json.0"), "2020-01-01T00:00:00Z").unwrap();
    fs_err::write(world.path().join("_registry.json"), "{\"bob\": ").unwrap();
    fs_err::write(world.path().join(".amb/agents/bob/known.json"), "{").unwrap();

    let kinds = |findings: &[doctor::Finding]| {
        let mut kinds: Vec<_> = findings.iter().map(|finding| format!("{:?}", finding.kind)).collect();
        kinds.sort();
        kinds
    };
    let expected =
        ["BrokenRegistry", "CorruptMessage", "MendedMessage", "SpoiltState", "StaleLease", "StrayTemp", "StrayTemp"];
    assert_eq!(kinds(&doctor::examine(&world.office(), false).await.unwrap()), expected);
    assert!(dead.exists(), "looking mends nothing");
    let mended = doctor::examine(&world.office(), true).await.unwrap();
    assert_eq!(kinds(&mended), expected);
    assert!(mended.iter().all(|finding| finding.mended));
    let left = doctor::examine(&world.office(), true).await.unwrap();
    assert_eq!(kinds(&left), ["CorruptAside"], "what was put aside is a person's to look at");
    assert!(!left[0].mended && left[0].detail.contains("1_x.msg.json"), "{left:?}");
    fs_err::remove_file(world.path().join("bob/corrupt/1_x.msg.json")).unwrap();
    assert_eq!(doctor::examine(&world.office(), false).await.unwrap(), [], "nothing is left");
    assert!(live.exists() && !dead.exists(), "a live writer's file stays");
    assert_eq!(bob.claim(all()).await.unwrap().len(), 1, "the mended message came back");
}

#[tokio::test]
async fn the_doctor_reports_refused_mail() {
    for layout in LAYOUTS {
        let world = World::new(layout);
        let card = Card { allow_from: amb_core::AllowFrom(vec!["ann".into()]), ..Card::default() };
        let bob = world.agent_with("bob", card).await;
        let (file, mail) = match layout {
            Layout::Nanobot => ("1745659200_x.msg.json", nanobot_file("x", "bob", json!({}))),
            Layout::Chipset => ("2026-03-05T10-30-00Z-x.json", chipset_file("x", "bob", json!({}))),
        };
        world.drop_file("bob", file, mail);
        assert_eq!(bob.inbox(true).await.unwrap().unread(), 0);
        for mend in [true, false] {
            let findings = doctor::examine(&world.office(), mend).await.unwrap();
            let [found] = findings.as_slice() else { panic!("{findings:?}") };
            assert_eq!((found.kind, found.mended), (FindingKind::RefusedAside, false));
            assert!(found.detail.contains(file) && found.remedy.contains("--allow-from"), "{found:?}");
        }
    }
}

#[tokio::test]
async fn the_offices_own_files_are_ignored_by_git() {
    let world = World::new(Layout::Chipset);
    let ann = world.agent("ann").await;
    ann.send(text("bob", "hi")).await.unwrap();
    let ignore = world.path().join(".amb/.gitignore");
    assert_eq!(fs_err::read_to_string(&ignore).unwrap(), "*\n");
    // An office of an earlier version has no such file.
    fs_err::remove_file(&ignore).unwrap();
    world.office();
    let git = |words: &[&str]| {
        let run = std::process::Command::new("git").current_dir(world.path()).args(words).output();
        run.map(|output| String::from_utf8(output.stdout).unwrap()).unwrap_or_default()
    };
    git(&["init", "--quiet"]);
    let status = git(&["status", "--short", "--untracked-files=all"]);
    assert!(!status.contains(".amb"), "{status}");
    assert_eq!(fs_err::read_to_string(&ignore).unwrap(), "*\n");
}

#[tokio::test]
async fn all_files_are_private_to_the_owner() {
    use std::os::unix::fs::PermissionsExt;
    for layout in LAYOUTS {
        let world = World::new(layout);
        let (ann, bob) = (world.agent("ann").await, world.agent("bob").await);
        ann.send(text("bob", "secret")).await.unwrap();
        let ids: Vec<_> = bob.claim(all()).await.unwrap().into_iter().map(|message| message.id).collect();
        bob.ack(&ids).await.unwrap();
        let mut directories = vec![world.path().to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in fs_err::read_dir(&directory).unwrap().flatten() {
                let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
                let is_dir = entry.file_type().unwrap().is_dir();
                assert_eq!(mode, if is_dir { 0o700 } else { 0o600 }, "{}", entry.path().display());
                if is_dir {
                    directories.push(entry.path());
                }
            }
        }
    }
}

#[tokio::test]
async fn registering_again_keeps_mail_that_the_old_card_admitted() {
    let world = World::new(Layout::Nanobot);
    let (ann, bob) = (world.agent("ann").await, world.agent("bob").await);
    let first = bob.agents().await.unwrap().into_iter().find(|agent| agent.name == name("bob")).unwrap();
    ann.send(text("bob", "in time")).await.unwrap();
    bob.register(Card { allow_from: amb_core::AllowFrom(vec![]), ..Card::default() }).await.unwrap();
    assert_eq!(bob.claim(all()).await.unwrap().len(), 1);
    assert!(ann.send(text("bob", "too late")).await.is_err());
    let now = bob.agents().await.unwrap().into_iter().find(|agent| agent.name == name("bob")).unwrap();
    assert_eq!(now.registered_at, first.registered_at);
}

#[tokio::test]
async fn an_agent_sees_nothing_of_tasks_that_were_rejected_in_its_name() {
    for layout in LAYOUTS {
        let world = World::new(layout);
        let ben = world.agent("ben").await;
        let only_ann = Card { allow_from: AllowFrom(vec!["ann".into()]), ..Card::default() };
        let quz = world.agent_with("quz", only_ann).await;
        let sent = ben.send(Draft::task(name("quz"), "Buy now", "cheap")).await.unwrap();
        assert_eq!(sent.task.unwrap().state, TaskState::Rejected);
        assert_eq!(quz.inbox(false).await.unwrap().sessions, [], "{layout}");
        let history = ben.read(&sent.session_id, HistoryPage::newest(9).unwrap()).await.unwrap();
        assert_eq!(history.messages.len(), 2, "{layout}: the sender has the task and why it was rejected");
        assert_eq!(quz.events(Some(0.into()), Duration::ZERO).await.unwrap().events, [], "{layout}: no receipt");
        // Their thread, once it is the agent's own.
        quz.send(Draft::text(name("ben"), "Buy now", "no, thanks")).await.unwrap();
        let history = quz.read(&sent.session_id, HistoryPage::newest(9).unwrap()).await.unwrap();
        assert_eq!(history.messages.len(), 1, "{layout}");
        assert_eq!(doctor::examine(&world.office(), false).await.unwrap(), [], "{layout}");
    }
}

#[tokio::test]
async fn an_agent_is_here_until_the_last_of_its_processes_leaves() {
    for layout in LAYOUTS {
        let world = World::new(layout);
        let first = world.agent("ann").await;
        let second = world.office().mailbox(name("ann"));
        let status = async || world.office().mailbox(name("x")).agents().await.unwrap()[0].presence.status;
        first.heartbeat().await.unwrap();
        second.heartbeat().await.unwrap();
        first.leave().await.unwrap();
        assert_eq!(status().await, Status::Idle, "{layout}: the second is here");
        second.leave().await.unwrap();
        assert_eq!(status().await, Status::Offline, "{layout}");
        first.heartbeat().await.unwrap();
        assert_eq!(status().await, Status::Idle, "{layout}");
        drop(first);
        second.leave().await.unwrap();
        assert_eq!(status().await, Status::Offline, "{layout}: the first died");
    }
}

#[tokio::test]
async fn acknowledging_what_one_holds_does_not_look_at_the_mail_that_waits() {
    for layout in LAYOUTS {
        let world = World::new(layout);
        let (ann, bob) = (world.agent("ann").await, world.agent("bob").await);
        ann.send(text("bob", "first")).await.unwrap();
        let held = bob.claim(all()).await.unwrap().remove(0).id;
        match layout {
            Layout::Nanobot => world.drop_file("bob", "1745659200_x.msg.json", nanobot_file("x", "bob", json!({}))),
            Layout::Chipset => {
                world.drop_file("bob", "2026-03-05T10-30-00Z-x.json", chipset_file("x", "bob", json!({})))
            }
        }
        assert_eq!(bob.ack(&[held.clone(), held.clone()]).await.unwrap(), 1, "{layout}");
        let log = fs_err::read_to_string(world.path().join(".amb/agents/bob/log")).unwrap();
        assert!(!log.contains("\"p\":\"x\""), "{layout}: {log}");
        assert_eq!(bob.ack(&[held]).await.unwrap(), 0, "{layout}");
        assert_eq!(bob.claim(all()).await.unwrap().len(), 1, "{layout}: the rest is found by the next look");
    }
}
