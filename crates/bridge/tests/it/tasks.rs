//! Tasks: accepted, completed or failed, each reported to the owner once.

use amb_bridge::openclaw::GatewayRoute;
use amb_bridge::{BridgeOptions, Ledger, Step, TaskHandling};
use amb_core::mailbox::{HistoryPage, Mailbox, TaskFilter};
use amb_core::{Draft, Kind, TaskState};

use crate::gateway::Fault;
use crate::world::{Mail, World, deadly, quick, until};

async fn give(world: &World) -> Mail {
    let sent = world.alice.send(Draft::task("bob".parse().unwrap(), "work", "do it")).await.unwrap();
    Mail { id: sent.message_id, session: sent.session_id }
}

async fn state(world: &World) -> (TaskState, Option<String>) {
    let task = world.alice.tasks(TaskFilter::default()).await.unwrap().remove(0);
    (task.state, task.note)
}

/// The task updates that the owner got, in order.
async fn updates(world: &World, mail: &Mail) -> Vec<TaskState> {
    let history = world.alice.read(&mail.session, HistoryPage::newest(50).unwrap()).await.unwrap();
    let updates = history.messages.iter().rev().filter(|message| message.kind == Kind::TaskUpdate);
    updates.map(|message| message.task.as_ref().unwrap().state).collect()
}

#[tokio::test]
async fn a_task_is_accepted_completed_and_reported_once_whenever_the_bridge_is_killed() {
    for route in [GatewayRoute::Chat, GatewayRoute::WebSocket] {
        for step in Step::ALL {
            let world = World::new().await;
            let mail = give(&world).await;
            world.start(route, deadly(step)).dies().await;
            let bridge = world.start(route, quick());
            world.settle().await;
            assert_eq!(state(&world).await, (TaskState::Completed, Some(format!("answer to {}", mail.id))));
            assert_eq!(updates(&world, &mail).await, [TaskState::Accepted, TaskState::Completed], "{step:?}");
            assert_eq!(world.gateway.runs_of(mail.id.as_str()), 1);
            bridge.stop().await;
        }
    }
}

#[tokio::test]
async fn a_task_whose_turns_all_fail_is_failed_whenever_the_bridge_is_killed() {
    for step in Step::ALL.into_iter().skip(2) {
        let world = World::new().await;
        world.gateway.fault([Fault::Fails; 5]);
        let mail = give(&world).await;
        world.start(GatewayRoute::WebSocket, deadly(step)).dies().await;
        let bridge = world.start(GatewayRoute::WebSocket, quick());
        world.settle().await;
        let (state, note) = state(&world).await;
        assert_eq!(state, TaskState::Failed, "{step:?}");
        assert!(note.unwrap().contains("could not work on this"), "the reason is its owner's business");
        assert_eq!(updates(&world, &mail).await, [TaskState::Accepted, TaskState::Failed]);

        // A task that has ended does not change any more; its answer comes as an ordinary reply.
        let ledger = Ledger::open_read_only(&world.ledger());
        assert_eq!(ledger.dead_letters().unwrap().len(), 1);
        assert!(ledger.revive(&mail.id).unwrap());
        let answer = format!("answer to {}", mail.id);
        until("an answer", async || world.replies(&mail).await.contains(&answer)).await;
        bridge.stop().await;
    }
}

#[tokio::test]
async fn a_task_that_the_agent_has_ended_itself_is_left_alone() {
    let world = World::new().await;
    world.gateway.fault([Fault::Hangs]);
    let mail = give(&world).await;
    let bridge = world.start(GatewayRoute::Chat, quick());
    until("a turn", async || world.gateway.lock().faults.is_empty()).await;
    let id = world.bob.tasks(TaskFilter::default()).await.unwrap()[0].id.clone();
    world.bob.set_task_state(&id, TaskState::Completed, Some("done by hand".into())).await.unwrap();
    world.settle().await;
    assert_eq!(state(&world).await, (TaskState::Completed, Some("done by hand".into())));
    assert_eq!(updates(&world, &mail).await, [TaskState::Accepted, TaskState::Completed]);
    bridge.stop().await;
}

#[tokio::test]
async fn a_task_update_is_shown_and_not_answered() {
    let world = World::new().await;
    let given = Draft::task("alice".parse().unwrap(), "work", "do it");
    let given = world.bob.send(given).await.unwrap();
    let id = given.task.unwrap().id;
    world.alice.set_task_state(&id, TaskState::Completed, Some("here it is".into())).await.unwrap();
    let bridge = world.start(GatewayRoute::Chat, quick());
    world.status_says("news without an answer", |status| status.unanswered == 1).await;
    assert!(world.gateway.lock().prompts[0].contains("here it is"));
    assert!(world.gateway.lock().prompts[0].contains("needs no answer"));
    bridge.stop().await;
}

/// A task whose turn decides, answered like this.
async fn decided(answer: &'static str) -> (World, Mail, crate::world::Running) {
    let world = World::new().await;
    world.gateway.fault([Fault::Answers(answer)]);
    let mail = give(&world).await;
    let bridge = world.start(GatewayRoute::WebSocket, asking());
    world.settle().await;
    (world, mail, bridge)
}

fn asking() -> BridgeOptions {
    BridgeOptions { tasks: TaskHandling::Ask, ..quick() }
}

#[tokio::test]
async fn the_turn_decides_by_its_first_line_and_nothing_is_accepted_before_it() {
    let cases = [
        ("[mailbox: completed]\nhere it is", TaskState::Completed, Some("here it is")),
        ("[mailbox: accepted]\nby tomorrow", TaskState::Accepted, Some("by tomorrow")),
        ("[mailbox: rejected]\nnot my work", TaskState::Rejected, Some("not my work")),
        ("[mailbox: failed]\nno network", TaskState::Failed, Some("no network")),
        ("[mailbox: accepted]", TaskState::Accepted, None),
    ];
    for (answer, expected, note) in cases {
        let (world, mail, bridge) = decided(answer).await;
        assert_eq!(state(&world).await, (expected, note.map(str::to_owned)), "{answer}");
        assert_eq!(updates(&world, &mail).await, [expected], "{answer}: one word of it");
        assert!(world.replies(&mail).await.is_empty(), "{answer}");
        bridge.stop().await;
    }
}

#[tokio::test]
async fn a_question_and_a_plain_answer_are_sent_and_leave_the_task_as_it_is() {
    let cases = [
        ("[mailbox: question]\nwhich branch?", vec!["which branch?"]),
        ("I must ask my person first.", vec!["I must ask my person first."]),
        ("[mailbox: no answer]", vec![]),
    ];
    for (answer, said) in cases {
        let (world, mail, bridge) = decided(answer).await;
        assert_eq!(state(&world).await.0, TaskState::Pending, "{answer}");
        assert_eq!(world.replies(&mail).await, said, "{answer}");
        let prompt = world.gateway.lock().prompts[0].clone();
        assert!(prompt.contains("not accepted yet") && prompt.contains("[mailbox: completed]"), "{prompt}");
        bridge.stop().await;
    }
}

#[tokio::test]
async fn a_task_is_ended_by_a_later_answer_in_its_session() {
    let (world, mail, bridge) = decided("[mailbox: question]\nwhich branch?").await;
    world.gateway.fault([Fault::Answers("[mailbox: completed]\nmerged")]);
    world.mail_in(&mail.session, "main").await;
    until("end of the task", async || state(&world).await.0 == TaskState::Completed).await;
    assert_eq!(state(&world).await.1.unwrap(), "merged");
    bridge.stop().await;
}

#[tokio::test]
async fn a_turn_that_decides_is_reported_once_whenever_the_bridge_is_killed() {
    for step in Step::ALL {
        let world = World::new().await;
        world.gateway.fault([Fault::Answers("[mailbox: rejected]\nno")]);
        let mail = give(&world).await;
        let dying = deadly(step);
        world.start(GatewayRoute::WebSocket, BridgeOptions { tasks: TaskHandling::Ask, ..dying }).dies().await;
        let bridge = world.start(GatewayRoute::WebSocket, asking());
        world.settle().await;
        assert_eq!(updates(&world, &mail).await, [TaskState::Rejected], "{step:?}");
        assert_eq!(world.gateway.runs_of(mail.id.as_str()), 1);
        bridge.stop().await;
    }
}

#[tokio::test]
async fn a_result_longer_than_a_note_goes_on_in_messages() {
    let world = World::new().await;
    world.gateway.fault([Fault::VeryLong]);
    let mail = give(&world).await;
    let bridge = world.start(GatewayRoute::Chat, quick());
    world.settle().await;
    let (state, note) = state(&world).await;
    assert_eq!(state, TaskState::Completed);
    let parts = [vec![note.unwrap()], world.replies(&mail).await].concat();
    let whole: String = parts.iter().map(|part| part.split_once("]\n").unwrap().1).collect();
    assert_eq!(whole, format!("answer to {} {}", mail.id, "x".repeat(25_000)));
    bridge.stop().await;
}

#[tokio::test]
async fn the_note_of_an_impossible_move_is_sent_as_a_message() {
    // Accepted once with two notes; the second note must not be lost.
    let (world, mail, bridge) = decided("[mailbox: accepted]\nby tomorrow").await;
    world.gateway.fault([Fault::Answers("[mailbox: accepted]\nrather the day after")]);
    world.mail_in(&mail.session, "when?").await;
    until("the words", async || world.replies(&mail).await == ["rather the day after"]).await;
    assert_eq!(state(&world).await, (TaskState::Accepted, Some("by tomorrow".into())));
    // The task has ended by hand while the turn ran.
    let id = world.bob.tasks(TaskFilter::default()).await.unwrap()[0].id.clone();
    world.gateway.fault([Fault::Answers("[mailbox: completed]\nmerged")]);
    world.bob.set_task_state(&id, TaskState::Failed, Some("by hand".into())).await.unwrap();
    world.mail_in(&mail.session, "and now?").await;
    until("the words", async || world.replies(&mail).await.last().is_some_and(|said| said == "merged")).await;
    bridge.stop().await;
}

#[tokio::test]
async fn the_note_of_an_impossible_move_is_sent_once_whenever_the_bridge_is_killed() {
    for step in Step::ALL.into_iter().skip(2) {
        let world = World::new().await;
        world.gateway.fault([Fault::Answers("[mailbox: working]\nhalf of it")]);
        let mail = give(&world).await;
        world.start(GatewayRoute::WebSocket, BridgeOptions { tasks: TaskHandling::Ask, ..deadly(step) }).dies().await;
        let bridge = world.start(GatewayRoute::WebSocket, asking());
        world.settle().await;
        let told = updates(&world, &mail).await;
        assert_eq!(told.iter().filter(|state| **state == TaskState::Working).count(), 1, "{step:?}: {told:?}");
        assert!(world.replies(&mail).await.is_empty(), "{step:?}");
        bridge.stop().await;
    }
}
