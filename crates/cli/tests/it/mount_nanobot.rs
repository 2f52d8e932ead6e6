//! The file agent as nanobot's own mailbox channel is: its registry, its files byte for byte, and no other help.

use std::path::{Path, PathBuf};

use amb_dir::Layout;
use serde_json::{Value, json};

use crate::mount_world::{Database, World, until};

/// A nanobot that knows nothing of us.
struct Nanobot {
    root: PathBuf,
    name: &'static str,
    written: u64,
}

impl Nanobot {
    fn start(root: &Path, name: &'static str) -> Self {
        for part in ["inbox", "processed"] {
            fs_err::create_dir_all(root.join(name).join(part)).unwrap();
        }
        let bot = Self { root: root.to_owned(), name, written: 0 };
        bot.heartbeat();
        bot
    }

    /// Rewrites the registry, as nanobot does with every sign of life.
    fn heartbeat(&self) {
        let path = self.root.join("_registry.json");
        let now = amb_core::Timestamp::now().to_string().replace('Z', "+00:00");
        let mut registry: Value =
            fs_err::read(&path).map_or(json!({}), |bytes| serde_json::from_slice(&bytes).unwrap());
        let since = registry[self.name]["registered_at"].as_str().unwrap_or(&now).to_owned();
        registry[self.name] = json!({
            "agent_id": self.name, "description": "in Python", "capabilities": ["code"], "status": "idle",
            "allow_from": ["*"], "max_concurrent_tasks": 3, "current_tasks": [], "registered_at": since,
            "last_heartbeat": now,
        });
        let temporary = self.root.join("_registry.tmp");
        fs_err::write(&temporary, serde_json::to_string_pretty(&registry).unwrap()).unwrap();
        fs_err::rename(temporary, path).unwrap();
    }

    /// Writes a message file with exactly nanobot's fields, and `more`.
    fn send(&mut self, to: &str, kind: &str, text: &str, ttl: u8, trace: Value, more: &str) {
        self.written += 1;
        let millis = 1_794_771_673_000 + self.written;
        let bytes = format!(
            r#"{{"type":"{kind}","from":"{me}","to":"{to}","content":{{"parts":[{{"type":"text","text":"{text}"}}]}},"ttl":{ttl},"trace":{trace}{more},"id":"msg_{millis}_{me}","timestamp":"2026-11-15T19:41:13.{micros:06}+00:00"}}"#,
            me = self.name,
            micros = self.written,
        );
        let inbox = self.root.join(to).join("inbox");
        let temporary = inbox.join(format!("{millis}.tmp"));
        fs_err::write(&temporary, bytes).unwrap();
        fs_err::rename(temporary, inbox.join(format!("{millis}_{}_{:08x}.msg.json", self.name, self.written))).unwrap();
    }

    /// Takes the first file of the inbox, and moves it to `processed/`.
    fn poll(&self) -> Option<Value> {
        let inbox = self.root.join(self.name).join("inbox");
        let entries = fs_err::read_dir(&inbox).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = entries.filter(|name| name.ends_with(".msg.json")).collect();
        names.sort();
        let first = names.first()?;
        let message = serde_json::from_slice(&fs_err::read(inbox.join(first)).unwrap()).unwrap();
        fs_err::rename(inbox.join(first), self.root.join(self.name).join("processed").join(first)).unwrap();
        Some(message)
    }

    async fn next(&self) -> Value {
        let mut message = None;
        until(async || {
            message = self.poll();
            message.is_some()
        })
        .await;
        message.unwrap()
    }
}

#[tokio::test]
async fn a_nanobot_that_knows_nothing_of_us_and_an_agent_on_the_server_write_to_each_other() {
    let world = World::new(Database::sqlite(), Layout::Nanobot).await;
    let mut bot = Nanobot::start(&world.root, "alpha");
    let ann = world.server.register("ann-mcp").await;
    world.connect(&ann, "alpha").await;
    world.shown("ann-mcp").await;
    let card = world.server.get(&ann, "/agents/alpha").await.expect(200);
    assert_eq!(card["description"], "in Python (mounted directory)");
    until(async || {
        bot.heartbeat();
        world.server.get(&ann, "/agents/alpha").await.expect(200)["status"] == "idle"
    })
    .await;

    // A fresh word, with the ttl and trace that nanobot gives it, and a word that it passes on from another.
    bot.send("ann-mcp", "message", "hi", 2, json!(["alpha"]), "");
    let came = world.comes(&ann, "alpha").await;
    assert_eq!((&came["ttl"], &came["trace"]), (&json!(2), &json!(["alpha"])));
    bot.send("ann-mcp", "message", "from beta", 1, json!(["beta", "alpha"]), "");
    let passed_on = world.comes(&ann, "alpha").await;
    assert_eq!((&passed_on["ttl"], &passed_on["trace"]), (&json!(1), &json!(["beta", "alpha"])));

    // The answer, as nanobot reads files: somebody wrote it, so its hops begin afresh.
    let sent = world.send(&ann, "alpha", json!({"content": "hi yourself", "reply_to": came["id"]})).await;
    let answer = bot.next().await;
    assert_eq!(
        (&answer["from"], &answer["to"], &answer["type"]),
        (&json!("ann-mcp"), &json!("alpha"), &json!("message"))
    );
    assert_eq!(answer["content"]["parts"][0], json!({"type": "text", "text": "hi yourself"}));
    assert_eq!((&answer["ttl"], &answer["trace"]), (&json!(2), &json!(["ann-mcp"])));
    assert_eq!(answer["reply_to"], "msg_1794771673001_alpha");
    until(async || world.receipt(&ann, &sent["message_id"]).await == "read").await;

    // A task from nanobot, with its callback, which comes back with every update and is nobody else's to see.
    let task = r#","task":{"id":"task_1","state":"pending"},"callback":{"channel":"feishu","session_id":"feishu:7","chat_id":"7"}"#;
    bot.send("ann-mcp", "task", "count", 2, json!(["alpha"]), task);
    let given = world.comes(&ann, "alpha").await;
    assert_eq!((&given["task"]["state"], &given["callback"]), (&json!("pending"), &Value::Null));
    let path = format!("/tasks/{}/state", given["task"]["id"].as_str().unwrap());
    for state in ["accepted", "working", "completed"] {
        world.server.post(&ann, &path, json!({"state": state, "note": format!("it is {state}")})).await.expect(200);
        let update = bot.next().await;
        assert_eq!((&update["type"], &update["task"]["id"]), (&json!("task_update"), &json!("task_1")));
        assert_eq!((&update["task"]["state"], &update["callback"]["chat_id"]), (&json!(state), &json!("7")));
    }

    // And one to it, whose progress it writes down as files.
    let sent = world.send(&ann, "alpha", json!({"kind": "task", "content": "now you"})).await;
    let brought = bot.next().await;
    let id = brought["task"]["id"].as_str().unwrap().to_owned();
    for state in ["accepted", "working", "completed"] {
        let said = format!(r#","task":{{"id":"{id}","state":"{state}"}}"#);
        bot.send("ann-mcp", "task_update", state, 2, json!(["ann-mcp", "alpha"]), &said);
        assert_eq!(world.comes(&ann, "alpha").await["task"]["state"], state);
    }
    let task = format!("/tasks/{}", sent["task"]["id"].as_str().unwrap());
    assert_eq!(world.server.get(&ann, &task).await.expect(200)["state"], "completed");

    // What is no message is put where such files go, and stops nothing.
    fs_err::write(world.root.join("ann-mcp/inbox/1794771674000_alpha.msg.json"), "[1, 2").unwrap();
    fs_err::write(world.root.join("ann-mcp/inbox/1794771674001_alpha.msg.json"), r#"{"from": 7}"#).unwrap();
    bot.send("ann-mcp", "message", "after the bad ones", 2, json!(["alpha"]), "");
    assert_eq!(world.comes(&ann, "alpha").await["parts"][0]["text"], "after the bad ones");
    until(async || world.files("ann-mcp/corrupt").len() == 2).await;
}
