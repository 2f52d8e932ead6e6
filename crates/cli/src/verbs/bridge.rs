//! `amb bridge`: wake a runtime on new mail and carry its answer back.

mod look;
mod state;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use amb_bridge::exec::{self, Exec, Input};
use amb_bridge::openclaw::{Gateway, Route};
use amb_bridge::{Bridge as Bridged, Ledger, Options, Runtime};
use amb_client::Backoff;
use amb_core::{MessageId, Office};

use crate::archiving::Archiving;
use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::verbs::init::enlist;
use crate::verbs::watch::interrupted;

/// The longest time that a turn may be given: a day.
const LONGEST_TURN: u64 = 86_400;
/// Wake an agent runtime on new mail and send its answer back
///
/// A bridge is a process that keeps running. Each mail gets one turn of the runtime, and one reply, whatever is killed
/// when. Mail that fails again and again is put on a list of its own.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  OPENCLAW_GATEWAY_TOKEN=... amb --as ben bridge openclaw
  amb --as ben bridge exec -- ./answer.sh                  mail on stdin, the answer from stdout
  amb --as ben bridge exec --input prompt -- claude -p     a Claude Code turn for each mail
  amb bridge status
  amb bridge dead list")]
pub(crate) struct Bridge {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Wake an OpenClaw agent through its gateway
    Openclaw(OpenClaw),
    /// Run a command for each mail
    Exec(Command),
    /// Show this user's bridges and how they are
    Status(Which),
    /// Mail that was given up
    Dead {
        #[command(subcommand)]
        action: Dead,
    },
}

#[derive(Debug, clap::Args)]
struct Which {
    /// Only the bridge that keeps its memory here
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum Dead {
    /// List it, oldest first
    List(Which),
    /// Try one again
    Retry {
        /// The message
        id: MessageId,
        #[command(flatten)]
        which: Which,
    },
}

#[derive(Debug, clap::Args)]
struct Common {
    /// Give a mail up after so many failures
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    max_failures: u32,
    /// Where the bridge keeps its memory, instead of this user's data directory
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    #[command(flatten)]
    archiving: Archiving,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  OPENCLAW_GATEWAY_TOKEN=... amb --as ben bridge openclaw
  amb --as ben bridge openclaw --route websocket        a turn runs once, whatever is killed
  amb --as ben bridge openclaw --session-per-peer       a conversation for each peer

The token is read from OPENCLAW_GATEWAY_TOKEN; it is gateway.auth.token in openclaw.json.
The route chat needs gateway.http.endpoints.chatCompletions.enabled, the route sessions_send
needs sessions_send in gateway.tools.allow.")]
struct OpenClaw {
    /// How turns are asked for: auto, chat, websocket or sessions_send
    #[arg(long, default_value = "auto", value_parser = route)]
    route: Chosen,
    /// The gateway's address
    #[arg(long, value_name = "URL", env = "OPENCLAW_GATEWAY_URL", default_value = "http://127.0.0.1:18789")]
    gateway_url: String,
    /// The OpenClaw session that mail goes to
    #[arg(long, value_name = "KEY", default_value = "agent:main:main")]
    session: String,
    /// A session for each peer instead, such as agent:main:mailbox:ann
    #[arg(long)]
    session_per_peer: bool,
    /// How long a turn may take
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=LONGEST_TURN))]
    turn_timeout: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb --as ben bridge exec -- tr a-z A-Z
  amb --as ben bridge exec --input prompt -- claude -p
  amb --as ben bridge exec --input prompt -- codex exec -
  amb --as ben bridge exec --input json -- ./handle.py

What the command prints is the reply; nothing printed, no reply. A code other than 0 is a
failure: the mail is tried again, and given up in the end. The command finds AMB_FROM, AMB_TO,
AMB_SUBJECT, AMB_MESSAGE_ID, AMB_SESSION_ID, AMB_KIND, AMB_PRIORITY and AMB_TASK_ID in its
environment.")]
struct Command {
    /// What the command gets on stdin: text, prompt (fenced, for models) or json
    #[arg(long, default_value = "text", value_parser = input)]
    input: Input,
    /// How long the command may run; it is killed with all that it started
    #[arg(long, value_name = "SECONDS", default_value_t = exec::DEFAULT_TIMEOUT.as_secs(), value_parser = clap::value_parser!(u64).range(1..=LONGEST_TURN))]
    turn_timeout: u64,
    #[command(flatten)]
    common: Common,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// A route, or none for the first that the gateway offers.
#[derive(Debug, Clone, Copy)]
struct Chosen(Option<Route>);

fn route(text: &str) -> Result<Chosen, String> {
    match text {
        "auto" => Ok(Chosen(None)),
        _ => text.parse().map(|route| Chosen(Some(route))),
    }
}

fn input(text: &str) -> Result<Input, String> {
    match text {
        "text" => Ok(Input::Text),
        "prompt" => Ok(Input::Prompt),
        "json" => Ok(Input::Json),
        _ => Err("the input is text, prompt or json".into()),
    }
}

impl Bridge {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        match self.action {
            Action::Openclaw(openclaw) => openclaw.run(office, output).await,
            Action::Exec(command) => command.run(office, output).await,
            Action::Status(which) => look::status(office, which.state.as_deref(), output),
            Action::Dead { action: Dead::List(which) } => look::dead(office, which.state.as_deref(), output),
            Action::Dead { action: Dead::Retry { id, which } } => {
                look::retry(office, which.state.as_deref(), &id, output)
            }
        }
    }
}

impl OpenClaw {
    async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let token = std::env::var("OPENCLAW_GATEWAY_TOKEN").unwrap_or_default();
        if token.is_empty() {
            output
                .note("OPENCLAW_GATEWAY_TOKEN is not set; a gateway with gateway.auth.token lets nobody in without it");
        }
        let gateway = Gateway::new(&self.gateway_url, token).map_err(Failure::usage)?;
        let agent = self.session.split(':').nth(1).filter(|agent| !agent.is_empty()).unwrap_or("main");
        let options = Options {
            turn_timeout: Duration::from_secs(self.turn_timeout),
            max_failures: self.common.max_failures,
            session_per_peer: self.session_per_peer.then(|| format!("agent:{agent}:mailbox:")),
            main_session: self.session,
            ..Options::default()
        };
        let seat = seat(office).await?;
        let _archiving = self.common.archiving.start(office)?;
        carry(office, seat, Arc::new(gateway.route(self.route.0)), options, self.common.state.as_deref(), output).await
    }
}

impl Command {
    async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let options = Options {
            turn_timeout: Duration::from_secs(self.turn_timeout),
            max_failures: self.common.max_failures,
            ..Options::default()
        };
        let seat = seat(office).await?;
        let _archiving = self.common.archiving.start(office)?;
        let environment = state::environment(office, seat.me())?;
        let runtime = Exec { command: self.command, input: self.input, environment };
        carry(office, seat, Arc::new(runtime), options, self.common.state.as_deref(), output).await
    }
}

/// The seat, waited for where the office is not there yet: a bridge may be started before its server.
async fn seat(office: &OfficeArgs) -> Result<Arc<dyn Office>, Failure> {
    let mut backoff = Backoff::default();
    loop {
        let opened = async {
            let seat = office.open().await?;
            if enlist(&*seat, office.nanobot_section(seat.me()).as_ref()).await? {
                tracing::info!(agent = %seat.me(), "registered");
            }
            Ok(seat)
        };
        match opened.await {
            Err(Failure::Office(error)) if error.is_passing() => {
                tracing::warn!(%error, "the office cannot be used now; trying again");
                tokio::select! {
                    () = tokio::time::sleep(error.wait().unwrap_or_else(|| backoff.pause())) => {}
                    interrupted = interrupted() => {
                        interrupted?;
                        return Err(Failure::Office(error));
                    }
                }
            }
            other => return other,
        }
    }
}

async fn carry(
    office: &OfficeArgs,
    seat: Arc<dyn Office>,
    runtime: Arc<dyn Runtime>,
    options: Options,
    state: Option<&Path>,
    output: Output,
) -> Result<(), Failure> {
    let root = match state {
        Some(state) => state.to_owned(),
        None => state::place(office, seat.me())?,
    };
    let ledger = Ledger::open(&root)?;
    output.note(format!("{} at {} is bridged to {}", seat.me(), seat.describe(), runtime.describe()));
    output.note(format!("`amb bridge status` says how it is; its memory is in {}", root.display()));
    let shutdown = async {
        if let Err(error) = interrupted().await {
            tracing::error!(%error, "cannot listen for signals; stopping");
        }
    };
    Ok(Bridged::new(seat, runtime, ledger, options).run(shutdown).await?)
}
