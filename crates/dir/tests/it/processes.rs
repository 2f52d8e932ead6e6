//! Many processes at once, and processes that are killed.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use amb_core::Mailbox;
use amb_core::wire::nanobot;
use amb_core::wire::registry::Registry;
use amb_dir::Layout;

use crate::child::{Process, Role, counted};
use crate::world::{World, name, temps};

/// Returns the texts of all handled messages, from their files, each of which must parse.
fn handled_files(world: &World) -> Vec<String> {
    let files = world.files("inbox-agent/processed");
    let read = |file: String| {
        let bytes = fs_err::read(world.path().join("inbox-agent/processed").join(&file)).unwrap();
        nanobot::parse(&bytes, &file, amb_core::Timestamp::UNIX_EPOCH)
            .unwrap_or_else(|bad| panic!("{file}: {bad}"))
            .text()
    };
    files.into_iter().map(read).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_senders_and_two_consumers_handle_four_thousand_messages_exactly_once() {
    let world = World::new(Layout::Nanobot);
    world.agent("inbox-agent").await;
    let consumers: Vec<_> = (0..2).map(|_| Process::start(world.path(), world.layout, Role::Consume)).collect();
    let senders: Vec<_> =
        (0..8).map(|who| Process::start(world.path(), world.layout, Role::Send { who, count: 500 })).collect();
    let sent: Vec<String> = std::thread::scope(|scope| {
        let heard: Vec<_> = senders.into_iter().map(|sender| scope.spawn(|| sender.rest("sent"))).collect();
        heard.into_iter().flat_map(|heard| heard.join().unwrap()).collect()
    });
    assert_eq!(sent.len(), 4_000);
    let handled: Vec<Vec<String>> = std::thread::scope(|scope| {
        let heard: Vec<_> = consumers.into_iter().map(|consumer| scope.spawn(|| consumer.rest("handled"))).collect();
        heard.into_iter().map(|heard| heard.join().unwrap()).collect()
    });
    let counts = counted(handled.into_iter().flatten());
    assert_eq!(counts.len(), 4_000);
    assert!(counts.values().all(|count| *count == 1), "exactly once");
    assert_eq!(counted(handled_files(&world)), counts);
    assert_eq!(counts.keys().collect::<HashSet<_>>(), sent.iter().collect::<HashSet<_>>());
    assert!(world.files("inbox-agent/inbox").is_empty());
    assert_eq!(temps(world.path()), Vec::<std::path::PathBuf>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_accepted_before_a_kill_is_delivered_once() {
    let world = World::new(Layout::Nanobot);
    world.agent("inbox-agent").await;
    let (mut sent, mut handled) = (Vec::new(), Vec::new());
    // Two kills per round, each after a different number of results, so that it falls within the work.
    for round in 0..50 {
        let mut sender = Process::start(world.path(), world.layout, Role::Send { who: round % 3, count: 1_000 });
        let mut consumer = Process::start(world.path(), world.layout, Role::Consume);
        for _ in 0..1 + round % 7 {
            sent.extend(sender.hear("sent"));
        }
        // While the sender runs there is always mail to handle.
        if round % 4 != 0 {
            handled.extend(consumer.hear("handled"));
        }
        if round % 2 == 0 {
            sent.extend(sender.kill("sent"));
            handled.extend(consumer.kill("handled"));
        } else {
            handled.extend(consumer.kill("handled"));
            sent.extend(sender.hear("sent"));
            sent.extend(sender.kill("sent"));
        }
    }
    handled.extend(Process::start(world.path(), world.layout, Role::Consume).rest("handled"));
    assert!(world.files("inbox-agent/inbox").iter().all(|file| file.ends_with(".tmp")));
    assert!(world.files("inbox-agent/corrupt").is_empty(), "none is half-written");
    let files = counted(handled_files(&world));
    assert!(files.values().all(|count| *count == 1), "delivered once");
    assert!(!sent.is_empty());
    for text in &sent {
        assert!(files.contains_key(text), "{text} had its receipt and is lost");
    }
    assert!(counted(handled).values().all(|count| *count == 1), "handled once");

    // The doctor mends what the killed processes left.
    for temp in temps(world.path()) {
        let old = std::time::SystemTime::now() - std::time::Duration::from_secs(120);
        fs_err::OpenOptions::new().write(true).open(temp).unwrap().set_modified(old).unwrap();
    }
    amb_dir::doctor::examine(&world.office(), true).await.unwrap();
    assert_eq!(temps(world.path()), Vec::<std::path::PathBuf>::new());
    assert!(amb_dir::doctor::examine(&world.office(), false).await.unwrap().is_empty(), "and nothing else is wrong");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_registry_parses_at_every_read_while_four_processes_send_heartbeats() {
    let world = World::new(Layout::Nanobot);
    let watcher = world.agent("watcher").await;
    let done = AtomicBool::new(false);
    let reads = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0_u64;
            while !done.load(Ordering::Relaxed) {
                let bytes = fs_err::read(world.path().join("_registry.json")).unwrap();
                let registry = Registry::parse(&bytes).unwrap_or_else(|bad| panic!("after {reads} reads: {bad}"));
                assert!(registry.contains(&name("watcher")));
                reads += 1;
            }
            reads
        });
        let beaters: Vec<_> =
            (0..4).map(|who| Process::start(world.path(), world.layout, Role::Beat { who, count: 300 })).collect();
        for beater in beaters {
            assert_eq!(beater.rest("beaten"), ["all"]);
        }
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap()
    });
    assert!(reads > 0);
    let bytes = fs_err::read(world.path().join("_registry.json")).unwrap();
    let registry = Registry::parse(&bytes).unwrap();
    assert_eq!(registry.len(), 5, "it lists everyone");
    assert_eq!(watcher.agents().await.unwrap().len(), 5);
}
