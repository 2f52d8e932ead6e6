//! Archiving and carrying tasks from another office, killed at each step.

use amb_core::mailbox::{ClaimRequest, TaskFilter};
use amb_core::task::TaskRef;
use amb_core::{Draft, Kind, Mailbox, Message, Object, Part, TaskState, Timestamp};
use amb_dir::Layout;

use crate::agreement::{everybody_agrees, mail_files};
use crate::kills::{ANN, BOB, MOST_STEPS, answered, busy, killed_at_each_step, there, two};
use crate::verb::{Ended, Verb, run};
use crate::world::{LAYOUTS, World, name, text};

#[tokio::test]
async fn old_mail_is_archived_once_however_often_the_archiver_dies() {
    for layout in LAYOUTS {
        let prepare = async |world: &World| {
            two(world).await;
            for n in 0..2 {
                let (file, bytes) = old(layout, n);
                world.drop_file(BOB, &file, bytes);
            }
            let bob = world.office().mailbox(name(BOB));
            let all = bob.claim(ClaimRequest { limit: 10, ..ClaimRequest::default() }).await.unwrap();
            bob.ack(&[all[0].id.clone()]).await.unwrap();
            (BOB, Verb::Archive)
        };
        for step in 1..MOST_STEPS {
            let world = World::in_memory(layout);
            let (agent, verb) = prepare(&world).await;
            let ended = run(world.path(), layout, agent, &verb, Some(step));
            let about = format!("{layout}: killed at step {step}");
            answered(&run(world.path(), layout, agent, &verb, None));
            let mail_files = mail_files(&world, BOB);
            assert_eq!(mail_files.len(), 2, "{about}");
            assert_eq!(mail_files.iter().filter(|mail| mail.read).count(), 1, "{about}");
            if ended != Ended::Killed {
                break;
            }
        }
    }
}

fn old(layout: Layout, n: u32) -> (String, Vec<u8>) {
    use serde_json::json;
    match layout {
        Layout::Nanobot => {
            let id = format!("msg_177270660012{n}_ann_0badcafe");
            (format!("177270660012{n}_ann.msg.json"), crate::world::nanobot_file(ANN, BOB, json!({ "id": id })))
        }
        Layout::Chipset => {
            (format!("2026-03-05T10-30-0{n}Z-ann.json"), crate::world::chipset_file(ANN, BOB, json!({})))
        }
    }
}

#[tokio::test]
async fn archived_mail_is_visible_as_before() {
    for layout in LAYOUTS {
        let prepare = async |world: &World| {
            two(world).await;
            let office = world.office();
            let (ann, bob) = (office.mailbox(name(ANN)), office.mailbox(name(BOB)));
            let read = ann.send(text(BOB, "read")).await.unwrap().message_id;
            ann.send(text(BOB, "unread")).await.unwrap();
            bob.ack(&[read]).await.unwrap();
            let task = ann.send(Draft::task(name(BOB), "Work", "do it")).await.unwrap().task.unwrap().id;
            for state in [TaskState::Accepted, TaskState::Completed] {
                bob.set_task_state(&task, state, None).await.unwrap();
            }
            (BOB, Verb::ArchiveAll)
        };
        killed_at_each_step(layout, prepare, async |world, about, again| {
            if let Some(again) = again {
                answered(&again);
            }
            for what in ["read", "unread", "do it"] {
                assert_eq!(there(world, what), 1, "{about}: {what}");
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_carried_task_is_opened_once_or_not_at_all() {
    for layout in LAYOUTS {
        let prepare = async |world: &World| {
            two(world).await;
            (ANN, carry(carried(world, ANN, BOB, Kind::Task).await))
        };
        killed_at_each_step(layout, prepare, async |world, about, again| {
            if let Some(again) = &again {
                assert_eq!(answered(again)["task"]["state"], "pending", "{about}");
            }
            opened_once(world, about, again.is_some()).await;
        })
        .await;
    }
}

#[tokio::test]
async fn a_carried_task_that_is_rejected_is_answered_once() {
    for layout in LAYOUTS {
        let prepare = async |world: &World| {
            busy(world).await;
            (ANN, carry(carried(world, ANN, BOB, Kind::Task).await))
        };
        killed_at_each_step(layout, prepare, async |world, about, again| {
            let rejections = mail_files(world, ANN)
                .into_iter()
                .filter(|mail| mail.task.as_ref().is_some_and(|(_, state)| *state == TaskState::Rejected));
            assert_eq!(rejections.count(), there(world, "carried"), "{about}");
            if let Some(again) = &again {
                assert_eq!(answered(again)["task"]["state"], "rejected", "{about}");
                assert_eq!(there(world, "carried"), 1, "{about}");
            }
        })
        .await;
    }
}

/// The carrier repeats what did not return: until then the task may have moved without an update to its owner.
#[tokio::test]
async fn a_carried_update_moves_its_task_and_is_delivered_once_by_its_repeat() {
    for layout in LAYOUTS {
        for state in [TaskState::Accepted, TaskState::Rejected, TaskState::Completed] {
            for step in 1..MOST_STEPS {
                let mut ended = Ended::Killed;
                // Who reads before the repeat.
                for first in [None, Some(ANN), Some(BOB)] {
                    let world = World::in_memory(layout);
                    two(&world).await;
                    let (ann, bob) = (world.office().mailbox(name(ANN)), world.office().mailbox(name(BOB)));
                    let given = bob.send(Draft::task(name(ANN), "Work", "do it")).await.unwrap();
                    // Carried to the other office.
                    ann.ack(&[given.message_id]).await.unwrap();
                    let id = given.task.unwrap().id;
                    let task = Some(TaskRef { id, state, deadline: None, extra: Object::new() });
                    let update = carry(Message { task, ..carried(&world, ANN, BOB, Kind::TaskUpdate).await });
                    ended = run(world.path(), layout, ANN, &update, Some(step));
                    let about = format!("{state} killed at step {step}, then {first:?}");
                    if let Some(first) = first {
                        world.office().mailbox(name(first)).inbox(false).await.unwrap();
                    }
                    answered(&run(world.path(), layout, ANN, &update, None));
                    everybody_agrees(&world, &[ANN, BOB], &about).await;
                    assert_eq!(there(&world, "carried"), 1, "{layout}, {about}");
                    assert_eq!(bob.tasks(TaskFilter::default()).await.unwrap()[0].state, state, "{layout}, {about}");
                }
                if ended != Ended::Killed {
                    break;
                }
            }
        }
    }
}

async fn opened_once(world: &World, about: &str, repeated: bool) {
    let opened = world.office().mailbox(name(BOB)).tasks(TaskFilter::default()).await.unwrap().len();
    assert_eq!(opened, there(world, "carried"), "{about}");
    assert!(if repeated { opened == 1 } else { opened <= 1 }, "{about}: opened {opened} times");
}

fn carry(message: Message) -> Verb {
    Verb::Carry(Box::new(message), 7, true)
}

/// A message as another office accepted it: a copy of one of this office with another time.
async fn carried(world: &World, from: &str, to: &str, kind: Kind) -> Message {
    let mailbox = world.office().mailbox(name(from));
    let sent = mailbox.send(text(to, "first")).await.unwrap();
    let message = mailbox.message(&sent.message_id).await.unwrap().message;
    Message { kind, sent_at: Timestamp::now(), parts: vec![Part::text("carried".to_owned())], ..message }
}
