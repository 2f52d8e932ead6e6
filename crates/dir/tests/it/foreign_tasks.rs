//! Tasks of other programs, whose ids are not unique.

use amb_core::mailbox::{ClaimRequest, TaskFilter};
use amb_core::{AllowFrom, Card, Draft, Kind, Mailbox, Task, TaskState};
use amb_dir::{DirMailbox, Layout};
use serde_json::json;

use crate::agreement::mail_files;
use crate::world::{LAYOUTS, World, chipset_file, name, nanobot_file};

/// Writes a task of another program with this id.
fn give(world: &World, (from, to): (&str, &str), n: u32, id: &str, text: &str) {
    let at = format!("2026-03-05T10:30:0{n}Z");
    let task = json!({"id": id, "state": "pending"});
    match world.layout {
        Layout::Nanobot => {
            let content = json!({"parts": [{"type": "text", "text": text}]});
            let fields = json!({"id": format!("m-{from}-{n}"), "type": "task", "task": task, "content": content, "timestamp": at});
            world.drop_file(to, &format!("177270660012{n}_{from}.msg.json"), nanobot_file(from, to, fields));
        }
        Layout::Chipset => {
            let fields = json!({"type": "task", "body": text, "timestamp": at, "amb": {"task": task}});
            world.drop_file(to, &format!("2026-03-05T10-30-0{n}Z-{from}.json"), chipset_file(from, to, fields));
        }
    }
}

async fn tasks(mailbox: &DirMailbox) -> Vec<Task> {
    mailbox.tasks(TaskFilter::default()).await.unwrap()
}

/// Returns the task ids and states in the updates that an agent got.
fn told(world: &World, agent: &str) -> Vec<(String, TaskState)> {
    let mut told: Vec<_> = mail_files(world, agent)
        .into_iter()
        .filter(|mail| mail.kind == "task_update")
        .filter_map(|mail| mail.task.map(|(id, state)| (id.to_string(), state)))
        .collect();
    told.sort();
    told
}

#[tokio::test]
async fn a_task_whose_id_another_one_had_is_a_task_of_its_own() {
    for layout in LAYOUTS {
        let world = World::in_memory(layout);
        let (ann, cat) = (world.agent("ann").await, world.agent("cat").await);
        let bob = world.agent_with("bob", Card { max_concurrent_tasks: 1, ..Card::default() }).await;
        let first = ann.send(Draft::task(name("bob"), "Work", "first")).await.unwrap().task.unwrap().id;
        bob.set_task_state(&first, TaskState::Accepted, None).await.unwrap();
        // Bob's quota is full: this one is rejected.
        give(&world, ("ann", "bob"), 0, "t1", "A");
        bob.inbox(false).await.unwrap();
        bob.set_task_state(&first, TaskState::Completed, None).await.unwrap();
        give(&world, ("cat", "bob"), 1, "t1", "B");
        let shown = bob.claim(ClaimRequest { limit: 10, ..ClaimRequest::default() }).await.unwrap();
        let shown: Vec<_> = shown.into_iter().filter(|message| message.kind == Kind::Task).collect();
        assert_eq!(shown.iter().map(|message| message.text()).collect::<Vec<_>>(), ["B"], "{layout}");
        let id = shown[0].task.as_ref().unwrap().id.clone();
        let bobs = tasks(&bob).await;
        assert_eq!(bobs.iter().filter(|task| task.state == TaskState::Pending).count(), 1, "{layout}: {bobs:?}");
        bob.set_task_state(&id, TaskState::Accepted, None).await.unwrap();
        world.office().mailbox(name("bob")).set_task_state(&id, TaskState::Completed, None).await.unwrap();
        // Cat's program knows only the id that it gave.
        assert_eq!(told(&world, "cat"), [("t1".into(), TaskState::Accepted), ("t1".into(), TaskState::Completed)]);
        let cats = tasks(&cat).await;
        assert_eq!(cats.iter().map(|task| (&task.id, task.state)).collect::<Vec<_>>(), [(&id, TaskState::Completed)]);
        let updates = cat.claim(ClaimRequest { limit: 10, ..ClaimRequest::default() }).await.unwrap();
        assert!(updates.iter().all(|update| update.task.as_ref().unwrap().id == id), "{layout}: {updates:?}");
        let rejected = told(&world, "ann").into_iter().filter(|told| *told == ("t1".into(), TaskState::Rejected));
        assert_eq!(rejected.count(), 1, "{layout}");
        let b = mail_files(&world, "bob").into_iter().find(|mail| mail.text == "B").unwrap();
        assert!(b.read, "{layout}: it has ended");
        assert_eq!(amb_dir::doctor::examine(&world.office(), false).await.unwrap(), [], "{layout}");
    }
}

#[tokio::test]
async fn one_sender_may_use_an_id_for_two_agents_and_twice_for_one() {
    for layout in LAYOUTS {
        let world = World::in_memory(layout);
        let ann = world.agent("ann").await;
        let (bob, cat) = (world.agent("bob").await, world.agent("cat").await);
        give(&world, ("ann", "bob"), 0, "t1", "A");
        give(&world, ("ann", "cat"), 1, "t1", "B");
        give(&world, ("ann", "bob"), 2, "t1", "C");
        bob.inbox(false).await.unwrap();
        cat.inbox(false).await.unwrap();
        let owned = tasks(&ann).await;
        assert_eq!(owned.len(), 3, "{layout}: {owned:?}");
        assert_eq!(tasks(&bob).await.len(), 2, "{layout}");
        for task in tasks(&bob).await {
            bob.set_task_state(&task.id, TaskState::Rejected, None).await.unwrap();
        }
        ann.inbox(false).await.unwrap();
        let open = ann.tasks(TaskFilter { open: true, ..TaskFilter::default() }).await.unwrap();
        assert_eq!(open.iter().map(|task| task.assignee.as_str()).collect::<Vec<_>>(), ["cat"], "{layout}");
        // A new process sees the same.
        let again = world.office();
        assert_eq!(tasks(&again.mailbox(name("ann"))).await.len(), 3, "{layout}");
        assert_eq!(tasks(&again.mailbox(name("bob"))).await.len(), 2, "{layout}");
    }
}

/// Writes a task update of another program, stamped long before the task was sent.
fn report(world: &World, (from, to): (&str, &str), n: u32, id: &str, state: &str) {
    report_as(world, "task_update", (from, to), n, id, state);
}

/// Like `report`, under another type.
fn report_as(world: &World, kind: &str, (from, to): (&str, &str), n: u32, id: &str, state: &str) {
    let at = format!("2026-03-05T10:30:0{n}Z");
    let task = json!({"id": id, "state": state});
    match world.layout {
        Layout::Nanobot => {
            let fields = json!({
                "id": format!("u-{n}"), "type": kind, "task": task, "timestamp": at,
                "content": {"parts": [{"type": "text", "text": state}]},
            });
            world.drop_file(to, &format!("177270660012{n}_{from}.msg.json"), nanobot_file(from, to, fields));
        }
        Layout::Chipset => {
            let fields = json!({"type": kind, "body": state, "timestamp": at, "amb": {"task": task}});
            world.drop_file(to, &format!("2026-03-05T10-30-0{n}Z-{from}.json"), chipset_file(from, to, fields));
        }
    }
}

#[tokio::test]
async fn an_update_of_another_program_counts_though_its_clock_is_behind() {
    for layout in LAYOUTS {
        let world = World::in_memory(layout);
        let ann = world.agent("ann").await;
        world.agent("bob").await;
        let id = ann.send(Draft::task(name("bob"), "Work", "do it")).await.unwrap().task.unwrap().id;
        let mut state = TaskState::Pending;
        for (n, (reported, expected)) in [
            ("accepted", TaskState::Accepted),
            ("working", TaskState::Working),
            ("completed", TaskState::Completed),
            ("working", TaskState::Completed),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(tasks(&ann).await[0].state, state, "{layout}");
            report(&world, ("bob", "ann"), n as u32, id.as_str(), reported);
            ann.inbox(false).await.unwrap();
            state = expected;
        }
        let task = tasks(&ann).await.remove(0);
        assert_eq!((task.state, task.note.as_deref()), (TaskState::Completed, Some("completed")), "{layout}");
        assert!(task.updated_at >= task.created_at, "{layout}: {task:?}");
    }
}

#[tokio::test]
async fn a_pointer_that_an_earlier_version_named_by_the_id_alone_is_found() {
    for layout in LAYOUTS {
        let world = World::in_memory(layout);
        let (ann, bob) = (world.agent("ann").await, world.agent("bob").await);
        let id = ann.send(Draft::task(name("bob"), "Work", "do it")).await.unwrap().task.unwrap().id;
        let given = world.path().join(".amb/agents/ann/given");
        let file = world.files(".amb/agents/ann/given").remove(0);
        let space = uuid::Uuid::from_u128(0x1c62_7a0d_93b4_5e18_a2f0_66d1_0b9e_57c3);
        let old = format!("{}.json", uuid::Uuid::new_v5(&space, id.as_str().as_bytes()).simple());
        let pointer = json!({"id": id, "assignee": "bob"});
        fs_err::remove_file(given.join(&file)).unwrap();
        fs_err::write(given.join(&old), pointer.to_string()).unwrap();
        assert_eq!(tasks(&ann).await.len(), 1, "{layout}");
        bob.set_task_state(&id, TaskState::Accepted, None).await.unwrap();
        bob.set_task_state(&id, TaskState::Completed, None).await.unwrap();
        assert_eq!(tasks(&ann).await[0].state, TaskState::Completed, "{layout}");
        assert!(ann.tasks(TaskFilter { open: true, ..TaskFilter::default() }).await.unwrap().is_empty());
        ann.events(None, std::time::Duration::ZERO).await.unwrap();
        assert_eq!(world.files(".amb/agents/ann/given"), Vec::<String>::new(), "{layout}: it has ended");
        assert_eq!(world.files(".amb/agents/ann/given/ended"), [old], "{layout}");
    }
}

#[tokio::test]
async fn an_update_that_does_not_count_is_not_shown_as_one() {
    for layout in LAYOUTS {
        let world = World::in_memory(layout);
        let ann = world.agent("ann").await;
        fs_err::create_dir_all(world.inbox("bob")).unwrap();
        let id = ann.send(Draft::task(name("bob"), "Work", "do it")).await.unwrap().task.unwrap().id;
        let shown = async || {
            let mail = ann.claim(ClaimRequest { limit: 10, ..ClaimRequest::default() }).await.unwrap().remove(0);
            let view = ann.message(&mail.id).await.unwrap().message;
            assert_eq!((&mail.task, &mail.metadata), (&view.task, &view.metadata), "{layout}");
            ann.ack(&[mail.id]).await.unwrap();
            (mail.task.map(|task| task.state), mail.metadata.get("not_applied").cloned())
        };
        report(&world, ("eve", "ann"), 0, id.as_str(), "completed");
        let note = json!({"task_id": id, "state": "completed", "reason": "the task is bob's"});
        assert_eq!(shown().await, (None, Some(note)), "{layout}");
        assert_eq!(ann.task(&id).await.unwrap().state, TaskState::Pending, "{layout}");
        for (n, state) in [(1, TaskState::Accepted), (2, TaskState::Completed)] {
            report(&world, ("bob", "ann"), n, id.as_str(), state.as_str());
            assert_eq!(shown().await, (Some(state), None), "{layout}");
        }
        report(&world, ("bob", "ann"), 3, id.as_str(), "failed");
        let note = json!({"task_id": id, "state": "failed", "reason": "the task is completed"});
        assert_eq!(shown().await, (None, Some(note)), "{layout}");
        assert_eq!(ann.task(&id).await.unwrap().state, TaskState::Completed, "{layout}");
        // Nothing is known of this task.
        report(&world, ("bob", "ann"), 4, "other", "working");
        assert_eq!(shown().await, (Some(TaskState::Working), None), "{layout}");
    }
}

#[tokio::test]
async fn updates_that_are_found_together_count_in_the_order_of_their_times() {
    // Written in both orders, since some file systems list the newest file first.
    for (layout, is_reversed) in LAYOUTS.into_iter().flat_map(|layout| [(layout, false), (layout, true)]) {
        let world = World::in_memory(layout);
        let ann = world.agent("ann").await;
        world.agent("bob").await;
        let id = ann.send(Draft::task(name("bob"), "Work", "do it")).await.unwrap().task.unwrap().id;
        let mut states = [(1, "accepted"), (3, "completed"), (5, "failed")];
        if is_reversed {
            states.reverse();
        }
        for (n, state) in states {
            report(&world, ("bob", "ann"), n, id.as_str(), state);
        }
        ann.inbox(false).await.unwrap();
        assert_eq!(ann.task(&id).await.unwrap().state, TaskState::Completed, "{layout}");
    }
}

#[tokio::test]
async fn of_two_tasks_that_are_found_together_the_earlier_keeps_the_id() {
    for (layout, first) in LAYOUTS.into_iter().flat_map(|layout| [(layout, 0), (layout, 1)]) {
        let world = World::in_memory(layout);
        let bob = world.agent("bob").await;
        for n in [first, 1 - first] {
            give(&world, ("ann", "bob"), n, "t1", if n == 0 { "earlier" } else { "later" });
        }
        let shown = bob.claim(ClaimRequest { limit: 10, ..ClaimRequest::default() }).await.unwrap();
        let plain = shown.iter().find(|mail| mail.task.as_ref().unwrap().id.as_str() == "t1").unwrap();
        assert_eq!(plain.text(), "earlier", "{layout}");
    }
}

#[tokio::test]
async fn a_report_under_another_type_is_an_update() {
    for (layout, kind) in LAYOUTS.into_iter().flat_map(|layout| [(layout, "task_result"), (layout, "message")]) {
        let world = World::in_memory(layout);
        let ann = world.agent_with("ann", Card { allow_from: AllowFrom(vec!["eve".into()]), ..Card::default() }).await;
        world.agent("bob").await;
        let id = ann.send(Draft::task(name("bob"), "Work", "do it")).await.unwrap().task.unwrap().id;
        let shown = async || {
            let mail = ann.claim(ClaimRequest { limit: 10, ..ClaimRequest::default() }).await.unwrap().remove(0);
            ann.ack(std::slice::from_ref(&mail.id)).await.unwrap();
            assert_eq!(mail.kind.as_str(), kind, "{layout}");
            (mail.task.map(|task| task.state), mail.metadata.get("not_applied").cloned())
        };
        report_as(&world, kind, ("eve", "ann"), 0, id.as_str(), "completed");
        let note = json!({"task_id": id, "state": "completed", "reason": "the task is bob's"});
        assert_eq!(shown().await, (None, Some(note)), "{layout}");
        assert_eq!(ann.task(&id).await.unwrap().state, TaskState::Pending, "{layout}");
        // Only as the agent that has the task may bob write to ann.
        report_as(&world, kind, ("bob", "ann"), 1, id.as_str(), "completed");
        assert_eq!(shown().await, (Some(TaskState::Completed), None), "{layout}");
        assert_eq!(ann.task(&id).await.unwrap().state, TaskState::Completed, "{layout}");
        report_as(&world, kind, ("bob", "ann"), 2, id.as_str(), "failed");
        let note = json!({"task_id": id, "state": "failed", "reason": "the task is completed"});
        assert_eq!(shown().await, (None, Some(note)), "{layout}");
    }
}
