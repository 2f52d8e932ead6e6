//! Clients that can be woken, for the tests: an inbox socket like Claude Code's, and a command like `codex`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::UnixListener;
use tokio::process::Command;
use tokio::sync::mpsc;

use crate::mcp_client::{Model, amb};
use crate::server_office::soon;

pub(crate) const TOKEN: &str = "token-that-nobody-sees";

/// Two agents in a directory.
pub(crate) struct Town {
    pub(crate) home: TempDir,
}

impl Town {
    pub(crate) async fn new() -> Self {
        let town = Self { home: tempdir().unwrap() };
        for name in ["ann", "ben"] {
            town.run(town.mailbox(name).args(["register", name])).await;
        }
        town
    }

    pub(crate) fn mailbox(&self, name: &str) -> Command {
        let mut command = amb(self.home.path());
        command.arg("--dir").arg(self.home.path().join("mail")).args(["--as", name]);
        command
    }

    pub(crate) async fn run(&self, command: &mut Command) -> String {
        let done = command.output().await.unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    }

    /// Ann writes to ben.
    pub(crate) async fn mail(&self, subject: &str) -> Value {
        let said =
            self.run(self.mailbox("ann").args(["send", "ben", "words of ann", "--subject", subject, "--json"])).await;
        serde_json::from_str(&said).unwrap()
    }

    /// `amb mcp` as Claude Code starts it for ben.
    pub(crate) fn claude(&self, inbox: &Inbox) -> Command {
        let mut command = self.mailbox("ben");
        command.arg("mcp").env("CLAUDE_CODE_MESSAGING_SOCKET", &inbox.path).env("CLAUDE_CODE_MESSAGING_TOKEN", TOKEN);
        command.env("CLAUDE_CODE_SESSION_ID", inbox.path.file_stem().unwrap());
        command
    }

    /// A `codex` before all others in the path: writes down its arguments and does what the script says.
    pub(crate) fn codex(&self, script: &str) -> (Command, PathBuf) {
        let bin = self.home.path().join("bin");
        fs_err::create_dir_all(&bin).unwrap();
        let (program, log) = (bin.join("codex"), self.home.path().join("codex.log"));
        let text = format!(
            "#!/bin/sh\n{{ for word in \"$@\"; do printf '%s\\n' \"$word\"; done; env | grep -E 'MESSAGING|AMB_|MAILBOX_|NATS_'; echo --; }} >> {}\n{script}\n",
            log.display()
        );
        fs_err::write(&program, text).unwrap();
        fs_err::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = self.mailbox("ben");
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        command.arg("mcp").env("PATH", path).env("CLAUDE_CODE_MESSAGING_TOKEN", TOKEN).env("NATS_TOKEN", "secret");
        (command, log)
    }

    /// What `amb wake status` says of ben's sessions.
    pub(crate) async fn status(&self) -> Value {
        let said = self.run(self.mailbox("ben").args(["wake", "status", "--json"])).await;
        serde_json::from_str(&said).unwrap()
    }

    /// Looks until the status is as it should be.
    pub(crate) async fn status_until(&self, holds: impl Fn(&Value) -> bool) -> Value {
        soon(async {
            loop {
                let status = self.status().await;
                if holds(&status) {
                    return status;
                }
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        })
        .await
    }
}

/// A socket that takes rings.
pub(crate) struct Inbox {
    pub(crate) path: PathBuf,
    rings: mpsc::Receiver<Vec<String>>,
}

impl Inbox {
    pub(crate) fn new(home: &Path, name: &str) -> Self {
        let path = home.join(format!("{name}.sock"));
        let listener = UnixListener::bind(&path).unwrap();
        let (sender, rings) = mpsc::channel(1000);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let mut lines = BufReader::new(stream).lines();
                let mut said = Vec::new();
                while let Ok(Some(line)) = lines.next_line().await {
                    said.push(line);
                }
                sender.send(said).await.unwrap();
            }
        });
        Self { path, rings }
    }

    /// The text of the next ring, which is well formed.
    pub(crate) async fn ring(&mut self) -> String {
        let said = soon(self.rings.recv()).await.unwrap();
        let lines: Vec<Value> = said.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [auth, user] = lines.as_slice() else { panic!("{lines:?}") };
        assert_eq!(*auth, json!({"type": "auth", "token": TOKEN}));
        assert_eq!(user["type"], "user");
        user["message"]["content"].as_str().unwrap().to_owned()
    }

    /// Rings that have come and were not looked at.
    pub(crate) fn more(&mut self) -> usize {
        std::iter::from_fn(|| self.rings.try_recv().ok()).count()
    }
}

/// Calls a tool as Codex does, in this thread.
pub(crate) async fn call_in_thread(model: &mut Model, tool: &str, thread: &str) -> Value {
    let meta = json!({"x-codex-turn-metadata": {"session_id": thread, "thread_id": thread, "turn_id": "t"}});
    model.request("tools/call", json!({"name": tool, "arguments": {}, "_meta": meta})).await
}

/// What the command was called with so far: one list a call.
pub(crate) fn calls(log: &Path) -> Vec<Vec<String>> {
    let text = fs_err::read_to_string(log).unwrap_or_default();
    let calls = text.split("--\n").filter(|call| !call.is_empty());
    calls.map(|call| call.lines().map(str::to_owned).collect()).collect()
}

/// Waits until the command was called this often.
pub(crate) async fn called(log: &Path, times: usize) -> Vec<Vec<String>> {
    soon(async {
        loop {
            let calls = calls(log);
            if calls.len() >= times {
                return calls;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await
}
