//! How the client that started this process can be woken, from the environment, and where its state is stored.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use amb_core::AgentName;
use amb_mcp::WakeOptions;
use amb_wake::{ClaudeInbox, Limits, Process, QwenInbox, WakeDirectory};
use clap::ValueEnum;
use jiff::SignedDuration;

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::profile::variable;
use crate::{home, output};

/// The UUID namespace in which offices are hashed into directory names; it must never change.
const NAMESPACE: uuid::Uuid = uuid::Uuid::from_u128(0x1c5e_7d20_9b34_5af8_8e61_42d7_b90c_f3a6);

/// The name of `amb watch --bell` where others have the name of a client.
pub(crate) const BELL: &str = "bell";

/// Which sessions of an agent are woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum WakeScope {
    /// The most recently active session
    #[default]
    One,
    /// All sessions
    All,
}

/// The options for waking the client.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct WakeArgs {
    /// Do not wake the client when mail arrives
    #[arg(long, conflicts_with_all = ["wake", "wake_again"])]
    no_wake: bool,
    /// Which sessions of the agent to wake
    #[arg(long, value_enum, default_value_t)]
    wake: WakeScope,
    /// Delays of reminders while mail stays unread, each counted from the wake-up before it; after the last reminder
    /// it gives up
    #[arg(long, value_name = "SPANS", default_value = "1m,5m,30m")]
    wake_again: String,
}

impl WakeArgs {
    /// The options for `amb mcp`; `None` where waking is turned off.
    pub(crate) fn options(&self, office: &OfficeArgs) -> Result<Option<WakeOptions>, Failure> {
        if self.no_wake {
            return Ok(None);
        }
        let wrong = || Failure::usage("--wake-again takes spans such as 1m,5m,30m, and at most 10 of them");
        let spans = self.wake_again.split(',').filter(|span| !span.trim().is_empty());
        let again: Option<Vec<SignedDuration>> = spans.map(|span| output::span(span.trim())).collect();
        let again = again.filter(|again| again.len() <= 10).ok_or_else(wrong)?;
        // Mail is served without a home directory, too.
        let Ok(root) = office_root(office) else {
            tracing::warn!("no wake-ups: there is no home directory to keep their ledger in");
            return Ok(None);
        };
        Ok(Some(WakeOptions {
            root,
            limits: Limits { reminders: again, ..Limits::default() },
            all: self.wake == WakeScope::All,
            claude: claude(),
            qwen: qwen(),
            codex: codex_program(),
            codex_control: codex_control(),
        }))
    }
}

/// The inbox of the Claude Code session that started this process.
pub(crate) fn claude() -> Option<ClaudeInbox> {
    let socket = variable("CLAUDE_CODE_MESSAGING_SOCKET")?;
    Some(ClaudeInbox {
        session: variable("CLAUDE_CODE_SESSION_ID").unwrap_or_else(|| socket.clone()),
        socket: socket.into(),
        token: variable("CLAUDE_CODE_MESSAGING_TOKEN").map(Into::into),
        registry: claude_registry(),
    })
}

/// The directory where Claude Code's sessions record what they do.
pub(crate) fn claude_registry() -> Option<PathBuf> {
    let config = variable("CLAUDE_CONFIG_DIR").map(PathBuf::from);
    config.or_else(|| Some(home::user().ok()?.join(".claude"))).map(|config| config.join("sessions"))
}

/// The inbox of the Qwen Code session that started this process.
pub(crate) fn qwen() -> Option<QwenInbox> {
    let token = variable("QWEN_CODE_MESSAGING_TOKEN")?;
    let home = variable("QWEN_HOME").map(PathBuf::from).or_else(|| Some(home::user().ok()?.join(".qwen")))?;
    let runtime = variable("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_dir());
    // A socket's path must be short, and a state directory's may not be.
    let runtime = runtime.unwrap_or_else(|| "/tmp".into());
    Some(QwenInbox {
        registry: home.join("sessions"),
        socket: variable("QWEN_CODE_MESSAGING_SOCKET").map(PathBuf::from),
        session: variable("QWEN_CODE_SESSION_ID"),
        token: token.into(),
        runtime,
    })
}

/// The program that queues messages for Codex: the one that started this process, which has the same version and needs
/// no launcher; else the one on the PATH.
fn codex_program() -> OsString {
    let parent = Process::parent().and_then(|parent| parent.executable());
    let is_codex = |path: &PathBuf| path.file_name().is_some_and(|name| name == "codex");
    parent.filter(is_codex).map_or_else(|| "codex".into(), PathBuf::into_os_string)
}

/// The socket of Codex' app server.
pub(crate) fn codex_control() -> Option<PathBuf> {
    let home = variable("CODEX_HOME").map(PathBuf::from).or_else(|| Some(home::user().ok()?.join(".codex")))?;
    Some(home.join("app-server-control/app-server-control.sock"))
}

/// The directory of all of this user's wake-ups.
pub(crate) fn root() -> Result<PathBuf, Failure> {
    Ok(home::state_dir()?.join("wake"))
}

/// The directory of those of one office.
fn office_root(office: &OfficeArgs) -> Result<PathBuf, Failure> {
    let name = match &office.server {
        Some(server) => server.to_string(),
        // The same directory by another path is the same office, also before it exists.
        None => canonical(&office.root()?).display().to_string(),
    };
    Ok(root()?.join(uuid::Uuid::new_v5(&NAMESPACE, name.as_bytes()).simple().to_string()))
}

/// Resolves links, also above a directory that does not exist yet.
fn canonical(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match (fs_err::canonicalize(&path), path.parent(), path.file_name()) {
        (Ok(found), ..) => found,
        (Err(_), Some(parent), Some(name)) => canonical(parent).join(name),
        _ => path,
    }
}

/// The directory of those of one mailbox.
pub(crate) fn directory(office: &OfficeArgs, me: &AgentName) -> Result<WakeDirectory, Failure> {
    Ok(WakeDirectory::new(office_root(office)?.join(me.as_str())))
}
