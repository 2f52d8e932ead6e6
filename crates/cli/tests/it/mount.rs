//! `amb serve --mount`: mail and tasks between agents on files and agents on the server.

use amb_core::mailbox::TaskFilter;
use amb_core::{Card, Draft, Kind, Mailbox as _, ReceiptState, TaskState};
use amb_dir::Layout;
use serde_json::json;

use crate::mount_world::{Database, World, arrives, name, until};

async fn mail_crosses_both_ways(database: Database, layout: Layout) {
    let world = World::new(database, layout).await;
    let coder = world.resident("coder").await;
    let ann = world.server.register("ann-mcp").await;
    world.connect(&ann, "coder").await;

    // From the server to the files, and its answer back.
    let sent = world.send(&ann, "coder", json!({"content": "are you there?", "priority": "high"})).await;
    let question = arrives(&coder).await;
    assert_eq!((question.from.as_str(), question.text()), ("ann-mcp", "are you there?".to_owned()));
    assert_eq!((question.ttl, question.trace.clone()), (2, vec![name("ann-mcp")]));
    assert_eq!(question.subject.as_deref(), Some("Plan"));
    until(async || world.receipt(&ann, &sent["message_id"]).await == "read").await;

    let answer = coder.send(Draft::reply(&question, "I am").automatic()).await.unwrap();
    let came = world.comes(&ann, "coder").await;
    assert_eq!(came["parts"][0]["text"], "I am");
    assert_eq!((&came["ttl"], &came["trace"]), (&json!(1), &json!(["ann-mcp", "coder"])));
    assert_eq!(came["reply_to"], sent["message_id"], "an answer finds its question");
    assert_eq!(came["session"], sent["session_id"], "in the same thread");
    until(async || {
        let receipts = coder.message(&answer.message_id).await.unwrap().receipts;
        receipts[0].state == ReceiptState::Read
    })
    .await;

    assert_eq!(came["metadata"], json!({"automatic": true}), "the mark crosses");

    // And once more: the third message of the exchange, whose automatic answer the office refuses.
    let automatic = json!({"content": "good", "reply_to": came["id"], "metadata": {"automatic": true}});
    let back = world.send(&ann, "coder", automatic).await;
    let good = arrives(&coder).await;
    assert_eq!((good.ttl, good.reply_to.clone()), (0, Some(answer.message_id)));
    let refused = coder.send(Draft::reply(&good, "and again").automatic()).await.unwrap_err();
    assert_eq!(refused.code(), amb_core::Code::LoopRefused);
    until(async || world.receipt(&ann, &back["message_id"]).await == "read").await;
    let health = world.health().await;
    assert_eq!((&health["state"], &health["collisions"]), (&json!("mounted"), &json!(0)), "{health}");
}

#[tokio::test]
async fn mail_crosses_both_ways_on_sqlite() {
    mail_crosses_both_ways(Database::sqlite(), Layout::Nanobot).await;
}

#[tokio::test]
async fn mail_crosses_both_ways_on_postgres() {
    mail_crosses_both_ways(Database::postgres().await, Layout::Nanobot).await;
}

#[tokio::test]
async fn mail_crosses_both_ways_in_the_chipsets_layout() {
    mail_crosses_both_ways(Database::sqlite(), Layout::Chipset).await;
}

async fn a_task_crosses_from_pending_to_completed(database: Database, layout: Layout) {
    let world = World::new(database, layout).await;
    let coder = world.resident("coder").await;
    let ann = world.server.register("ann-mcp").await;
    world.connect(&ann, "coder").await;
    world.shown("ann-mcp").await;

    // Given on the files, done on the server.
    let given = coder.send(Draft::task(name("ann-mcp"), "Work", "count the lines")).await.unwrap().task.unwrap();
    let task = world.comes(&ann, "coder").await["task"].clone();
    assert_eq!(task["state"], "pending");
    let path = format!("/tasks/{}/state", task["id"].as_str().unwrap());
    for (state, note) in [("accepted", "yes"), ("working", "half"), ("working", "most"), ("completed", "42")] {
        world.server.post(&ann, &path, json!({"state": state, "note": note})).await.expect(200);
        let update = arrives(&coder).await;
        assert_eq!((update.kind, update.from.as_str(), update.ttl), (Kind::TaskUpdate, "ann-mcp", 2));
        let said = update.task.unwrap();
        assert_eq!((said.id, said.state.as_str()), (given.id.clone(), state));
    }
    let known = coder.tasks(TaskFilter::default()).await.unwrap();
    assert_eq!((known[0].state, known[0].note.as_deref()), (TaskState::Completed, Some("42")));

    // Given on the server, done on the files.
    let sent = world.send(&ann, "coder", json!({"kind": "task", "content": "and the words"})).await;
    let brought = arrives(&coder).await.task.unwrap();
    let path = format!("/tasks/{}", sent["task"]["id"].as_str().unwrap());
    assert_eq!(world.server.get(&ann, &path).await.expect(200)["state"], "pending");
    use TaskState::{Accepted, Completed, Working};
    for (state, note) in [(Accepted, None), (Working, Some("half")), (Working, Some("most")), (Completed, Some("7"))] {
        coder.set_task_state(&brought.id, state, note.map(str::to_owned)).await.unwrap();
        let update = world.comes(&ann, "coder").await;
        assert_eq!(update["task"]["state"], state.as_str());
        assert_eq!(update["parts"][0]["text"], note.unwrap_or(state.as_str()));
        let task = world.server.get(&ann, &path).await.expect(200);
        assert_eq!((task["state"].as_str(), task["note"].as_str()), (Some(state.as_str()), note));
    }

    // Refused on either side: the giver is told.
    coder.send(Draft::task(name("ann-mcp"), "Work", "now the letters")).await.unwrap();
    let task = world.comes(&ann, "coder").await["task"].clone();
    let path = format!("/tasks/{}/state", task["id"].as_str().unwrap());
    world.server.post(&ann, &path, json!({"state": "rejected", "note": "no"})).await.expect(200);
    assert_eq!(arrives(&coder).await.task.unwrap().state, TaskState::Rejected);
    world.send(&ann, "coder", json!({"kind": "task", "content": "you then"})).await;
    let brought = arrives(&coder).await.task.unwrap();
    coder.set_task_state(&brought.id, TaskState::Rejected, Some("no".into())).await.unwrap();
    assert_eq!(world.comes(&ann, "coder").await["task"]["state"], "rejected");
}

#[tokio::test]
async fn a_task_crosses_from_pending_to_completed_on_sqlite() {
    a_task_crosses_from_pending_to_completed(Database::sqlite(), Layout::Nanobot).await;
}

#[tokio::test]
async fn a_task_crosses_from_pending_to_completed_on_postgres() {
    a_task_crosses_from_pending_to_completed(Database::postgres().await, Layout::Nanobot).await;
}

#[tokio::test]
async fn a_task_crosses_from_pending_to_completed_in_the_chipsets_layout() {
    a_task_crosses_from_pending_to_completed(Database::sqlite(), Layout::Chipset).await;
}

#[tokio::test]
async fn a_loop_through_the_mount_is_refused() {
    let world = World::new(Database::sqlite(), Layout::Nanobot).await;
    let (coder, zoe) = (world.resident("coder").await, world.resident("zoe").await);
    let ann = world.server.register("ann-mcp").await;
    world.connect(&ann, "coder").await;
    world.connect(&ann, "zoe").await;
    world.shown("ann-mcp").await;

    coder.send(Draft::task(name("ann-mcp"), "Work", "find out")).await.unwrap();
    let at_ann = world.comes(&ann, "coder").await;
    let back = json!({"to": "coder", "subject": "Work", "content": "you do it", "relay_of": at_ann["id"]});
    let refused = world.server.post(&ann, "/messages/send", back).await;
    assert_eq!(refused.body["code"], "loop_refused", "{}", refused.body);
    world.send(&ann, "zoe", json!({"kind": "task", "relay_of": at_ann["id"]})).await;
    let at_zoe = arrives(&zoe).await;
    assert_eq!((at_zoe.ttl, at_zoe.trace.clone()), (1, vec![name("coder"), name("ann-mcp")]));
    for target in ["coder", "ann-mcp"] {
        let relay = Draft { relay_of: Some(at_zoe.id.clone()), ..Draft::task(name(target), "Work", "you do it") };
        assert_eq!(zoe.send(relay).await.unwrap_err().code(), amb_core::Code::LoopRefused, "{target}");
    }
}

#[tokio::test]
async fn a_task_that_the_directory_rejects_is_rejected_on_the_server() {
    let world = World::new(Database::sqlite(), Layout::Nanobot).await;
    let card = Card { max_concurrent_tasks: 1, ..Card::default() };
    let (coder, zoe) = (world.resident_with("coder", card).await, world.resident("zoe").await);
    let ann = world.server.register("ann-mcp").await;
    world.connect(&ann, "coder").await;
    // The server does not know of work that was given among files.
    let busy = zoe.send(Draft::task(name("coder"), "Work", "keep busy")).await.unwrap().task.unwrap();
    coder.set_task_state(&busy.id, TaskState::Accepted, None).await.unwrap();
    let sent = world.send(&ann, "coder", json!({"kind": "task", "content": "one more"})).await;
    let told = world.comes(&ann, "coder").await;
    assert_eq!((&told["task"]["id"], &told["task"]["state"]), (&sent["task"]["id"], &json!("rejected")));
    let path = format!("/tasks/{}", sent["task"]["id"].as_str().unwrap());
    let task = world.server.get(&ann, &path).await.expect(200);
    assert_eq!(task["state"], "rejected");
    assert!(task["note"].as_str().is_some_and(|note| !note.is_empty()), "and why: {task}");
    let shown = format!("{:?}", coder.inbox(false).await.unwrap());
    assert!(shown.contains("keep busy") && !shown.contains("one more"), "its text is its sender's alone: {shown}");
}
