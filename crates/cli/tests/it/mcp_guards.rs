//! Rings of models end, over a real directory and a real server, whether somebody started them or a bridge woke them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};
use tokio::process::{Child, Command};

use crate::mcp_client::{Model, amb};
use crate::server_office::{Agent, Office, soon};

const NAMES: [&str; 6] = ["ann", "ben", "cat", "dan", "boss", "zoe"];

/// Agents that may write to each other.
struct Town {
    home: TempDir,
    server: Option<(Office, Vec<Agent>)>,
}

impl Town {
    async fn in_a_directory() -> Self {
        let town = Self { home: tempdir().unwrap(), server: None };
        for name in NAMES {
            assert!(town.mailbox(name).args(["register", name]).output().await.unwrap().status.success());
        }
        town
    }

    async fn on_a_server() -> Self {
        let home = tempdir().unwrap();
        let office = Office::start(&format!("sqlite:{}", home.path().join("mail.db").display())).await;
        let mut agents = Vec::new();
        for name in NAMES {
            let agent = office.register(name).await;
            for other in &agents {
                office.connect(&agent, other).await;
            }
            agents.push(agent);
        }
        Self { home, server: Some((office, agents)) }
    }

    /// The shell command that runs `amb` as this agent.
    fn words(&self, name: &str) -> String {
        let amb = env!("CARGO_BIN_EXE_amb");
        let home = self.home.path().display();
        match &self.server {
            Some((office, agents)) => {
                let key = &agents.iter().find(|agent| agent.name == name).unwrap().key;
                format!("HOME={home} MAILBOX_SERVER_URL={} MAILBOX_API_KEY={key} {amb}", office.url(""))
            }
            None => format!("HOME={home} {amb} --dir {home}/mail --as {name}"),
        }
    }

    fn mailbox(&self, name: &str) -> Command {
        let mut command = amb(self.home.path());
        match &self.server {
            Some((office, agents)) => {
                let key = &agents.iter().find(|agent| agent.name == name).unwrap().key;
                command.env("MAILBOX_SERVER_URL", office.url("")).env("MAILBOX_API_KEY", key);
            }
            None => {
                command.arg("--dir").arg(self.home.path().join("mail")).args(["--as", name]);
            }
        }
        command
    }

    async fn model(&self, name: &str) -> Model {
        Model::start(self.mailbox(name).arg("mcp")).await
    }

    async fn says(&self, from: &str, to: &str, subject: &str) {
        let sent = self.mailbox(from).args(["send", to, "please do it", "--subject", subject]).output().await.unwrap();
        assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    }

    /// A bridge that wakes a model which does nothing but pass its mail on, by a tool of an `amb mcp` of its own.
    fn bridge(&self, name: &str, next: &str) -> Child {
        let script = self.home.path().join(format!("model-{name}"));
        let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
        let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
            "name": "mailbox_send", "arguments": {"to": next, "subject": "Work", "content": "please do it"}}});
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        // A client stays connected until it has its result.
        let text = format!(
            "#!/bin/sh\ncat > /dev/null\nout=$(mktemp -p {home})\n\
             {{ printf '%s\\n' '{hello}' '{ready}' '{call}'; until grep -q '\"id\":2' $out; do sleep 0.02; done; }} \
             | {amb} mcp > $out\n\
             grep '\"id\":2' $out >> {home}/said\necho '[mailbox: no answer]'\n",
            home = self.home.path().display(),
            amb = self.words(name),
        );
        fs_err::write(&script, text).unwrap();
        fs_err::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = self.mailbox(name);
        command.args(["bridge", "exec", "--input", "prompt", "--"]).arg(&script);
        command.stdin(std::process::Stdio::null()).kill_on_drop(true).spawn().unwrap()
    }

    /// What the models' tools answered, one line each.
    fn said(&self) -> Vec<Value> {
        let path: &Path = &self.home.path().join("said");
        let text = fs_err::read_to_string(path).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

async fn in_both(test: impl AsyncFn(Town)) {
    test(Town::in_a_directory().await).await;
    test(Town::on_a_server().await).await;
}

#[tokio::test]
async fn a_ring_of_models_woken_by_bridges_ends() {
    in_both(async |town| {
        let _bridges = [town.bridge("ann", "ben"), town.bridge("ben", "cat"), town.bridge("cat", "ann")];
        town.says("boss", "ann", "go").await;
        let refused = |line: &Value| line["result"]["isError"] == true;
        soon(async {
            // The refused model may have recorded that before the one whose message it passed on.
            while !town.said().iter().any(refused) || town.said().len() < 3 {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        })
        .await;
        let said = town.said();
        let passed: Vec<_> = said.iter().filter(|line| !refused(line)).collect();
        assert_eq!((said.len(), passed.len()), (3, 2), "{said:?}");
        for line in passed {
            let told = &line["result"];
            assert!(told["structuredContent"]["passes_on"].is_string(), "{told}");
            assert!(told["content"][0]["text"].as_str().unwrap().contains("counts as passing on"), "{told}");
        }
        let told = said.iter().find(|line| refused(line)).unwrap();
        let told = told["result"]["content"][0]["text"].as_str().unwrap();
        assert!(told.starts_with("loop_refused: "), "{told}");
    })
    .await;
}

#[tokio::test]
async fn mail_of_others_beside_that_of_a_ring_does_not_keep_it_going() {
    in_both(async |town| {
        let ring = ["ann", "ben", "cat"];
        let mut models = Vec::new();
        for name in ring {
            models.push(town.model(name).await);
        }
        let work = |to: &str| json!({"to": to, "subject": "Work", "content": "please do it"});
        for hop in 0..2 {
            let (me, next) = (hop, ring[hop + 1]);
            models[me].call("mailbox_send", work(next)).await;
            town.says("zoe", next, &format!("note {hop}")).await;
            models[me + 1].call("mailbox_check", json!({})).await;
        }
        let refused = models[2].fails("mailbox_send", work("ann")).await;
        assert!(refused.starts_with("loop_refused: "), "{refused}");
        let note = models[2].fails("send_to_peer", json!({"to": "ann", "message": "you do it"})).await;
        assert!(note.starts_with("loop_refused: "), "{note}");
        // A message to oneself is no relay: a directory accepts it, a server refuses it with a reason.
        match &town.server {
            Some(_) => {
                let own = models[2].fails("mailbox_send", work("cat")).await;
                assert!(!own.contains("loop_refused") && own.contains("your own name"), "{own}");
            }
            None => assert_eq!(models[2].call("mailbox_send", work("cat")).await.get("passes_on"), None),
        }
    })
    .await;
}

#[tokio::test]
async fn a_task_that_waits_counts_for_a_model_that_was_started_again() {
    in_both(async |town| {
        let mut ann = town.model("ann").await;
        let task = json!({"to": "ben", "subject": "Job", "content": "do it", "kind": "task"});
        ann.call("mailbox_send", task).await;
        let mut ben = town.model("ben").await;
        let passed = ben.call("mailbox_send", json!({"to": "cat", "subject": "Job", "content": "you do it"})).await;
        assert!(passed["passes_on"].is_string(), "{passed}");
        let mut cat = town.model("cat").await;
        cat.call("mailbox_check", json!({})).await;
        let refused = cat.fails("mailbox_send", json!({"to": "ann", "subject": "Job", "content": "no, you"})).await;
        assert!(refused.starts_with("loop_refused: "), "{refused}");
    })
    .await;
}

#[tokio::test]
async fn a_models_question_at_the_end_of_a_chain_is_answered_by_a_bridge() {
    in_both(async |town| {
        let mut bridge = town.mailbox("dan");
        bridge.args(["bridge", "exec", "--", "sh", "-c", "cat > /dev/null; echo answered"]);
        let _bridge = bridge.stdin(std::process::Stdio::null()).spawn().unwrap();
        let (mut ben, mut cat) = (town.model("ben").await, town.model("cat").await);
        town.says("ann", "ben", "help").await;
        ben.call("mailbox_wait", json!({"timeout_seconds": 50})).await;
        ben.call("mailbox_send", json!({"to": "cat", "subject": "b", "content": "a question"})).await;
        cat.call("mailbox_wait", json!({"timeout_seconds": 50})).await;
        let asked = cat.call("mailbox_send", json!({"to": "dan", "subject": "c", "content": "my own question"})).await;
        assert!(asked["passes_on"].is_string(), "the last hop: {asked}");
        let told = cat.call("mailbox_wait", json!({"timeout_seconds": 50})).await;
        let answer = &told["messages"][0];
        assert_eq!((&answer["sender_name"], &answer["automatic"]), (&json!("dan"), &json!(true)), "{told}");
        assert_eq!(answer["content"].as_str().unwrap().trim(), "answered");
    })
    .await;
}
