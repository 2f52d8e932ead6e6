//! `amb bridge`: wake a runtime on new mail and carry its answer back.

mod look;
mod state;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use amb_bridge::acp::{self, Acp, AcpOptions, Permissions};
use amb_bridge::exec::{self, Exec, Input};
use amb_bridge::openclaw::{Gateway, Route};
use amb_bridge::{Bridge as Bridged, Conversations, Ledger, Options, Runtime, Tasks};
use amb_core::Backoff;
use amb_core::{MessageId, Office};

use crate::archiving::Archiving;
use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::init::{Client, Scope, json};
use crate::output::Output;
use crate::verbs::init::{enlist, places};
use crate::verbs::watch::interrupted;

/// The longest time that a turn may be given: a day.
const LONGEST_TURN: u64 = 86_400;
/// The most turns that run at once.
const MAX_CONCURRENCY: usize = 64;
/// Where OpenClaw's gateway listens unless it is told otherwise.
const DEFAULT_GATEWAY_PORT: u16 = 18789;

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
    /// Keep an agent that speaks the Agent Client Protocol running, and give it each mail
    Acp(Resident),
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
    /// How many turns run at once; those of one conversation follow each other
    #[arg(long, value_name = "N", default_value_t = amb_bridge::DEFAULT_CONCURRENCY, value_parser = concurrency)]
    concurrency: usize,
    /// What is done about tasks: `ask` lets the turn decide, `accept` takes each on before its turn and completes it with
    /// the answer; `ask` for models, `accept` for commands with --input text or json
    #[arg(long, value_name = "HOW", value_parser = tasks)]
    tasks: Option<Tasks>,
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
  amb --as ben bridge openclaw --session agent:main:main    in your own conversation with it

The token is read from OPENCLAW_GATEWAY_TOKEN; it is gateway.auth.token in openclaw.json.
The route websocket needs nothing more; chat needs gateway.http.endpoints.chatCompletions.enabled,
sessions_send needs sessions_send in gateway.tools.allow. auto takes the first that works.")]
struct OpenClaw {
    /// How turns are asked for: auto, chat, websocket or sessions_send
    #[arg(long, default_value = "auto", value_parser = route)]
    route: Chosen,
    /// The gateway's address; where it is not said, the port in openclaw.json on this machine, else 18789
    #[arg(long, value_name = "URL", env = "OPENCLAW_GATEWAY_URL")]
    gateway_url: Option<String>,
    /// One OpenClaw session for all mail, such as your own, agent:main:main; otherwise each peer has its own, such as
    /// agent:main:mailbox:ann
    #[arg(long, value_name = "KEY")]
    session: Option<String>,
    /// A session for each peer, of the agent that --session names
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
  amb --as ben bridge exec --input prompt --env ANTHROPIC_API_KEY -- claude -p
  amb --as ben bridge exec --input prompt --env OPENAI_API_KEY -- codex exec -
  amb --as ben bridge exec --input json -- ./handle.py

What the command prints is the reply; nothing printed, no reply. A code other than 0 is a
failure: the mail is tried again, and given up in the end. The command finds AMB_FROM, AMB_TO,
AMB_SUBJECT, AMB_MESSAGE_ID, AMB_SESSION_ID, AMB_KIND, AMB_PRIORITY and AMB_TASK_ID in its
environment. Of your own environment it gets PATH, HOME, USER, LOGNAME, SHELL, TERM, NO_COLOR, LANG,
LANGUAGE, LC_*, TZ, TMPDIR and XDG_*, and what --env names.")]
struct Command {
    /// What the command gets on stdin: text, prompt (fenced, for models) or json
    #[arg(long, default_value = "text", value_parser = input)]
    input: Input,
    /// A variable of your environment that the command gets, too, or NAME=VALUE; repeat for more
    #[arg(long = "env", value_name = "NAME")]
    environment: Vec<String>,
    /// How long the command may run; it is killed with all that it started
    #[arg(long, value_name = "SECONDS", default_value_t = exec::DEFAULT_TIMEOUT.as_secs(), value_parser = clap::value_parser!(u64).range(1..=LONGEST_TURN))]
    turn_timeout: u64,
    #[command(flatten)]
    common: Common,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb --as ben bridge acp --env GEMINI_API_KEY -- gemini --acp
  amb --as ben bridge acp --permissions read --cwd ~/src/app -- qwen --acp
  amb --as ben bridge acp --sessions thread -- opencode acp
  amb --as ben bridge acp -- copilot --acp
  amb --as ben bridge acp --env ANTHROPIC_API_KEY -- npx @agentclientprotocol/claude-agent-acp
  amb --as ben bridge acp --env OPENAI_API_KEY -- npx @agentclientprotocol/codex-acp

One process is kept for all mail, with a session for each peer. What the agent asks permission for is
refused unless --permissions says otherwise. Of your own environment it gets PATH, HOME, USER, LOGNAME,
SHELL, TERM, NO_COLOR, LANG, LANGUAGE, LC_*, TZ, TMPDIR and XDG_*, and what --env names.")]
struct Resident {
    /// What is allowed when the agent asks: reject (nothing), read (what only looks) or allow (everything)
    #[arg(long, value_name = "RULE", default_value = "reject", value_parser = permissions)]
    permissions: Permissions,
    /// Which mail shares a session, and with it the agent's memory: that of a peer, of a thread, or all of it (one)
    #[arg(long, value_name = "WHICH", default_value = "peer", value_parser = sessions)]
    sessions: Conversations,
    /// The directory in which the agent works; the present one unless named
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// The agent's way of authentication that is asked for before the first session
    #[arg(long, value_name = "METHOD")]
    auth: Option<String>,
    /// A variable of your environment that the agent gets, too, or NAME=VALUE; repeat for more
    #[arg(long = "env", value_name = "NAME")]
    environment: Vec<String>,
    /// How long a turn may take; then it is cancelled
    #[arg(long, value_name = "SECONDS", default_value_t = acp::DEFAULT_TIMEOUT.as_secs(), value_parser = clap::value_parser!(u64).range(1..=LONGEST_TURN))]
    turn_timeout: u64,
    #[command(flatten)]
    common: Common,
    /// The agent's command and its arguments
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
        "thread" => Ok(Conversations::Thread),
        "one" => Ok(Conversations::One("one".into())),
        _ => Err("sessions are peer, thread or one".into()),
    }
}

fn tasks(text: &str) -> Result<Tasks, String> {
    match text {
        "ask" => Ok(Tasks::Ask),
        "accept" => Ok(Tasks::Accept),
        _ => Err("tasks are ask or accept".into()),
    }
}

fn concurrency(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=MAX_CONCURRENCY) => Ok(number),
        _ => Err(format!("1 to {MAX_CONCURRENCY} turns run at once")),
    }
}

impl Common {
    /// What both kinds of bridge have in common.
    fn options(&self, turn_timeout: u64, usual_tasks: Tasks) -> Options {
        Options {
            turn_timeout: Duration::from_secs(turn_timeout),
            max_failures: self.max_failures,
            concurrency: self.concurrency,
            tasks: self.tasks.unwrap_or(usual_tasks),
            ..Options::default()
        }
    }
}

impl Bridge {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        match self.action {
            Action::Openclaw(openclaw) => openclaw.run(office, output).await,
            Action::Acp(resident) => resident.run(office, output).await,
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
        let config = openclaw_config()?;
        let token = std::env::var("OPENCLAW_GATEWAY_TOKEN").unwrap_or_default();
        if token.is_empty() {
            output.note(format!(
                "OPENCLAW_GATEWAY_TOKEN is not set; set it to gateway.auth.token of {}, unless your gateway lets everybody in",
                config.display()
            ));
        }
        let url = match self.gateway_url {
            Some(url) => url,
            None => format!("http://127.0.0.1:{}", gateway_port(&config, output).unwrap_or(DEFAULT_GATEWAY_PORT)),
        };
        let gateway = Gateway::new(&url, token).map_err(Failure::usage)?;
        let named = self.session.as_deref().unwrap_or("agent:main:main");
        let agent = named.split(':').nth(1).filter(|agent| !agent.is_empty()).unwrap_or("main");
        let conversations = match &self.session {
            Some(session) if !self.session_per_peer => Conversations::One(session.clone()),
            _ => Conversations::Peer(format!("agent:{agent}:mailbox:")),
        };
        let options = Options {
            conversations,
            // Who wants to be connected is for the person to decide, who is found there.
            requests: Some(named.to_owned()),
            ..self.common.options(self.turn_timeout, Tasks::Ask)
        };
        let seat = seat(office).await?;
        let _archiving = self.common.archiving.start(office)?;
        let (state, ledger) = memory(office, &*seat, self.common.state.as_deref())?;
        carry(seat, Arc::new(gateway.route(self.route.0)), ledger, options, &state, output).await
    }
}

/// OpenClaw's configuration, where `amb init openclaw` finds it, too.
fn openclaw_config() -> Result<PathBuf, Failure> {
    let (path, _) =
        Client::Openclaw.place(Scope::User, &places()?).map_err(|error| Failure::usage(format!("{error:#}")))?;
    Ok(path)
}

/// The port that the gateway's configuration names.
fn gateway_port(config: &Path, output: Output) -> Option<u16> {
    let found = fs_err::read_to_string(config).ok().map(|text| json::value_at(&text, &["gateway", "port"]));
    match found.transpose() {
        Ok(value) => value.flatten().and_then(|port| u16::try_from(port.as_u64()?).ok()),
        Err(error) => {
            output.note(format!(
                "{}: {error:#}; the gateway is looked for at port {DEFAULT_GATEWAY_PORT}",
                config.display()
            ));
            None
        }
    }
}

impl Command {
    async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let is_model = self.input == Input::Prompt;
        let options = Options {
            // A program that is no model would take such a turn for mail.
            requests: is_model.then(|| "requests".to_owned()),
            ..self.common.options(self.turn_timeout, if is_model { Tasks::Ask } else { Tasks::Accept })
        };
        let inherited = state::inherited(&self.environment)?;
        let runtime = Exec { command: self.command, input: self.input, environment: inherited, records: None };
        runtime.check().await.map_err(|error| Failure::usage(error.detail))?;
        let seat = seat(office).await?;
        let _archiving = self.common.archiving.start(office)?;
        let (state, ledger) = memory(office, &*seat, self.common.state.as_deref())?;
        let mut runtime = Exec { records: Some(ledger.commands()), ..runtime };
        runtime.environment.extend(state::environment(office, seat.me())?);
        carry(seat, Arc::new(runtime), ledger, options, &state, output).await
    }
}

impl Resident {
    async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let options = Options {
            conversations: self.sessions,
            requests: Some("requests".to_owned()),
            ..self.common.options(self.turn_timeout, Tasks::Ask)
        };
        let cwd = self.cwd.unwrap_or_else(|| PathBuf::from("."));
        let mut environment = state::inherited(&self.environment)?;
        exec::check_command(&self.command, &environment).map_err(|error| Failure::usage(error.detail))?;
        let seat = seat(office).await?;
        let _archiving = self.common.archiving.start(office)?;
        let (state, ledger) = memory(office, &*seat, self.common.state.as_deref())?;
        environment.extend(state::environment(office, seat.me())?);
        let runtime = Acp::new(AcpOptions {
            command: self.command,
            environment,
            directory: fs_err::canonicalize(&cwd)?,
            permissions: self.permissions,
            authenticate: self.auth,
            records: Some(ledger.commands()),
            memory: Some(ledger.conversations()),
            ..AcpOptions::default()
        });
        carry(seat, Arc::new(runtime), ledger, options, &state, output).await
    }
}

/// The memory of the bridge, and where it is.
fn memory(office: &OfficeArgs, seat: &dyn Office, state: Option<&Path>) -> Result<(PathBuf, Ledger), Failure> {
    let root = match state {
        Some(state) => state.to_owned(),
        None => state::place(office, seat.me())?,
    };
    let ledger = Ledger::open(&root)?;
    Ok((root, ledger))
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
    seat: Arc<dyn Office>,
    runtime: Arc<dyn Runtime>,
    ledger: Ledger,
    options: Options,
    state: &Path,
    output: Output,
) -> Result<(), Failure> {
    let (me, at) = (seat.me().clone(), seat.describe());
    output.note(format!("{me} at {at} is to be bridged to {}", runtime.describe()));
    output.note(format!("`amb bridge status` says how it is; its memory is in {}", state.display()));
    // Said when it is so: the runtime was asked whether it takes turns.
    let on_ready = Arc::new(move |runtime: &str| output.note(format!("{me} at {at} is bridged to {runtime}")));
    let options = Options { on_ready: Some(on_ready), ..options };
    let shutdown = async {
        if let Err(error) = interrupted().await {
            tracing::error!(%error, "cannot listen for signals; stopping");
        }
    };
    Ok(Bridged::new(seat, runtime, ledger, options).run(shutdown).await?)
}
