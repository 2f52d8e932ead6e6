//! A kill that loses the journal too, as a power cut does: the doctor finishes the verbs.

use amb_core::{Draft, Mailbox, TaskState};
use amb_dir::doctor::examine;

use crate::agreement::{everybody_agrees, unfinished};
use crate::verb::{Ended, Verb, run};
use crate::world::{LAYOUTS, World, name, text};

/// Kills a verb at each of its steps, removes the journal, and lets the doctor mend.
async fn without_notes(prepare: impl AsyncFn(&World) -> (&'static str, Verb)) {
    for layout in LAYOUTS {
        for step in 1.. {
            let world = World::in_memory(layout);
            world.agent("ann").await;
            world.agent("bob").await;
            let (agent, verb) = prepare(&world).await;
            let ended = run(world.path(), layout, agent, &verb, Some(step));
            for note in unfinished(&world) {
                fs_err::remove_file(world.path().join(".amb/unfinished").join(note)).unwrap();
            }
            let office = world.office();
            for agent in ["ann", "bob"] {
                office.mailbox(name(agent)).inbox(false).await.unwrap();
            }
            examine(&office, true).await.unwrap();
            assert_eq!(examine(&office, false).await.unwrap(), [], "{layout}: step {step}");
            everybody_agrees(&world, &["ann", "bob"], &format!("{verb:?} killed at step {step}, no note")).await;
            if ended != Ended::Killed {
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_sent_task_is_in_the_lists_of_both() {
    without_notes(async |_| ("ann", Verb::Send(Box::new(Draft::task(name("bob"), "Work", "do it"))))).await;
}

#[tokio::test]
async fn the_owner_of_a_rejected_task_is_notified() {
    let deadline = Some(amb_core::Timestamp::now() - std::time::Duration::from_secs(60));
    let draft = Draft { deadline, ..Draft::task(name("bob"), "Late", "too late") };
    without_notes(async |_| ("ann", Verb::Send(Box::new(draft.clone())))).await;
}

#[tokio::test]
async fn the_sender_of_a_read_message_gets_a_receipt() {
    without_notes(async |world| {
        let ann = world.office().mailbox(name("ann"));
        let mut ids = Vec::new();
        for n in 0..2 {
            ids.push(ann.send(text("bob", &n.to_string())).await.unwrap().message_id);
        }
        ("bob", Verb::Ack(ids))
    })
    .await;
}

#[tokio::test]
async fn an_ended_task_notifies_its_owner_and_its_message_is_acknowledged() {
    without_notes(async |world| {
        let sent = world.office().mailbox(name("ann")).send(Draft::task(name("bob"), "Work", "do it")).await.unwrap();
        ("bob", Verb::Move { id: sent.task.unwrap().id, state: TaskState::Completed })
    })
    .await;
}
