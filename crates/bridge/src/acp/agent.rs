//! One running agent: a child process that speaks JSON-RPC, one message a line, on its stdin and stdout.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::collected::Collected;
use super::lines::{BoundedLine, BoundedLines};
use super::permissions::Permissions;
use super::wire::{self, RpcError, RpcMessage};
use crate::processes::{self, CommandRun};

/// The longest line that is read, in bytes. Agents show whole files in their updates.
const MAX_LINE: usize = 8 * 1024 * 1024;
/// After this many consecutive lines that are not JSON-RPC the agent is ended: it speaks another protocol.
const MAX_GARBAGE: u32 = 1_000;
/// How long the agent may leave its stdin unread.
const WRITE_LIMIT: Duration = Duration::from_secs(10);
/// Capacity of the queue to the agent's stdin. Turns and their permission requests need far less: where it is full, the
/// agent does not read.
const MAX_UNWRITTEN: usize = 256;
/// How long stdout is still read after the process has ended.
const DRAIN_TIME: Duration = Duration::from_millis(500);
/// How much of stderr is kept, in bytes.
const MAX_STDERR: usize = 2_000;

#[derive(Debug)]
pub(super) enum CallError {
    /// The agent's process has ended, or was killed; with the reason.
    Ended(String),
    /// The agent returned an error.
    Rpc(RpcError),
    /// No response in time. The request stays open at the agent.
    Late,
}

/// A running agent. Dropping it kills its process and everything that the process started.
pub(super) struct AcpAgent {
    shared: Arc<AgentConnection>,
    reading: AbortHandle,
    writing: AbortHandle,
    run: Mutex<Option<CommandRun>>,
    next: AtomicU64,
    /// Its session for each conversation, and when it was last used.
    pub(super) sessions: Mutex<HashMap<String, AcpSession>>,
}

#[derive(Debug, Clone)]
pub(super) struct AcpSession {
    pub(super) id: String,
    pub(super) used: tokio::time::Instant,
}

struct AgentConnection {
    /// Lines for the agent's stdin, written by a task of their own: if one task read and wrote, an agent that prints
    /// while it is written to would deadlock with this process.
    lines: mpsc::Sender<Vec<u8>>,
    state: Mutex<AgentState>,
    permissions: Permissions,
}

#[derive(Default)]
struct AgentState {
    /// Requests that wait for a response: at most one for each running turn.
    pending: HashMap<u64, oneshot::Sender<Result<Value, RpcError>>>,
    /// The answers being collected, by session.
    turns: HashMap<String, Collected>,
    /// Why the agent has ended.
    ended: Option<String>,
    /// The end of its stderr.
    stderr: Vec<u8>,
}

impl AcpAgent {
    /// Starts the process, without waiting to see whether it speaks the protocol.
    pub(super) fn start(
        command: &[String],
        environment: &[(OsString, OsString)],
        directory: &Path,
        records: Option<&Path>,
        permissions: Permissions,
    ) -> Result<Arc<Self>, String> {
        let [program, arguments @ ..] = command else { return Err("no command was given".into()) };
        let record_error = |error: std::io::Error| format!("the run cannot be written down: {error}");
        let mut run = CommandRun::prepare(records).map_err(record_error)?;
        let mut starting = Command::new(program);
        starting.args(arguments).env_clear().envs(environment.iter().cloned()).env(processes::MARK, run.id());
        starting.current_dir(directory).process_group(0).kill_on_drop(true);
        starting.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = starting.spawn().map_err(|error| format!("cannot run {program}: {error}"))?;
        run.started(child.id()).map_err(record_error)?;
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err("the agent has no pipes".into());
        };
        let (lines, unwritten) = mpsc::channel(MAX_UNWRITTEN);
        let shared = Arc::new(AgentConnection { lines, state: Mutex::default(), permissions });
        // The writer ends with the last sender, which is in `shared`, so it must not hold a strong reference to that.
        let writing = tokio::spawn(write(stdin, unwritten, Arc::downgrade(&shared))).abort_handle();
        let reading = tokio::spawn(Arc::clone(&shared).read(child, stdout, stderr)).abort_handle();
        let (next, sessions) = (AtomicU64::new(1), Mutex::default());
        Ok(Arc::new(Self { shared, reading, writing, run: Mutex::new(Some(run)), next, sessions }))
    }

    /// Why it has ended, if it has.
    pub(super) fn ended(&self) -> Option<String> {
        self.shared.state.lock().ended.clone()
    }

    pub(super) async fn call(&self, method: &str, params: &Value, limit: Duration) -> Result<Value, CallError> {
        let mut answer = self.ask(method, params).await?;
        answer.within(limit).await
    }

    /// Sends a request; the response is awaited later.
    pub(super) async fn ask(&self, method: &str, params: &Value) -> Result<PendingRequest, CallError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, response) = oneshot::channel();
        {
            let mut state = self.shared.state.lock();
            if let Some(why) = &state.ended {
                return Err(CallError::Ended(why.clone()));
            }
            state.pending.insert(id, sender);
        }
        let pending = PendingRequest { id, response, shared: Arc::clone(&self.shared) };
        let written = self.shared.write(&wire::request(id, method, params)).await;
        self.or_kill(written)?;
        Ok(pending)
    }

    /// Sends a request whose response nobody waits for. Never blocks.
    pub(super) fn post(&self, method: &str, params: &Value) -> Result<(), CallError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.or_kill(self.shared.try_write(&wire::request(id, method, params)))
    }

    /// Sends a notification. Never blocks.
    pub(super) fn notify(&self, method: &str, params: &Value) -> Result<(), CallError> {
        self.or_kill(self.shared.try_write(&wire::notification(method, params)))
    }

    /// Kills the agent where a write failed, since it does not read its stdin.
    fn or_kill(&self, written: Result<(), String>) -> Result<(), CallError> {
        written.map_err(|why| {
            self.end(&why);
            CallError::Ended(self.ended().unwrap_or(why))
        })
    }

    /// Starts collecting what the agent says in this session.
    pub(super) fn collect(&self, session: &str) {
        self.shared.state.lock().turns.insert(session.to_owned(), Collected::default());
    }

    /// Whether a turn runs in this session.
    pub(super) fn has_running_turn(&self, session: &str) -> bool {
        self.shared.state.lock().turns.contains_key(session)
    }

    /// Stops collecting and returns the answer.
    pub(super) fn take_answer(&self, session: &str) -> String {
        self.shared.state.lock().turns.remove(session).map(Collected::finish).unwrap_or_default()
    }

    /// Forgets the session of this conversation, so that the next turn begins a new one.
    pub(super) fn forget_session(&self, key: &str) {
        self.sessions.lock().remove(key);
    }

    /// Kills the process and everything that it started.
    pub(super) fn end(&self, why: &str) {
        self.shared.close(why);
        self.reading.abort();
        self.writing.abort();
        drop(self.run.lock().take());
    }
}

impl Drop for AcpAgent {
    fn drop(&mut self) {
        self.end("the bridge has ended it");
    }
}

/// A request that was sent. Once dropped, its response is ignored.
pub(super) struct PendingRequest {
    id: u64,
    response: oneshot::Receiver<Result<Value, RpcError>>,
    shared: Arc<AgentConnection>,
}

impl PendingRequest {
    /// Waits for the response. May be called again after it timed out.
    pub(super) async fn within(&mut self, limit: Duration) -> Result<Value, CallError> {
        match timeout(limit, &mut self.response).await {
            Ok(Ok(answer)) => answer.map_err(CallError::Rpc),
            Ok(Err(_)) => {
                let why = self.shared.state.lock().ended.clone();
                Err(CallError::Ended(why.unwrap_or_else(|| "the agent has ended".into())))
            }
            Err(_) => Err(CallError::Late),
        }
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        self.shared.state.lock().pending.remove(&self.id);
    }
}

impl AgentConnection {
    /// Queues a message for the writing task; waits while the queue is full.
    async fn write(&self, message: &Value) -> Result<(), String> {
        match timeout(WRITE_LIMIT, self.lines.send(line_of(message))).await {
            Ok(sent) => sent.map_err(|_| "the agent takes no input".into()),
            Err(_) => Err(format!("the agent has not read its input for {WRITE_LIMIT:?}")),
        }
    }

    /// Queues a message for the writing task. Never blocks.
    fn try_write(&self, message: &Value) -> Result<(), String> {
        self.lines.try_send(line_of(message)).map_err(|error| match error {
            TrySendError::Full(_) => format!("the agent has left {MAX_UNWRITTEN} messages unread"),
            TrySendError::Closed(_) => "the agent takes no input".into(),
        })
    }

    /// Records why the agent ended, unless that is known, and fails all pending requests.
    fn close(&self, why: &str) {
        let mut state = self.state.lock();
        if state.ended.is_none() {
            let stderr = String::from_utf8_lossy(&state.stderr).trim().to_owned();
            state.ended = Some(if stderr.is_empty() { why.to_owned() } else { format!("{why}: {stderr}") });
        }
        state.pending.clear();
        state.turns.clear();
    }

    /// Reads everything that the agent prints, until it ends.
    async fn read(self: Arc<Self>, mut child: Child, stdout: ChildStdout, mut stderr: impl AsyncReadExt + Unpin) {
        let reading_stderr = async {
            let mut some = [0; 4096];
            while let Ok(count @ 1..) = stderr.read(&mut some).await {
                let mut state = self.state.lock();
                state.stderr.extend_from_slice(&some[..count]);
                let extra = state.stderr.len().saturating_sub(MAX_STDERR);
                state.stderr.drain(..extra);
            }
        };
        let mut lines = BoundedLines::new(BufReader::new(stdout), MAX_LINE);
        let reading_stdout = async {
            tokio::select! {
                why = self.read_messages(&mut lines) => match timeout(DRAIN_TIME, child.wait()).await {
                    Ok(Ok(status)) => format!("the agent ended with {status}"),
                    _ => why,
                },
                status = child.wait() => {
                    // A process that the agent started may keep the pipe open.
                    let _ = timeout(DRAIN_TIME, self.read_messages(&mut lines)).await;
                    status.map_or_else(|error| error.to_string(), |status| format!("the agent ended with {status}"))
                }
            }
        };
        let why = {
            let mut reading_stderr = std::pin::pin!(reading_stderr);
            let mut reading_stdout = std::pin::pin!(reading_stdout);
            tokio::select! {
                why = &mut reading_stdout => {
                    let _ = timeout(DRAIN_TIME, &mut reading_stderr).await;
                    why
                }
                // An agent may close its stderr and go on.
                () = &mut reading_stderr => reading_stdout.await,
            }
        };
        self.close(&why);
    }

    /// Processes lines; returns why there are no more.
    async fn read_messages(&self, lines: &mut BoundedLines<BufReader<ChildStdout>>) -> String {
        let mut garbage = 0;
        loop {
            let parsed = match lines.next().await {
                Ok(Some(BoundedLine::Whole(line))) => wire::parse(&line),
                Ok(Some(BoundedLine::TooLong)) => None,
                Ok(None) => return "the agent has closed its output".into(),
                Err(error) => return format!("the agent cannot be read: {error}"),
            };
            let Some(message) = parsed else {
                garbage += 1;
                tracing::debug!(lines = garbage, "the agent printed a line that is not a message");
                if garbage >= MAX_GARBAGE {
                    return format!("the agent printed {garbage} lines that are no messages of the protocol");
                }
                continue;
            };
            garbage = 0;
            if let Err(why) = self.dispatch(message).await {
                return why;
            }
        }
    }

    async fn dispatch(&self, message: RpcMessage) -> Result<(), String> {
        match message {
            RpcMessage::Response { id, result } => {
                if let Some(sender) = self.state.lock().pending.remove(&id) {
                    // The caller may have stopped waiting.
                    let _ = sender.send(result);
                }
                Ok(())
            }
            RpcMessage::Notification { method, params } => {
                let session = params.get("sessionId").and_then(Value::as_str);
                if method == "session/update"
                    && let (Some(session), Some(update)) = (session, params.get("update"))
                    && let Some(turn) = self.state.lock().turns.get_mut(session)
                {
                    turn.add(update);
                }
                Ok(())
            }
            RpcMessage::Request { id, method, params } => {
                let answer = match method.as_str() {
                    "session/request_permission" => wire::response(&id, &self.permissions.answer(&params)),
                    _ => wire::not_offered(&id, &method),
                };
                self.write(&answer).await
            }
        }
    }
}

fn line_of(message: &Value) -> Vec<u8> {
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// Writes lines to the agent's stdin in order, until all senders are gone or the agent reads no more.
async fn write(mut stdin: ChildStdin, mut lines: mpsc::Receiver<Vec<u8>>, shared: Weak<AgentConnection>) {
    while let Some(line) = lines.recv().await {
        let writing = async {
            stdin.write_all(&line).await?;
            stdin.flush().await
        };
        let why = match timeout(WRITE_LIMIT, writing).await {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => format!("the agent takes no input: {error}"),
            Err(_) => format!("the agent has not read its input for {WRITE_LIMIT:?}"),
        };
        if let Some(shared) = shared.upgrade() {
            shared.close(&why);
        }
        return;
    }
}
