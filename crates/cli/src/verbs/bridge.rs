//! `amb bridge`: wake a runtime on new mail and carry its answer back.

mod acp;
mod carry;
mod exec;
mod inspect;
mod install;
mod openclaw;
mod run;
mod state;

use std::path::PathBuf;
use std::time::Duration;

use amb_bridge::{BridgeOptions, TaskHandling};
use amb_core::MessageId;

use crate::archiving::Archiving;
use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;

/// The longest turn timeout: a day.
const MAX_TURN_SECONDS: u64 = 86_400;
/// The most turns that run at once.
const MAX_CONCURRENCY: usize = 64;

/// Run an agent for each new message and send its answer back
///
/// A bridge is a process that keeps running. It runs one turn of the agent for each message and sends one reply, even if
/// it is killed and restarted meanwhile. A message that fails repeatedly is moved to the list that `dead list` shows.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  OPENCLAW_GATEWAY_TOKEN=... amb --as ben bridge openclaw
  amb --as ben bridge acp -- gemini --acp                  one agent process for all messages
  amb --as ben bridge exec -- ./answer.sh                  message on stdin, answer from stdout
  amb --as ben bridge exec --input prompt -- claude -p     a Claude Code turn for each message
  amb bridge run bridges.toml                              several bridges in one process
  amb bridge install bridges.toml                          the same as a service
  amb bridge status
  amb bridge dead list")]
pub(crate) struct BridgeCommand {
    #[command(subcommand)]
    action: BridgeVerb,
}

#[derive(Debug, clap::Subcommand)]
enum BridgeVerb {
    /// Run a turn of an OpenClaw agent for each message, through its gateway
    Openclaw(openclaw::OpenClawArgs),
    /// Run a turn of a resident agent for each message, over the Agent Client Protocol
    Acp(acp::AcpArgs),
    /// Run a command for each message
    Exec(exec::ExecArgs),
    /// Run all bridges of a file, and restart each one that fails
    Run(run::RunArgs),
    /// Install the bridges of a file as a user service of systemd or launchd
    Install(install::InstallArgs),
    /// Show your bridges and their state
    #[command(after_help = "Example:\n  amb bridge status")]
    Status(StateArgs),
    /// List and retry messages that were given up after repeated failures
    #[command(after_help = "\
Examples:
  amb bridge dead list
  amb bridge dead retry 0199c0de-1a2b-7000-8000-000000000001")]
    Dead {
        #[command(subcommand)]
        action: DeadVerb,
    },
}

#[derive(Debug, clap::Args)]
struct StateArgs {
    /// Only the bridge with this state directory
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum DeadVerb {
    /// List the messages that were given up, oldest first
    #[command(after_help = "Example:\n  amb bridge dead list")]
    List(StateArgs),
    /// Retry one of these messages
    #[command(after_help = "Example:\n  amb bridge dead retry 0199c0de-1a2b-7000-8000-000000000001")]
    Retry {
        /// The id of the message
        id: MessageId,
        #[command(flatten)]
        which: StateArgs,
    },
}

#[derive(Debug, clap::Args)]
struct BridgeArgs {
    /// How many turns run at once; turns of one conversation run one after the other
    #[arg(long, value_name = "N", default_value_t = amb_bridge::DEFAULT_CONCURRENCY, value_parser = concurrency)]
    concurrency: usize,
    /// How tasks are handled: with `ask` the answer decides, with `accept` the bridge accepts each task before its turn
    /// and completes it with the answer. Default: `accept` for commands with --input text or json, else `ask`
    #[arg(long, value_name = "HOW", value_parser = tasks)]
    tasks: Option<TaskHandling>,
    /// Give up a message after this many failures
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    max_failures: u32,
    /// The directory of the bridge's state; default: one in your data directory
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    #[command(flatten)]
    archiving: Archiving,
}

fn tasks(text: &str) -> Result<TaskHandling, String> {
    match text {
        "ask" => Ok(TaskHandling::Ask),
        "accept" => Ok(TaskHandling::Accept),
        _ => Err("tasks are ask or accept".into()),
    }
}

fn concurrency(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=MAX_CONCURRENCY) => Ok(number),
        _ => Err(format!("1 to {MAX_CONCURRENCY} turns run at once")),
    }
}

impl BridgeArgs {
    /// The options that all kinds of bridge have in common.
    fn options(&self, turn_timeout: u64, default_tasks: TaskHandling) -> BridgeOptions {
        BridgeOptions {
            turn_timeout: Duration::from_secs(turn_timeout),
            max_failures: self.max_failures,
            concurrency: self.concurrency,
            tasks: self.tasks.unwrap_or(default_tasks),
            ..BridgeOptions::default()
        }
    }
}

impl BridgeVerb {
    /// The runtime, for people, as far as it is known before it was reached.
    fn runtime(&self) -> String {
        match self {
            BridgeVerb::Acp(acp) => format!("ACP agent {}", acp.command.join(" ")),
            BridgeVerb::Exec(exec) => format!("command {}", exec.command.join(" ")),
            _ => "OpenClaw".to_owned(),
        }
    }

    /// Runs one bridge until it is stopped.
    async fn bridge(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        match self {
            BridgeVerb::Openclaw(openclaw) => openclaw.run(office, output).await,
            BridgeVerb::Acp(acp) => acp.run(office, output).await,
            BridgeVerb::Exec(exec) => exec.run(office, output).await,
            _ => Err(Failure::usage("a bridge is openclaw, acp or exec")),
        }
    }
}

impl BridgeCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        match self.action {
            action @ (BridgeVerb::Openclaw(_) | BridgeVerb::Acp(_) | BridgeVerb::Exec(_)) => {
                action.bridge(office, output).await
            }
            BridgeVerb::Run(run) => run.run(output).await,
            BridgeVerb::Install(install) => install.run(output),
            BridgeVerb::Status(which) => inspect::status(office, which.state.as_deref(), output),
            BridgeVerb::Dead { action: DeadVerb::List(which) } => inspect::dead(office, which.state.as_deref(), output),
            BridgeVerb::Dead { action: DeadVerb::Retry { id, which } } => {
                inspect::retry(office, which.state.as_deref(), &id, output)
            }
        }
    }
}
