//! `amb wake`: whether clients are woken, and the results.

mod status;
mod test;

pub(crate) use status::failures;
pub(crate) use test::reach;

use clap::ValueEnum;

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;

/// Show or test how new mail wakes your client
///
/// `amb mcp` wakes the client that started it when mail arrives: it rings it, that is, sends it one line that starts a
/// turn. These commands show the rings of the past, or try one.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb wake test                    in a shell of the client: rings it once
  amb --as ben wake test --client codex
  amb wake status                  sessions, their last rings and errors")]
pub(crate) struct WakeCommand {
    #[command(subcommand)]
    what: WakeVerb,
}

#[derive(Debug, clap::Subcommand)]
enum WakeVerb {
    /// Ring a client once, and report which interface was used, or why it cannot be rung
    #[command(after_help = "Example:\n  amb --as ben wake test --client codex")]
    Test {
        /// The client; default: the one whose shell this is, or one that `amb mcp` serves
        #[arg(long, value_enum)]
        client: Option<WakeClient>,
    },
    /// List client sessions with their state, last ring and errors, and which of them is rung for which mailbox
    #[command(after_help = "Example:\n  amb wake status")]
    Status,
}

/// The clients that `amb wake test` knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WakeClient {
    /// Claude Code
    #[value(alias = "claude-code")]
    Claude,
    /// Codex
    Codex,
    /// Qwen Code
    Qwen,
    /// Gemini CLI
    Gemini,
    /// Cursor
    Cursor,
    /// Copilot CLI
    Copilot,
    /// opencode
    Opencode,
    /// OpenClaw
    Openclaw,
    /// nanobot
    Nanobot,
    /// Windsurf
    Windsurf,
    /// Zed
    Zed,
    /// VS Code
    Vscode,
}

impl WakeCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        match self.what {
            WakeVerb::Test { client } => test::run(office, client, output).await,
            WakeVerb::Status => status::run(office, output),
        }
    }
}
