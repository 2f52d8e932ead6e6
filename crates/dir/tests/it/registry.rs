//! `_registry.json` beside programs that read, change and replace it without a lock.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use amb_core::wire::registry::Registry;
use amb_core::{AllowFrom, Card, Code, Draft, Mailbox, Status, Timestamp};
use amb_dir::doctor;
use amb_dir::{DirOffice, DirOptions, Layout};
use serde_json::{Value, json};

use crate::child::{Process, Role};
use crate::world::{LAYOUTS, World, name, text, until};

/// nanobot's registry as described: no lock, whole file, rename. `beat` changes only an existing entry.
const NANOBOT: &str = r#"
import json, os, pathlib, sys, time
from datetime import datetime, timezone
path = pathlib.Path(sys.argv[1]) / "_registry.json"

def stamp():
    return datetime.now(timezone.utc).isoformat()

def change(edit):
    everybody = json.loads(path.read_text()) if path.exists() else {}
    edit(everybody)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(everybody, indent=2))
    os.rename(temporary, path)

def register(me):
    card = {"agent_id": me, "description": "in Python", "capabilities": [], "status": "idle", "allow_from": ["*"],
        "max_concurrent_tasks": 3, "current_tasks": [], "registered_at": stamp(), "last_heartbeat": stamp()}
    change(lambda everybody: everybody.update({me: card}))

def beat(me):
    change(lambda everybody: everybody.get(me, {}).update(last_heartbeat=stamp()))

verb, *rest = sys.argv[2:]
if verb == "register":
    for n in range(int(rest[1])):
        register(f"{rest[0]}-{n}")
elif verb == "beat":
    for n in range(int(rest[1])):
        beat(rest[0])
print("done")
"#;

/// Starts a program in Python; `None` without Python.
fn python(root: &Path, words: &[&str]) -> Option<Child> {
    let mut command = Command::new("python3");
    command.arg("-c").arg(NANOBOT).arg(root).args(words).stdout(Stdio::piped());
    command.spawn().inspect_err(|error| println!("skipped: no python3 here ({error})")).ok()
}

fn ended(child: Child) {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stdout == b"done\n", "{output:?}");
}

fn path(world: &World) -> PathBuf {
    world.path().join("_registry.json")
}

fn read(world: &World) -> Value {
    serde_json::from_slice(&fs_err::read(path(world)).unwrap()).unwrap()
}

fn write(world: &World, registry: &Value) {
    let temporary = path(world).with_extension("tmp");
    fs_err::write(&temporary, registry.to_string()).unwrap();
    fs_err::rename(temporary, path(world)).unwrap();
}

fn card(registered: Timestamp) -> Value {
    json!({ "agent_id": "x", "status": "idle", "registered_at": registered.to_string(), "last_heartbeat": registered.to_string() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_are_merged_while_another_program_keeps_rewriting_the_registry() {
    let world = World::new(Layout::Nanobot);
    let (ann, _dead) = (world.agent("ann").await, world.agent("dead").await);
    let old = SystemTime::now() - Duration::from_secs(31);
    let alive = world.path().join(".amb/agents/dead/alive.json");
    fs_err::OpenOptions::new().write(true).open(&alive).unwrap().set_modified(old).unwrap();
    let mut registry = read(&world);
    registry["dead"]["last_heartbeat"] = json!(Timestamp::try_from(old).unwrap().to_string());
    write(&world, &registry);
    let first = registry["ann"]["last_heartbeat"].clone();

    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let rewriting = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let mut registry = read(&world);
                registry["nanobot"] = card(Timestamp::now());
                write(&world, &registry);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let told = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                until("the registry tells who is alive and who is not", async || {
                    ann.heartbeat().await.unwrap();
                    let registry = read(&world);
                    registry["ann"]["last_heartbeat"] != first && registry["dead"]["status"] == "offline"
                })
                .await
            });
            true
        });
        done.store(true, Ordering::Relaxed);
        rewriting.join().unwrap();
        assert!(told);
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_name_is_lost_when_another_program_registers_two_hundred_beside_ours() {
    let world = World::new(Layout::Nanobot);
    let Some(python) = python(world.path(), &["register", "snake", "200"]) else { return };
    let done = AtomicBool::new(false);
    let ours = std::thread::scope(|scope| {
        let registering: Vec<_> = (0..3)
            .map(|who| {
                let (world, done, runtime) = (&world, &done, tokio::runtime::Handle::current());
                scope.spawn(move || {
                    let mut names = Vec::new();
                    while !done.load(Ordering::Relaxed) {
                        let name = format!("crab-{who}-{}", names.len());
                        runtime.block_on(async {
                            world.office().mailbox(name.parse().unwrap()).register(Card::default()).await.unwrap()
                        });
                        names.push(name);
                    }
                    names
                })
            })
            .collect();
        ended(python);
        done.store(true, Ordering::Relaxed);
        registering.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let registry = read(&world);
    let theirs = (0..200).map(|n| format!("snake-{n}"));
    let missing: Vec<_> = theirs.chain(ours).filter(|name| registry.get(name).is_none()).collect();
    assert_eq!(missing, Vec::<String>::new(), "of {}", registry.as_object().unwrap().len());
}

#[tokio::test]
async fn a_card_that_was_overwritten_is_restored_and_a_removed_one_is_not() {
    let world = World::new(Layout::Nanobot);
    let ann = world.agent("ann").await;
    let now = Timestamp::now();
    let mut registry = read(&world);
    registry["young"] = card(now);
    registry["old"] = card(now - Duration::from_secs(3_600));
    write(&world, &registry);
    // Leaving and coming back updates the registry at once.
    let sign_of_life = async || {
        ann.leave().await.unwrap();
        ann.heartbeat().await.unwrap();
    };
    sign_of_life().await;
    let young = read(&world)["young"].clone();
    write(&world, &json!({ "snake": card(now) }));
    sign_of_life().await;
    let registry = read(&world);
    let names: Vec<_> = registry.as_object().unwrap().keys().cloned().collect();
    assert_eq!(names, ["ann", "snake", "young"], "ours, the one that was there, and the one that was overwritten");
    assert_eq!(registry["young"], young);
    // A truncated file lost all entries; those that were seen are restored.
    fs_err::write(path(&world), "{\"sna").unwrap();
    sign_of_life().await;
    let names: Vec<_> = read(&world).as_object().unwrap().keys().cloned().collect();
    assert_eq!(names, ["ann", "snake", "young"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_programs_in_python_and_four_of_ours_share_a_registry_and_nobody_is_lost() {
    let world = World::new(Layout::Nanobot);
    let keeper = world.agent("keeper").await;
    for n in 0..4 {
        let Some(python) = python(world.path(), &["register", &format!("snake{n}"), "1"]) else { return };
        ended(python);
        // Seen by one of our updates.
        keeper.leave().await.unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0_u64;
            while !done.load(Ordering::Relaxed) {
                let bytes = fs_err::read(path(&world)).unwrap();
                Registry::parse(&bytes).unwrap_or_else(|bad| panic!("after {reads} reads: {bad}"));
                reads += 1;
            }
            reads
        });
        let theirs: Vec<_> =
            (0..4).filter_map(|n| python(world.path(), &["beat", &format!("snake{n}-0"), "300"])).collect();
        let ours: Vec<_> =
            (0..4).map(|who| Process::start(world.path(), world.layout, Role::Beat { who, count: 100 })).collect();
        for process in ours {
            assert_eq!(process.rest("beaten"), ["all"]);
        }
        theirs.into_iter().for_each(ended);
        done.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
    keeper.heartbeat().await.unwrap();
    let registry = read(&world);
    let mut expected = vec!["keeper".to_owned()];
    expected.extend((0..4).flat_map(|n| [format!("snake{n}-0"), format!("beater-{n}")]));
    expected.sort();
    let names: Vec<_> = registry.as_object().unwrap().keys().cloned().collect();
    assert_eq!(names, expected);
    assert_eq!(keeper.agents().await.unwrap().len(), 9);
    assert_eq!(keeper.agents().await.unwrap().iter().filter(|agent| agent.name == name("keeper")).count(), 1);
}

#[tokio::test]
async fn a_heartbeat_from_before_the_clock_was_set_back_does_not_freeze_the_registry() {
    let world = World::in_memory(Layout::Nanobot);
    let (ann, bob) = (world.agent("ann").await, world.agent("bob").await);
    // As left by processes whose clock was an hour ahead.
    let ahead = Timestamp::now() + Duration::from_secs(3_600);
    let path = world.path().join("_registry.json");
    let mut registry: Value = serde_json::from_slice(&fs_err::read(&path).unwrap()).unwrap();
    for agent in ["ann", "bob"] {
        registry[agent]["last_heartbeat"] = json!(ahead.to_string());
        let alive = world.path().join(format!(".amb/agents/{agent}/alive.json"));
        let file = fs_err::OpenOptions::new().write(true).open(alive).unwrap();
        file.set_modified(SystemTime::from(ahead)).unwrap();
    }
    fs_err::write(&path, registry.to_string()).unwrap();
    bob.heartbeat().await.unwrap();
    bob.leave().await.unwrap();
    bob.heartbeat().await.unwrap();
    let registry: Value = serde_json::from_slice(&fs_err::read(&path).unwrap()).unwrap();
    let heard: Timestamp = registry["bob"]["last_heartbeat"].as_str().unwrap().parse().unwrap();
    assert!(heard < ahead - Duration::from_secs(1_800), "{registry}");
    assert_eq!(registry["bob"]["status"], "idle");
    // Ann has sent no heartbeat since, so she is offline.
    let agents = ann.agents().await.unwrap();
    let status = |agent: &str| agents.iter().find(|entry| entry.name == name(agent)).unwrap().presence.status;
    assert_eq!((status("ann"), status("bob")), (amb_core::Status::Offline, amb_core::Status::Idle));
}

/// A name is its exact characters, as for a file; a look-alike is an error, and no second mailbox is created.
#[tokio::test]
async fn a_name_in_other_characters_that_look_the_same_is_nobody_else() {
    let (composed, decomposed) = ("Zo\u{eb} Bot", "Zoe\u{308} Bot");
    for layout in LAYOUTS {
        let world = World::new(layout);
        let (zoe, ann) = (world.agent(composed).await, world.agent("ann").await);
        let again = world.office().mailbox(name(decomposed)).register(Card::default()).await.unwrap_err();
        assert!(again.code() == Code::Conflict && again.detail().contains("look the same"), "{again:?}");
        let lost = ann.send(Draft::text(name(decomposed), "hello", "hello")).await.unwrap_err();
        assert!(lost.detail().contains("look the same"), "{lost:?}");
        assert!(!world.inbox(decomposed).exists());
        ann.send(Draft::text(name(composed), "hello", "hello")).await.unwrap();
        assert_eq!(zoe.inbox(true).await.unwrap().unread(), 1);
        zoe.register(Card::default()).await.unwrap();
    }
}

#[tokio::test]
async fn a_plain_name_that_looks_like_another_agents_is_refused() {
    for layout in LAYOUTS {
        let world = World::new(layout);
        let (_, ann) = (world.agent("\u{ff4e}2").await, world.agent("ann").await);
        let second = world.office().mailbox(name("n2")).register(Card::default()).await.unwrap_err();
        assert!(second.code() == Code::Conflict && second.detail().contains("U+FF4E"), "{second:?}");
        let lost = ann.send(Draft::text(name("n2"), "hello", "hello")).await.unwrap_err();
        assert!(lost.detail().contains("look the same"), "{lost:?}");
        assert!(!world.inbox("n2").exists());
        ann.register(Card::default()).await.unwrap();
    }
}

#[tokio::test]
async fn a_corrupt_card_admits_nobody_until_it_is_set_anew() {
    for (layout, corrupt) in LAYOUTS.into_iter().flat_map(|layout| [(layout, "x"), (layout, "{}"), (layout, "")]) {
        let world = World::new(layout);
        let (ann, ben) = (world.agent("ann").await, world.agent("ben").await);
        let card = Card { allow_from: AllowFrom(vec!["ann".into()]), ..Card::default() };
        let quz = world.agent_with("quz", card.clone()).await;
        ann.send(text("quz", "before")).await.unwrap();
        let path = world.path().join(".amb/agents/quz/card.json");
        fs_err::write(&path, corrupt).unwrap();
        if layout == Layout::Nanobot {
            assert_eq!(ben.send(text("quz", "hi")).await.unwrap_err().code(), Code::NotAllowed, "the registry has it");
            let findings = doctor::examine(&world.office(), true).await.unwrap();
            assert!(findings.iter().any(|found| found.path == path && found.mended), "{findings:?}");
            let mended: serde_json::Value = serde_json::from_slice(&fs_err::read(&path).unwrap()).unwrap();
            assert_eq!(mended["allow_from"], json!(["ann"]));
            fs_err::write(&path, corrupt).unwrap();
            fs_err::write(world.path().join("_registry.json"), "{}").unwrap();
        }
        for sender in [&ann, &ben] {
            let error = sender.send(text("quz", "hi")).await.unwrap_err();
            assert_eq!(error.code(), Code::Unavailable, "{layout}: {error}");
            assert!(error.detail().contains("amb register quz --allow-from"), "{layout}: {error}");
        }
        let findings = doctor::examine(&world.office(), true).await.unwrap();
        let found = findings.iter().find(|found| found.path == path).unwrap();
        assert!(!found.mended && found.remedy.contains("amb register quz --allow-from"), "{layout}: {found:?}");
        assert!(path.exists(), "{layout}: mending does not admit everybody");
        quz.register(card).await.unwrap();
        assert_eq!(ben.send(text("quz", "hi")).await.unwrap_err().code(), Code::NotAllowed, "{layout}");
        ann.send(text("quz", "after")).await.unwrap();
        assert_eq!(quz.inbox(true).await.unwrap().unread(), 2, "{layout}");
    }
}

#[tokio::test]
async fn an_agent_that_uses_a_mailbox_and_never_registered_is_present() {
    for layout in LAYOUTS {
        let world = World::in_memory(layout);
        let ann = world.agent("ann").await;
        let create = DirOptions { create_recipients: true, layout: Some(layout), ..DirOptions::default() };
        let creating = DirOffice::open(world.path(), create).unwrap().mailbox(name("ann"));
        creating.send(text("bob", "hello")).await.unwrap();
        let listed = async || {
            let agents = ann.agents().await.unwrap().into_iter().find(|agent| agent.name == name("bob"));
            agents.map(|agent| (agent.presence.status, agent.presence.last_seen.is_some()))
        };
        let before = (layout == Layout::Chipset).then_some((Status::Offline, false));
        assert_eq!(listed().await, before, "{layout}");
        let bob = world.office().mailbox(name("bob"));
        bob.heartbeat().await.unwrap();
        assert_eq!(listed().await, Some((Status::Idle, true)), "{layout}");
        bob.leave().await.unwrap();
        assert_eq!(listed().await, Some((Status::Offline, true)), "{layout}");
        let unknown = world.office().mailbox(name("carl"));
        assert_eq!(unknown.heartbeat().await.unwrap_err().code(), Code::NotFound, "{layout}");
        assert!(!world.path().join(".amb/agents/carl").exists(), "{layout}");
    }
}

#[tokio::test]
async fn a_heartbeat_here_counts_for_an_agent_whose_card_is_another_programs() {
    let world = World::in_memory(Layout::Nanobot);
    let ann = world.agent("ann").await;
    add_entry(&world, "bob", json!({"status": "idle", "last_heartbeat": "2026-04-26T10:00:00Z"}));
    fs_err::create_dir_all(world.inbox("bob")).unwrap();
    world.office().mailbox(name("bob")).heartbeat().await.unwrap();
    let bob = ann.agents().await.unwrap().into_iter().find(|agent| agent.name == name("bob")).unwrap();
    assert_eq!(bob.presence.status, Status::Idle);
}

/// Adds an entry to the registry, as another program does.
fn add_entry(world: &World, key: &str, entry: Value) {
    let path = world.path().join("_registry.json");
    let mut registry: Value = serde_json::from_slice(&fs_err::read(&path).unwrap()).unwrap();
    registry[key] = entry;
    fs_err::write(path, registry.to_string()).unwrap();
}

#[tokio::test]
async fn the_doctor_does_not_claim_to_mend_entries_of_other_programs() {
    let world = World::in_memory(Layout::Nanobot);
    world.agent("ann").await;
    let foreign = [("str", json!("text")), ("_meta", json!({"v": 1})), ("alpha", json!({"allow_from": "*"}))];
    for (key, entry) in foreign.clone() {
        add_entry(&world, key, entry);
    }
    add_entry(&world, "ann", json!({"allow_from": "*"}));
    for mend in [true, true, false] {
        let findings = doctor::examine(&world.office(), mend).await.unwrap();
        let open: Vec<_> = findings.iter().filter(|finding| !finding.mended).collect();
        assert_eq!(open.len(), 1, "{findings:?}");
        assert_eq!(open[0].kind, doctor::FindingKind::BrokenRegistry);
        assert!(foreign.iter().all(|(key, _)| open[0].detail.contains(key)), "{findings:?}");
        assert!(!open[0].detail.contains("ann"), "{findings:?}");
    }
    let registry: Value = serde_json::from_slice(&fs_err::read(world.path().join("_registry.json")).unwrap()).unwrap();
    assert!(foreign.iter().all(|(key, entry)| registry[key] == *entry), "{registry}");
    assert!(registry["ann"]["allow_from"].is_array(), "{registry}");
}

#[tokio::test]
async fn a_heartbeat_far_in_the_future_does_not_keep_an_agent_alive() {
    let world = World::in_memory(Layout::Nanobot);
    let ann = world.agent("ann").await;
    let soon = Timestamp::now().checked_add(jiff::SignedDuration::from_secs(20)).unwrap();
    add_entry(&world, "bob", json!({"status": "idle", "last_heartbeat": "2999-01-01T00:00:00Z"}));
    add_entry(&world, "cat", json!({"status": "idle", "last_heartbeat": soon.to_string()}));
    let agents = ann.agents().await.unwrap();
    let presence = |of: &str| agents.iter().find(|agent| agent.name == name(of)).unwrap().presence.clone();
    assert_eq!((presence("bob").status, presence("bob").last_seen), (Status::Offline, None));
    assert_eq!((presence("cat").status, presence("cat").last_seen), (Status::Idle, Some(soon)));
}
