//! The office in a directory as a script sees it: verbs, their answers, and the files they leave.

use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::server_office::soon;

/// A directory of mail, with a home of its own beside it.
struct World {
    root: TempDir,
    layout: &'static str,
}

impl World {
    fn new(layout: &'static str) -> Self {
        Self { root: tempfile::tempdir().unwrap(), layout }
    }

    fn mail(&self) -> std::path::PathBuf {
        self.root.path().join("mail")
    }

    async fn run(&self, me: &str, arguments: &[&str], stdin: &[u8]) -> Output {
        let mut amb = Command::new(env!("CARGO_BIN_EXE_amb"));
        amb.env_clear().env("HOME", self.root.path()).kill_on_drop(true);
        amb.args(["--layout", self.layout, "--as", me, "--json", "--dir"]).arg(self.mail()).args(arguments);
        let mut child = amb.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdin).await.unwrap();
        soon(child.wait_with_output()).await.unwrap()
    }

    /// What a verb that succeeds prints.
    async fn amb(&self, me: &str, arguments: &[&str]) -> String {
        let ended = self.run(me, arguments, b"").await;
        assert!(ended.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ended.stderr));
        String::from_utf8(ended.stdout).unwrap()
    }

    async fn json(&self, me: &str, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.amb(me, arguments).await).unwrap()
    }

    /// The exit code of a verb that fails, and its words.
    async fn refused(&self, me: &str, arguments: &[&str], stdin: &[u8]) -> (i32, String) {
        let ended = self.run(me, arguments, stdin).await;
        (ended.status.code().unwrap(), String::from_utf8(ended.stderr).unwrap())
    }

    fn registry(&self, agent: &str) -> Value {
        read(&self.mail().join("_registry.json"))[agent].take()
    }
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs_err::read(path).unwrap()).unwrap()
}

/// The only file in a directory whose name has this ending.
fn only(directory: &Path, ending: &str) -> Value {
    let entries = fs_err::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = entries.filter(|path| path.to_str().unwrap().ends_with(ending)).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    read(&found.remove(0))
}

#[tokio::test]
async fn whoever_has_a_mailbox_can_watch_it_without_having_registered() {
    for layout in ["chipset", "nanobot"] {
        let world = World::new(layout);
        world.amb("mayor", &["send", "polecat", "go", "--subject", "Bead", "--create"]).await;
        let ended = world.run("polecat", &["watch", "--ack", "--count", "1"], b"").await;
        assert!(ended.status.success(), "{layout}: {}", String::from_utf8_lossy(&ended.stderr));
        assert!(ended.stderr.is_empty(), "{layout}: {}", String::from_utf8_lossy(&ended.stderr));
        let mail: Value = serde_json::from_slice(&ended.stdout).unwrap();
        assert_eq!((&mail["content"], &mail["subject"]), (&json!("go"), &json!("Bead")), "{layout}");
    }
}

#[tokio::test]
async fn an_agent_that_takes_a_task_on_is_busy_even_if_it_had_left() {
    let world = World::new("nanobot");
    world.amb("ann", &["register"]).await;
    world.amb("ben", &["register"]).await;
    let card = world.registry("ben");
    assert!(card["last_heartbeat"].as_str() >= card["registered_at"].as_str(), "{card}");
    let sent = world.json("ann", &["send", "ben", "sort", "--kind", "task", "--deadline", "2h"]).await;
    // The watcher says goodbye when it ends; ben goes on by hand.
    world.amb("ben", &["watch", "--ack", "--count", "1"]).await;
    assert_eq!(world.registry("ben")["status"], "offline");
    let id = sent["task"]["id"].as_str().unwrap();
    world.amb("ben", &["task", "accept", id]).await;
    let card = world.registry("ben");
    assert_eq!((&card["status"], &card["current_tasks"]), (&json!("busy"), &json!([id])));
    world.amb("ben", &["task", "done", id]).await;
    assert_eq!(world.registry("ben")["status"], "idle");
}

#[tokio::test]
async fn a_consumer_is_told_hops_trace_and_the_callback_that_it_set() {
    let world = World::new("nanobot");
    world.amb("ann", &["register"]).await;
    world.amb("ben", &["register"]).await;
    let callback = r#"{"channel":"feishu","session_id":"feishu:user_123"}"#;
    let sent = world.json("ann", &["send", "ben", "sort", "--kind", "task", "--callback", callback]).await;
    let task = world.json("ben", &["watch", "--ack", "--count", "1"]).await;
    assert_eq!((&task["ttl"], &task["trace"]), (&json!(2), &json!(["ann"])));
    assert_eq!(task["callback"], Value::Null, "another's chat is none of ben's business");
    world.amb("ben", &["task", "done", sent["task"]["id"].as_str().unwrap(), "sorted"]).await;
    let update = world.json("ann", &["watch", "--ack", "--count", "1"]).await;
    assert_eq!(update["callback"], serde_json::from_str::<Value>(callback).unwrap());
    assert_eq!((&update["kind"], &update["content"]), (&json!("task_update"), &json!("sorted")));
}

#[tokio::test]
async fn a_client_that_goes_is_an_agent_that_has_left() {
    let world = World::new("nanobot");
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    }});
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let ended = world.run("coder", &["mcp"], format!("{hello}\n{ready}\n").as_bytes()).await;
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(world.registry("coder")["status"], "offline");
}

#[tokio::test]
async fn mail_without_a_subject_has_the_same_one_everywhere() {
    let world = World::new("nanobot");
    world.amb("ben", &["register"]).await;
    let file = json!({"from": "ann", "to": "ben", "content": {"parts": [{"type": "text", "text": "hi"}]}});
    let inbox = world.mail().join("ben/inbox");
    fs_err::write(inbox.join("1745659200_ann.msg.json"), file.to_string()).unwrap();
    let inbox = world.json("ben", &["inbox"]).await;
    let taken = world.json("ben", &["watch", "--ack", "--count", "1"]).await;
    assert_eq!(inbox["sessions"][0]["subject"], taken["subject"]);
    assert_eq!(taken["subject"], "(no subject)");
}

#[tokio::test]
async fn a_file_has_every_field_of_its_layout() {
    let world = World::new("nanobot");
    world.amb("ben", &["register"]).await;
    world.amb("ann", &["send", "ben", "hi"]).await;
    let file = only(&world.mail().join("ben/inbox"), ".msg.json");
    assert_eq!((&file["reply_to"], &file["metadata"]), (&Value::Null, &json!({})));
    assert!(file.as_object().unwrap().contains_key("reply_to"));
    let world = World::new("chipset");
    world.amb("mayor", &["send", "polecat", "hi", "--subject", "s"]).await;
    let file = only(&world.mail().join("polecat"), ".json");
    assert_eq!(file["type"], "coordination", "the chipset's word for mail that is nothing in particular");
}

#[tokio::test]
async fn what_a_script_gets_wrong_is_told_as_bad_input() {
    let world = World::new("nanobot");
    world.amb("ben", &["register"]).await;
    for (arguments, stdin, words) in [
        (&["send", "ben", "-"][..], &b"\xff\xfe"[..], "UTF-8"),
        (&["send", "ben", "--file", "nowhere.txt"], b"", "nowhere.txt"),
        (&["transcript", "append", "k", "-", "--role", "user", "--sender", "s"], b"\xff", "UTF-8"),
    ] {
        let (code, said) = world.refused("ann", arguments, stdin).await;
        assert_eq!(code, 2, "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}

#[tokio::test]
async fn a_transcript_takes_long_texts_from_stdin() {
    let world = World::new("nanobot");
    let append = ["transcript", "append", "feishu:oc_1", "-", "--role", "assistant", "--sender", "coder"];
    let ended = world.run("ann", &append, "one\ntwo\n".as_bytes()).await;
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let lines = world.json("ann", &["transcript", "recent", "feishu:oc_1"]).await;
    assert_eq!(lines[0]["content"], "one\ntwo\n");
    assert!(lines[0]["ts"].is_u64(), "{lines}");
}
