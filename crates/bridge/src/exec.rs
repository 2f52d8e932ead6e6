//! A runtime that is a command: one run a mail, what it prints is the answer.

use std::process::Stdio;
use std::time::Duration;

use amb_core::Message;
use async_trait::async_trait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use crate::runtime::{Outcome, Runtime, Trouble, Turn, TurnError};

/// The most that is read of what a command prints; the rest is let go.
const MAX_OUTPUT: u64 = 1024 * 1024;
/// How much of its complaints goes into the reason.
const REASON_CHARS: usize = 500;

/// What the command gets on its stdin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Input {
    /// The text of the mail as it is, for scripts.
    #[default]
    Text,
    /// The mail fenced as untrusted data, for models.
    Prompt,
    /// The whole message as JSON, for programs.
    Json,
}

/// Runs a command for each mail.
#[derive(Debug, Clone)]
pub struct Exec {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// What it gets on its stdin.
    pub input: Input,
}

#[async_trait]
impl Runtime for Exec {
    fn describe(&self) -> String {
        format!("command {}", self.command.join(" "))
    }

    fn is_idempotent(&self) -> bool {
        false
    }

    async fn turn(&self, turn: &Turn) -> Result<Outcome, TurnError> {
        let failed = |detail: String| TurnError::new(Trouble::Failed, detail);
        let input = match self.input {
            Input::Text => turn.mail.text(),
            Input::Prompt => turn.prompt.clone(),
            Input::Json => serde_json::to_string(&turn.mail).map_err(|error| failed(error.to_string()))?,
        };
        let mut child = self.spawn(turn)?;
        let group = child.id();
        let run = tokio::time::timeout(turn.timeout, converse(&mut child, input));
        let (status, out, err) = match run.await {
            Ok(ended) => ended.map_err(|error| failed(format!("the command: {error}")))?,
            Err(_) => {
                kill(group);
                // Reaps it; it cannot outlive its kill for long.
                let _ = child.wait().await;
                let detail = format!("the command did not end within {:?} and was killed", turn.timeout);
                return Err(TurnError::new(Trouble::Timeout, detail));
            }
        };
        if !status.success() {
            return Err(failed(format!("the command ended with {status}: {}", tail(&err))));
        }
        let text =
            String::from_utf8(out).map_err(|_| failed("the command printed something that is not UTF-8".into()))?;
        let text = text.strip_suffix('\n').unwrap_or(&text);
        match text.trim().is_empty() {
            true => Ok(Outcome::NoReply),
            false => Ok(Outcome::Reply(text.to_owned())),
        }
    }
}

impl Exec {
    fn spawn(&self, turn: &Turn) -> Result<Child, TurnError> {
        let [program, arguments @ ..] = self.command.as_slice() else {
            return Err(TurnError::new(Trouble::Unreachable, "no command was given"));
        };
        let mut command = Command::new(program);
        command.args(arguments).envs(environment(&turn.mail)).kill_on_drop(true);
        // A group of its own, so that a time-out ends what the command started too.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map_err(|error| TurnError::new(Trouble::Unreachable, format!("cannot run {program}: {error}")))
    }
}

fn environment(mail: &Message) -> Vec<(&'static str, String)> {
    let mut all = vec![
        ("AMB_MESSAGE_ID", mail.id.to_string()),
        ("AMB_FROM", mail.from.to_string()),
        ("AMB_TO", mail.to.to_string()),
        ("AMB_KIND", mail.kind.to_string()),
        ("AMB_PRIORITY", mail.priority.to_string()),
        // A subject may hold anything but what an environment cannot.
        ("AMB_SUBJECT", mail.subject.as_deref().unwrap_or_default().replace('\0', "")),
    ];
    all.extend(mail.session.as_ref().map(|session| ("AMB_SESSION_ID", session.to_string())));
    all.extend(mail.task.as_ref().map(|task| ("AMB_TASK_ID", task.id.to_string())));
    all
}

/// Feeds the command and reads what it says, all at once, so that no full pipe can block either side.
async fn converse(child: &mut Child, input: String) -> std::io::Result<(std::process::ExitStatus, Vec<u8>, Vec<u8>)> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A command that does not care to read its input is no failure.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
    };
    let ((), out, err, status) = tokio::join!(feed, read(stdout), read(stderr), child.wait());
    Ok((status?, out?, err?))
}

async fn read(pipe: Option<impl tokio::io::AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        (&mut pipe).take(MAX_OUTPUT).read_to_end(&mut bytes).await?;
        tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await?;
    }
    Ok(bytes)
}

fn tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim();
    let skip = text.chars().count().saturating_sub(REASON_CHARS);
    text.chars().skip(skip).collect()
}

fn kill(group: Option<u32>) {
    let pid = group.and_then(|group| i32::try_from(group).ok()).and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid
        && let Err(error) = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL)
    {
        tracing::debug!(%error, "it had ended already");
    }
}

/// How long a command may run unless told otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);
