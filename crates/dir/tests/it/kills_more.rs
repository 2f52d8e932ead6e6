//! More verbs killed at each of their steps: the doctor, transcripts, carried mail, and repeats.

use std::time::Duration;

use amb_core::{Draft, Mailbox, TaskState, Timestamp};

use crate::agreement::everybody_agrees;
use crate::kills::{ANN, BOB, MOST_STEPS, answered, keyed, moved_at_each_step, there, two, unread};
use crate::verb::{Ended, Verb, run};
use crate::world::{LAYOUTS, World, name, text};

#[tokio::test]
async fn a_first_registration_that_was_killed_is_finished_by_the_next_heartbeat() {
    for layout in LAYOUTS {
        for step in 1..MOST_STEPS {
            let world = World::in_memory(layout);
            let ended = run(world.path(), layout, BOB, &Verb::Register, Some(step));
            let about = format!("{layout}: killed at step {step}");
            let bob = world.office().mailbox(name(BOB));
            // Before the mailbox is made, bob is unknown.
            let has_card = world.path().join(".amb/agents/bob/card.json").exists();
            assert_eq!(bob.heartbeat().await.is_ok(), has_card || world.inbox(BOB).is_dir(), "{about}");
            let agents = bob.agents().await.unwrap();
            let status = agents.iter().find(|agent| agent.name == name(BOB)).map(|agent| agent.presence.status);
            if has_card {
                assert_eq!(status, Some(amb_core::Status::Idle), "{about}");
            }
            if ended != Ended::Killed {
                break;
            }
        }
    }
}

#[tokio::test]
async fn completing_a_pending_task_notifies_its_owner() {
    moved_at_each_step(TaskState::Pending, TaskState::Completed).await;
}

/// The repeat of a keyed send is killed too; the third attempt returns.
#[tokio::test]
async fn a_keyed_send_whose_repeat_is_killed_too_is_sent_once() {
    for layout in LAYOUTS {
        for draft in [text(BOB, "hello"), Draft::task(name(BOB), "Work", "hello")] {
            for first in (1..MOST_STEPS).step_by(3) {
                let mut is_over = false;
                for second in (1..MOST_STEPS).step_by(4) {
                    let world = World::in_memory(layout);
                    two(&world).await;
                    let verb = keyed(draft.clone());
                    is_over = run(world.path(), layout, ANN, &verb, Some(first)) != Ended::Killed;
                    let repeat = run(world.path(), layout, ANN, &verb, Some(second));
                    let last = run(world.path(), layout, ANN, &verb, None);
                    let about = format!("{layout}: killed at {first}, then at {second}");
                    answered(&last);
                    assert_eq!(there(&world, "hello"), 1, "{about}");
                    everybody_agrees(&world, &[ANN, BOB], &about).await;
                    if repeat != Ended::Killed || is_over {
                        break;
                    }
                }
                if is_over {
                    break;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_reply_and_a_relay_are_there_once_or_not_at_all() {
    for layout in LAYOUTS {
        for relay in [false, true] {
            let prepare = async |world: &World| {
                two(world).await;
                let office = world.office();
                let asked = office.mailbox(name(BOB)).send(text(ANN, "well?")).await.unwrap().message_id;
                // A relay goes to a third agent: back to ann it would be circular.
                let draft = match relay {
                    false => Draft { reply_to: Some(asked), ..text(BOB, "hello") },
                    true => {
                        world.agent("cat").await;
                        let asked = office.mailbox(name("cat")).send(text(ANN, "for bob")).await.unwrap().message_id;
                        Draft { relay_of: Some(asked), ..text(BOB, "hello") }
                    }
                };
                (ANN, keyed(draft))
            };
            for step in 1..MOST_STEPS {
                let world = World::in_memory(layout);
                let (agent, verb) = prepare(&world).await;
                let ended = run(world.path(), layout, agent, &verb, Some(step));
                answered(&run(world.path(), layout, agent, &verb, None));
                let about = format!("{layout}: killed at step {step}");
                assert_eq!(there(&world, "hello"), 1, "{about}");
                let agents: &[&str] = if relay { &[ANN, BOB, "cat"] } else { &[ANN, BOB] };
                everybody_agrees(&world, agents, &about).await;
                if ended != Ended::Killed {
                    break;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_task_past_its_deadline_is_one_event_for_each_side() {
    for layout in LAYOUTS {
        for step in 1..MOST_STEPS {
            let world = World::in_memory(layout);
            two(&world).await;
            let office = world.office();
            let (id, deadline) = accepted_with_a_deadline(&office.mailbox(name(ANN))).await;
            crate::world::until("the deadline passes", async || Timestamp::now() > deadline).await;
            let ended = run(world.path(), layout, ANN, &Verb::Events, Some(step));
            for agent in [ANN, BOB] {
                let events = crate::agreement::told(&office.mailbox(name(agent))).await;
                let overdue = events
                    .iter()
                    .filter(|event| matches!(event, amb_core::event::Event::TaskOverdue { task } if task.id == id));
                assert_eq!(overdue.count(), 1, "{layout}: {agent}: killed at step {step}");
            }
            if ended != Ended::Killed {
                break;
            }
        }
    }
}

/// A task of ann for bob with a near deadline, sent before it passed however slow the machine is.
async fn accepted_with_a_deadline(ann: &amb_dir::DirMailbox) -> (amb_core::TaskId, Timestamp) {
    let mut soon = Duration::from_millis(50);
    loop {
        let deadline = Timestamp::now() + soon;
        let draft = Draft { deadline: Some(deadline), ..Draft::task(name(BOB), "Work", "do it") };
        match ann.send(draft).await {
            Ok(sent) if sent.task.as_ref().is_some_and(|task| task.state == TaskState::Pending) => {
                return (sent.task.unwrap().id, deadline);
            }
            // The deadline passed before it was sent.
            _ => soon *= 2,
        }
        assert!(soon < crate::world::PATIENCE, "never accepted");
    }
}

#[tokio::test]
async fn the_doctor_can_be_killed_at_any_step() {
    for layout in LAYOUTS {
        for step in 1..MOST_STEPS {
            let world = World::in_memory(layout);
            unread(&world, 1).await;
            world.office().mailbox(name(ANN)).send(Draft::task(name(BOB), "Work", "do it")).await.unwrap();
            // A truncated message, a missing pointer, a missing registry.
            let temp = world.inbox(BOB).join(".amb-1-dead.tmp");
            fs_err::write(&temp, "half").unwrap();
            let old = std::time::SystemTime::now() - Duration::from_secs(120);
            fs_err::OpenOptions::new().write(true).open(&temp).unwrap().set_modified(old).unwrap();
            fs_err::remove_dir_all(world.path().join(".amb/agents/ann/given")).unwrap();
            fs_err::remove_file(world.path().join("_registry.json")).ok();
            let ended = run(world.path(), layout, BOB, &Verb::Mend, Some(step));
            answered(&run(world.path(), layout, BOB, &Verb::Mend, None));
            let about = format!("the doctor killed at step {step}");
            everybody_agrees(&world, &[ANN, BOB], &about).await;
            if ended != Ended::Killed {
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_line_of_a_transcript_is_there_whole_or_not_at_all() {
    for layout in LAYOUTS {
        for step in 1..MOST_STEPS {
            let world = World::in_memory(layout);
            world.agent(ANN).await;
            let append = Verb::Append("team".into(), "hello".into());
            let ended = run(world.path(), layout, ANN, &append, Some(step));
            answered(&run(world.path(), layout, ANN, &append, None));
            let ann = world.office().mailbox(name(ANN));
            let lines = ann.transcript_recent(&"team".parse().unwrap(), 10).await.unwrap();
            let about = format!("{layout}: killed at step {step}");
            assert!((1..=2).contains(&lines.len()), "{about}: without an id a repeat may be another line");
            assert!(lines.iter().all(|line| line.content == "hello"), "{about}");
            everybody_agrees(&world, &[ANN], &about).await;
            if ended != Ended::Killed {
                break;
            }
        }
    }
}

#[tokio::test]
async fn what_was_carried_is_there_once_and_what_was_refused_is_in_one_place() {
    for layout in LAYOUTS {
        for step in 1..MOST_STEPS {
            let world = World::in_memory(layout);
            two(&world).await;
            let message = carried_message(&world).await;
            let carry = Verb::Carry(Box::new(message), 7, true);
            let ended = run(world.path(), layout, ANN, &carry, Some(step));
            let about = format!("{layout}: carry killed at step {step}");
            answered(&run(world.path(), layout, ANN, &carry, None));
            assert_eq!(there(&world, "carried"), 1, "{about}");
            everybody_agrees(&world, &[ANN, BOB], &about).await;
            if ended != Ended::Killed {
                break;
            }
        }
        for step in 1..MOST_STEPS {
            let world = World::in_memory(layout);
            let refuse = Verb::Refuse(unread(&world, 1).await.remove(0));
            let ended = run(world.path(), layout, BOB, &refuse, Some(step));
            answered(&run(world.path(), layout, BOB, &refuse, None));
            let about = format!("{layout}: refuse killed at step {step}");
            assert_eq!(there(&world, "0"), 0, "{about}");
            assert_eq!(world.files("bob/refused").len(), 1, "{about}");
            if ended != Ended::Killed {
                break;
            }
        }
    }
}

/// A message of ann to bob as another office accepted it: a copy of one of this office with another time.
async fn carried_message(world: &World) -> amb_core::Message {
    let ann = world.office().mailbox(name(ANN));
    let sent = ann.send(text(BOB, "first")).await.unwrap();
    let mut message = ann.message(&sent.message_id).await.unwrap().message;
    message.sent_at = Timestamp::now();
    message.parts = vec![amb_core::Part::text("carried".to_owned())];
    message
}
