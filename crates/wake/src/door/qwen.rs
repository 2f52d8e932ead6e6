//! Qwen Code (0.23 and later): the documented socket between its sessions, with acknowledgements (receipts).

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use super::{RingError, RingErrorKind, Rung};
use crate::process::Process;

/// The timeout of the socket.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long a receipt is waited for. A busy session sends it late, and a missing one is no failure.
const RECEIPT_TIMEOUT: Duration = Duration::from_secs(5);
/// The most that is read of a receipt, in bytes.
const MAX_RECEIPT: u64 = 64 * 1024;

/// A session's inbox.
#[derive(Debug, Clone)]
pub struct QwenInbox {
    /// Where sessions record how they are reached: `$QWEN_HOME/sessions`.
    pub registry: PathBuf,
    /// `QWEN_CODE_MESSAGING_SOCKET` and `QWEN_CODE_SESSION_ID`, used where the registry has no record of the session.
    pub socket: Option<PathBuf>,
    /// See `socket`.
    pub session: Option<String>,
    /// `QWEN_CODE_MESSAGING_TOKEN`: proves to the session that we are its child process.
    pub token: SecretString,
    /// A private directory in which the socket for receipts is bound; its path must be short.
    pub runtime: PathBuf,
}

/// How a session is reached. The token by which it admits other programs is not read.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct QwenRecord {
    schema_version: u32,
    pid: u32,
    session_id: String,
    ipc_path: Option<PathBuf>,
}

impl QwenInbox {
    /// The record of the session that started this process. `/clear` changes its id, so it is read each time.
    fn record(&self) -> Option<QwenRecord> {
        let above = Process::me().ancestors();
        let entries = fs_err::read_dir(&self.registry).ok()?;
        entries.flatten().take(256).find_map(|entry| {
            let path = entry.path();
            let name = path.file_name()?.to_str()?.strip_suffix(".json")?.to_owned();
            let pid: u32 = name.split('-').next()?.parse().ok()?;
            if !above.contains(&pid) {
                return None;
            }
            let record: QwenRecord = serde_json::from_slice(&fs_err::read(&path).ok()?).ok()?;
            (record.pid == pid && record.schema_version == 1).then_some(record)
        })
    }

    pub(crate) fn session(&self) -> String {
        let named = self.record().map(|record| record.session_id).or_else(|| self.session.clone());
        named.unwrap_or_else(|| "unknown".into())
    }

    pub(crate) async fn ring(&self, line: &str) -> Result<Rung, RingError> {
        let failed = |detail: String| RingError::new(RingErrorKind::Failed, detail);
        // `/clear` changes the session's id in its record, while the environment of its children stays.
        let (socket, session) = match self.record() {
            Some(record) => (record.ipc_path, Some(record.session_id)),
            None => (self.socket.clone(), self.session.clone()),
        };
        let (Some(socket), Some(session)) = (socket, session) else {
            let detail = format!("no session above this process has an inbox in {}", self.registry.display());
            return Err(RingError::new(RingErrorKind::Gone, detail));
        };
        let receipts =
            ReceiptSocket::bind(&self.runtime).map_err(|error| failed(format!("no socket for receipts: {error}")))?;
        let id = uuid::Uuid::now_v7().to_string();
        let auth = json!({"msgV": 1, "type": "auth", "token": self.token.expose_secret()});
        let frame = json!({
            "msgV": 1, "msgId": id, "type": "user", "from": receipts.path, "replyToken": receipts.token.expose_secret(),
            "fromName": "agent-mailbox", "toSessionId": session, "priority": "next",
            "message": {"role": "user", "content": line},
        });
        let send = async {
            let mut stream = UnixStream::connect(&socket).await?;
            stream.write_all(format!("{auth}\n{frame}\n").as_bytes()).await?;
            stream.shutdown().await
        };
        match timeout(TIMEOUT, send).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                return Err(RingError::new(
                    RingErrorKind::Gone,
                    format!("nobody listens on Qwen Code's socket: {error}"),
                ));
            }
            Err(_) => return Err(failed("Qwen Code's socket takes nothing".into())),
        }
        let receipt = timeout(RECEIPT_TIMEOUT, receipts.first(&id)).await.ok();
        let refused = |detail: &str| Err(RingError::new(RingErrorKind::Refused, format!("Qwen Code {detail}")));
        match receipt.as_deref() {
            Some("refused") => refused("refuses messages of other processes; see agents.crossSessionInbound"),
            Some("denied") => refused("was told by its user not to take this"),
            Some("dropped" | "expired" | "misaddressed") => {
                Err(failed(format!("Qwen Code did not take it: {}", receipt.as_deref().unwrap_or_default())))
            }
            _ => Ok(Rung { door: "qwen inbox socket", receipt }),
        }
    }
}

/// A socket to which receipts are sent, removed when it is dropped.
struct ReceiptSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Proves that a receipt comes from the session.
    token: SecretString,
}

impl ReceiptSocket {
    fn bind(runtime: &Path) -> io::Result<Self> {
        let mut bytes = [0; 40];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        let path = runtime.join(format!("amb-{}.sock", hex::encode(&bytes[32..])));
        let listener = UnixListener::bind(&path)?;
        fs_err::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        Ok(Self { listener, path, token: hex::encode(&bytes[..32]).into() })
    }

    /// The status in the first receipt for this message.
    async fn first(&self, id: &str) -> String {
        loop {
            if let Ok((stream, _)) = self.listener.accept().await
                && let Ok(Some(status)) = timeout(TIMEOUT, self.status(stream, id)).await
            {
                return status;
            }
        }
    }

    async fn status(&self, stream: UnixStream, id: &str) -> Option<String> {
        let mut lines = BufReader::new(stream.take(MAX_RECEIPT)).lines();
        let mut is_authenticated = false;
        while let Some(line) = lines.next_line().await.ok()? {
            let frame: Value = serde_json::from_str(&line).ok()?;
            match frame["type"].as_str() {
                Some("auth") => is_authenticated = frame["token"].as_str() == Some(self.token.expose_secret()),
                Some("control")
                    if is_authenticated && frame["action"] == "delivery_status" && frame["origMsgId"] == id =>
                {
                    let known = ["held", "delivered", "denied", "refused", "expired", "misaddressed", "dropped"];
                    let status = frame["status"].as_str()?;
                    return known.contains(&status).then(|| status.to_owned());
                }
                _ => {}
            }
        }
        None
    }
}

impl Drop for ReceiptSocket {
    fn drop(&mut self) {
        if let Err(error) = fs_err::remove_file(&self.path) {
            tracing::debug!(%error, "cannot remove the socket for receipts");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session that sends this receipt for everything it gets; returns what it got.
    async fn session(listener: UnixListener, status: &'static str) -> Vec<Value> {
        let (stream, _) = listener.accept().await.unwrap();
        let mut lines = BufReader::new(stream).lines();
        let mut got: Vec<Value> = Vec::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            got.push(serde_json::from_str(&line).unwrap());
        }
        let frame = &got[1];
        let auth = json!({"msgV": 1, "type": "auth", "token": frame["replyToken"]});
        let receipt = json!({"msgV": 1, "msgId": "r", "type": "control", "action": "delivery_status", "status": status,
            "origMsgId": frame["msgId"], "reason": "words of somebody"});
        let mut back = UnixStream::connect(frame["from"].as_str().unwrap()).await.unwrap();
        back.write_all(format!("{auth}\n{receipt}\n").as_bytes()).await.unwrap();
        got
    }

    #[tokio::test]
    async fn the_receipt_decides_the_result_of_a_ring() {
        let home = tempfile::tempdir().unwrap();
        let pid = Process::parent().unwrap().pid;
        let socket = home.path().join("q.sock");
        let record =
            json!({"schemaVersion": 1, "pid": pid, "sessionId": "s-1", "ipcPath": socket, "ipcToken": "theirs"});
        fs_err::write(home.path().join(format!("{pid}.json")), record.to_string()).unwrap();
        fs_err::write(home.path().join("1.json"), record.to_string()).unwrap();
        let inbox = QwenInbox {
            registry: home.path().to_owned(),
            token: "hush".to_owned().into(),
            runtime: home.path().to_owned(),
            socket: Some("/of/the/environment.sock".into()),
            session: Some("before-clear".into()),
        };
        assert_eq!(inbox.session(), "s-1", "the record is newer than the environment");
        let unregistered = QwenInbox { registry: home.path().join("none"), ..inbox.clone() };
        assert_eq!(unregistered.session(), "before-clear");
        assert!(unregistered.ring("hello").await.unwrap_err().detail.contains("nobody listens"));
        for (status, ends) in
            [("delivered", Ok("delivered")), ("held", Ok("held")), ("refused", Err(RingErrorKind::Refused))]
        {
            let listener = UnixListener::bind(&socket).unwrap();
            let (rung, got) = tokio::join!(inbox.ring("hello"), session(listener, status));
            assert_eq!(got[0], json!({"msgV": 1, "type": "auth", "token": "hush"}));
            assert_eq!((&got[1]["toSessionId"], &got[1]["message"]["content"]), (&json!("s-1"), &json!("hello")));
            match (rung, ends) {
                (Ok(rung), Ok(receipt)) => assert_eq!(rung.receipt.as_deref(), Some(receipt)),
                (Err(trouble), Err(kind)) => assert_eq!(trouble.kind, kind),
                (rung, _) => panic!("{status}: {rung:?}"),
            }
            fs_err::remove_file(&socket).unwrap();
        }
        let left = fs_err::read_dir(home.path()).unwrap().count();
        assert_eq!(left, 2, "no socket stays behind");
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_receipt_is_no_failure() {
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("q.sock");
        let inbox = QwenInbox {
            registry: home.path().join("none"),
            token: "hush".to_owned().into(),
            runtime: home.path().to_owned(),
            socket: Some(socket.clone()),
            session: Some("s-1".into()),
        };
        // A busy session accepts the ring without a receipt; a receipt without the token is ignored.
        let listener = UnixListener::bind(&socket).unwrap();
        let session = async {
            let mut lines = BufReader::new(listener.accept().await.unwrap().0).lines();
            let mut got = Vec::new();
            while let Some(line) = lines.next_line().await.unwrap() {
                got.push(serde_json::from_str::<Value>(&line).unwrap());
            }
            let forged = json!({"msgV": 1, "type": "control", "action": "delivery_status", "status": "delivered",
                "origMsgId": got[1]["msgId"]});
            let mut back = UnixStream::connect(got[1]["from"].as_str().unwrap()).await.unwrap();
            back.write_all(format!("{forged}\n").as_bytes()).await.unwrap();
        };
        let began = tokio::time::Instant::now();
        let (rung, ()) = tokio::join!(inbox.ring("hello"), session);
        assert_eq!(rung.unwrap(), Rung { door: "qwen inbox socket", receipt: None });
        assert!((RECEIPT_TIMEOUT..RECEIPT_TIMEOUT * 2).contains(&began.elapsed()), "{:?}", began.elapsed());
        assert_eq!(fs_err::read_dir(home.path()).unwrap().count(), 1, "no socket stays behind");
    }
}
