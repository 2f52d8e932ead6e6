//! `amb bridge acp`: a resident agent that speaks the Agent Client Protocol.

use std::path::PathBuf;
use std::sync::Arc;

use amb_bridge::acp::{self, Acp, AcpOptions, Permissions};
use amb_bridge::{BridgeOptions, Conversations, TaskHandling, exec};

use super::{BridgeArgs, MAX_TURN_SECONDS, state};
use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb --as ben bridge acp --env GEMINI_API_KEY -- gemini --acp
  amb --as ben bridge acp --permissions read --cwd ~/src/app -- qwen --acp
  amb --as ben bridge acp --sessions thread -- opencode acp
  amb --as ben bridge acp -- copilot --acp
  amb --as ben bridge acp --env ANTHROPIC_API_KEY -- npx @agentclientprotocol/claude-agent-acp
  amb --as ben bridge acp --env OPENAI_API_KEY -- npx @agentclientprotocol/codex-acp

The agent runs as one process for all messages, with a session for each peer. Requests for
permission are refused unless --permissions allows them. From your environment the agent inherits
only PATH, HOME, USER, LOGNAME, SHELL, TERM, NO_COLOR, LANG, LANGUAGE, LC_*, TZ, TMPDIR and XDG_*,
and the variables that --env names.")]
pub(super) struct AcpArgs {
    /// What to grant when the agent asks for permission: reject (nothing), read (tool calls that only read) or allow
    /// (everything)
    #[arg(long, value_name = "RULE", default_value = "reject", value_parser = permissions)]
    permissions: Permissions,
    /// Which messages share a session, and so the agent's memory: those of one peer, those of one thread, or all (one)
    #[arg(long, value_name = "WHICH", default_value = "peer", value_parser = sessions)]
    sessions: Conversations,
    /// The agent's working directory; default: the current directory
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// The authentication method to request before the first session
    #[arg(long, value_name = "METHOD")]
    auth: Option<String>,
    /// Pass this variable of your environment to the agent, or set one with NAME=VALUE; repeatable
    #[arg(long = "env", value_name = "NAME")]
    environment: Vec<String>,
    /// Cancel a turn after this long
    #[arg(long, value_name = "SECONDS", default_value_t = acp::DEFAULT_TIMEOUT.as_secs(), value_parser = clap::value_parser!(u64).range(1..=MAX_TURN_SECONDS))]
    turn_timeout: u64,
    #[command(flatten)]
    common: BridgeArgs,
    /// The agent's command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(super) command: Vec<String>,
}

fn permissions(text: &str) -> Result<Permissions, String> {
    match text {
        "reject" => Ok(Permissions::Reject),
        "read" => Ok(Permissions::Read),
        "allow" => Ok(Permissions::Allow),
        _ => Err("permissions are reject, read or allow".into()),
    }
}

fn sessions(text: &str) -> Result<Conversations, String> {
    match text {
        "peer" => Ok(Conversations::Peer("peer:".into())),
        "thread" => Ok(Conversations::Session),
        "one" => Ok(Conversations::One("one".into())),
        _ => Err("sessions are peer, thread or one".into()),
    }
}

impl AcpArgs {
    pub(super) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let options = BridgeOptions {
            conversations: self.sessions,
            requests: Some("requests".to_owned()),
            ..self.common.options(self.turn_timeout, TaskHandling::Ask)
        };
        let cwd = self.cwd.unwrap_or_else(|| PathBuf::from("."));
        let mut environment = state::inherited(&self.environment)?;
        exec::check_command(&self.command, &environment).map_err(|error| Failure::usage(error.detail))?;
        let bridge = self.common.open(office).await?;
        state::add_account(&mut environment, office, bridge.mailbox.me(), output)?;
        let runtime = Acp::new(AcpOptions {
            command: self.command,
            environment,
            directory: fs_err::canonicalize(&cwd)?,
            permissions: self.permissions,
            authenticate: self.auth,
            records: Some(bridge.ledger.commands()),
            memory: Some(bridge.ledger.conversations()),
            ..AcpOptions::default()
        });
        bridge.run(Arc::new(runtime), options, output).await
    }
}
