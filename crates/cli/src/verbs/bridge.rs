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

/// Wake an agent runtime on new mail and send its answer back
///
/// A bridge is a process that keeps running. Each mail gets one turn of the runtime, and one reply, whatever is killed
/// when. Mail that fails again and again is put on a list of its own.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  OPENCLAW_GATEWAY_TOKEN=... amb --as ben bridge openclaw
  amb --as ben bridge acp -- gemini --acp                  one agent that stays, and remembers each peer
  amb --as ben bridge exec -- ./answer.sh                  mail on stdin, the answer from stdout
  amb --as ben bridge exec --input prompt -- claude -p     a Claude Code turn for each mail
  amb bridge run bridges.toml                              several bridges in one process
  amb bridge install bridges.toml                          and started again after a reboot
  amb bridge status
  amb bridge dead list")]
pub(crate) struct BridgeCommand {
    #[command(subcommand)]
    action: BridgeVerb,
}

#[derive(Debug, clap::Subcommand)]
enum BridgeVerb {
    /// Wake an OpenClaw agent through its gateway
    Openclaw(openclaw::OpenClawArgs),
    /// Keep an agent that speaks the Agent Client Protocol running, and give it each mail
    Acp(acp::AcpArgs),
    /// Run a command for each mail
    Exec(exec::ExecArgs),
    /// Run the bridges that a file names, each started again when it fails
    Run(run::RunArgs),
    /// Have the bridges of a file started by systemd or launchd, also after a reboot
    Install(install::InstallArgs),
    /// Show your bridges and their state
    Status(StateArgs),
    /// Messages that bridges gave up on
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
    /// List them, oldest first
    List(StateArgs),
    /// Retry one
    Retry {
        /// The message
        id: MessageId,
        #[command(flatten)]
        which: StateArgs,
    },
}

#[derive(Debug, clap::Args)]
struct BridgeArgs {
    /// How many turns run at once; those of one conversation run one after another
    #[arg(long, value_name = "N", default_value_t = amb_bridge::DEFAULT_CONCURRENCY, value_parser = concurrency)]
    concurrency: usize,
    /// What is done about tasks: `ask` lets the turn decide, `accept` takes each on before its turn and completes it
    /// with the answer; `ask` for models, `accept` for commands with --input text or json
    #[arg(long, value_name = "HOW", value_parser = tasks)]
    tasks: Option<TaskHandling>,
    /// Give up on a message after this many failures
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    max_failures: u32,
    /// The directory of the bridge's state, instead of one in your data directory
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
