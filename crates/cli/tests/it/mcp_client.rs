//! A client of `amb mcp` that speaks raw JSON-RPC on the process's standard streams, as MCP clients do.

use std::path::Path;
use std::process::{ExitStatus, Stdio};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use crate::server_office::soon;

/// `amb` with nothing of the caller's own mailbox, at home in this directory.
pub(crate) fn amb(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_amb"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", home).kill_on_drop(true);
    command
}

/// A model's client and the process that it started.
pub(crate) struct Model {
    child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
    asked: u64,
    /// What the server said about itself.
    pub(crate) greeting: Value,
}

impl Model {
    /// Starts the command, which is `amb mcp` in some office, and does the MCP handshake.
    pub(crate) async fn start(command: &mut Command) -> Self {
        // The only client that is woken by a notification.
        Self::start_as(command, json!({"name": "claude-code", "version": "1"})).await
    }

    /// The same, and the stderr of the process.
    pub(crate) async fn start_with_stderr(command: &mut Command) -> (Self, ChildStderr) {
        let mut model = Self::start(command.stderr(Stdio::piped())).await;
        let stderr = model.stderr();
        (model, stderr)
    }

    /// The stderr of the process, where the command has it piped.
    pub(crate) fn stderr(&mut self) -> ChildStderr {
        self.child.stderr.take().unwrap()
    }

    /// The same as a client that presents itself so.
    pub(crate) async fn start_as(command: &mut Command, who: Value) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut model = Self { child, stdin, stdout, asked: 0, greeting: Value::Null };
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": who});
        model.greeting = model.request("initialize", hello).await;
        model.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        model
    }

    async fn say(&mut self, message: &Value) {
        self.stdin.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    /// Asks, and returns the result. Notifications that come meanwhile are passed over.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let id = self.asked;
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        loop {
            let line = soon(self.stdout.next_line()).await.unwrap().expect("the process is there");
            let mut answer: Value = serde_json::from_str(&line).unwrap();
            if answer["id"] == id {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].take();
            }
        }
    }

    pub(crate) async fn tools(&mut self) -> Vec<String> {
        let listed = self.request("tools/list", json!({})).await;
        listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    async fn answer(&mut self, tool: &str, arguments: Value) -> (bool, String, Value) {
        let mut result = self.request("tools/call", json!({"name": tool, "arguments": arguments})).await;
        let text = result["content"][0]["text"].as_str().unwrap().to_owned();
        (result["isError"] == true, text, result["structuredContent"].take())
    }

    /// Calls a tool that must succeed; returns its data.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let (failed, text, data) = self.answer(tool, arguments).await;
        assert!(!failed, "{tool}: {text}");
        data
    }

    /// Calls a tool that must succeed; returns its text.
    pub(crate) async fn read(&mut self, tool: &str, arguments: Value) -> String {
        let (failed, text, _) = self.answer(tool, arguments).await;
        assert!(!failed, "{tool}: {text}");
        text
    }

    /// Calls a tool that must fail; returns what the model is told.
    pub(crate) async fn fails(&mut self, tool: &str, arguments: Value) -> String {
        let (failed, text, data) = self.answer(tool, arguments).await;
        assert!(failed, "{tool} should have failed: {text} {data}");
        text
    }

    /// The next notification of that method.
    pub(crate) async fn notice(&mut self, method: &str) -> Value {
        loop {
            let line = soon(self.stdout.next_line()).await.unwrap().expect("the process is there");
            let mut message: Value = serde_json::from_str(&line).unwrap();
            if message["method"] == method {
                return message["params"].take();
            }
        }
    }

    /// Kills the process that was started, whose children may live on.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Closes the client's end: the process ends by itself.
    pub(crate) async fn close(mut self) -> ExitStatus {
        drop(self.stdin);
        soon(self.child.wait()).await.unwrap()
    }
}
