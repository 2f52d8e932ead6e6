//! Every verb, killed at each of its steps: the next reader finishes what was decided, each thing once.

use std::time::Duration;

use amb_core::mailbox::{ClaimRequest, TaskFilter};
use amb_core::{Card, Code, Draft, Mailbox, MessageId, TaskId, TaskState, Timestamp};
use amb_dir::Layout;
use serde_json::Value;

use crate::agreement::{everybody_agrees, mail_files};
use crate::verb::{Ended, Verb, run};
use crate::world::{LAYOUTS, World, name, text};

pub(crate) const ANN: &str = "ann";
pub(crate) const BOB: &str = "bob";

/// More steps than any verb has.
pub(crate) const MOST_STEPS: u64 = 200;

/// Who acts first after the kill.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    /// The client repeats the verb.
    Repeat,
    /// Ann reads first.
    Ann,
    /// Bob reads first.
    Bob,
}

/// Kills a verb at each of its steps, in a new directory each time, and checks what all agents see afterwards.
///
/// `prepare` fills the directory and returns whose verb it is; `check` gets the result of the repeat, if there was one.
pub(crate) async fn killed_at_each_step(
    layout: Layout,
    prepare: impl AsyncFn(&World) -> (&'static str, Verb),
    check: impl AsyncFn(&World, &str, Option<Ended>),
) {
    let mut step = 1;
    loop {
        let mut killed = false;
        for then in [Then::Repeat, Then::Ann, Then::Bob] {
            let world = World::in_memory(layout);
            let (agent, verb) = prepare(&world).await;
            let ended = run(world.path(), layout, agent, &verb, Some(step));
            killed = ended == Ended::Killed;
            let about = format!("{verb:?} killed at step {step}, then {then:?}");
            let again = (then == Then::Repeat).then(|| run(world.path(), layout, agent, &verb, None));
            assert_ne!(again, Some(Ended::Killed), "{about}");
            let order = if then == Then::Bob { [BOB, ANN] } else { [ANN, BOB] };
            everybody_agrees(&world, &order, &about).await;
            check(&world, &about, again).await;
            if !killed {
                break;
            }
        }
        if !killed {
            return;
        }
        step += 1;
        assert!(step < MOST_STEPS, "it never ends");
    }
}

/// Ann and bob, who takes one task at a time.
pub(crate) async fn two(world: &World) {
    world.agent(ANN).await;
    world.agent_with(BOB, Card { max_concurrent_tasks: 1, ..Card::default() }).await;
}

/// Bob's quota of tasks is full.
pub(crate) async fn busy(world: &World) {
    two(world).await;
    let office = world.office();
    let sent = office.mailbox(name(ANN)).send(Draft::task(name(BOB), "Work", "the first")).await.unwrap();
    office.mailbox(name(BOB)).set_task_state(&sent.task.unwrap().id, TaskState::Accepted, None).await.unwrap();
}

pub(crate) fn keyed(draft: Draft) -> Verb {
    Verb::Send(Box::new(Draft { idempotency_key: Some("k".into()), ..draft }))
}

pub(crate) fn answered(ended: &Ended) -> &Value {
    match ended {
        Ended::Answered(answer) => answer,
        other => panic!("{other:?}"),
    }
}

/// Counts the messages with this text in bob's mailbox.
pub(crate) fn there(world: &World, text: &str) -> usize {
    mail_files(world, BOB).iter().filter(|mail| mail.text == text).count()
}

#[tokio::test]
async fn a_message_is_there_once_or_not_at_all() {
    for layout in LAYOUTS {
        let prepare = async |world: &World| {
            two(world).await;
            (ANN, Verb::Send(Box::new(text(BOB, "hello"))))
        };
        killed_at_each_step(layout, prepare, async |world, about, again| {
            // Without a key a repeat is another message.
            let most = if again.is_some() { 1..=2 } else { 0..=1 };
            assert!(most.contains(&there(world, "hello")), "{about}");
        })
        .await;
    }
}

#[tokio::test]
async fn a_message_to_a_mailbox_that_is_not_there_yet_is_there_once_or_not_at_all() {
    let prepare = async |world: &World| {
        world.agent(ANN).await;
        (ANN, keyed(text(BOB, "hello")))
    };
    killed_at_each_step(Layout::Chipset, prepare, async |world, about, again| {
        assert!(again.is_none() || there(world, "hello") == 1, "{about}");
    })
    .await;
}

#[tokio::test]
async fn a_message_under_a_key_is_sent_once_by_its_repeat() {
    for layout in LAYOUTS {
        let prepare = async |world: &World| {
            two(world).await;
            (ANN, keyed(text(BOB, "hello")))
        };
        killed_at_each_step(layout, prepare, async |world, about, again| {
            let Some(again) = again else { return assert!(there(world, "hello") <= 1, "{about}") };
            assert_eq!(there(world, "hello"), 1, "{about}");
            let answer = answered(&again)["message_id"].as_str().unwrap().to_owned();
            let id = MessageId::parse(&answer).unwrap();
            assert!(mail_files(world, BOB).iter().any(|mail| mail.id == id), "{about}");
        })
        .await;
    }
}

#[tokio::test]
async fn a_task_is_in_the_lists_of_both_or_was_not_sent() {
    for layout in LAYOUTS {
        for key in [false, true] {
            let prepare = async |world: &World| {
                two(world).await;
                let draft = Draft::task(name(BOB), "Work", "do it");
                (ANN, if key { keyed(draft) } else { Verb::Send(Box::new(draft)) })
            };
            killed_at_each_step(layout, prepare, async |world, about, again| {
                if let (true, Some(again)) = (key, again) {
                    assert_eq!(there(world, "do it"), 1, "{about}");
                    assert_eq!(answered(&again)["task"]["state"], "pending", "{about}");
                }
            })
            .await;
        }
    }
}

/// A task that the office rejects: sent once, and its owner notified once with the reason.
async fn rejected_at_each_step(layout: Layout, key: bool, draft: Draft, reason: &str) {
    let prepare = async |world: &World| {
        busy(world).await;
        (ANN, if key { keyed(draft.clone()) } else { Verb::Send(Box::new(draft.clone())) })
    };
    killed_at_each_step(layout, prepare, async |world, about, again| {
        if let (true, Some(again)) = (key, again) {
            assert_eq!(there(world, "too much"), 1, "{about}");
            assert_eq!(answered(&again)["task"]["state"], "rejected", "{about}");
            assert!(answered(&again)["reason"].as_str().unwrap().starts_with(reason), "{about}");
            let told = mail_files(world, ANN).into_iter().filter(|mail| mail.text.starts_with(reason)).count();
            assert_eq!(told, 1, "{about}");
        }
        let bob = world.office().mailbox(name(BOB));
        let shown = bob.claim(ClaimRequest { limit: 10, ..ClaimRequest::default() }).await.unwrap();
        assert!(shown.iter().all(|message| message.text() != "too much"), "{about}: it bothers the agent");
    })
    .await;
}

#[tokio::test]
async fn a_task_above_the_quota_is_rejected_and_its_owner_notified() {
    for layout in LAYOUTS {
        rejected_at_each_step(layout, true, Draft::task(name(BOB), "More", "too much"), "quota").await;
    }
}

#[tokio::test]
async fn a_task_above_the_quota_and_without_a_key_is_rejected_and_its_owner_notified() {
    for layout in LAYOUTS {
        rejected_at_each_step(layout, false, Draft::task(name(BOB), "More", "too much"), "quota").await;
    }
}

#[tokio::test]
async fn a_task_whose_deadline_has_passed_is_rejected_and_its_owner_notified() {
    for layout in LAYOUTS {
        let deadline = Some(Timestamp::now() - Duration::from_secs(60));
        let draft = Draft { deadline, ..Draft::task(name(BOB), "Late", "too much") };
        let prepare = async |world: &World| {
            two(world).await;
            (ANN, keyed(draft.clone()))
        };
        killed_at_each_step(layout, prepare, async |world, about, again| {
            let Some(again) = again else { return };
            assert_eq!(there(world, "too much"), 1, "{about}");
            assert_eq!(answered(&again)["task"]["state"], "rejected", "{about}");
        })
        .await;
    }
}

/// A task of ann in the state from which it is moved.
async fn task_in(world: &World, state: TaskState) -> TaskId {
    two(world).await;
    let office = world.office();
    let sent = office.mailbox(name(ANN)).send(Draft::task(name(BOB), "Work", "do it")).await.unwrap();
    let id = sent.task.unwrap().id;
    for next in TaskState::Pending.path_to(state) {
        office.mailbox(name(BOB)).set_task_state(&id, next, None).await.unwrap();
    }
    id
}

/// A move: its owner is notified once, and a repeat changes nothing.
pub(crate) async fn moved_at_each_step(from: TaskState, to: TaskState) {
    for layout in LAYOUTS {
        let prepare = async |world: &World| (BOB, Verb::Move { id: task_in(world, from).await, state: to });
        killed_at_each_step(layout, prepare, async |world, about, again| {
            let tasks = world.office().mailbox(name(ANN)).tasks(TaskFilter::default()).await.unwrap();
            let state = tasks[0].state;
            assert!(state == to || state == from, "{about}: {state}");
            match again {
                None => {}
                Some(Ended::Answered(task)) => assert_eq!(task["state"], to.as_str(), "{about}"),
                Some(Ended::Refused(Code::IllegalMove)) => assert_eq!(state, to, "{about}: it had moved"),
                Some(other) => panic!("{about}: {other:?}"),
            }
        })
        .await;
    }
}

#[tokio::test]
async fn accepting_a_task_notifies_its_owner() {
    moved_at_each_step(TaskState::Pending, TaskState::Accepted).await;
}

#[tokio::test]
async fn rejecting_a_task_notifies_its_owner() {
    moved_at_each_step(TaskState::Pending, TaskState::Rejected).await;
}

#[tokio::test]
async fn starting_a_task_notifies_its_owner() {
    moved_at_each_step(TaskState::Accepted, TaskState::Working).await;
}

#[tokio::test]
async fn completing_a_task_notifies_its_owner() {
    moved_at_each_step(TaskState::Working, TaskState::Completed).await;
}

#[tokio::test]
async fn failing_a_task_notifies_its_owner() {
    moved_at_each_step(TaskState::Accepted, TaskState::Failed).await;
}

#[tokio::test]
async fn an_office_rejection_at_acceptance_notifies_the_owner() {
    for layout in LAYOUTS {
        let prepare = async |world: &World| {
            two(world).await;
            let office = world.office();
            let (ann, bob) = (office.mailbox(name(ANN)), office.mailbox(name(BOB)));
            let mut ids = Vec::new();
            for text in ["one", "two"] {
                ids.push(ann.send(Draft::task(name(BOB), "Work", text)).await.unwrap().task.unwrap().id);
            }
            bob.set_task_state(&ids[0], TaskState::Accepted, None).await.unwrap();
            (BOB, Verb::Move { id: ids[1].clone(), state: TaskState::Accepted })
        };
        killed_at_each_step(layout, prepare, async |_, about, again| match again {
            None | Some(Ended::Refused(Code::Conflict | Code::IllegalMove)) => {}
            Some(other) => panic!("{about}: {other:?}"),
        })
        .await;
    }
}

/// Ann's messages in bob's mailbox.
pub(crate) async fn unread(world: &World, count: usize) -> Vec<MessageId> {
    two(world).await;
    let ann = world.office().mailbox(name(ANN));
    let mut ids = Vec::new();
    for n in 0..count {
        ids.push(ann.send(text(BOB, &format!("{n}"))).await.unwrap().message_id);
    }
    ids
}

#[tokio::test]
async fn a_message_that_was_acknowledged_has_one_receipt() {
    for layout in LAYOUTS {
        let prepare = async |world: &World| (BOB, Verb::Ack(unread(world, 2).await));
        killed_at_each_step(layout, prepare, async |world, about, again| {
            let Some(again) = again else { return };
            assert!(answered(&again).as_u64().unwrap() <= 2, "{about}");
            assert!(mail_files(world, BOB).iter().all(|mail| mail.read), "{about}");
        })
        .await;
    }
}

#[tokio::test]
async fn a_killed_consumer_leaves_every_message_read_with_a_receipt_or_unread() {
    for layout in LAYOUTS {
        let prepare = async |world: &World| {
            unread(world, 2).await;
            (BOB, Verb::Take)
        };
        killed_at_each_step(layout, prepare, async |world, about, again| {
            if again.is_some() {
                assert!(mail_files(world, BOB).iter().all(|mail| mail.read), "{about}");
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_killed_reader_leaves_every_message_read_with_a_receipt_or_unread() {
    for layout in LAYOUTS {
        let prepare = async |world: &World| {
            two(world).await;
            let sent = world.office().mailbox(name(ANN)).send(text(BOB, "hello")).await.unwrap();
            (BOB, Verb::Read(sent.session_id))
        };
        killed_at_each_step(layout, prepare, async |_, _, _| {}).await;
    }
}

#[tokio::test]
async fn a_killed_ingest_loses_and_duplicates_nothing() {
    for layout in LAYOUTS {
        for verb in [Verb::Inbox, Verb::Tasks, Verb::Events] {
            let prepare = async |world: &World| {
                unread(world, 2).await;
                world.office().mailbox(name(ANN)).send(Draft::task(name(BOB), "Work", "do it")).await.unwrap();
                (BOB, verb.clone())
            };
            killed_at_each_step(layout, prepare, async |_, _, _| {}).await;
        }
    }
}

#[tokio::test]
async fn a_task_of_another_program_is_rejected_and_its_owner_notified() {
    for layout in LAYOUTS {
        let prepare = async |world: &World| {
            busy(world).await;
            let file = foreign_task(layout);
            match layout {
                Layout::Nanobot => world.drop_file(BOB, "1772706600123_ann_0badcafe.msg.json", file),
                Layout::Chipset => world.drop_file(BOB, "2026-03-05T10-30-00.123456Z-ann.json", file),
            }
            (BOB, Verb::Inbox)
        };
        for then in [Then::Ann, Then::Bob] {
            for step in 1..MOST_STEPS {
                let world = World::in_memory(layout);
                let (agent, verb) = prepare(&world).await;
                let ended = run(world.path(), layout, agent, &verb, Some(step));
                let about = format!("{layout}: killed at step {step}, then {then:?}");
                let office = world.office();
                let (ann, bob) = (office.mailbox(name(ANN)), office.mailbox(name(BOB)));
                for mailbox in if then == Then::Ann { [&ann, &bob, &ann] } else { [&bob, &ann, &bob] } {
                    mailbox.inbox(false).await.unwrap();
                }
                let told = mail_files(&world, ANN).into_iter().filter(|mail| mail.text.starts_with("quota")).count();
                assert_eq!(told, 1, "{about}");
                let owned = ann.tasks(TaskFilter { owned: Some(true), ..TaskFilter::default() }).await.unwrap();
                assert_eq!(owned.iter().filter(|task| task.state == TaskState::Rejected).count(), 1, "{about}");
                if ended != Ended::Killed {
                    break;
                }
            }
        }
    }
}

fn foreign_task(layout: Layout) -> Vec<u8> {
    use serde_json::json;
    match layout {
        Layout::Nanobot => crate::world::nanobot_file(
            ANN,
            BOB,
            json!({"id": "msg_1772706600123_ann_0badcafe", "type": "task", "task": {"id": "t1", "state": "pending"}}),
        ),
        Layout::Chipset => crate::world::chipset_file(ANN, BOB, json!({"type": "task"})),
    }
}

#[tokio::test]
async fn registrations_and_heartbeats_can_be_repeated_after_any_kill() {
    for layout in LAYOUTS {
        for verb in [Verb::Register, Verb::Heartbeat, Verb::Leave] {
            let prepare = async |world: &World| {
                unread(world, 1).await;
                (BOB, verb.clone())
            };
            killed_at_each_step(layout, prepare, async |world, about, _| {
                let agents = world.office().mailbox(name(ANN)).agents().await.unwrap();
                assert_eq!(agents.len(), 2, "{about}");
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_first_registration_can_be_repeated_after_any_kill() {
    for layout in LAYOUTS {
        for step in 1..MOST_STEPS {
            let world = World::in_memory(layout);
            let ended = run(world.path(), layout, BOB, &Verb::Register, Some(step));
            let about = format!("{layout}: killed at step {step}");
            answered(&run(world.path(), layout, BOB, &Verb::Register, None));
            let agents = world.agent(ANN).await.agents().await.unwrap();
            assert_eq!(agents.iter().filter(|agent| agent.name == name(BOB)).count(), 1, "{about}");
            everybody_agrees(&world, &[ANN, BOB], &about).await;
            if ended != Ended::Killed {
                break;
            }
        }
    }
}

#[tokio::test]
async fn recovery_may_be_killed_too() {
    for layout in LAYOUTS {
        // A rejected task and an acknowledgement, each killed right after the deciding write; then the recovery.
        let begin = async |world: &World| {
            busy(world).await;
            let sent = world.office().mailbox(name(ANN)).send(text(BOB, "hello")).await.unwrap();
            (Verb::Ack(vec![sent.message_id]), keyed(Draft::task(name(BOB), "More", "too much")))
        };
        let (mut ack_at, mut send_at) = (0, 0);
        for step in 1..MOST_STEPS {
            let world = World::in_memory(layout);
            let (ack, send) = begin(&world).await;
            if ack_at == 0 {
                assert_eq!(run(world.path(), layout, BOB, &ack, Some(step)), Ended::Killed);
                let is_read = mail_files(&world, BOB).iter().any(|mail| mail.text == "hello" && mail.read);
                ack_at = if is_read { step } else { 0 };
            }
            if send_at == 0 {
                assert_eq!(run(world.path(), layout, ANN, &send, Some(step)), Ended::Killed);
                send_at = if there(&world, "too much") == 1 { step } else { 0 };
            }
            if ack_at > 0 && send_at > 0 {
                break;
            }
        }
        let prepare = async |world: &World| {
            let (ack, send) = begin(world).await;
            assert_eq!(run(world.path(), layout, BOB, &ack, Some(ack_at)), Ended::Killed);
            assert_eq!(run(world.path(), layout, ANN, &send, Some(send_at)), Ended::Killed);
            (ANN, Verb::Inbox)
        };
        killed_at_each_step(layout, prepare, async |world, about, _| {
            assert_eq!(there(world, "too much"), 1, "{about}");
            let told = mail_files(world, ANN).into_iter().filter(|mail| mail.text.starts_with("quota")).count();
            assert_eq!(told, 1, "{about}");
        })
        .await;
    }
}
