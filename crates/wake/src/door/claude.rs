//! Claude Code (2.1.224 and later): the inbox socket that a session gives to its own children.

use std::path::{Path, PathBuf};
use std::time::Duration;

use amb_core::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::{RingError, RingErrorKind, Rung};
use crate::bell::ClientState;
use crate::process::Process;

/// The timeout for connecting, and for writing a line.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A session's inbox.
#[derive(Debug, Clone)]
pub struct ClaudeInbox {
    /// `CLAUDE_CODE_MESSAGING_SOCKET`.
    pub socket: PathBuf,
    /// `CLAUDE_CODE_MESSAGING_TOKEN`: proves to the session that we are its child process, so that it holds nothing
    /// back.
    pub token: Option<SecretString>,
    /// `CLAUDE_CODE_SESSION_ID`, or another id of this session.
    pub session: String,
    /// Where sessions record their state: `~/.claude/sessions`.
    pub registry: Option<PathBuf>,
}

/// A session's record in the registry.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaudeRecord {
    pid: u32,
    session_id: Option<String>,
    version: Option<String>,
    /// In clock ticks since the machine was started.
    proc_start: Option<String>,
    status: Option<String>,
    /// When it became idle or busy, in milliseconds since 1970.
    status_updated_at: Option<i64>,
    messaging_socket_path: Option<PathBuf>,
}

impl ClaudeRecord {
    fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs_err::read(path).ok()?).ok()
    }

    /// Whether the process that wrote it still runs: a record outlives a killed session, and pids are reused.
    fn is_live(&self) -> bool {
        let began = self.proc_start.as_deref().and_then(|ticks| ticks.parse().ok());
        began.is_none_or(|began| Process { pid: self.pid, began }.is_alive())
    }
}

/// A running session, from the registry. The secret keys beside the records are not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaudeSession {
    /// Its id.
    pub session: String,
    /// Claude Code's version.
    pub version: Option<String>,
    /// Its inbox, where it has one.
    pub socket: Option<PathBuf>,
}

/// The sessions that run on this machine.
pub fn claude_sessions(registry: &Path) -> Vec<ClaudeSession> {
    let paths = fs_err::read_dir(registry).into_iter().flatten().flatten().map(|entry| entry.path());
    let records = paths.filter(|path| path.extension().is_some_and(|end| end == "json")).take(256);
    let live = records.filter_map(|path| ClaudeRecord::read(&path)).filter(ClaudeRecord::is_live);
    let named = live.filter_map(|record| {
        let ClaudeRecord { session_id, version, messaging_socket_path: socket, .. } = record;
        Some(ClaudeSession { session: session_id?, version, socket })
    });
    named.collect()
}

fn gone(detail: String) -> RingError {
    RingError::new(RingErrorKind::Gone, detail)
}

impl ClaudeInbox {
    pub(super) async fn connect(&self) -> Result<UnixStream, RingError> {
        match timeout(TIMEOUT, UnixStream::connect(&self.socket)).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(gone(format!("nobody listens on Claude Code's inbox socket: {error}"))),
            Err(_) => Err(RingError::new(RingErrorKind::Failed, "Claude Code's inbox socket does not accept")),
        }
    }

    pub(crate) async fn ring(&self, line: &str) -> Result<Rung, RingError> {
        let mut stream = self.connect().await?;
        let text = self.lines(line);
        let write = async {
            stream.write_all(text.as_bytes()).await?;
            stream.shutdown().await
        };
        match timeout(TIMEOUT, write).await {
            Ok(Ok(())) => Ok(Rung { door: "claude inbox socket", receipt: None }),
            Ok(Err(error)) => Err(gone(format!("Claude Code's inbox socket was closed: {error}"))),
            Err(_) => Err(RingError::new(RingErrorKind::Failed, "Claude Code's inbox socket takes nothing")),
        }
    }

    /// The lines to write. The auth line is documented; the user line is what the client's own debug log shows.
    fn lines(&self, line: &str) -> String {
        let mut text = String::new();
        if let Some(token) = &self.token {
            text += &format!("{}\n", json!({"type": "auth", "token": token.expose_secret()}));
        }
        text + &format!("{}\n", json!({"type": "user", "message": {"role": "user", "content": line}}))
    }

    /// The record of the session that started this process: of one of this process's ancestors, with the same inbox.
    fn record(&self) -> Option<ClaudeRecord> {
        let registry = self.registry.as_ref()?;
        let records = Process::me().ancestors().into_iter().filter_map(|pid| {
            ClaudeRecord::read(&registry.join(format!("{pid}.json"))).filter(|record| record.pid == pid)
        });
        records.into_iter().find(|record| record.messaging_socket_path.as_ref() == Some(&self.socket))
    }

    /// The session's current id: `/clear` begins another session in the same process, whose environment stays as it
    /// was.
    pub(crate) fn session(&self) -> String {
        self.record().and_then(|record| record.session_id).unwrap_or_else(|| self.session.clone())
    }

    /// The state in the session's own record.
    pub(crate) fn state(&self) -> ClientState {
        match self.record().and_then(|record| record.status).as_deref() {
            Some("idle") => ClientState::Idle,
            Some("busy") => ClientState::Busy,
            _ => ClientState::Unknown,
        }
    }

    /// When the running turn began, where the session reports it.
    pub fn turn_began(&self) -> Option<Timestamp> {
        let record = self.record().filter(|record| record.status.as_deref() == Some("busy"))?;
        Timestamp::from_millisecond(record.status_updated_at?).ok()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, BufReader};
    use tokio::net::UnixListener;

    use super::*;

    fn inbox(socket: PathBuf) -> ClaudeInbox {
        ClaudeInbox { socket, token: Some("hush".to_owned().into()), session: "s".into(), registry: None }
    }

    #[tokio::test]
    async fn a_ring_is_an_auth_line_and_a_user_line() {
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("inbox.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let inbox = inbox(socket);
        let (rung, said) = tokio::join!(inbox.ring("hello"), async {
            let mut lines = BufReader::new(listener.accept().await.unwrap().0).lines();
            let mut said: Vec<serde_json::Value> = Vec::new();
            while let Some(line) = lines.next_line().await.unwrap() {
                said.push(serde_json::from_str(&line).unwrap());
            }
            said
        });
        assert_eq!(rung.unwrap().door, "claude inbox socket");
        assert_eq!(said[0], json!({"type": "auth", "token": "hush"}));
        assert_eq!(said[1], json!({"type": "user", "message": {"role": "user", "content": "hello"}}));
        assert_eq!(said.len(), 2);
    }

    #[tokio::test]
    async fn the_socket_of_a_dead_session_means_that_the_client_is_gone() {
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("inbox.sock");
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        let trouble = inbox(socket).ring("hello").await.unwrap_err();
        assert_eq!(trouble.kind, RingErrorKind::Gone);
        assert!(!trouble.detail.contains("hush"));
    }

    #[test]
    fn the_state_is_read_from_the_record_of_an_ancestor_with_our_socket() {
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("inbox.sock");
        let parent = Process::parent().unwrap().pid;
        let inbox = ClaudeInbox { registry: Some(home.path().to_owned()), ..inbox(socket.clone()) };
        assert_eq!((inbox.state(), inbox.session()), (ClientState::Unknown, "s".into()));
        let other = home.path().join("other.sock");
        for (pid, socket, status, state, session) in [
            (1, &socket, "busy", ClientState::Unknown, "s"),
            (parent, &other, "busy", ClientState::Unknown, "s"),
            (parent, &socket, "busy", ClientState::Busy, "after-clear"),
            (parent, &socket, "idle", ClientState::Idle, "after-clear"),
        ] {
            let record = json!({"pid": pid, "status": status, "messagingSocketPath": socket, "sessionId": "after-clear",
                "statusUpdatedAt": 1_794_961_643_385_i64});
            fs_err::write(home.path().join(format!("{parent}.json")), record.to_string()).unwrap();
            assert_eq!((inbox.state(), inbox.session().as_str()), (state, session), "{record}");
            let began = (state == ClientState::Busy).then(|| Timestamp::from_millisecond(1_794_961_643_385).unwrap());
            assert_eq!(inbox.turn_began(), began, "{record}");
        }
    }

    #[test]
    fn the_record_of_a_dead_session_is_ignored() {
        let home = tempfile::tempdir().unwrap();
        let parent = Process::parent().unwrap();
        for (file, began, session) in [("1", parent.began, "lives"), ("2", parent.began + 1, "pid used again")] {
            let record = json!({"pid": parent.pid, "procStart": began.to_string(), "sessionId": session});
            fs_err::write(home.path().join(format!("{file}.json")), record.to_string()).unwrap();
        }
        fs_err::write(home.path().join("3.key"), "{}").unwrap();
        let found = claude_sessions(home.path());
        assert_eq!(found, [ClaudeSession { session: "lives".into(), version: None, socket: None }]);
        assert_eq!(claude_sessions(&home.path().join("missing")), []);
    }
}
