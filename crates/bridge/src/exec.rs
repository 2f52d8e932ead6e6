//! A runtime that is a command: one run a mail, what it prints is the answer.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use amb_core::Message;
use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::runtime::{Outcome, Runtime, Trouble, Turn, TurnError};

/// How long a command may run unless told otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

/// The most that is read of what a command prints; the rest is let go.
const MAX_OUTPUT: u64 = 1024 * 1024;
/// How much of its complaints goes into the reason.
const REASON_CHARS: usize = 500;
/// How long what the command has started may go on printing after the command itself has ended.
const AFTERGLOW: Duration = Duration::from_millis(500);

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
    /// What stands in its environment beside what this process has and what is said about the mail.
    pub environment: Vec<(String, String)>,
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
            Input::Json => serde_json::to_string(&turn.mail).map_err(|error| failed(error.to_string()))? + "\n",
        };
        let mut child = self.spawn(turn)?;
        // However this ends, a shutdown of the bridge included, nothing of the command is left running.
        let _group = Group(child.id());
        let Ok(ended) = timeout(turn.timeout, converse(&mut child, input)).await else {
            let detail = format!("the command did not end within {:?} and was killed", turn.timeout);
            return Err(TurnError::new(Trouble::Timeout, detail));
        };
        let Ended { status, out, err } = ended.map_err(|error| failed(format!("the command: {error}")))?;
        if !status.success() {
            return Err(failed(format!("the command ended with {status}: {}", tail(&err))));
        }
        // The last character may have been cut in two by the limit.
        let is_cut = out.len() as u64 >= MAX_OUTPUT;
        let text = match String::from_utf8(out) {
            Ok(text) => text,
            Err(error) if is_cut => String::from_utf8_lossy(error.as_bytes()).into_owned(),
            Err(_) => return Err(failed("the command printed something that is not UTF-8".into())),
        };
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let silent = match text.trim() {
            "" => true,
            // The prompt has offered this word.
            "NO_REPLY" => self.input == Input::Prompt,
            _ => false,
        };
        match silent {
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
        command.args(arguments).envs(self.environment.iter().cloned()).envs(environment(&turn.mail));
        // A group of its own, so that what the command started ends with it.
        command.process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
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

struct Ended {
    status: ExitStatus,
    out: Vec<u8>,
    err: Vec<u8>,
}

/// Feeds the command and reads what it says, all at once, so that no full pipe can block either side.
async fn converse(child: &mut Child, input: String) -> std::io::Result<Ended> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut talk = Box::pin(async {
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A command that does not care to read its input is no failure.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
        };
        let ((), read_out, read_err) = tokio::join!(feed, read(stdout, &mut out), read(stderr, &mut err));
        read_out.and(read_err)
    });
    let status = tokio::select! {
        said = &mut talk => {
            said?;
            child.wait().await?
        }
        status = child.wait() => {
            // Something that it has started may hold the pipes open for as long as it lives.
            if let Ok(said) = timeout(AFTERGLOW, &mut talk).await {
                said?;
            }
            status?
        }
    };
    drop(talk);
    Ok(Ended { status, out, err })
}

async fn read(pipe: Option<impl AsyncRead + Unpin>, bytes: &mut Vec<u8>) -> std::io::Result<()> {
    if let Some(mut pipe) = pipe {
        (&mut pipe).take(MAX_OUTPUT).read_to_end(bytes).await?;
        tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await?;
    }
    Ok(())
}

fn tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim();
    let skip = text.chars().count().saturating_sub(REASON_CHARS);
    text.chars().skip(skip).collect()
}

/// The processes of one command, killed when this is dropped.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        let leader = self.0.and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
        if let Some(leader) = leader
            && let Err(error) = rustix::process::kill_process_group(leader, rustix::process::Signal::KILL)
        {
            tracing::trace!(%error, "all of it had ended");
        }
    }
}
