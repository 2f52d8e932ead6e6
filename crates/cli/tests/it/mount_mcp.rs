//! A model's `amb mcp` on the server and an agent on files, who talk through the mount.

use std::process::Stdio;

use amb_core::{Draft, Office as _, TaskState};
use amb_dir::Layout;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::mount_world::{Database, World, arrives, name, until};
use crate::server_office::{Agent, soon};

/// A client of `amb mcp`, as Claude Code is one.
struct Model {
    _process: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
    calls: u64,
}

impl Model {
    async fn start(world: &World, agent: &Agent) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_amb"))
            .arg("mcp")
            .env("MAILBOX_SERVER_URL", world.server.url(""))
            .env("MAILBOX_API_KEY", &agent.key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (stdin, stdout) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let mut model = Self { _process: process, stdin, stdout: BufReader::new(stdout).lines(), calls: 0 };
        let client = json!({"name": "test", "version": "1"});
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
        model.ask("initialize", hello).await;
        model.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        model
    }

    async fn say(&mut self, message: &Value) {
        self.stdin.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let id = self.calls;
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        loop {
            let line = soon(self.stdout.next_line()).await.unwrap().expect("an answer");
            let said: Value = serde_json::from_str(&line).unwrap();
            if said["id"] == id {
                return said["result"].clone();
            }
        }
    }

    /// Calls a tool and answers its structured half.
    async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.ask("tools/call", json!({"name": tool, "arguments": arguments})).await;
        assert_ne!(result["isError"], true, "{tool}: {result}");
        result["structuredContent"].clone()
    }
}

#[tokio::test]
async fn a_model_on_the_server_and_an_agent_on_files_work_together() {
    let world = World::new(Database::sqlite(), Layout::Nanobot).await;
    let coder = world.resident("coder").await;
    let ann = world.server.register("ann-mcp").await;
    world.known(&ann, "coder").await;
    let mut model = Model::start(&world, &ann).await;

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
