//! `amb serve` as a process of its own, and short words for what is asked of it.

use std::net::SocketAddr;
use std::ops::Deref;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use amb_testing::http::HttpOffice;
pub(crate) use amb_testing::http::{TestAgent as Agent, TestAnswer as Answer, client, soon};
use futures_util::{SinkExt, StreamExt};
use reqwest::Method;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

/// The command that serves this database on a free port.
pub(crate) fn serve_command(database_url: &str) -> Command {
    serve_command_at("127.0.0.1:0", database_url)
}

/// The command that serves this database at this address.
pub(crate) fn serve_command_at(listen: &str, database_url: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_amb"));
    command
        .args(["serve", "--listen", listen, "--rate-limits", "off", "--database-url", database_url])
        .env_remove("AMB_CONFIG")
        // The home of whoever runs the tests is not theirs to write to.
        .env("AMB_NO_HOUSEHOLD", "true")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// A running server.
pub(crate) struct Office {
    child: Child,
    pub(crate) address: SocketAddr,
    office: HttpOffice,
    /// Kept, so that the server never writes into a closed pipe.
    _stdout: Lines<BufReader<ChildStdout>>,
}

impl Deref for Office {
    type Target = HttpOffice;

    fn deref(&self) -> &HttpOffice {
        &self.office
    }
}

impl Office {
    /// Starts a server, and answers when it listens.
    pub(crate) async fn start(database_url: &str) -> Self {
        Self::start_with(serve_command(database_url)).await
    }

    pub(crate) async fn start_with(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = soon(stdout.next_line()).await.unwrap().expect("the server ended before it listened");
        let address: SocketAddr =
            line.strip_prefix("listening on http://").unwrap_or_else(|| panic!("{line}")).parse().unwrap();
        Self { child, address, office: HttpOffice::at(address.to_string()), _stdout: stdout }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id().expect("a running server")).unwrap()).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// kill -9.
    pub(crate) async fn kill(mut self) {
        self.signal(Signal::KILL);
        soon(self.child.wait()).await.unwrap();
    }

    /// SIGSTOP: it is there, takes connections, and answers nothing.
    /// Returns when every thread has stopped: a signal that was sent stops them only when the process is next scheduled.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
        waitid(WaitId::Pid(self.pid()), WaitIdOptions::STOPPED).unwrap();
    }

    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Asks the server politely to end, and goes on.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    pub(crate) async fn ended(mut self) -> ExitStatus {
        soon(self.child.wait()).await.unwrap()
    }

    /// Whether this key is let in.
    pub(crate) async fn inbox_with(&self, key: &str) -> Answer {
        self.call(Method::GET, "/inbox", Some(key), None).await
    }

    /// Two agents that may write to each other.
    pub(crate) async fn pair(&self, number: usize) -> (Agent, Agent) {
        let (from, to) = (format!("from-{number}"), format!("to-{number}"));
        let (from, to) = (self.register(&from).await, self.register(&to).await);
        self.connect(&from, &to).await;
        (from, to)
    }

    pub(crate) async fn send(&self, from: &Agent, to: &Agent, content: &str) -> Answer {
        self.post(from, "/messages/send", json!({"to": to.name, "subject": "Load", "content": content})).await
    }

    /// All of a session as `agent` sees it, oldest first: id and content.
    pub(crate) async fn history(&self, agent: &Agent, session: &str) -> Vec<(String, String)> {
        let (mut all, mut before) = (Vec::new(), String::new());
        loop {
            let path = format!("/sessions/{session}/history?limit=50{before}");
            let page = self.get(agent, &path).await.expect(200);
            let page = page["messages"].as_array().unwrap();
            let Some(last) = page.last() else { break };
            before = format!("&before={}", last["id"].as_str().unwrap());
            let text = |message: &Value, field: &str| message[field].as_str().unwrap().to_owned();
            all.extend(page.iter().map(|message| (text(message, "id"), text(message, "content"))));
        }
        all.reverse();
        all
    }

    /// Whether the office says that it can take mail.
    pub(crate) async fn is_ready(&self) -> bool {
        let answer = self.call(Method::GET, "/health/ready", None, None).await;
        match answer.status.as_u16() {
            200 => true,
            503 => {
                answer.problem(503, "unavailable");
                false
            }
            other => panic!("{other}: {}", answer.body),
        }
    }

    /// Waits until the office says that it can take mail, or that it cannot.
    pub(crate) async fn becomes_ready(&self, ready: bool) {
        soon(async {
            while self.is_ready().await != ready {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
    }

    /// A socket that is told what happened after `since`.
    pub(crate) async fn socket(&self, agent: &Agent, since: u64) -> Socket {
        connect_socket(self.address, agent, since).await.unwrap()
    }
}

pub(crate) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// A socket at an address where a server may be or not.
pub(crate) async fn connect_socket(
    address: SocketAddr,
    agent: &Agent,
    since: u64,
) -> Result<Socket, tokio_tungstenite::tungstenite::Error> {
    let url = format!("ws://{address}/ws?api_key={}&since={since}", agent.key);
    soon(tokio_tungstenite::connect_async(url)).await.map(|(socket, _)| socket)
}

/// Waits until the socket's loop runs: it has answered.
pub(crate) async fn greeted(socket: &mut Socket) {
    soon(socket.send(Message::text(r#"{"type":"ping"}"#))).await.unwrap();
    while let Some(said) = soon(socket.next()).await {
        if let Message::Text(text) = said.unwrap()
            && text.as_str().contains("pong")
        {
            return;
        }
    }
    panic!("the socket ended");
}
