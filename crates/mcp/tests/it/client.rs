//! A client that speaks raw JSON-RPC, so that the tests see what is on the wire.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use amb_core::{AgentName, Mailbox};
use amb_mcp::{LazyMailbox, McpOptions, ServeError, serve_io};
use amb_testing::memory::MemoryOffice;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;

/// Longer than anything here takes on a busy machine; a test that reaches it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Which of the two protocols a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// `initialize` first.
    Handshake(&'static str),
    /// Stateless: every request carries its protocol version and capabilities.
    Stateless,
}

pub(crate) const ERAS: [Era; 3] = [Era::Handshake("2025-06-18"), Era::Handshake("2025-11-25"), Era::Stateless];

pub(crate) struct Client {
    era: Era,
    /// The name under which it presents itself.
    pub(crate) program: &'static str,
    write: WriteHalf<DuplexStream>,
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    next_id: u64,
    /// Notifications that came while something else was awaited.
    notices: VecDeque<Value>,
    answers: VecDeque<Value>,
    pub(crate) server: JoinHandle<Result<(), ServeError>>,
}

pub(crate) fn name(text: &str) -> AgentName {
    text.parse().unwrap()
}

/// An office that knows alice and bob.
pub(crate) fn town() -> Arc<MemoryOffice> {
    let office = MemoryOffice::new();
    office.mailbox(name("alice"));
    office.mailbox(name("bob"));
    office
}

/// Options for tests that look at everything the server says: the channel is on only where it is the subject.
pub(crate) fn quiet() -> McpOptions {
    McpOptions { channel: false, ..McpOptions::default() }
}

impl Client {
    /// A mailbox at the office, with the conversation open.
    pub(crate) async fn open(office: &Arc<MemoryOffice>, agent: &str, era: Era) -> Self {
        Self::open_with(Arc::new(office.mailbox(name(agent))), era, quiet()).await
    }

    pub(crate) async fn open_with(mailbox: Arc<dyn Mailbox>, era: Era, options: McpOptions) -> Self {
        Self::of_program("test", mailbox, era, options).await
    }

    pub(crate) async fn of_program(
        program: &'static str,
        mailbox: Arc<dyn Mailbox>,
        era: Era,
        options: McpOptions,
    ) -> Self {
        let mut client = Self::silent(mailbox, era, options);
        client.program = program;
        if let Era::Handshake(version) = era {
            let answer = client.initialize(version).await;
            assert_eq!(answer["result"]["protocolVersion"], version);
        }
        client
    }

    /// Connects without sending anything.
    pub(crate) fn silent(mailbox: impl Into<LazyMailbox>, era: Era, options: McpOptions) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let (read, write) = tokio::io::split(theirs);
        let server = tokio::spawn(serve_io(mailbox.into(), options, read, write));
        let (read, write) = tokio::io::split(ours);
        let lines = BufReader::new(read).lines();
        Self {
            era,
            program: "test",
            write,
            lines,
            next_id: 0,
            notices: VecDeque::new(),
            answers: VecDeque::new(),
            server,
        }
    }

    pub(crate) async fn initialize(&mut self, version: &str) -> Value {
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": self.program, "version": "1"}});
        let id = self.send("initialize", params).await;
        let answer = self.answer(id).await;
        self.notify("notifications/initialized", json!({})).await;
        answer
    }

    pub(crate) async fn line(&mut self, line: &str) {
        self.write.write_all(line.as_bytes()).await.unwrap();
        self.write.write_all(b"\n").await.unwrap();
    }

    pub(crate) async fn notify(&mut self, method: &str, params: Value) {
        self.line(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()).await;
    }

    /// Sends a request in the form of the era; returns its id.
    pub(crate) async fn send(&mut self, method: &str, mut params: Value) -> u64 {
        if self.era == Era::Stateless {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": {"name": self.program, "version": "1"},
            });
        }
        self.next_id += 1;
        let id = self.next_id;
        self.line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()).await;
        id
    }

    /// The next message of the server; `None` when it has closed its side.
    async fn next(&mut self) -> Option<Value> {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await.expect("an answer in time").unwrap()?;
        Some(serde_json::from_str(&line).expect("nothing but JSON on the stream"))
    }

    pub(crate) async fn answer(&mut self, id: u64) -> Value {
        if let Some(at) = self.answers.iter().position(|answer| answer["id"] == id) {
            return self.answers.remove(at).unwrap();
        }
        loop {
            let message = self.next().await.expect("the server is there");
            if message.get("method").is_some() {
                self.notices.push_back(message);
            } else if message["id"] == id {
                return message;
            } else {
                self.answers.push_back(message);
            }
        }
    }

    /// The next notification of that method.
    pub(crate) async fn notice(&mut self, method: &str) -> Value {
        if let Some(at) = self.notices.iter().position(|notice| notice["method"] == method) {
            return self.notices.remove(at).unwrap();
        }
        loop {
            let message = self.next().await.expect("the server is there");
            if message["method"] == method {
                return message;
            } else if message.get("method").is_some() {
                self.notices.push_back(message);
            } else {
                self.answers.push_back(message);
            }
        }
    }

    /// Notifications that arrived so far and were not awaited.
    pub(crate) fn notices(&self) -> &VecDeque<Value> {
        &self.notices
    }

    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        self.answer(id).await
    }

    pub(crate) async fn result(&mut self, method: &str, params: Value) -> Value {
        let mut answer = self.request(method, params).await;
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].take()
    }

    /// Calls a tool that must succeed; returns its text and its data.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> (String, Value) {
        let mut result = self.result("tools/call", json!({"name": tool, "arguments": arguments})).await;
        assert_ne!(result["isError"], true, "{tool}: {result}");
        let text = result["content"][0]["text"].as_str().expect("readable text").to_owned();
        let data = result["structuredContent"].take();
        assert!(data.is_object(), "{tool} answers with structured content");
        (text, data)
    }

    /// Calls a tool that must fail; returns the error text.
    pub(crate) async fn fails(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.result("tools/call", json!({"name": tool, "arguments": arguments})).await;
        assert_eq!(result["isError"], true, "{tool}: {result}");
        assert!(result.get("structuredContent").is_none(), "an error is not of the tool's output schema");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Closes this side and waits for the server to end.
    pub(crate) async fn close(mut self) -> Vec<Value> {
        self.write.shutdown().await.unwrap();
        let mut rest = Vec::from(std::mem::take(&mut self.answers));
        while let Some(message) = self.next().await {
            rest.push(message);
        }
        tokio::time::timeout(PATIENCE, self.server).await.expect("the server ends").unwrap().unwrap();
        rest
    }
}
