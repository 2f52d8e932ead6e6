//! Codex (0.149 and later): its command that queues a message for a thread, and its app server for urgent messages.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::timeout;

use super::{RingError, RingErrorKind, Rung, app_server, is_secret};
use crate::bell::ClientState;
use crate::process::kill_group;

/// The timeout of the command.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How much of the command's stderr goes into the reason, and is read for that.
const REASON_CHARS: usize = 300;
const REASON_BYTES: u64 = 4 * REASON_CHARS as u64;
/// How long the stderr of an ended command is read: a daemon that it started can keep it open.
const DRAIN_TIME: Duration = Duration::from_millis(50);

/// A thread of Codex.
#[derive(Debug, Clone)]
pub struct CodexQueue {
    /// The command: `codex`.
    pub program: OsString,
    /// The thread's id, from the metadata of the client's last call.
    pub thread: String,
    /// The app server's socket, where there is one: `$CODEX_HOME/app-server-control/app-server-control.sock`.
    pub control: Option<PathBuf>,
}

impl CodexQueue {
    /// Whether this can be a thread's id: it comes from a client and is passed to a command.
    pub fn is_thread(id: &str) -> bool {
        (8..=64).contains(&id.len())
            && !id.starts_with('-')
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    }

    pub(crate) async fn ring(&self, line: &str, urgent: bool) -> Result<Rung, RingError> {
        // A turn on the app server joins the running one; a queued message waits for its end.
        if let Some(control) = self.control.as_ref().filter(|_| urgent) {
            match app_server::start_turn(control, &self.thread, line).await {
                Ok(()) => return Ok(Rung { door: "codex app server", receipt: None }),
                Err(error) => tracing::debug!(%error, "no turn on the app server; queueing"),
            }
        }
        self.queue(line).await
    }

    /// Checks that the command that queues a message can be run.
    pub(super) async fn reach(&self) -> Result<(), RingError> {
        let failed = |detail: String| RingError::new(RingErrorKind::Failed, detail);
        let mut command = self.command();
        command.arg("--version").stderr(Stdio::null()).kill_on_drop(true);
        match timeout(TIMEOUT, command.status()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(failed(format!("codex --version ended with {status}"))),
            Ok(Err(error)) => Err(failed(format!("cannot run codex: {error}; put it into the PATH"))),
            Err(_) => Err(failed("codex --version does not end".into())),
        }
    }

    /// The command without its arguments. It may start a daemon that lives on and gives its environment to a model's
    /// commands, so it inherits neither our secrets nor those of other clients.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_secret(name) || is_own(name)) {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    async fn queue(&self, line: &str) -> Result<Rung, RingError> {
        let failed = |detail: String| RingError::new(RingErrorKind::Failed, detail);
        let mut command = self.command();
        command.args(["queue", "--resume", "--thread", &self.thread, "--message", line]);
        command.stderr(Stdio::piped()).process_group(0);
        let child = command.spawn().map_err(|error| {
            failed(format!("cannot run codex: {error}; put it into the PATH that Codex gives its MCP servers"))
        })?;
        let mut running = RunningCommand { child, ended: false };
        let Ok(ended) = timeout(TIMEOUT, running.end()).await else {
            return Err(failed(format!("`codex queue` did not end within {} s and was killed", TIMEOUT.as_secs())));
        };
        let (status, said) = ended.map_err(|error| failed(format!("`codex queue`: {error}")))?;
        if status.success() {
            return Ok(Rung { door: "codex queue", receipt: None });
        }
        let said = String::from_utf8_lossy(&said);
        let said: String = amb_core::render::visible::line(said.trim()).chars().take(REASON_CHARS).collect();
        let kind = if said.contains("no rollout found") { RingErrorKind::Gone } else { RingErrorKind::Failed };
        Err(RingError::new(kind, format!("`codex queue` ended with {status}: {said}")))
    }

    /// The thread's state by the app server, where there is one.
    pub(crate) async fn state(&self) -> ClientState {
        let Some(control) = &self.control else { return ClientState::Unknown };
        match app_server::thread_status(control, &self.thread).await.as_deref() {
            Ok("active") => ClientState::Busy,
            Ok("idle" | "notLoaded") => ClientState::Idle,
            _ => ClientState::Unknown,
        }
    }
}

/// Whether a variable configures this program: several of them hold keys and tokens.
fn is_own(name: &OsStr) -> bool {
    let prefixes = ["AMB_", "MAILBOX_", "NATS_", "OPENCLAW_", "DATABASE_URL"];
    name.to_str().is_some_and(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
}

/// A running command. Dropped before its end, it is killed with everything that it started: `codex` from npm is a
/// launcher whose child would live on. What a command that ended has started, such as the daemon, is left running.
struct RunningCommand {
    child: Child,
    ended: bool,
}

impl RunningCommand {
    /// Waits for its end; returns the beginning of its stderr.
    async fn end(&mut self) -> io::Result<(ExitStatus, Vec<u8>)> {
        let mut said = Vec::new();
        let status = {
            let mut reading = pin!(read_start(self.child.stderr.take(), &mut said));
            tokio::select! {
                read = &mut reading => {
                    read?;
                    self.child.wait().await?
                }
                status = self.child.wait() => {
                    let _ = timeout(DRAIN_TIME, &mut reading).await;
                    status?
                }
            }
        };
        self.ended = true;
        Ok((status, said))
    }
}

/// Reads a pipe to its end; keeps the beginning.
async fn read_start(pipe: Option<ChildStderr>, kept: &mut Vec<u8>) -> io::Result<()> {
    let Some(mut pipe) = pipe else { return Ok(()) };
    (&mut pipe).take(REASON_BYTES).read_to_end(kept).await?;
    tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await.map(drop)
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        // The child leads a process group of its own.
        let group = self.child.id().filter(|_| !self.ended);
        if let Some(Err(error)) = group.map(kill_group) {
            tracing::debug!(%error, "cannot kill a `codex queue` that hangs");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_id_is_passed_to_the_command() {
        assert!(CodexQueue::is_thread("019a2b3c-4d5e-7f60-8123-456789abcdef"));
        for bad in ["", "--message=x", "a b c d e f", "../../x/y/z", "$(reboot)", &"a".repeat(65)] {
            assert!(!CodexQueue::is_thread(bad), "{bad}");
        }
    }
}
