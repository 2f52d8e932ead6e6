//! A runtime that is a command: one run for each message; its stdout is the answer.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use amb_core::Message;
use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::processes::{self, CommandRun};
use crate::runtime::{FailureKind, Runtime, Turn, TurnError, TurnOutcome};

/// How long a command may run by default.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

/// The most that is read of a command's stdout, in bytes; the answer notes that there was more.
const MAX_OUTPUT: u64 = 1024 * 1024;
/// How much of stderr goes into the reason of a failure.
const REASON_CHARS: usize = 500;
/// How long processes started by the command may go on printing after the command itself has ended.
const DRAIN_TIME: Duration = Duration::from_millis(500);

/// The variables that a command inherits from the bridge, besides `LC_*`. No keys, tokens or database addresses: a
/// command that shows messages to a model must not be able to reveal them to a sender.
const INHERITED: [&str; 16] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "NO_COLOR",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR",
];

/// Whether a command inherits this variable.
pub fn is_inherited(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| INHERITED.contains(&name) || name.starts_with("LC_"))
}

/// What the command gets on its stdin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Input {
    /// The plain text of the message, for scripts.
    #[default]
    Text,
    /// The message fenced as untrusted data, for models.
    Prompt,
    /// The message as JSON, for programs.
    Json,
}

/// Checks without running it that the command exists and is executable, in `PATH` as a shell would look it up.
pub fn check_command(command: &[String], environment: &[(OsString, OsString)]) -> Result<(), TurnError> {
    let unreachable = |detail: String| TurnError::new(FailureKind::Unreachable, detail);
    let Some(program) = command.first() else { return Err(unreachable("no command was given".into())) };
    let path = environment.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.as_os_str());
    let candidates: Vec<PathBuf> = match program.contains('/') {
        true => vec![PathBuf::from(program)],
        false => {
            let path = path.unwrap_or(OsStr::new("/bin:/usr/bin"));
            std::env::split_paths(path).map(|directory| directory.join(program)).collect()
        }
    };
    let mut not_executable = None;
    for candidate in candidates {
        match fs_err::metadata(&candidate) {
            Ok(about) if about.is_file() && about.permissions().mode() & 0o111 != 0 => return Ok(()),
            Ok(about) if about.is_file() => not_executable = Some(candidate),
            _ => {}
        }
    }
    Err(unreachable(match not_executable {
        Some(path) => format!("{} is not executable; `chmod +x` makes it so", path.display()),
        None => format!("there is no command {program}; give its whole path, or put it into a directory of the PATH"),
    }))
}

/// Runs a command for each message.
#[derive(Debug, Clone, Default)]
pub struct Exec {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// What it gets on its stdin.
    pub input: Input,
    /// Its whole environment, besides the variables about the message: nothing is inherited from this process.
    pub environment: Vec<(OsString, OsString)>,
    /// The directory of run records, from which [`Runtime::end_leftovers`] finds the processes of a killed bridge.
    pub records: Option<PathBuf>,
}

#[async_trait]
impl Runtime for Exec {
    fn describe(&self) -> String {
        format!("command {}", self.command.join(" "))
    }

    async fn check(&self) -> Result<(), TurnError> {
        check_command(&self.command, &self.environment)
    }

    async fn end_leftovers(&self) -> std::io::Result<()> {
        processes::end_leftovers(self.records.as_deref()).await
    }

    async fn turn(&self, turn: &Turn) -> Result<TurnOutcome, TurnError> {
        let failed = |detail: String| TurnError::new(FailureKind::Failed, detail);
        let input = match self.input {
            Input::Text => turn.mail.text(),
            Input::Prompt => turn.prompt.clone(),
            Input::Json => serde_json::to_string(&turn.mail).map_err(|error| failed(error.to_string()))? + "\n",
        };
        let record_error = |error: std::io::Error| failed(format!("the run cannot be written down: {error}"));
        // However this function ends, also when the bridge is shut down, dropping `run` kills the command.
        let mut run = CommandRun::prepare(self.records.as_deref()).map_err(record_error)?;
        let mut child = self.spawn(turn, &run)?;
        run.started(child.id()).map_err(record_error)?;
        let Ok(ended) = timeout(turn.timeout, communicate(&mut child, input)).await else {
            let detail = format!(
                "the command did not end within {:?} and was killed; --turn-timeout gives it longer",
                turn.timeout
            );
            return Err(TurnError::new(FailureKind::Timeout, detail));
        };
        let CommandOutput { status, out, err } = ended.map_err(|error| failed(format!("the command: {error}")))?;
        if !status.success() {
            return Err(failed(format!("the command ended with {status}: {}", tail(&err.bytes))));
        }
        // Not retried: the same run would print the same.
        let text = String::from_utf8_lossy(&out.bytes);
        let mut text = text.strip_suffix('\n').unwrap_or(&text).to_owned();
        if out.is_cut {
            text.push_str(&format!("\n[cut: the command printed more than {MAX_OUTPUT} bytes]"));
        }
        match text.trim() {
            "" => Ok(TurnOutcome::NoReply),
            _ => Ok(TurnOutcome::Reply(text)),
        }
    }
}

impl Exec {
    fn spawn(&self, turn: &Turn, run: &CommandRun) -> Result<Child, TurnError> {
        let [program, arguments @ ..] = self.command.as_slice() else {
            return Err(TurnError::new(FailureKind::Unreachable, "no command was given"));
        };
        let mut command = Command::new(program);
        command.args(arguments).env_clear();
        command.envs(self.environment.iter().cloned()).envs(environment(&turn.mail)).env(processes::MARK, run.id());
        // A process group of its own, so that everything the command started can be killed with it.
        command.process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
            .spawn()
            .map_err(|error| TurnError::new(FailureKind::Unreachable, format!("cannot run {program}: {error}")))
    }
}

fn environment(mail: &Message) -> Vec<(&'static str, String)> {
    let mut all = vec![
        ("AMB_MESSAGE_ID", mail.id.to_string()),
        ("AMB_FROM", mail.from.to_string()),
        ("AMB_TO", mail.to.to_string()),
        ("AMB_KIND", mail.kind.to_string()),
        ("AMB_PRIORITY", mail.priority.to_string()),
        // The environment cannot hold NUL, a subject can.
        ("AMB_SUBJECT", mail.subject.as_deref().unwrap_or_default().replace('\0', "")),
    ];
    all.extend(mail.session.as_ref().map(|session| ("AMB_SESSION_ID", session.to_string())));
    all.extend(mail.task.as_ref().map(|task| ("AMB_TASK_ID", task.id.to_string())));
    all
}

struct CommandOutput {
    status: ExitStatus,
    out: CapturedOutput,
    err: CapturedOutput,
}

/// Output of a command, up to [`MAX_OUTPUT`].
#[derive(Default)]
struct CapturedOutput {
    bytes: Vec<u8>,
    is_cut: bool,
}

/// Writes stdin and reads both outputs at the same time, so that no full pipe can block either side.
async fn communicate(child: &mut Child, input: String) -> std::io::Result<CommandOutput> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (mut out, mut err) = (CapturedOutput::default(), CapturedOutput::default());
    let mut io = Box::pin(async {
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A command that does not read its stdin is no failure.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
        };
        let ((), read_out, read_err) = tokio::join!(feed, read(stdout, &mut out), read(stderr, &mut err));
        read_out.and(read_err)
    });
    let status = tokio::select! {
        said = &mut io => {
            said?;
            child.wait().await?
        }
        status = child.wait() => {
            // A process that the command started may keep the pipes open.
            if let Ok(said) = timeout(DRAIN_TIME, &mut io).await {
                said?;
            }
            status?
        }
    };
    drop(io);
    Ok(CommandOutput { status, out, err })
}

async fn read(pipe: Option<impl AsyncRead + Unpin>, captured: &mut CapturedOutput) -> std::io::Result<()> {
    if let Some(mut pipe) = pipe {
        (&mut pipe).take(MAX_OUTPUT).read_to_end(&mut captured.bytes).await?;
        captured.is_cut = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await? > 0;
    }
    Ok(())
}

fn tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim();
    let skip = text.chars().count().saturating_sub(REASON_CHARS);
    text.chars().skip(skip).collect()
}
