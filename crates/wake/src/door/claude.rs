//! Claude Code (2.1.224 and later): the inbox socket that a session gives to its own children.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::{Rung, Trouble, TroubleKind};
use crate::bell::ClientState;
use crate::process::Process;

/// How long the socket may take to accept, and how long to take a line.
const PATIENCE: Duration = Duration::from_secs(2);

/// A session's inbox.
#[derive(Debug, Clone)]
pub struct ClaudeInbox {
    /// `CLAUDE_CODE_MESSAGING_SOCKET`.
    pub socket: PathBuf,
    /// `CLAUDE_CODE_MESSAGING_TOKEN`: with it the session knows us for its own child, and holds nothing back.
    pub token: Option<SecretString>,
    /// `CLAUDE_CODE_SESSION_ID`, or what else tells this session from others.
    pub session: String,
    /// Where sessions say what they are doing: `~/.claude/sessions`.
    pub registry: Option<PathBuf>,
}

/// What a session says of itself.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    pid: u32,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    messaging_socket_path: Option<PathBuf>,
}

impl ClaudeInbox {
    pub(crate) async fn ring(&self, line: &str) -> Result<Rung, Trouble> {
        let gone = |detail: String| Trouble::new(TroubleKind::Gone, detail);
        let connected = timeout(PATIENCE, UnixStream::connect(&self.socket)).await;
        let mut stream = match connected {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(gone(format!("nobody listens on Claude Code's inbox socket: {error}"))),
            Err(_) => return Err(Trouble::new(TroubleKind::Failed, "Claude Code's inbox socket does not accept")),
        };
        let text = self.lines(line);
        let write = async {
            stream.write_all(text.as_bytes()).await?;
            stream.shutdown().await
        };
        match timeout(PATIENCE, write).await {
            Ok(Ok(())) => Ok(Rung { door: "claude inbox socket", receipt: None }),
            Ok(Err(error)) => Err(gone(format!("Claude Code's inbox socket was closed: {error}"))),
            Err(_) => Err(Trouble::new(TroubleKind::Failed, "Claude Code's inbox socket takes nothing")),
        }
    }

    /// What is written. The auth line is documented; the line of a user is what the client's own debug log shows.
    fn lines(&self, line: &str) -> String {
        let mut text = String::new();
        if let Some(token) = &self.token {
            text += &format!("{}\n", json!({"type": "auth", "token": token.expose_secret()}));
        }
        text + &format!("{}\n", json!({"type": "user", "message": {"role": "user", "content": line}}))
    }

    /// What the session's own record says. A record of a process that is gone says nothing.
    pub(crate) fn state(&self) -> ClientState {
        let Some(registry) = &self.registry else { return ClientState::Unknown };
        let entries = fs_err::read_dir(registry).into_iter().flatten().flatten();
        // Beside the records lie keys, which are nobody's business.
        let records =
            entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "json"));
        for path in records.take(256) {
            let record = fs_err::read(&path).ok().and_then(|bytes| serde_json::from_slice::<Record>(&bytes).ok());
            let Some(record) = record else { continue };
            let is_ours = record.messaging_socket_path.as_ref() == Some(&self.socket);
            if is_ours && Process::me().ancestors().contains(&record.pid) {
                return match record.status.as_deref() {
                    Some("idle") => ClientState::Idle,
                    Some("busy") => ClientState::Busy,
                    _ => ClientState::Unknown,
                };
            }
        }
        ClientState::Unknown
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
    async fn a_socket_that_outlived_its_session_is_a_client_that_is_gone() {
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("inbox.sock");
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        let trouble = inbox(socket).ring("hello").await.unwrap_err();
        assert_eq!(trouble.kind, TroubleKind::Gone);
        assert!(!trouble.detail.contains("hush"));
    }

    #[test]
    fn the_record_of_an_ancestor_with_our_socket_says_whether_it_is_busy() {
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("inbox.sock");
        let parent = Process::parent().unwrap().pid;
        let inbox = ClaudeInbox { registry: Some(home.path().to_owned()), ..inbox(socket.clone()) };
        assert_eq!(inbox.state(), ClientState::Unknown);
        for (pid, status, state) in [
            (1, "busy", ClientState::Unknown),
            (parent, "busy", ClientState::Busy),
            (parent, "idle", ClientState::Idle),
        ] {
            let record = json!({"pid": pid, "status": status, "messagingSocketPath": socket});
            fs_err::write(home.path().join("1.json"), record.to_string()).unwrap();
            assert_eq!(inbox.state(), state, "{record}");
        }
    }
}
