//! Files and names that earlier nanobots wrote and this office does not.

use amb_core::mailbox::{ClaimRequest, TaskFilter};
use amb_core::{Callback, Code, Draft, Kind, Mailbox, Message, TaskState};
use amb_dir::doctor::{self, examine};
use amb_dir::{DirMailbox, DirOffice, DirOptions, Layout};
use serde_json::{Value, json};

use crate::world::{LAYOUTS, World, chipset_file, name, nanobot_file, text};

async fn taken(mailbox: &DirMailbox) -> Vec<Message> {
    mailbox.claim(ClaimRequest { limit: 100, ..ClaimRequest::default() }).await.unwrap()
}

async fn read(fields: Value) -> Message {
    let world = World::new(Layout::Nanobot);
    let (_coder, writer) = (world.agent("coder").await, world.agent("writer").await);
    world.drop_file("writer", "1745659200_coder.msg.json", nanobot_file("coder", "writer", fields));
    let mut messages = taken(&writer).await;
    assert!(world.files("writer/corrupt").is_empty(), "it went to corrupt/");
    messages.remove(0)
}

#[tokio::test]
async fn a_task_that_is_a_plain_string_is_read() {
    let named = read(json!({"type": "task", "task": "task_42"})).await.task.unwrap();
    assert_eq!((named.id.as_str(), named.state), ("task_42", TaskState::Pending));
    let described = read(json!({"type": "task", "id": "m1", "task": "write a sorting function"})).await.task.unwrap();
    assert_eq!((described.id.as_str(), described.state), ("m1", TaskState::Pending));
    assert_eq!(described.extra["description"], "write a sorting function");
    assert_eq!(read(json!({"type": "task", "id": "m1", "task": ""})).await.task.unwrap().id.as_str(), "m1");
}

#[tokio::test]
async fn a_string_task_of_another_type_is_kept_for_programs() {
    for kind in ["message", "task_result", "task_update"] {
        let message = read(json!({"type": kind, "task": "task_42"})).await;
        assert_eq!(message.kind.as_str(), kind);
        assert_eq!(message.task, None);
        assert_eq!(message.metadata["task"], "task_42", "{kind}");
    }
}

#[tokio::test]
async fn a_type_that_nobody_knows_is_a_label() {
    for (word, label) in
        [("task_result", "task_result"), ("task | message", "task_|_message"), ("é\u{202e}", "é_"), ("", "message")]
    {
        assert_eq!(read(json!({ "type": word })).await.kind.as_str(), label);
    }
    assert_eq!(read(json!({"type": 7})).await.kind, Kind::Message);
    assert_eq!(read(json!({"type": "x".repeat(1_000)})).await.kind.as_str().chars().count(), 64);
}

#[tokio::test]
async fn a_type_that_nobody_knows_is_a_label_in_the_chipset_too() {
    let world = World::new(Layout::Chipset);
    let ben = world.agent("ben").await;
    let types = [json!("something else!"), json!(7), json!("")];
    for (n, word) in types.iter().enumerate() {
        let file = format!("2026-03-05T10-30-0{n}Z-ann.json");
        world.drop_file("ben", &file, chipset_file("ann", "ben", json!({ "type": word })));
    }
    let kinds: Vec<_> = taken(&ben).await.into_iter().map(|message| message.kind.to_string()).collect();
    assert_eq!(kinds, ["something_else!", "message", "message"]);
    assert_eq!(examine(&world.office(), false).await.unwrap(), []);
}

#[tokio::test]
async fn an_agent_with_spaces_and_letters_of_any_script_is_read_and_answered() {
    for peer in ["代码 助手", "Zoë", "Zoe\u{308}", "हिन्दी", "code reviewer", "помощник-2"] {
        let world = World::new(Layout::Nanobot);
        let coder = world.agent("coder").await;
        let registry = world.path().join("_registry.json");
        let mut entries: Value = serde_json::from_slice(&fs_err::read(&registry).unwrap()).unwrap();
        let now = amb_core::Timestamp::now().to_string();
        entries[peer] = json!({"agent_id": peer, "status": "idle", "last_heartbeat": now, "allow_from": ["*"]});
        fs_err::write(&registry, entries.to_string()).unwrap();
        fs_err::create_dir_all(world.path().join(peer).join("inbox")).unwrap();
        let file = format!("1745659200123_{peer}_0a1b2c3d.msg.json");
        world.drop_file("coder", &file, nanobot_file(peer, "coder", json!({"trace": [peer]})));

        let message = taken(&coder).await.remove(0);
        assert_eq!((message.from.as_str(), message.trace.len()), (peer, 1));
        coder.send(Draft::reply(&message, "answer")).await.unwrap();
        let [answer] = <[String; 1]>::try_from(world.files(&format!("{peer}/inbox"))).unwrap();
        let answer = fs_err::read(world.path().join(peer).join("inbox").join(answer)).unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!((&answer["from"], &answer["to"]), (&json!("coder"), &json!(peer)));
        assert!(coder.agents().await.unwrap().iter().any(|agent| agent.name.as_str() == peer));
        coder.ack(&[message.id]).await.unwrap();
    }
}

#[tokio::test]
async fn an_agent_with_such_a_name_has_a_mailbox_of_ours_too() {
    let world = World::new(Layout::Nanobot);
    let (coder, helper) = (world.agent("coder").await, world.agent("代码 助手").await);
    coder.send(Draft::task(name("代码 助手"), "Sort", "sort it")).await.unwrap();
    let task = taken(&helper).await.remove(0);
    helper.set_task_state(&task.task.unwrap().id, TaskState::Completed, Some("sorted".into())).await.unwrap();
    let update = taken(&coder).await.remove(0);
    assert_eq!((update.from.as_str(), update.text().as_str()), ("代码 助手", "sorted"));
    helper.send(text("coder", "first")).await.unwrap();
    helper.send(text("coder", "second")).await.unwrap();
    let ids: Vec<_> = taken(&coder).await.into_iter().map(|message| message.id).collect();
    assert_eq!(ids.len(), 2);
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn names_that_differ_by_a_space_are_two_agents() {
    let world = World::new(Layout::Nanobot);
    let (spaced, dashed) = (world.agent("a b").await, world.agent("a-b").await);
    spaced.send(Draft::task(name("a-b"), "Sort", "sort it")).await.unwrap();
    let task = taken(&dashed).await.remove(0);
    assert_eq!((task.kind, task.from.as_str()), (Kind::Task, "a b"), "not the answer to a task of its own");
    let id = task.task.unwrap().id;
    dashed.set_task_state(&id, TaskState::Completed, Some("sorted".into())).await.unwrap();
    assert_eq!(taken(&spaced).await.remove(0).text(), "sorted");
    assert_eq!(spaced.task(&id).await.unwrap().state, TaskState::Completed);
}

#[tokio::test]
async fn an_answer_that_copies_its_task_ends_it() {
    let world = World::new(Layout::Nanobot);
    let coder = world.agent("coder").await;
    fs_err::create_dir_all(world.path().join("writer").join("inbox")).unwrap();
    let callback = Callback { channel: Some("feishu".into()), ..Callback::default() };
    let draft = Draft { callback: Some(callback.clone()), ..Draft::task(name("writer"), "Sort", "sort it") };
    let task = coder.send(draft).await.unwrap().task.unwrap();

    let copied = |from: &str| {
        let (now, task) = (amb_core::Timestamp::now().to_string(), json!({"id": task.id, "state": "pending"}));
        let fields = json!({"type": "task", "task": task, "callback": {"channel": "evil"}, "timestamp": now});
        nanobot_file(from, "coder", fields)
    };
    world.drop_file("coder", "1745659200123_writer_0a1b2c3d.msg.json", copied("writer"));
    let answer = taken(&coder).await.remove(0);
    assert_eq!((answer.kind, answer.task.unwrap().state), (Kind::TaskUpdate, TaskState::Completed));
    assert_eq!(answer.callback, Some(callback));
    assert_eq!(coder.tasks(TaskFilter { open: true, ..TaskFilter::default() }).await.unwrap(), []);

    world.drop_file("coder", "1745659200124_eve_0a1b2c3d.msg.json", copied("eve"));
    let forged = taken(&coder).await.remove(0);
    assert_eq!((forged.from.as_str(), forged.callback), ("eve", None), "nobody else can answer");
}

#[tokio::test]
async fn no_such_name_leads_out_of_the_directory() {
    let world = World::new(Layout::Nanobot);
    let coder = world.agent("coder").await;
    for bad in ["é/x", " x", "x ", "a  b", "a\u{202e}b", "a\u{200b}b", "a\tb", "é\0", "(you)", "a\u{3164}b"] {
        assert!(amb_core::AgentName::parse(bad).is_err(), "{bad:?}");
    }
    let error = coder.send(text("代码", "hello")).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
}

#[tokio::test]
async fn the_doctor_names_files_of_the_other_format() {
    let world = World::new(Layout::Nanobot);
    world.agent("coder").await;
    let inbox = world.inbox("coder");
    for file in ["task_7_from_boss_0a1b2c3d.json", "result_7_from_boss_0a1b2c3d.json", "bid_7_from_boss_0a1b2c3d.json"]
    {
        fs_err::write(inbox.join(file), "{}").unwrap();
    }
    fs_err::create_dir(world.path().join("_links")).unwrap();
    let findings = examine(&world.office(), false).await.unwrap();
    let named: Vec<_> = findings.iter().filter(|finding| finding.kind == doctor::FindingKind::OtherFormat).collect();
    assert_eq!(named.len(), 2, "{findings:?}");
    assert!(named.iter().any(|finding| finding.path == inbox && finding.detail.contains("3 files")));
    assert!(named.iter().all(|finding| finding.detail.contains("p2p/v1")));
    assert_eq!(world.files("coder/inbox").len(), 3, "nothing was moved");
}

#[tokio::test]
async fn a_sender_without_a_card_can_be_answered() {
    for layout in LAYOUTS {
        let world = World::new(layout);
        let ben = world.agent("ben").await;
        match layout {
            Layout::Nanobot => world.drop_file("ben", "1745659200_x.msg.json", nanobot_file("x", "ben", json!({}))),
            Layout::Chipset => {
                world.drop_file("ben", "2026-03-05T10-30-00Z-x.json", chipset_file("x", "ben", json!({})))
            }
        }
        world.office().mailbox(name("y")).send(text("ben", "and I?")).await.unwrap();
        let strict = DirOptions { strict_recipients: true, ..DirOptions::default() };
        let ben_strict = DirOffice::open(world.path(), strict).unwrap().mailbox(name("ben"));
        for message in ben.claim(ClaimRequest { limit: 9, ..ClaimRequest::default() }).await.unwrap() {
            let from = message.from.clone();
            let to_another = Draft { reply_to: Some(message.id.clone()), ..text("nobody", "hi") };
            assert_eq!(ben_strict.send(to_another).await.unwrap_err().code(), Code::NotFound, "{layout}");
            assert_eq!(
                ben_strict.send(text(from.as_str(), "hi")).await.unwrap_err().code(),
                Code::NotFound,
                "{layout}"
            );
            ben_strict.send(Draft { reply_to: Some(message.id), ..text(from.as_str(), "yes") }).await.unwrap();
            let came = world.office().mailbox(from).inbox(true).await.unwrap();
            assert_eq!(came.unread(), 1, "{layout}");
        }
    }
}
