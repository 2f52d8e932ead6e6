//! Mail that is moved into the archive and tasks that are carried from another office, killed at each step.

use amb_core::mailbox::TaskFilter;
use amb_core::task::TaskRef;
use amb_core::{Draft, Kind, Mailbox, Message, Object, Part, TaskState, Timestamp};

use crate::agreement::{everybody_agrees, letters};
use crate::kills::{ANN, BOB, MOST_STEPS, answered, busy, killed_at_each_step, there, two};
use crate::verb::{Ended, Verb, run};
use crate::world::{LAYOUTS, World, name, text};

#[tokio::test]
async fn what_is_archived_is_seen_by_everybody_as_before() {
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
            let rejections = letters(world, ANN)
                .into_iter()
                .filter(|letter| letter.task.as_ref().is_some_and(|(_, state)| *state == TaskState::Rejected));
            assert_eq!(rejections.count(), there(world, "carried"), "{about}");
            if let Some(again) = &again {
                assert_eq!(answered(again)["task"]["state"], "rejected", "{about}");
                assert_eq!(there(world, "carried"), 1, "{about}");
            }
        })
        .await;
    }
}

/// Whoever carries repeats what was not answered: until then the task may have moved without a word to its owner.
#[tokio::test]
async fn a_carried_update_moves_its_task_and_is_told_once_by_its_repeat() {
    for layout in LAYOUTS {
        for state in [TaskState::Accepted, TaskState::Rejected, TaskState::Completed] {
            for step in 1..MOST_STEPS {
                let mut ended = Ended::Killed;
                // Who looks before the repeat.
                for first in [None, Some(ANN), Some(BOB)] {
                    let world = World::in_memory(layout);
                    two(&world).await;
                    let (ann, bob) = (world.office().mailbox(name(ANN)), world.office().mailbox(name(BOB)));
                    let given = bob.send(Draft::task(name(ANN), "Work", "do it")).await.unwrap();
                    // Taken to the other office.
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

/// A message as another office accepted it: one of this office's, under another moment.
async fn carried(world: &World, from: &str, to: &str, kind: Kind) -> Message {
    let mailbox = world.office().mailbox(name(from));
    let sent = mailbox.send(text(to, "first")).await.unwrap();
    let message = mailbox.message(&sent.message_id).await.unwrap().message;
    Message { kind, sent_at: Timestamp::now(), parts: vec![Part::text("carried".to_owned())], ..message }
}
