//! Concurrent processes on one mailbox, and clocks that are set back.

use std::time::Duration;

use amb_core::event::Event;
use amb_core::mailbox::{ClaimRequest, HistoryPage, TaskFilter};
use amb_core::{Draft, Mailbox, TaskState, Timestamp};
use amb_dir::{DirMailbox, Layout};
use serde_json::json;

use crate::agreement::{everybody_agrees, mail_files, told, unfinished};
use crate::verb::{Ended, Paused, Verb, run};
use crate::world::{LAYOUTS, World, chipset_file, name, nanobot_file, text};

fn all() -> ClaimRequest {
    ClaimRequest { limit: 100, ..ClaimRequest::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_acknowledgements_at_once_one_counts_and_one_receipt_is_sent() {
    for layout in LAYOUTS {
        let world = World::in_memory(layout);
        let ann = world.agent("ann").await;
        world.agent("bob").await;
        for n in 0..40 {
            let id = ann.send(text("bob", &n.to_string())).await.unwrap().message_id;
            let (one, two) = (world.office().mailbox(name("bob")), world.office().mailbox(name("bob")));
            let ids = [id];
            let (one, two) = tokio::join!(one.ack(&ids), two.ack(&ids));
            assert_eq!(one.unwrap() + two.unwrap(), 1, "{layout}: {n}");
        }
        everybody_agrees(&world, &["ann", "bob"], "two acknowledgements").await;
    }
}

/// Bob acknowledges in a process that is killed right after the mark, while another one has started and marks nothing.
#[tokio::test]
async fn a_receipt_of_a_killed_acknowledgement_is_not_lost_to_a_live_one_that_marks_nothing() {
    for layout in LAYOUTS {
        let prepare = async || {
            let world = World::in_memory(layout);
            let ann = world.agent("ann").await;
            world.agent("bob").await;
            let id = ann.send(text("bob", "hello")).await.unwrap().message_id;
            (world, Verb::Ack(vec![id]))
        };
        let mut tried = false;
        for step in 1.. {
            let (world, ack) = prepare().await;
            let Some(slow) = Paused::at(step, world.path(), layout, "bob", &ack) else { break };
            // Before its journal entry it has no part; after the mark it is the one that counts.
            if unfinished(&world).is_empty() {
                continue;
            }
            let is_read = || mail_files(&world, "bob")[0].read;
            let killed = (1..).find(|kill| {
                let ended = run(world.path(), layout, "bob", &ack, Some(*kill));
                ended != Ended::Killed || is_read()
            });
            assert!(is_read(), "{layout}: killed at {killed:?}");
            run(world.path(), layout, "ann", &Verb::Inbox, None);
            assert_eq!(slow.resume(), Ended::Answered(json!(0)), "{layout}");
            everybody_agrees(&world, &["ann", "bob"], "a killed acknowledgement beside a live one").await;
            tried = true;
            break;
        }
        assert!(tried, "{layout}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_slow_ingest_beside_a_quick_consumer_logs_no_message_twice() {
    for layout in LAYOUTS {
        let world = World::in_memory(layout);
        let ann = world.agent("ann").await;
        world.agent("bob").await;
        let looking = |mailbox: DirMailbox| {
            tokio::spawn(async move {
                for _ in 0..150 {
                    mailbox.inbox(false).await.unwrap();
                }
            })
        };
        let taking = |mailbox: DirMailbox| {
            tokio::spawn(async move {
                for _ in 0..150 {
                    for message in mailbox.claim(all()).await.unwrap() {
                        mailbox.ack(&[message.id]).await.unwrap();
                    }
                }
            })
        };
        let bob = || world.office().mailbox(name("bob"));
        let others = [looking(bob()), looking(bob()), taking(bob()), taking(bob())];
        for n in 0..100 {
            ann.send(text("bob", &n.to_string())).await.unwrap();
        }
        for other in others {
            other.await.unwrap();
        }
        everybody_agrees(&world, &["ann", "bob"], "a look beside a consumer").await;
    }
}

#[tokio::test]
async fn a_message_archived_unread_has_one_receipt_when_it_is_read() {
    let world = World::in_memory(Layout::Chipset);
    let (ann, bob) = (world.agent("ann").await, world.agent("bob").await);
    let sent = ann.send(text("bob", "old")).await.unwrap();
    let options = amb_dir::archive::ArchiveOptions { older_than: Duration::ZERO, ..Default::default() };
    assert_eq!(amb_dir::archive::archive(&world.office(), None, options).await.unwrap().moved.len(), 1);
    assert_eq!(bob.ack(&[sent.message_id]).await.unwrap(), 1);
    let receipts = told(&ann).await.into_iter().filter(|event| matches!(event, Event::Receipt { .. })).count();
    assert_eq!(receipts, 1);
}

#[tokio::test]
async fn a_task_that_has_ended_is_not_handed_out_again() {
    for layout in LAYOUTS {
        for state in [TaskState::Completed, TaskState::Failed, TaskState::Rejected] {
            let world = World::in_memory(layout);
            let (ann, bob) = (world.agent("ann").await, world.agent("bob").await);
            let sent = ann.send(Draft::task(name("bob"), "Work", "do it")).await.unwrap();
            bob.set_task_state(&sent.task.unwrap().id, state, None).await.unwrap();
            let consumer = world.office().mailbox(name("bob"));
            assert!(consumer.claim(all()).await.unwrap().is_empty(), "{layout}: {state}");
            assert_eq!(consumer.inbox(true).await.unwrap().unread(), 0, "{layout}: {state}");
            assert_eq!(consumer.ack(&[sent.message_id]).await.unwrap(), 0, "{layout}: {state}");
            everybody_agrees(&world, &["ann", "bob"], "a task that has ended").await;
        }
    }
}

#[tokio::test]
async fn a_task_given_and_a_task_taken_under_one_id_are_two() {
    for layout in LAYOUTS {
        let world = World::in_memory(layout);
        let (ann, bob) = (world.agent("ann").await, world.agent("bob").await);
        for (from, to) in [("ann", "bob"), ("bob", "ann")] {
            let task = json!({"id": "t1", "state": "pending"});
            match layout {
                Layout::Nanobot => {
                    let fields = json!({"id": format!("m-{from}"), "type": "task", "task": task});
                    world.drop_file(to, &format!("1772706600123_{from}.msg.json"), nanobot_file(from, to, fields));
                }
                Layout::Chipset => {
                    let fields = json!({"type": "task", "amb": {"task": task}});
                    let file = format!("2026-03-05T10-30-00.123456Z-{from}.json");
                    world.drop_file(to, &file, chipset_file(from, to, fields));
                }
            }
        }
        ann.inbox(false).await.unwrap();
        bob.inbox(false).await.unwrap();
        for mailbox in [&ann, &bob] {
            for (owned, count) in [(None, 2), (Some(true), 1), (Some(false), 1)] {
                let tasks = mailbox.tasks(TaskFilter { owned, ..TaskFilter::default() }).await.unwrap();
                assert_eq!(tasks.len(), count, "{layout}: {owned:?}: {tasks:?}");
            }
        }
        let mine = ann.send(Draft::task(name("ann"), "Work", "for myself")).await.unwrap().task.unwrap().id;
        let tasks = ann.tasks(TaskFilter::default()).await.unwrap();
        assert_eq!(tasks.iter().filter(|task| task.id == mine).count(), 1, "{layout}: one's own task is one");
    }
}

#[tokio::test]
async fn mail_stays_in_order_when_the_clock_is_set_back() {
    for layout in LAYOUTS {
        let world = World::in_memory(layout);
        let (ann, bob) = (world.agent("ann").await, world.agent("bob").await);
        let first = ann.send(text("bob", "0")).await.unwrap();
        // As left by a process that sent before the clock was set back by an hour.
        let ahead = Timestamp::now() + Duration::from_secs(3_600);
        fs_err::write(world.path().join(".amb/clock"), format!("{:020}\n", ahead.as_microsecond())).unwrap();
        for n in 1..4 {
            let sent = world.office().mailbox(name("ann")).send(text("bob", &n.to_string())).await.unwrap();
            assert!(sent.created_at > ahead, "{layout}");
        }
        let task = ann.send(Draft::task(name("bob"), "Plan", "4")).await.unwrap().task.unwrap().id;
        for state in [TaskState::Accepted, TaskState::Working, TaskState::Completed] {
            world.office().mailbox(name("bob")).set_task_state(&task, state, None).await.unwrap();
        }
        let updates: Vec<TaskState> =
            ann.claim(all()).await.unwrap().into_iter().filter_map(|update| Some(update.task?.state)).collect();
        assert_eq!(updates, [TaskState::Accepted, TaskState::Working, TaskState::Completed], "{layout}");
        let claimed = bob.claim(all()).await.unwrap();
        let texts: Vec<_> = claimed.iter().map(|message| message.text()).collect();
        assert_eq!(texts, ["0", "1", "2", "3"], "{layout}");
        let history = bob.read(&first.session_id, HistoryPage::newest(10).unwrap()).await.unwrap();
        let mail: Vec<_> = history.messages.iter().rev().map(|message| message.content.clone()).collect();
        assert_eq!(mail[..4], ["0", "1", "2", "3"], "{layout}");
        // A timestamp that is years ahead is ignored.
        let wrong = Timestamp::now() + Duration::from_secs(3 * 365 * 86_400);
        fs_err::write(world.path().join(".amb/clock"), format!("{:020}\n", wrong.as_microsecond())).unwrap();
        let sent = world.office().mailbox(name("ann")).send(text("bob", "now")).await.unwrap();
        assert!(sent.created_at < ahead, "{layout}");
    }
}

#[tokio::test]
async fn the_doctor_finds_temporary_files_wherever_a_writer_may_die() {
    for layout in LAYOUTS {
        let world = World::in_memory(layout);
        let (ann, bob) = (world.agent("ann").await, world.agent("bob").await);
        ann.send(text("bob", "hello")).await.unwrap();
        let claimed = bob.claim(all()).await.unwrap();
        bob.ack(&[claimed[0].id.clone()]).await.unwrap();
        let away = if layout == Layout::Nanobot { "bob/processed" } else { "bob/archive" };
        let folders = [away, &format!("{away}/2026-03"), "bob/refused", "bob/corrupt", ".amb/unfinished", ".amb"];
        for folder in folders {
            fs_err::create_dir_all(world.path().join(folder)).unwrap();
            let temp = world.path().join(folder).join(".amb-1-dead.tmp");
            fs_err::write(&temp, "half").unwrap();
            let old = std::time::SystemTime::now() - Duration::from_secs(120);
            fs_err::OpenOptions::new().write(true).open(&temp).unwrap().set_modified(old).unwrap();
        }
        let found = amb_dir::doctor::examine(&world.office(), true).await.unwrap();
        assert_eq!(found.len(), folders.len(), "{layout}: {found:#?}");
        assert_eq!(crate::world::temps(world.path()), Vec::<std::path::PathBuf>::new());
    }
}

#[tokio::test]
async fn a_keyed_message_that_its_reader_removed_is_not_sent_again() {
    for layout in LAYOUTS {
        let draft = Draft { idempotency_key: Some("k".into()), ..text("bob", "hello") };
        let send = Verb::Send(Box::new(draft));
        let (mut first, mut is_over) = (None, false);
        for step in 1.. {
            let world = World::in_memory(layout);
            world.agent("ann").await;
            let bob = world.agent("bob").await;
            is_over |= run(world.path(), layout, "ann", &send, Some(step)) != Ended::Killed;
            let claimed = bob.claim(all()).await.unwrap();
            if !claimed.is_empty() {
                first.get_or_insert(step);
                // As a program that deletes what it has read.
                for mail in world.files(if layout == Layout::Nanobot { "bob/inbox" } else { "bob" }) {
                    fs_err::remove_file(world.inbox("bob").join(mail)).unwrap();
                }
                let Ended::Answered(sent) = run(world.path(), layout, "ann", &send, None) else { panic!("{layout}") };
                assert_eq!(sent["message_id"], json!(claimed[0].id), "{layout}: {step}");
                assert!(bob.claim(all()).await.unwrap().is_empty(), "{layout}: {step}: it came again");
            }
            if is_over {
                break;
            }
        }
        assert!(first.is_some(), "{layout}");
    }
}

#[tokio::test]
async fn the_first_message_in_a_directory_keeps_its_place_when_the_clock_is_set_back() {
    let world = World::in_memory(Layout::Chipset);
    let ann = world.office().mailbox(name("ann"));
    let sent = ann.send(text("bob", "the first")).await.unwrap();
    let noted = fs_err::read_to_string(world.path().join(".amb/clock")).unwrap();
    assert_eq!(noted.trim().parse::<i64>().unwrap(), sent.created_at.as_microsecond());
}

#[tokio::test]
async fn watching_an_unknown_name_creates_nothing_and_sees_its_first_mail() {
    for layout in LAYOUTS {
        let world = World::in_memory(layout);
        let ann = world.agent("ann").await;
        let bem = world.office().mailbox(name("bem"));
        let cursor = bem.events(None, Duration::ZERO).await.unwrap().cursor;
        let page = bem.events(Some(cursor.clone()), Duration::from_millis(20)).await.unwrap();
        assert!(page.events.is_empty());
        assert!(!world.path().join("bem").exists() && !world.path().join(".amb/agents/bem").exists(), "{layout}");
        let waiting = tokio::spawn(async move { bem.events(Some(cursor), crate::world::PATIENCE).await });
        world.agent("bem").await;
        ann.send(text("bem", "hello")).await.unwrap();
        assert_eq!(waiting.await.unwrap().unwrap().events.len(), 1, "{layout}");
    }
}
