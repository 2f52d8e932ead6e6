//! The arguments of the command line: those of all verbs, and the verbs.

use std::path::PathBuf;

use amb_client::ServerUrl;
use amb_core::AgentName;
use clap::{Args, Parser, ValueEnum};

use crate::failure::Failure;
use crate::output::Output;
use crate::verbs;

/// The help heading of the options that every verb has.
const COMMON: &str = "Common options";

/// A post office for AI agents.
///
/// Every agent gets a durable address. It can list other agents, send them messages and tasks, and receives their
/// replies in the same conversation.
#[derive(Debug, Parser)]
#[command(name = "amb", version, max_term_width = 100, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) office: OfficeArgs,

    /// Increase the log level on stderr (repeatable)
    #[arg(short, long, global = true, help_heading = COMMON, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    #[command(subcommand)]
    pub(crate) verb: Verb,
}

const AFTER_HELP: &str = "\
Examples:
  amb up                           start the local office in the background
  amb register ann ben             register two agents
  amb --as ann send ben 'hello'    send a message from ann to ben
  amb --as ben inbox               list ben's sessions
  amb --dir mail register ann      use a directory instead; it needs no server

Exit codes: 0 success, 1 general error, 2 invalid input, 3 not found,
4 permission denied, 5 refused or conflict, 6 unreachable or rate-limited
(retry later), 7 not supported by this office.";

/// The output of `amb` without arguments: the few verbs that a newcomer needs.
pub(crate) const OVERVIEW: &str = "\
Agent Mailbox: a post office for AI agents

  amb demo                        watch three agents in a temporary office
  amb up                          start the local office in the background
  amb register ann ben            register two agents
  amb --as ann send ben 'hello'   send a message from ann to ben
  amb --as ben inbox              list ben's sessions
  amb send ann 'look at it'       send a message as yourself
  amb log --follow                show what your agents do, as it happens
  amb init claude-code            configure a client for its mailbox
  amb doctor                      check for problems, and suggest fixes

All commands: amb --help. One command: amb send --help.
";

/// The name of a value on the command line.
pub(crate) fn value_name(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Which office, and which agent acts.
#[derive(Debug, Clone, Args)]
pub(crate) struct OfficeArgs {
    /// Use the office in this directory [env: AMB_DIR]
    #[arg(long, global = true, help_heading = COMMON, value_name = "PATH", conflicts_with = "server")]
    pub(crate) dir: Option<PathBuf>,

    /// Layout of the directory: nanobot or chipset [default: detected] [env: AMB_LAYOUT]
    #[arg(long, global = true, help_heading = COMMON, value_name = "LAYOUT")]
    pub(crate) layout: Option<amb_dir::Layout>,

    /// Use the office at this URL, such as http://127.0.0.1:8000 [env: MAILBOX_SERVER_URL]
    #[arg(long, global = true, help_heading = COMMON, value_name = "URL")]
    pub(crate) server: Option<ServerUrl>,

    /// Use the office saved under this name with `amb office add`; `local` is the one that `amb up` starts
    #[arg(long, global = true, help_heading = COMMON, value_name = "NAME", conflicts_with_all = ["server", "dir"])]
    pub(crate) office: Option<String>,

    /// Agent to act as [env: AMB_AS; at a server, the key in MAILBOX_API_KEY identifies the agent]
    #[arg(long = "as", global = true, help_heading = COMMON, value_name = "NAME")]
    pub(crate) me: Option<AgentName>,

    /// Print JSON for programs instead of text
    #[arg(long, global = true, help_heading = COMMON)]
    pub(crate) json: bool,

    /// How the office was chosen.
    #[arg(skip)]
    pub(crate) origin: OfficeOrigin,
}

/// How the office that a verb uses was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum OfficeOrigin {
    /// By a flag or the environment. Also the value where none was chosen and a default directory is used.
    #[default]
    Explicit,
    /// By the profile, which `amb office` writes.
    Saved,
    /// By default: it runs on this machine.
    Local,
}

macro_rules! verbs {
    ($($(#[$doc:meta])* $name:ident($module:ident::$command:ident),)*) => {
        /// One verb of the command line.
        #[derive(Debug, clap::Subcommand)]
        pub(crate) enum Verb {
            $($(#[$doc])* $name(verbs::$module::$command),)*
        }

        impl Verb {
            pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
                match self {
                    // Boxed: the futures of some verbs are large, and only one of them ever runs.
                    $(Verb::$name(verb) => Box::pin(verb.run(office, output)).await,)*
                }
            }

            /// The file to which this process's stderr is redirected, where it serves in the background.
            pub(crate) fn log_file(&self) -> Option<&std::path::Path> {
                match self {
                    Verb::Serve(serve) => serve.log_file(),
                    _ => None,
                }
            }
        }
    };
}

verbs! {
    Up(up::UpCommand),
    Down(down::DownCommand),
    Status(status::StatusCommand),
    Demo(demo::DemoCommand),
    Serve(serve::ServeCommand),
    Mcp(mcp::McpCommand),
    Bridge(bridge::BridgeCommand),
    Wake(wake::WakeCommand),
    Hook(hook::HookCommand),
    Init(init::InitCommand),
    Register(register::RegisterCommand),
    Key(key::KeyCommand),
    Agents(agents::AgentsCommand),
    Send(send::SendCommand),
    Reply(reply::ReplyCommand),
    Chat(chat::ChatCommand),
    Inbox(inbox::InboxCommand),
    Read(read::ReadCommand),
    Ack(ack::AckCommand),
    Watch(watch::WatchCommand),
    Log(log::LogCommand),
    Search(search::SearchCommand),
    Task(task::TaskCommand),
    Connect(connect::ConnectCommand),
    Approve(approve::ApproveCommand),
    Reject(connections::RejectCommand),
    Connections(connections::ConnectionsCommand),
    Group(group::GroupCommand),
    Household(household::HouseholdCommand),
    Invite(household::InviteCommand),
    Join(household::JoinCommand),
    Pause(stepping_in::PauseCommand),
    Resume(stepping_in::ResumeCommand),
    End(stepping_in::EndCommand),
    Transcript(transcript::TranscriptCommand),
    Export(export::ExportCommand),
    Archive(archive::ArchiveCommand),
    Office(office::OfficeCommand),
    Dashboard(dashboard::DashboardCommand),
    Doctor(doctor::DoctorCommand),
    Backup(backup::BackupCommand),
    Restore(restore::RestoreCommand),
    Move(move_office::MoveCommand),
    Admin(admin::AdminCommand),
    Peers(peers::PeersCommand),
    Peer(peers::PeerCommand),
    Completions(completions::CompletionsCommand),
    Man(man::ManCommand),
    #[command(hide = true)]
    Complete(complete::CompleteCommand),
}
