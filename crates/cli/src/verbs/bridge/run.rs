//! `amb bridge run`: several bridges in one process, each restarted when it fails.

pub(super) mod file;

use std::path::PathBuf;
use std::time::Duration;

use amb_bridge::{FailureKind, Ledger, TurnError};
use amb_core::{Code, Timestamp};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use self::file::{BridgeEntry, read};
use super::state;
use crate::failure::Failure;
use crate::output::Output;
use crate::signals::shutdown;

/// The longest delay before a bridge that failed is restarted: 1, 2, 4 … 60 s.
const MAX_DELAY: Duration = Duration::from_secs(60);
/// After this uptime the next failure is followed by the shortest delay again.
const STABLE_UPTIME: Duration = Duration::from_secs(60);
/// How long a bridge may take to release its claims. Less than systemd's own timeout.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb bridge run bridges.toml
  amb bridge run --check bridges.toml      validate it, and print the command of each bridge

The file has a table for each bridge. `kind` is openclaw, acp or exec, `as` the agent, `command`
the command to run. The other keys are flags: of that kind of bridge, or --dir, --server, --office
and --layout.

  [bridges.reviewer]
  kind = \"acp\"
  as = \"reviewer\"
  dir = \"~/mail\"
  command = [\"gemini\", \"--acp\"]
  permissions = \"read\"
  env = [\"GEMINI_API_KEY\"]               a name: the value comes from the environment

  [bridges.shout]
  kind = \"exec\"
  as = \"shout\"
  server = \"http://127.0.0.1:8000\"
  command = [\"tr\", \"a-z\", \"A-Z\"]

Relative paths start at the directory of the file; ~ is your home directory.")]
pub(super) struct RunArgs {
    /// The file with the bridges
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Validate the file and print what would run, but run nothing
    #[arg(long)]
    check: bool,
}

impl RunArgs {
    pub(super) async fn run(self, output: Output) -> Result<(), Failure> {
        let entries = read(&self.file)?;
        entries.iter().try_for_each(BridgeEntry::check_environment)?;
        if self.check {
            let rows = entries.iter().map(|entry| vec![entry.name.clone(), entry.shown()]);
            return Ok(output.table(&["BRIDGE", "COMMAND"], rows)?);
        }
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(async move {
            shutdown().await;
            // Fails where all bridges have ended.
            let _ = stop.send(true);
        });
        let mut running = JoinSet::new();
        for entry in entries {
            running.spawn(supervise(entry, stopped.clone(), output));
        }
        while let Some(ended) = running.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "the supervisor of a bridge crashed; the bridge is not restarted any more");
            }
        }
        Ok(())
    }
}

/// Keeps one bridge running until the process stops.
async fn supervise(entry: BridgeEntry, mut stopped: watch::Receiver<bool>, output: Output) {
    let mut failures = 0;
    while !*stopped.borrow() {
        let begun = Instant::now();
        let failure = match run_once(&entry, &mut stopped, output).await {
            Ok(()) => return,
            Err(failure) => failure,
        };
        failures = if begun.elapsed() >= STABLE_UPTIME { 1 } else { failures + 1 };
        let wait = Duration::from_secs(1 << (failures - 1).min(6)).min(MAX_DELAY);
        let (name, sentence) = (&entry.name, failure.detail());
        output.note(format!("{name}: failed ({failures} in a row), restarts in {wait:?}: {sentence}"));
        // The ledger stays locked while the bridge is down, so that `amb bridge status` shows it.
        let _lock = record_failure(&entry, &failure, wait).inspect_err(
            |error| tracing::debug!(bridge = %entry.name, error = error.detail(), "the status cannot be written"),
        );
        tokio::select! {
            () = sleep(wait) => {}
            () = is_stopped(&mut stopped) => {}
        }
    }
}

async fn is_stopped(stopped: &mut watch::Receiver<bool>) {
    // The sender is dropped only when the process ends.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Runs a bridge once, until it fails or the process stops.
async fn run_once(entry: &BridgeEntry, stopped: &mut watch::Receiver<bool>, output: Output) -> Result<(), Failure> {
    let (action, office) = entry.parse()?;
    // A task of its own, so that a panic ends only this bridge.
    let mut bridge = tokio::spawn(async move { action.bridge(&office, output).await });
    let ended = tokio::select! {
        ended = &mut bridge => ended,
        () = is_stopped(stopped) => {
            // The bridge has received the same signal.
            match timeout(STOP_TIMEOUT, &mut bridge).await {
                Ok(ended) => ended,
                Err(_) => {
                    bridge.abort();
                    tracing::warn!(bridge = %entry.name, "did not stop in time; its claims are released when their leases expire");
                    return Ok(());
                }
            }
        }
    };
    ended.unwrap_or_else(|error| Err(anyhow::Error::new(error).context("the bridge crashed").into()))
}

/// Records that a bridge has failed, and when it is restarted.
fn record_failure(entry: &BridgeEntry, failure: &Failure, wait: Duration) -> Result<Ledger, Failure> {
    let (action, office) = entry.parse_for_status()?;
    let me = office.acting_agent()?;
    let ledger = Ledger::open(&state::directory(&office, &me, entry.state.as_deref())?)?;
    let trouble = match failure {
        Failure::Office(error) if error.code() == Code::Unauthorized => FailureKind::Unauthorized,
        _ => FailureKind::Unreachable,
    };
    let error = TurnError::new(trouble, failure.detail());
    let at = match &office.server {
        Some(server) => format!("server {server}"),
        None => format!("directory {}", fs_err::canonicalize(office.root()?)?.display()),
    };
    let next_try = Timestamp::now().checked_add(wait).unwrap_or_else(|_| Timestamp::now());
    ledger.note_failed(&me, at, action.runtime(), &error, next_try)?;
    Ok(ledger)
}
