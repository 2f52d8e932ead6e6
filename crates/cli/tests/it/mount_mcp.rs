//! A model's `amb mcp` on the server and an agent on files, who talk through the mount.

use amb_core::{Draft, Mailbox as _, TaskState};
use amb_dir::Layout;
use serde_json::json;

use crate::mcp_client::{Model, amb};
use crate::mount_world::{Database, World, arrives, name, until};

#[tokio::test]
async fn a_model_on_the_server_and_an_agent_on_files_work_together() {
    let world = World::new(Database::sqlite(), Layout::Nanobot).await;
    let coder = world.resident("coder").await;
    let ann = world.server.register("ann-mcp").await;
    world.known(&ann, "coder").await;
    let home = tempfile::tempdir().unwrap();
    let mut command = amb(home.path());
    command.arg("mcp").env("MAILBOX_SERVER_URL", world.server.url("")).env("MAILBOX_API_KEY", &ann.key);
    let mut model = Model::start(&mut command).await;

    model.call("mailbox_connect", json!({"target_agent_name": "coder"})).await;
    until(async || world.status(&ann, "coder").await == "ACTIVE").await;
    let hello = json!({"to": "coder", "subject": "Review", "content": "can you review?"});
    model.call("mailbox_send", hello).await;
    let question = arrives(&coder).await;
    assert_eq!((question.from.as_str(), question.text()), ("ann-mcp", "can you review?".to_owned()));

    coder.send(Draft::reply(&question, "gladly")).await.unwrap();
    // It hears of the connection too.
    while !model.call("mailbox_wait", json!({"timeout_seconds": 50})).await.to_string().contains("gladly") {}
    let task = coder.send(Draft::task(name("ann-mcp"), "Review", "send me the patch")).await.unwrap().task.unwrap();
    let id = loop {
        let listed = model.call("mailbox_task", json!({"action": "list"})).await;
        match listed["tasks"].as_array().and_then(|tasks| tasks.first()) {
            Some(task) => break task["id"].clone(),
            None => drop(model.call("mailbox_wait", json!({"timeout_seconds": 50})).await),
        }
    };
    model.call("mailbox_task", json!({"action": "done", "task_id": id, "note": "here it is"})).await;
    let update = arrives(&coder).await;
    assert_eq!(update.text(), "here it is");
    assert_eq!(update.task.map(|said| (said.id, said.state)), Some((task.id, TaskState::Completed)));
}
