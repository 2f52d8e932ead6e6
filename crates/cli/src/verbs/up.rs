//! `amb up`: starts the local office in the background.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use amb_client::Client;
use amb_core::doc::DashboardLink;
use amb_core::{AgentName, OfficeError};
use anyhow::Context;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::args::{OfficeArgs, OfficeOrigin};
use crate::database::Progress;
use crate::failure::Failure;
use crate::local::OfficeRecord;
use crate::output::Output;
use crate::verbs::status::OfficeStatus;
use crate::{durable, home, household, keys, local, log_file};

/// The timeout until the office listens: a large database may have to be migrated first.
const START_TIMEOUT: Duration = Duration::from_secs(300);
/// After this delay a progress line is shown.
const PROGRESS_DELAY: Duration = Duration::from_secs(1);
/// How many lines of the log are shown when it does not start.
const LOG_LINES: usize = 10;

/// Start the local office in the background, if it is not running
///
/// It listens on 127.0.0.1:8000, or on the next free port, and stores its mail in your data directory. From then on,
/// all commands without --server or --dir use it. `amb status` shows its state, `amb down` stops it; `amb serve` runs
/// the same office in the foreground.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb up
  amb up --person kim                     you write as kim here; at the first start
  amb register ann
  amb send ann 'hello'")]
pub(crate) struct UpCommand {
    /// The name of the household's person, as whom you write; by default your user name. It cannot be changed later
    #[arg(long, value_name = "NAME")]
    person: Option<AgentName>,
}

impl UpCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        // Locked until the office is ready: a second `amb up` waits here, and then finds it running.
        let _lock = local::lock_startup().await?;
        let (record, started) = match running().await? {
            Some(record) => (record, false),
            None => {
                start(output).await?;
                (local::running().context("the office started and is gone again; see `amb status`")?, true)
            }
        };
        if let Some(name) = &self.person {
            household::name_person(&record.server()?, name).await?;
        }
        let mut report = OfficeStatus::of(&record).await?;
        report.started = Some(started);
        report.dashboard = dashboard_link(&record).await.unwrap_or_else(|error| {
            tracing::debug!(?error, "no link to the dashboard");
            None
        });
        if output.json {
            return Ok(output.document(&report)?);
        }
        let state = if started { "is up" } else { "was up already," };
        output.say(format!("the office {state} at {}", record.url))?;
        report.lines(output)?;
        if office.origin != OfficeOrigin::Local
            && let Some(place) = office.named_office()
        {
            output.note(format!("note: your verbs use {place}, which you named; `amb office list` shows where"));
        }
        if !has_agents(&record)? {
            output.note(
                "next: `amb register NAME` for each agent, or `amb init CLIENT` for a client such as claude-code",
            );
        }
        Ok(())
    }
}

/// Whether this machine has the key of an agent there, besides the person's.
fn has_agents(record: &OfficeRecord) -> Result<bool, Failure> {
    let server = record.server()?;
    let person = household::person(&server)?;
    Ok(keys::agents(&server)?.iter().any(|name| Some(name) != person.as_ref()))
}

/// The office that runs and answers. One that does not answer is ending, and its end is awaited.
async fn running() -> Result<Option<OfficeRecord>, Failure> {
    let Some(record) = local::running() else { return Ok(None) };
    if amb_client::health(&record.server()?).await.is_err() {
        local::ended(&record).await?;
        return Ok(None);
    }
    Ok(Some(record))
}

/// A link to the dashboard for the person of the household; `None` where this machine has no household here.
async fn dashboard_link(record: &OfficeRecord) -> Result<Option<DashboardLink>, Failure> {
    let server = record.server()?;
    let Some(person) = household::claim_person(&server).await? else { return Ok(None) };
    let Some(key) = keys::find(&server, &person)? else { return Ok(None) };
    Ok(Some(Client::open(server, key).await?.dashboard_link().await?))
}

/// Starts the office and waits until it listens.
async fn start(output: Output) -> Result<(), Failure> {
    let log = local::log_file()?;
    durable::create_private(log.parent().context("no directory")?)?;
    // Opened for appending, because the office truncates it: see `log_file`.
    let errors = fs_err::OpenOptions::new().create(true).append(true).mode(0o600).open(&log)?;
    let mut child = Command::new(std::env::current_exe().context("this program's own path")?)
        .args(["--json", "serve", "--background"])
        .arg(&log)
        .current_dir(home::user().unwrap_or_else(|_| "/".into()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors.into_file())
        .spawn()
        .context("the office cannot be started")?;
    let stdout = child.stdout.take().context("the office has no stdout")?;
    let mut lines = BufReader::new(stdout).lines();
    let mut progress = Progress::new(output.json);
    let line = tokio::time::timeout(START_TIMEOUT, async {
        let mut line = Box::pin(lines.next_line());
        match tokio::time::timeout(PROGRESS_DELAY, &mut line).await {
            Ok(line) => line,
            Err(_) => {
                progress.show("starting the office …");
                line.await
            }
        }
    });
    match line.await {
        Ok(Ok(Some(_))) => Ok(()),
        Ok(_) => {
            let status = child.wait().await.context("the office")?;
            Err(start_error(&log, &format!("the office did not start ({status})"), output))
        }
        Err(_) => {
            // It never got ready, so it is of no use.
            child.kill().await.context("the office that does not get ready")?;
            let what = format!("the office was not ready after {} s and was ended", START_TIMEOUT.as_secs());
            Err(start_error(&log, &what, output))
        }
    }
}

/// The error, with the end of the log.
fn start_error(log: &Path, what: &str, output: Output) -> Failure {
    let end = log_file::tail(log, LOG_LINES);
    output.note(format!("the end of {}:", log.display()));
    end.iter().for_each(|line| output.note(format!("    {line}")));
    let why = end.last().map_or("its log is empty", String::as_str);
    OfficeError::unavailable(format!("{what}: {why}")).into()
}
