//! Carried mail, and agents of a network office that has mounted the directory.

use std::time::Duration;

use amb_core::mailbox::{HistoryPage, TaskFilter};
use amb_core::task::TaskRef;
use amb_core::{Callback, Card, Code, Draft, Kind, Mailbox, Message, MessageId, Object, Part, Priority, TaskState};
use amb_dir::{CarryOutcome, DirMailbox, Home, doctor};
use jiff::Timestamp;

use crate::world::{LAYOUTS, World, name, text};

const BEAT: Duration = Duration::from_secs(10);

/// An agent of the network office in a directory.
async fn mounted(world: &World, agent: &str) -> DirMailbox {
    let mailbox = world.office().mailbox(name(agent));
    mailbox.register_mounted(Card::default(), BEAT).await.unwrap();
    mailbox
}

#[tokio::test]
async fn the_doctor_says_that_the_server_did_not_take_a_refused_message() {
    for layout in LAYOUTS {
        let world = World::new(layout);
        let guest = mounted(&world, "srv").await;
        let sent = world.agent("ann").await.send(text("srv", "hello")).await.unwrap();
        guest.refuse(&sent.message_id).await.unwrap();
        let findings = doctor::examine(&world.office(), false).await.unwrap();
        let [found] = findings.as_slice() else { panic!("{findings:?}") };
        assert!(found.detail.contains("did not take") && found.remedy.contains("log says why"), "{found:?}");
    }
}

/// A message of the network office, relayed by zoe.
fn from_office(from: &str, to: &str, kind: Kind) -> Message {
    Message {
        id: MessageId::parse("their-own").unwrap(),
        from: name(from),
        from_person: false,
        to: name(to),
        sent_at: "2026-03-05T10:30:00.123456Z".parse().unwrap(),
        kind,
        session: None,
        subject: Some("Plan".into()),
        parts: vec![Part::text("hello")],
        priority: Priority::High,
        ttl: 1,
        trace: vec![name("zoe"), name(from)],
        task: None,
        callback: None,
        reply_to: None,
        correlation_id: None,
        metadata: Object::new(),
    }
}

#[tokio::test]
async fn a_carried_message_keeps_its_time_its_ttl_and_its_trace_and_is_there_once() {
    for layout in LAYOUTS {
        let world = World::new(layout);
        let (net, coder) = (mounted(&world, "net").await, world.agent("coder").await);
        let office = world.office();
        let message = from_office("net", "coder", Kind::Message);
        let (id, file) = office.carried_as(&name("net"), message.sent_at, 7);
        for again in [false, true, true] {
            let sent = net.carry(message.clone(), 7, again).await.unwrap();
            assert_eq!((&sent.message_id, sent.created_at), (&id, message.sent_at), "{layout}");
        }
        assert_eq!(office.carry_outcome(&name("coder"), &file).await.unwrap(), CarryOutcome::Waiting);
        let inbox = coder.inbox(true).await.unwrap();
        assert_eq!(inbox.unread(), 1, "{layout}");
        let got = coder.message(&id).await.unwrap().message;
        assert_eq!((got.from, got.ttl, got.trace), (name("net"), 1, vec![name("zoe"), name("net")]));
        assert_eq!((got.sent_at, got.priority), (message.sent_at, Priority::High));
        // Automatic answers continue with its ttl, and end.
        let reply = Draft::reply(&coder.message(&id).await.unwrap().message, "back").automatic();
        let reply = coder.send(reply).await.unwrap();
        assert_eq!(coder.message(&reply.message_id).await.unwrap().message.ttl, 0);

        coder.ack(std::slice::from_ref(&id)).await.unwrap();
        assert_eq!(office.carry_outcome(&name("coder"), &file).await.unwrap(), CarryOutcome::Handled);
        net.carry(message.clone(), 7, true).await.unwrap();
        assert_eq!(coder.inbox(true).await.unwrap().unread(), 0, "handled is handled");
        // Some programs delete mail that they have read.
        let kept = ["processed", "archive", "."].map(|place| world.path().join("coder").join(place).join(&file));
        kept.iter().filter(|path| path.exists()).for_each(|path| fs_err::remove_file(path).unwrap());
        net.carry(message, 7, true).await.unwrap();
        assert_eq!(coder.inbox(true).await.unwrap().unread(), 0, "{layout}: removed is handled");
        assert_eq!(office.carry_outcome(&name("coder"), &file).await.unwrap(), CarryOutcome::Handled);
    }
}

#[tokio::test]
async fn mail_from_a_sender_not_in_allow_from_is_not_carried() {
    let world = World::new(LAYOUTS[0]);
    let net = mounted(&world, "net").await;
    let card = Card { allow_from: amb_core::AllowFrom(vec!["friend".into()]), ..Card::default() };
    let coder = world.agent_with("coder", card).await;
    let refused = net.carry(from_office("net", "coder", Kind::Message), 7, false).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotAllowed);
    let sent = net.carry(from_office("net", "coder", Kind::Task), 8, false).await.unwrap();
    assert_eq!(sent.task.unwrap().state, TaskState::Rejected, "a task is answered by its rejection");
    assert_eq!(coder.inbox(true).await.unwrap().unread(), 0);
    assert_eq!(net.inbox(true).await.unwrap().unread(), 1, "which its sender is told");
}

#[tokio::test]
async fn a_carried_task_is_opened_once_and_its_updates_go_back() {
    for layout in LAYOUTS {
        let world = World::new(layout);
        let (net, coder) = (mounted(&world, "net").await, world.agent("coder").await);
        let task = from_office("net", "coder", Kind::Task);
        let sent = net.carry(task.clone(), 7, false).await.unwrap();
        let id = sent.task.unwrap().id;
        coder.set_task_state(&id, TaskState::Accepted, None).await.unwrap();
        let again = net.carry(task, 7, true).await.unwrap();
        assert_eq!(again.task.unwrap().state, TaskState::Accepted, "{layout}: it is where it was");
        coder.set_task_state(&id, TaskState::Completed, Some("done".into())).await.unwrap();
        let inbox = net.inbox(true).await.unwrap();
        let shown = inbox.sessions[0].recent_messages.iter();
        let states: Vec<_> = shown.filter_map(|message| Some(message.task.as_ref()?.state)).collect();
        assert_eq!(states, [TaskState::Completed, TaskState::Accepted, TaskState::Pending], "{layout}");
    }
}

#[tokio::test]
async fn a_carried_update_moves_the_task_and_has_its_owners_callback() {
    for layout in LAYOUTS {
        let world = World::new(layout);
        let (net, coder) = (mounted(&world, "net").await, world.agent("coder").await);
        let callback = Callback { channel: Some("feishu".into()), chat_id: Some("7".into()), ..Callback::default() };
        let draft = Draft { callback: Some(callback.clone()), ..Draft::task(name("net"), "Work", "do it") };
        let given = coder.send(draft).await.unwrap().task.unwrap();
        let mut at = Timestamp::now();
        for (nonce, state) in [(1, TaskState::Accepted), (2, TaskState::Working), (3, TaskState::Completed)] {
            at += Duration::from_millis(5);
            let update = Message {
                task: Some(TaskRef { id: given.id.clone(), state, deadline: None, extra: Object::new() }),
                sent_at: at,
                ..from_office("net", "coder", Kind::TaskUpdate)
            };
            net.carry(update.clone(), nonce, false).await.unwrap();
            net.carry(update, nonce, true).await.unwrap();
            assert_eq!(coder.tasks(TaskFilter::default()).await.unwrap()[0].state, state, "{layout}");
        }
        assert_eq!(coder.inbox(true).await.unwrap().unread(), 3, "{layout}: each update once");
        let update = coder.claim(amb_core::mailbox::ClaimRequest::default()).await.unwrap().remove(0);
        assert_eq!(update.callback, Some(callback), "{layout}");
    }
}

#[tokio::test]
async fn a_task_that_the_other_office_ended_has_ended_here_and_no_other_move_is_taken_from_its_owner() {
    for layout in LAYOUTS {
        let world = World::new(layout);
        let (net, coder) = (mounted(&world, "net").await, world.agent("coder").await);
        let id = net.carry(from_office("net", "coder", Kind::Task), 7, false).await.unwrap().task.unwrap().id;
        coder.set_task_state(&id, TaskState::Accepted, None).await.unwrap();
        let update = |id: &amb_core::TaskId, state| Message {
            task: Some(TaskRef { id: id.clone(), state, deadline: None, extra: Object::new() }),
            sent_at: Timestamp::now(),
            ..from_office("net", "coder", Kind::TaskUpdate)
        };
        let state = async || coder.tasks(TaskFilter::default()).await.unwrap()[0].state;
        let moved = net.carry(update(&id, TaskState::Working), 1, false).await.unwrap_err();
        assert_eq!(
            (moved.code(), state().await),
            (Code::Invalid, TaskState::Accepted),
            "{layout}: it is coder's to move"
        );
        let ended = update(&id, TaskState::Failed);
        for again in [false, true] {
            net.carry(ended.clone(), 2, again).await.unwrap();
            assert_eq!(state().await, TaskState::Failed, "{layout}");
        }
        let unknown = "no-such-task".parse().unwrap();
        let refused = net.carry(update(&unknown, TaskState::Failed), 3, false).await.unwrap_err();
        assert_eq!(refused.code(), Code::Invalid, "{layout}: to be put aside, not tried again for ever");
        let other = mounted(&world, "other").await;
        let second = Message { sent_at: Timestamp::now(), ..from_office("net", "coder", Kind::Task) };
        let id = net.carry(second, 9, false).await.unwrap().task.unwrap().id;
        let meddling = Message { from: name("other"), ..update(&id, TaskState::Rejected) };
        assert_eq!(other.carry(meddling, 4, false).await.unwrap_err().code(), Code::Invalid, "{layout}");
    }
}

#[tokio::test]
async fn no_program_can_act_as_an_agent_of_the_network_office() {
    for layout in LAYOUTS {
        let world = World::new(layout);
        let (net, coder) = (mounted(&world, "net").await, world.agent("coder").await);
        let impostor = world.office().mailbox(name("net"));
        assert_eq!(impostor.register(Card::default()).await.unwrap_err().code(), Code::Conflict);
        let forged = impostor.send(text("coder", "believe me")).await.unwrap_err();
        assert_eq!(forged.code(), Code::Conflict);
        assert!(forged.detail().contains("network office"), "{forged}");
        assert_eq!(coder.inbox(true).await.unwrap().unread(), 0);
        let sent = coder.send(text("net", "for the one who has the key")).await.unwrap();
        assert_eq!(impostor.claim(Default::default()).await.unwrap_err().code(), Code::Conflict);
        assert_eq!(impostor.ack(std::slice::from_ref(&sent.message_id)).await.unwrap_err().code(), Code::Conflict);
        let page = HistoryPage::default();
        assert_eq!(impostor.read(&sent.session_id, page).await.unwrap_err().code(), Code::Conflict);
        assert_eq!(net.ack_mounted(&[sent.message_id]).await.unwrap(), 1, "the mount takes it");
        let homes = |everybody: Vec<(amb_core::doc::AgentEntry, Home)>| -> Vec<_> {
            everybody.into_iter().map(|(agent, home)| (agent.name.to_string(), home)).collect()
        };
        let everybody = homes(world.office().all_agents().await.unwrap());
        assert_eq!(everybody, [("coder".to_owned(), Home::Directory), ("net".to_owned(), Home::Office)], "{layout}");
        net.unmark_mounted().await.unwrap();
        impostor.register(Card::default()).await.unwrap();
    }
}

#[tokio::test]
async fn a_name_that_another_program_registers_is_seen_as_taken() {
    let world = World::new(LAYOUTS[0]);
    let net = mounted(&world, "net").await;
    let path = world.path().join("_registry.json");
    let mut registry: serde_json::Value = serde_json::from_slice(&fs_err::read(&path).unwrap()).unwrap();
    registry["net"]["registered_at"] = "2099-01-01T00:00:00+00:00".into();
    registry["net"]["description"] = "not theirs".into();
    fs_err::write(&path, serde_json::to_vec(&registry).unwrap()).unwrap();
    // Leaving and coming back updates the registry.
    net.leave().await.unwrap();
    net.heartbeat().await.unwrap();
    let everybody = world.office().all_agents().await.unwrap();
    assert_eq!(everybody[0].1, Home::Taken, "{everybody:?}");
}

#[tokio::test]
async fn mail_that_cannot_be_carried_is_kept_in_refused() {
    for layout in LAYOUTS {
        let world = World::new(layout);
        let (net, coder) = (mounted(&world, "net").await, world.agent("coder").await);
        let sent = coder.send(text("net", "hello")).await.unwrap();
        net.refuse(&sent.message_id).await.unwrap();
        net.refuse(&sent.message_id).await.unwrap();
        assert_eq!(net.inbox(true).await.unwrap().unread(), 0);
        assert_eq!(world.files("net/refused").len(), 1, "{layout}");
    }
}

#[test]
fn one_process_at_a_time_mounts_a_directory() {
    let world = World::new(LAYOUTS[0]);
    let held = world.office().lock_mount().unwrap().expect("free");
    assert!(world.office().lock_mount().unwrap().is_none());
    assert!(held.state().is_dir());
    drop(held);
    assert!(world.office().lock_mount().unwrap().is_some());
}
