//! `amb wake`: whether clients are woken, and the results.

mod status;
mod test;

pub(crate) use status::failures;
pub(crate) use test::reach;

use clap::ValueEnum;

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;

/// See whether mail wakes your client, and what was rung
///
/// `amb mcp` wakes the client that started it; this shows what it did, or tries it once.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb wake test                    in a shell of the client: rings once, and says by which door
  amb --as ben wake test --client codex
  amb wake status                  sessions, their last rings, and who is rung for which mailbox")]
pub(crate) struct WakeCommand {
    #[command(subcommand)]
    what: WakeVerb,
}

#[derive(Debug, clap::Subcommand)]
enum WakeVerb {
    /// Ring once, and say by which door it went, or why there is none and what to change
    Test {
        /// The client, by default detected
        #[arg(long, value_enum)]
        client: Option<WakeClient>,
    },
    /// Show every session that was rung: the ledger, the lease, rings that failed or that nothing followed
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
