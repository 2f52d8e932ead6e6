//! Tasks of a household: its person cancels them and gives them to other members.

use amb_core::doc::ProfilePatch;
use amb_core::limits::MAX_REASSIGNMENTS;
use amb_core::stepping_in::Act;
use amb_core::{Callback, Code, Event, Kind, TaskState};
use amb_store::Once;

use super::household::OWNER;
use super::races::at_once;
use super::stepping_in::all;
use super::*;

pub async fn a_canceled_task_names_the_person_to_both_sides(store: TestStore) {
    let ann = store.household_of("ann").await;
    let (coder, writer) = (store.join("coder", OWNER).await, store.join("writer", OWNER).await);
    let friend = store.enter("friend").await;
    store.connect(&friend, &coder).await;
    for (owner, assignee, started) in [(&coder, &writer, true), (&friend, &coder, false), (&coder, &friend, true)] {
        let id = store.give(owner, assignee, "Build").await;
        if started {
            store.set_task_state(assignee, &id, TaskState::Working, Some("half".into()), at(2)).await.unwrap();
        }
        let heads = [store.event_head(owner.key).await.unwrap(), store.event_head(assignee.key).await.unwrap()];
        let canceled = store.cancel_task(&ann, &id, Some("not needed".into()), at(3)).await.unwrap();
        let ended = if started { TaskState::Failed } else { TaskState::Rejected };
        assert_eq!((canceled.answer.state, canceled.answer.canceled_by), (ended, Some(ann.name.clone())));
        for (side, head) in [owner, assignee].into_iter().zip(heads) {
            let task = store.task(side, &id).await.unwrap();
            assert_eq!(task.note.as_deref(), Some("canceled by ann: not needed"));
            assert_eq!(task.canceled_by, Some(ann.name.clone()), "by the office, not by words");
            let mail = store.messages_after(side, head).await;
            assert_eq!(mail, [(Kind::TaskUpdate, "canceled by ann: not needed".to_owned())], "{}", side.name);
            assert_eq!(store.acts(side).await.last().unwrap().0, "ann");
        }
        let again = store.cancel_task(&ann, &id, None, at(4)).await.unwrap();
        assert_eq!((again.answer.note.as_deref(), again.entries.len()), (Some("canceled by ann: not needed"), 0));
    }
    let done = store.give(&coder, &writer, "Build").await;
    store.set_task_state(&writer, &done, TaskState::Completed, None, at(5)).await.unwrap();
    let refused = store.cancel_task(&ann, &done, None, at(6)).await.unwrap_err();
    assert_eq!(refused.code(), Code::IllegalMove);
    // A repeat under its key is the same, whatever happened since.
    let id = store.give(&coder, &writer, "Again").await;
    let under = |person: &Agent| person.clone().under(Some(Once::new("k".into(), "cancel", &"k").unwrap()));
    let first = store.cancel_task(&under(&ann), &id, None, at(7)).await.unwrap().answer;
    assert_eq!(store.cancel_task(&under(&ann), &id, None, at(8)).await.unwrap().answer, first);
}

pub async fn a_reassigned_task_is_new_mail_with_the_original_text(store: TestStore) {
    let ann = store.household_of("ann").await;
    let (coder, writer, tester) =
        (store.join("coder", OWNER).await, store.join("writer", OWNER).await, store.join("tester", OWNER).await);
    let callback = Callback { channel: Some("chat".into()), session_id: Some("s".into()), ..Callback::default() };
    let draft = Draft {
        kind: Kind::Task,
        callback: Some(callback.clone()),
        deadline: Some(at(10)),
        priority: amb_core::Priority::High,
        ..Draft::text(writer.name.clone(), "Build", "build the parser")
    };
    let id = store.send(&coder, draft, at(1)).await.unwrap().answer.task.unwrap().id;
    store.set_task_state(&writer, &id, TaskState::Working, Some("half".into()), at(2)).await.unwrap();
    let heads = [store.event_head(writer.key).await.unwrap(), store.event_head(tester.key).await.unwrap()];
    let moved = store.reassign_task(&ann, &id, &tester.name, at(3)).await.unwrap();
    assert_eq!((moved.answer.assignee.as_str(), moved.answer.state), ("tester", TaskState::Pending));
    assert_eq!((moved.answer.id.clone(), moved.answer.deadline), (id.clone(), Some(at(10))));
    let again = store.reassign_task(&ann, &id, &tester.name, at(3)).await.unwrap();
    assert_eq!((again.answer, again.entries.len()), (moved.answer.clone(), 0), "again is nothing new");
    // The previous assignee gets a final update and can no longer move it.
    let messages = store.messages_after(&writer, heads[0]).await;
    assert_eq!(messages, [(Kind::TaskUpdate, "ann gave this task to tester; stop working on it".to_owned())]);
    assert_eq!(code(store.set_task_state(&writer, &id, TaskState::Completed, None, at(4)).await), Code::NotFound);
    // The new assignee gets it as a message from its owner; the pushed entries are those of the log.
    let entries = store.events(tester.key, heads[1], 10).await.unwrap();
    let Event::NewMessage(mail) = &entries[0].event else { panic!("{entries:?}") };
    assert_eq!((mail.from_agent.as_str(), mail.content.as_str()), ("coder", "build the parser"));
    assert_eq!((mail.kind.clone(), mail.priority), (Kind::Task, amb_core::Priority::High));
    assert_eq!(mail.task.as_ref().map(|task| (&task.id, task.state)), Some((&id, TaskState::Pending)));
    assert!(moved.entries.iter().any(|one| one.agent == tester.key && one.entry == entries[0]));
    assert_eq!(moved.answer.message_id, mail.message_id);
    let claimed = store.claim(&tester, all(), at(4)).await.unwrap().answer;
    assert_eq!((claimed.len(), claimed[0].callback.as_ref()), (1, None), "a callback is its owner's alone");
    // All four know who did it.
    for side in [&coder, &writer, &tester, &ann] {
        let acts = store.acts(side).await;
        let [(by, Act::TaskReassigned { from, task })] = acts.as_slice() else { panic!("{acts:?}") };
        assert_eq!((by.as_str(), from, &task.assignee), ("ann", &writer.name, &tester.name));
        assert_eq!(task.callback.is_some(), side.name == coder.name);
    }
    // It continues as any task, with its owner's callback.
    let head = store.event_head(coder.key).await.unwrap();
    store.set_task_state(&tester, &id, TaskState::Completed, Some("built".into()), at(5)).await.unwrap();
    assert_eq!(store.messages_after(&coder, head).await, [(Kind::TaskUpdate, "built".to_owned())]);
    let task = store.task(&coder, &id).await.unwrap();
    assert_eq!((task.state, task.callback), (TaskState::Completed, Some(callback)));
    // A task delegated from the new message names this one as its parent.
    let id = store.give(&coder, &writer, "Big").await;
    let message = store.reassign_task(&ann, &id, &tester.name, at(6)).await.unwrap().answer.message_id;
    let piece =
        Draft { kind: Kind::Task, relay_of: Some(message), ..Draft::text(writer.name.clone(), "A piece", "of it") };
    let piece = store.send(&tester, piece, at(7)).await.unwrap().answer.task.unwrap().id;
    assert_eq!(store.task(&tester, &piece).await.unwrap().parent, Some(id));
}

pub async fn a_task_is_reassigned_only_to_allowed_agents(store: TestStore) {
    let ann = store.household_of("ann").await;
    let (coder, writer, tester) =
        (store.join("coder", OWNER).await, store.join("writer", OWNER).await, store.join("tester", OWNER).await);
    let friend = store.enter("friend").await;
    store.connect(&friend, &coder).await;
    let id = store.give(&coder, &writer, "Build").await;
    assert_eq!(code(store.reassign_task(&ann, &id, &coder.name, at(2)).await), Code::Conflict, "it gave it itself");
    // The friend may write to coder alone.
    let theirs = store.give(&friend, &coder, "Build").await;
    let refused = store.reassign_task(&ann, &theirs, &writer.name, at(2)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Conflict);
    assert!(refused.detail().contains("friend") && refused.detail().contains("writer"), "{refused}");
    let patch = ProfilePatch { max_concurrent_tasks: Some(0), ..ProfilePatch::default() };
    store.update_profile(&tester, patch, at(2)).await.unwrap();
    assert_eq!(code(store.reassign_task(&ann, &id, &tester.name, at(2)).await), Code::Conflict, "its quota is full");
    // The person can take it over.
    let moved = store.reassign_task(&ann, &id, &ann.name, at(3)).await.unwrap().answer;
    assert_eq!(moved.assignee, ann.name);
    store.set_task_state(&ann, &id, TaskState::Completed, None, at(4)).await.unwrap();
    assert_eq!(code(store.reassign_task(&ann, &id, &writer.name, at(5)).await), Code::IllegalMove);
    // A passed deadline does not prevent it.
    let late = Draft { kind: Kind::Task, deadline: Some(at(10)), ..Draft::text(writer.name.clone(), "Late", "do it") };
    let late = store.send(&coder, late, at(6)).await.unwrap().answer.task.unwrap().id;
    store.sweep_overdue(at(11)).await.unwrap();
    let moved = store.reassign_task(&ann, &late, &ann.name, at(12)).await.unwrap().answer;
    assert_eq!((moved.deadline, moved.overdue), (None, false));
    store.set_task_state(&ann, &late, TaskState::Completed, None, at(13)).await.unwrap();
    // The conversation that it would go to was ended.
    let ended = store.say(&coder, &ann, "Ended", "x").await.answer.session_id;
    store.end_session(&ann, &ended, at(14)).await.unwrap();
    let id = store.give(&coder, &writer, "Ended").await;
    assert_eq!(code(store.reassign_task(&ann, &id, &ann.name, at(15)).await), Code::Gone);
    assert_eq!(store.task(&writer, &id).await.unwrap().state, TaskState::Pending, "nothing of it happened");
}

pub async fn reassignments_of_a_strangers_task_are_limited(store: TestStore) {
    let ann = store.household_of("ann").await;
    let (coder, writer) = (store.join("coder", OWNER).await, store.join("writer", OWNER).await);
    let friend = store.enter("friend").await;
    store.connect(&friend, &coder).await;
    store.connect(&friend, &writer).await;
    // Its owner is charged for the copy, within its quota.
    let id = store.give(&friend, &coder, "Build").await;
    let used = async || store.profile(&friend, at(1)).await.unwrap().usage.messages;
    let before = used().await;
    store.set_quotas(amb_core::Quotas { agent_messages: Some(before), ..amb_core::Quotas::NONE });
    let head = store.event_head(coder.key).await.unwrap();
    assert_eq!(code(store.reassign_task(&ann, &id, &writer.name, at(2)).await), Code::OverQuota);
    assert_eq!((used().await, store.event_head(coder.key).await.unwrap()), (before, head), "nothing of it happened");
    store.set_quotas(amb_core::Quotas::NONE);
    // The number of reassignments is limited.
    for round in 0..MAX_REASSIGNMENTS {
        let to = if round % 2 == 0 { &writer } else { &coder };
        let moved = store.reassign_task(&ann, &id, &to.name, at(3)).await.unwrap().answer;
        assert_eq!(moved.assignee, to.name);
        store.reassign_task(&ann, &id, &to.name, at(3)).await.unwrap();
    }
    let after = used().await;
    let refused = store.reassign_task(&ann, &id, &writer.name, at(4)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Conflict);
    assert!(refused.detail().contains("cancel it"), "{refused}");
    assert_eq!((used().await, after), (after, before + 2 * u64::from(MAX_REASSIGNMENTS)), "a copy and an update each");
    store.cancel_task(&ann, &id, None, at(5)).await.unwrap();
}

pub async fn a_task_ends_once_under_concurrent_moves(store: TestStore) {
    let ann = store.household_of("ann").await;
    let (coder, writer, tester) =
        (store.join("coder", OWNER).await, store.join("writer", OWNER).await, store.join("tester", OWNER).await);
    for round in 0..12 {
        let id = store.give(&coder, &writer, &format!("Build {round}")).await;
        let head = store.event_head(coder.key).await.unwrap();
        let acted = at_once(6, |n| {
            let (store, id) = (store.clone(), id.clone());
            let (ann, writer, tester) = (ann.clone(), writer.clone(), tester.clone());
            async move {
                match n % 3 {
                    0 => store.cancel_task(&ann, &id, None, at(2)).await,
                    1 => store.set_task_state(&writer, &id, TaskState::Completed, Some("done".into()), at(2)).await,
                    _ => store.reassign_task(&ann, &id, &tester.name, at(2)).await,
                }
            }
        });
        for error in acted.await.into_iter().filter_map(Result::err) {
            assert!(matches!(error.code(), Code::IllegalMove | Code::NotFound), "{error}");
        }
        let task = store.task(&coder, &id).await.unwrap();
        let canceled = task.canceled_by.is_some();
        assert_eq!(canceled, matches!(task.state, TaskState::Failed | TaskState::Rejected), "{task:?}");
        assert!(canceled || task.state == TaskState::Completed, "{task:?}");
        // Its owner gets one final update.
        let received = store.messages_after(&coder, head).await;
        let ends = received.iter().filter(|(_, text)| text == "done" || text.starts_with("canceled")).count();
        assert_eq!(ends, 1, "{received:?}");
    }
}
