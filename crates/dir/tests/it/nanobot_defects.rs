//! One test for each defect of nanobot's earlier mailbox.

use amb_core::mailbox::{ClaimRequest, HistoryPage};
use amb_core::{AllowFrom, Card, Code, Draft, Kind, Mailbox, TaskState};
use amb_dir::Layout;
use serde_json::json;

use crate::world::{World, name, nanobot_file, text};

fn all() -> ClaimRequest {
    ClaimRequest { limit: 100, ..ClaimRequest::default() }
}

#[tokio::test]
async fn a_natural_reply_to_a_peer_arrives() {
    let world = World::new(Layout::Nanobot);
    let (coder, writer) = (world.agent("coder").await, world.agent("writer").await);
    coder.send(text("writer", "question")).await.unwrap();
    let question = writer.claim(all()).await.unwrap().remove(0);
    writer.send(Draft::reply(&question, "answer")).await.unwrap();
    let answer = coder.claim(all()).await.unwrap().remove(0);
    assert_eq!((answer.text().as_str(), answer.reply_to), ("answer", Some(question.id)));
}

#[tokio::test]
async fn a_message_without_ttl_and_trace_can_be_answered() {
    let world = World::new(Layout::Nanobot);
    let (_coder, writer) = (world.agent("coder").await, world.agent("writer").await);
    let bare = nanobot_file("coder", "writer", json!({"ttl": null, "trace": null, "id": null, "timestamp": null}));
    world.drop_file("writer", "1745659200_coder.msg.json", bare);
    let message = writer.claim(all()).await.unwrap().remove(0);
    assert_eq!((message.ttl, message.id.as_str()), (2, "msg_1745659200_coder"));
    assert!(writer.send(Draft::reply(&message, "answer")).await.is_ok());
}

#[tokio::test]
async fn a_malformed_file_stops_nothing_and_goes_to_corrupt() {
    let world = World::new(Layout::Nanobot);
    let (coder, writer) = (world.agent("coder").await, world.agent("writer").await);
    for (at, bad) in
        ["[1, 2]", "null", "\"text\"", "{\"from\": 7}", "{} {}", "\u{fffd}\0", "{\"from\":\"../x\",\"to\":\"writer\"}"]
            .iter()
            .enumerate()
    {
        world.drop_file("writer", &format!("174565920{at}_coder.msg.json"), bad);
    }
    coder.send(text("writer", "whole")).await.unwrap();
    let claimed = writer.claim(all()).await.unwrap();
    assert_eq!(claimed.iter().map(|m| m.text()).collect::<Vec<_>>(), ["whole"]);
    assert_eq!(world.files("writer/corrupt").len(), 7);
    assert_eq!(world.files("writer/inbox").len(), 1);
}

#[tokio::test]
async fn a_file_that_is_still_being_written_is_waited_for() {
    let world = World::new(Layout::Nanobot);
    let writer = world.agent("writer").await;
    let whole = nanobot_file("coder", "writer", json!({}));
    // A program that does not rename: half of the file is written.
    let path = world.inbox("writer").join("1745659200_coder.msg.json");
    fs_err::write(&path, &whole[..whole.len() / 2]).unwrap();
    assert!(writer.claim(all()).await.unwrap().is_empty());
    fs_err::write(&path, &whole).unwrap();
    assert_eq!(writer.claim(all()).await.unwrap().len(), 1);
    assert!(world.files("writer/corrupt").is_empty());
}

#[tokio::test]
async fn a_cut_off_file_that_stays_so_goes_to_corrupt() {
    let world = World::new(Layout::Nanobot);
    let writer = world.agent("writer").await;
    world.drop_file("writer", "1745659200_coder.msg.json", "{\"from\": \"coder\", ");
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(5);
    let path = world.inbox("writer").join("1745659200_coder.msg.json");
    fs_err::OpenOptions::new().write(true).open(path).unwrap().set_modified(old).unwrap();
    assert!(writer.claim(all()).await.unwrap().is_empty());
    assert_eq!(world.files("writer/corrupt"), ["1745659200_coder.msg.json"]);
}

#[tokio::test]
async fn no_name_leads_out_of_the_directory() {
    for bad in ["../outside", "", "a/b", ".", "..", "_registry", ".amb"] {
        assert!(amb_core::AgentName::parse(bad).is_err(), "{bad:?}");
    }
    let world = World::new(Layout::Nanobot);
    let coder = world.agent("coder").await;
    // A foreign file with such a sender is no message.
    world.drop_file("coder", "1745659200_x.msg.json", nanobot_file("../outside", "coder", json!({"type": "task"})));
    assert!(coder.claim(all()).await.unwrap().is_empty());
    assert_eq!(world.files("coder/corrupt").len(), 1);
    assert!(!world.path().parent().unwrap().join("outside").exists());
}

#[tokio::test]
async fn messages_of_one_millisecond_have_different_ids_and_files() {
    let world = World::new(Layout::Nanobot);
    let (coder, _writer) = (world.agent("coder").await, world.agent("writer").await);
    // Two processes of one agent that send in the same millisecond choose the same plain name.
    let twin = world.office().mailbox(name("coder"));
    let mut ids = std::collections::HashSet::new();
    let mut session = None;
    for n in 0..10 {
        let sent = coder.send(text("writer", &format!("a{n}"))).await.unwrap();
        ids.insert(sent.message_id);
        ids.insert(twin.send(text("writer", &format!("b{n}"))).await.unwrap().message_id);
        session = Some(sent.session_id);
    }
    assert_eq!((ids.len(), world.files("writer/inbox").len()), (20, 20));
    // The sender's log also has the names that turned out to be taken.
    let history = coder.read(&session.unwrap(), HistoryPage::newest(50).unwrap()).await.unwrap();
    assert_eq!(history.messages.into_iter().map(|message| message.id).collect::<std::collections::HashSet<_>>(), ids);
}

#[tokio::test]
async fn foreign_messages_with_one_id_are_two_messages() {
    let world = World::new(Layout::Nanobot);
    let writer = world.agent("writer").await;
    let file = |text: &str| {
        let content = json!({"parts": [{"type": "text", "text": text}]});
        nanobot_file("coder", "writer", json!({"id": "msg_1745659200_coder", "content": content}))
    };
    world.drop_file("writer", "1745659200_coder_0000000a.msg.json", file("one"));
    world.drop_file("writer", "1745659200_coder_0000000b.msg.json", file("two"));
    let claimed = writer.claim(all()).await.unwrap();
    assert_eq!(claimed.len(), 2);
    assert_ne!(claimed[0].id, claimed[1].id);
    assert_eq!(writer.ack(&[claimed[0].id.clone()]).await.unwrap(), 1);
    assert_eq!(writer.message(&claimed[0].id).await.unwrap().message.text(), "one");
    // A third message after the first was handled: acknowledging the first again does not affect it.
    world.drop_file("writer", "1745659200_coder_0000000a.msg.json", file("three"));
    assert_eq!(writer.ack(&[claimed[0].id.clone()]).await.unwrap(), 0);
    assert_eq!(writer.ack(&[claimed[1].id.clone()]).await.unwrap(), 1);
    assert_eq!(writer.claim(all()).await.unwrap()[0].text(), "three");
    let session = claimed[0].session.clone().unwrap();
    let history = writer.read(&session, HistoryPage::newest(10).unwrap()).await.unwrap();
    assert_eq!(history.messages.len(), 3);
}

#[tokio::test]
async fn a_taken_name_is_never_overwritten() {
    let world = World::new(Layout::Nanobot);
    let (coder, writer) = (world.agent("coder").await, world.agent("writer").await);
    // Another program has taken every name of the next second.
    let now = amb_core::Timestamp::now().as_millisecond();
    for at in now..now + 1_000 {
        world.drop_file(
            "writer",
            &format!("{at}_coder.msg.json"),
            nanobot_file("coder", "writer", json!({"id": format!("f{at}")})),
        );
    }
    let sent = coder.send(text("writer", "mine")).await.unwrap();
    assert_eq!(world.files("writer/inbox").len(), 1_001);
    assert_eq!(writer.message(&sent.message_id).await.unwrap().message.text(), "mine");
}

#[tokio::test]
async fn stamps_of_ten_thirteen_and_sixteen_digits_are_read_in_order_of_time() {
    let world = World::new(Layout::Nanobot);
    let writer = world.agent("writer").await;
    for (file, text) in [
        ("1745659202_a.msg.json", "third"),
        ("1745659201500000_a.msg.json", "second"),
        ("1745659200000_a_deadbeef.msg.json", "first"),
        ("not-a-stamp.msg.json", "zeroth"),
    ] {
        let time = if text == "zeroth" { json!("2020-01-01T00:00:00Z") } else { json!(null) };
        let content = json!({"parts": [{"type": "text", "text": text}]});
        world.drop_file(
            "writer",
            file,
            nanobot_file("a", "writer", json!({"timestamp": time, "id": null, "content": content})),
        );
    }
    let texts: Vec<_> = writer.claim(all()).await.unwrap().iter().map(|m| m.text()).collect();
    assert_eq!(texts, ["zeroth", "first", "second", "third"]);
}

#[tokio::test]
async fn a_foreign_task_that_may_not_be_taken_on_is_rejected_and_its_sender_notified() {
    let world = World::new(Layout::Nanobot);
    let coder = world.agent("coder").await;
    let card = Card { allow_from: AllowFrom(vec!["coder".into()]), max_concurrent_tasks: 1, ..Card::default() };
    let writer = world.agent_with("writer", card).await;
    let eve = world.agent("eve").await;
    let busy = coder.send(Draft::task(name("writer"), "Work", "one")).await.unwrap().task.unwrap().id;
    writer.set_task_state(&busy, TaskState::Accepted, None).await.unwrap();

    let task = |id: &str, deadline: serde_json::Value| json!({"id": id, "type": "task", "task": {"id": id, "state": "pending", "deadline": deadline}});
    world.drop_file("writer", "1_eve.msg.json", nanobot_file("eve", "writer", task("t-eve", json!(null))));
    world.drop_file("writer", "2_coder.msg.json", nanobot_file("coder", "writer", task("t-quota", json!(null))));
    let claimed = writer.claim(all()).await.unwrap();
    assert_eq!(claimed.len(), 1, "only the first one's message is shown: {claimed:?}");
    writer.set_task_state(&busy, TaskState::Completed, None).await.unwrap();
    world.drop_file(
        "writer",
        "3_coder.msg.json",
        nanobot_file("coder", "writer", task("t-late", json!("2020-01-01T00:00:00Z"))),
    );
    assert!(writer.claim(all()).await.unwrap().is_empty());

    let told = |messages: Vec<amb_core::Message>| {
        let mut told: Vec<_> = messages
            .into_iter()
            .filter(|m| m.kind == Kind::TaskUpdate && m.task.as_ref().unwrap().state == TaskState::Rejected)
            .map(|m| (m.task.as_ref().unwrap().id.to_string(), m.text().split(':').next().unwrap().to_owned()))
            .collect();
        told.sort();
        told
    };
    let pairs = |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect::<Vec<_>>();
    assert_eq!(told(eve.claim(all()).await.unwrap()), pairs(&[("t-eve", "unauthorized")]));
    assert_eq!(told(coder.claim(all()).await.unwrap()), pairs(&[("t-late", "deadline"), ("t-quota", "quota")]));
    assert!(world.files("writer/inbox").is_empty(), "rejected ones are put away, and the one that was done");
    assert_eq!(world.files("writer/processed").len(), 4);
}

#[tokio::test]
async fn a_foreign_message_from_a_sender_not_in_allow_from_is_moved_aside_and_never_shown() {
    let world = World::new(Layout::Nanobot);
    let card = Card { allow_from: AllowFrom(vec!["coder".into()]), ..Card::default() };
    let writer = world.agent_with("writer", card).await;
    let start = writer.events(None, std::time::Duration::ZERO).await.unwrap().cursor;
    world.drop_file("writer", "1_eve.msg.json", nanobot_file("eve", "writer", json!({"id": "m-eve"})));
    world.drop_file("writer", "2_coder.msg.json", nanobot_file("coder", "writer", json!({"id": "m-coder"})));
    let page = writer.events(Some(start), std::time::Duration::ZERO).await.unwrap();
    assert_eq!(page.events.len(), 1);
    assert_eq!(writer.claim(all()).await.unwrap().len(), 1);
    assert_eq!(writer.inbox(false).await.unwrap().sessions.len(), 1);
    assert!(writer.message(&"m-eve".parse().unwrap()).await.is_err());
    assert_eq!(world.files("writer/refused"), ["1_eve.msg.json"]);
}

#[tokio::test]
async fn a_callback_is_honoured_by_nobody_but_the_agent_that_set_it() {
    let world = World::new(Layout::Nanobot);
    let (coder, writer) = (world.agent("coder").await, world.agent("writer").await);
    let callback = json!({"channel": "feishu", "chat_id": "user_1", "session_id": "feishu:user_1"});
    let forged =
        json!({"id": "f1", "type": "task_update", "callback": callback, "task": {"id": "t1", "state": "completed"}});
    world.drop_file("coder", "1_writer.msg.json", nanobot_file("writer", "coder", forged));
    let shown = coder.claim(all()).await.unwrap().remove(0);
    assert_eq!(shown.callback, None, "the coder never set one");
    let task = json!({"id": "t2", "type": "task", "callback": callback, "task": {"id": "t2", "state": "pending"}});
    world.drop_file("writer", "2_coder.msg.json", nanobot_file("coder", "writer", task));
    assert_eq!(writer.claim(all()).await.unwrap()[0].callback, None, "nor did the writer");
    writer.set_task_state(&"t2".parse().unwrap(), TaskState::Completed, None).await.unwrap();
    let update = coder.claim(all()).await.unwrap().remove(0);
    assert_eq!(update.callback.unwrap().chat_id.as_deref(), Some("user_1"), "and this one it did");
}

#[tokio::test]
async fn an_agent_that_died_is_offline_after_its_timeout() {
    let world = World::new(Layout::Nanobot);
    let (coder, writer) = (world.agent("coder").await, world.agent("writer").await);
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(31);
    let alive = world.path().join(".amb/agents/writer/alive.json");
    fs_err::OpenOptions::new().write(true).open(&alive).unwrap().set_modified(old).unwrap();
    let path = world.path().join("_registry.json");
    let mut registry: serde_json::Value = serde_json::from_slice(&fs_err::read(&path).unwrap()).unwrap();
    registry["writer"]["last_heartbeat"] = json!(amb_core::Timestamp::try_from(old).unwrap().to_string());
    fs_err::write(&path, registry.to_string()).unwrap();
    let status = async |agent: &str| {
        let agents = coder.agents().await.unwrap();
        agents.into_iter().find(|entry| entry.name == name(agent)).unwrap().presence.status.to_string()
    };
    assert_eq!(status("writer").await, "offline");
    assert_eq!(status("coder").await, "idle");
    coder.leave().await.unwrap();
    let registry: serde_json::Value = serde_json::from_slice(&fs_err::read(&path).unwrap()).unwrap();
    assert_eq!(registry["writer"]["status"], "offline", "others who read the registry see it too");
    writer.heartbeat().await.unwrap();
    assert_eq!(status("writer").await, "idle");
}

#[tokio::test]
async fn an_unknown_recipient_is_an_error_unless_its_creation_is_requested() {
    let world = World::new(Layout::Nanobot);
    let coder = world.agent("coder").await;
    world.agent("researcher").await;
    let error = coder.send(text("reseacher", "hi")).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert!(error.detail().contains("researcher"), "{error}");
    assert!(!world.path().join("reseacher").exists());
    let options = amb_dir::DirOptions { create_recipients: true, ..Default::default() };
    let generous = amb_dir::DirOffice::open(world.path(), options).unwrap().mailbox(name("coder"));
    generous.send(text("newcomer", "hi")).await.unwrap();
    assert_eq!(world.files("newcomer/inbox").len(), 1);
}

#[tokio::test]
async fn a_message_without_a_subject_is_in_one_thread_with_its_sender() {
    let world = World::new(Layout::Nanobot);
    let writer = world.agent("writer").await;
    for n in 0..3 {
        world.drop_file(
            "writer",
            &format!("{n}_coder.msg.json"),
            nanobot_file("coder", "writer", json!({"id": format!("m{n}")})),
        );
    }
    let inbox = writer.inbox(true).await.unwrap();
    let [session] = inbox.sessions.as_slice() else { panic!("{inbox:?}") };
    assert_eq!((session.unread_count, session.subject.as_str()), (3, "(no subject)"));
    let history = writer.read(&session.session_id, HistoryPage::newest(10).unwrap()).await.unwrap();
    assert_eq!(history.messages.len(), 3);
    assert_eq!(world.files("writer/processed").len(), 3);
}
